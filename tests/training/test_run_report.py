"""The report of a run that has learned something."""

import json
import re
import shutil
from pathlib import Path

import numpy as np

from headway.core.tables import Table
from headway.predictors.output import Example
from headway.predictors.sequence_predictor import SequencePredictor
from headway.runs.load import load
from headway.runs.run import open_run
from headway.runs.run_folder import RunFolder
from headway.tasks.task import outputs_of
from headway.training.report import SENTENCES, baseline_tables, scores_shown, summary_of, write_run_report
from headway.training.trained import Trained
from tests.conftest import Reversal


def test_training_leaves_a_report_of_dev_sentences(reversal: Reversal) -> None:
    page = (reversal.run / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "headway · run" in page
    assert "34,496 parameters" in page
    for name in ("decoder layer 1, cross", "decoder layer 2, cross", "dev.exact_match", "dev_loss"):
        assert name in page
    assert [word for word in reversal.words[:SENTENCES] if word not in page or word[::-1] not in page] == []
    assert reversal.words[SENTENCES + 50] not in page.split("decoder layer 1, cross")[0]
    assert "http://" not in page.replace("http://www.w3.org/", "")  # it needs nothing from elsewhere
    assert "https://" not in page


def test_the_facts_at_the_top(reversal: Reversal, tmp_path: Path) -> None:
    facts = summary_of(open_run(reversal.run))
    assert facts["task"] == "translation"
    assert facts["model"] == "transformer, 34,496 parameters"
    assert facts["updates"] == "400"
    assert facts["training"].endswith("minutes, float32")
    assert facts["seed"] == "1"
    run = RunFolder(shutil.copytree(reversal.run, tmp_path / "run"))
    run.manifest_file.write_text(json.dumps({"format": run.read_manifest()["format"]}), encoding="utf-8")
    few = summary_of(open_run(run.path))
    assert (few["model"], few["seed"], few["updates"]) == ("transformer", "1", "0")


def test_scores_are_those_of_the_weights(reversal: Reversal, tmp_path: Path) -> None:
    """Not those of the last evaluation, where another checkpoint was kept; of a mean those of its last checkpoint."""
    run = RunFolder(shutil.copytree(reversal.run, tmp_path / "run"))
    lines = [{"update": update, "dev": {"bleu": update / 10}, "baselines": {"source": {"bleu": 1.0}}}
             for update in (100, 200, 300)]  # fmt: skip
    run.metrics.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    trained = Trained(run.path, 0)
    for kept, shown, title in (
        ([200], "BLEU 20.0 on dev", "the model after 200 updates"),
        ([100, 200], "BLEU 20.0 on dev after update 200, the last of 2 averaged checkpoints", "after 200 updates"),
        ([150], "", None),
    ):
        manifest = run.read_manifest() | {"averaged_updates": kept}
        run.manifest_file.write_text(json.dumps(manifest), encoding="utf-8")
        assert scores_shown(open_run(run.path)) == shown
        assert trained.scores == ({"bleu": 20.0} if shown else {})
        tables = baseline_tables(open_run(run.path))
        assert title is None or title in tables[0].text()
        assert bool(tables) == bool(shown)


def test_given_pairs_and_tables(reversal: Reversal, tmp_path: Path) -> None:
    run = Path(shutil.copytree(reversal.run, tmp_path / "copied"))
    pairs = [
        Example("abcd", references=("an unlikely reference",)),
        Example("  ", references=("no source",)),
        Example("abcd" * 3, references=("",)),
    ]
    table = Table(["a"], [["the cell"]], title="A title", notes=["its note"])
    path = write_run_report(run, [table], outputs_of(load(run), pairs))
    assert path == run / "report.html"
    page = path.read_text(encoding="utf-8")
    for part in ("an unlikely reference", "A title", "the cell", "its note", "abcdabcdabcd"):
        assert part in page
    assert "no source" not in page
    assert "headway · copied" in page


def test_examples_carry_tokens_and_attention_with_the_end_marks(predictor: SequencePredictor) -> None:
    (example,) = outputs_of(predictor, [Example("abc", references=("cba",)), Example("", references=("x",))])
    assert (example.source, example.text, example.example.references) == ("abc", "cba", ("cba",))
    assert example.attended == ["▁", "a", "b", "c", "</s>"]
    assert example.tokens == ["▁", "c", "b", "a"]
    assert set(example.attention) == {"decoder.1.cross", "decoder.2.cross"}
    np.testing.assert_allclose(example.attention["decoder.1.cross"].sum(-1), 1, atol=1e-5)


def test_a_line_that_is_too_long_is_cut(predictor: SequencePredictor) -> None:
    (example,) = outputs_of(predictor, [Example("ab" * 700, references=("x",))])
    assert len(example.attended) == predictor.recipe.model.max_position


def test_the_result_comes_first_and_mistakes_before_the_rest(reversal: Reversal, tmp_path: Path) -> None:
    run = Path(shutil.copytree(reversal.run, tmp_path / "copied"))
    pairs = [Example("abcd", references=("dcba",)), Example("ab", references=("never",))]
    path = write_run_report(run, [], outputs_of(load(run), pairs))
    page = json.loads(re.search(r'id="payload">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)[1])
    assert page["headline"].startswith("exact match ")
    assert page["headline"].endswith(" on dev")
    assert [example["reference"] for example in page["examples"]] == ["never", "dcba"]
