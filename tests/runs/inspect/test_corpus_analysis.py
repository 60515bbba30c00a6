"""Figures over a corpus: every kind of model, the numbers beside the pictures, refusals, constant memory."""

import csv
import gc
import json
import re
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

from headway.metrics import build_metric
from headway.models import build_model, model_section
from headway.predictors.predictor import Run
from headway.predictors.sequence_predictor import SequencePredictor
from headway.runs.inspect.analyses import RelativePositionAnalysis, even_shares, within
from headway.runs.inspect.capture import ReadOptions, read
from headway.runs.inspect.corpus_analysis import CorpusAnalysis, analyse
from headway.runs.inspect.inspect_options import SPAN
from headway.tasks import build_task
from tests.conftest import Command, Reversal

NGRAM = {"kind": "ngram", "n": 2, "global_context": True}
SMALL = {"dim": 16, "feed_forward": 16, "heads": 2}
MODELS = {
    "mixed": SMALL | {
        "kind": "transformer", "encoder": {"layers": 2, "mixer": [NGRAM, "attention"]},
        "decoder": {"layers": 2, "mixer": [{"kind": "nplm", "n": 2, "blocks": 1, "block_size": 2}, "local"]},
    },
    "decoder_only": SMALL | {"kind": "decoder_only", "decoder": {"layers": 2}},
    "window below": SMALL | {
        "kind": "transformer", "encoder": {"layers": 2, "mixer": [{"kind": "local", "n": 2}, "attention"]},
        "decoder": {"layers": 1},
    },
    "recurrent": {"kind": "recurrent", "dim": 8, "encoder": {"hidden": 8}, "decoder": {"hidden": 8}},
    "no attention": {
        "kind": "recurrent", "dim": 8, "encoder": {"hidden": 8}, "decoder": {"hidden": 8},
        "attention": {"kind": "none"}, "readout": "state",
    },
    "learned positions": SMALL | {"kind": "transformer", "position": "learned", "max_position": 6},
}  # fmt: skip


def untrained(predictor: SequencePredictor, name: str) -> SequencePredictor:
    """Another model in the place of the predictor's."""
    recipe = predictor.recipe.model_copy(update={"model": model_section(MODELS[name])})
    torch.manual_seed(1)
    size = len(predictor.source.vocabulary)
    model = build_model(recipe.model, size, size, True).eval()
    return SequencePredictor([Run(recipe, predictor.source, predictor.target, model)], predictor.device)


def analysis_of(predictor: SequencePredictor, *files: Path) -> CorpusAnalysis:
    analysis = CorpusAnalysis(build_metric("exact_match"), 5)
    corpus = build_task("translation").given_test_set(predictor.recipe, files[:1], *files[1:])
    analyse(predictor, corpus, analysis, ReadOptions(hypotheses=False, contributions=True))
    return analysis


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_command_draws_dev_and_its_numbers_are_those_of_the_weights(
    reversal: Reversal, predictor: SequencePredictor, run_headway: Command, tmp_path: Path
) -> None:
    ended = run_headway("inspect", reversal.run, "--figures", tmp_path / "figures", "--within", "2")
    assert ended.code == 0, ended.err
    names = {"entropy", "quality-by-length"}
    names |= {f"{name}-{stack}" for name in ("relative-position", "within") for stack in ("encoder", "decoder")}
    suffixes = ("png", "svg", "csv")
    found = {path.name for path in (tmp_path / "figures").iterdir()}
    assert found == {f"{name}.{suffix}" for name in names for suffix in suffixes}
    assert (tmp_path / "figures" / "entropy.png").read_bytes().startswith(b"\x89PNG")
    assert "16 of 16 sentences read" in ended.out

    dev = reversal.words[:16]
    forced = predictor.force(dev, [word[::-1] for word in dev], capture="all")
    slow = np.zeros((2, 2 * SPAN + 1))
    queries = 0
    for each in forced:
        weights = each.attention["decoder.2.self"]
        queries += weights.shape[1]
        for head, t, s in np.ndindex(weights.shape):
            slow[head, s - t + SPAN] += weights[head, t, s]
    shares = {
        (row["head"], row["offset"]): float(row["share"])
        for row in rows(tmp_path / "figures" / "relative-position-decoder.csv")
        if row["attention"] == "decoder.2.self"
    }
    for offset in range(-SPAN, SPAN + 1):
        both = slow[:, offset + SPAN] / queries
        assert [shares["1", str(offset)], shares["2", str(offset)]] == pytest.approx(both, abs=1e-5)
        assert shares["mean", str(offset)] == pytest.approx(both.mean(), abs=1e-5)
    inside = slow[:, SPAN - 1 : SPAN + 2].sum() / queries / 2
    assert f" {100 * inside:.1f} " in next(
        line for line in ended.out.splitlines() if line.startswith("decoder layer 2, self")
    )
    (quality,) = rows(tmp_path / "figures" / "quality-by-length.csv")  # every source is one word
    assert (quality["segments"], quality["exact_match"]) == ("16", "100")


def test_files_are_read_with_references_and_without(
    reversal: Reversal, predictor: SequencePredictor, run_headway: Command, tmp_path: Path
) -> None:
    (tmp_path / "source").write_text("abc\n\nabcd abcd\n", encoding="utf-8")
    (tmp_path / "target").write_text("cba\nb\ndcba dcba\n", encoding="utf-8")
    given = ("--figures", tmp_path / "out", "--json", "--input", tmp_path / "source")
    own = run_headway("inspect", reversal.run, *given)
    assert own.code == 0, own.err
    content = json.loads(own.out)
    assert (content["sentences"], content["read"], content["window"]) == (3, 2, 5)
    assert not (tmp_path / "out" / "quality-by-length.csv").exists()
    assert len(content["files"]) == 15
    found = predictor.predict(["abc", "abcd abcd"], capture="all")
    queries = [row for each in found for row in each.attention["decoder.2.cross"][0]]
    bits = [sum(-p * np.log2(p) for p in row if p > 0) for row in queries]
    assert content["attention"]["decoder.2.cross"]["entropy_by_head"][0] == pytest.approx(np.mean(bits), abs=1e-5)
    forced = run_headway("inspect", reversal.run, *given, "--reference", tmp_path / "target")
    assert json.loads(forced.out)["attention"]["decoder.1.cross"] != content["attention"]["decoder.1.cross"]
    assert [row["segments"] for row in rows(tmp_path / "out" / "quality-by-length.csv")] == ["1", "1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--figures", "out", "--parameters"),
            "say what to look at; received '--figures --parameters'; allowed: one of",
        ),
        (("--figures", "out", "--within", "22"), "--within.*less than or equal to 21"),
        (("--figures", "out", "--reference", "x"), "--reference: references need their sources"),
        (("--figures", "out", "--input", "x"), "--input: there is no such file; received 'x'"),
        (("--figures", "out", "--input", "empty"), "--input: there is nothing to read: every line is empty"),
        (("--figures", "out", "--input", "empty", "--reference", "three"), "this line has no partner"),
        (("model.dim=8", "--figures", "out"), "unexpected extra argument"),
        (("--parameters", "--no-quality"), "No such option: --no-quality"),
    ],
)
def test_users_mistakes(
    arguments: tuple[str, ...], message: str, reversal: Reversal, run_headway: Command,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("empty").write_text("\n \n")
    Path("three").write_text("a\na\na\n")
    ended = run_headway("inspect", reversal.run, *arguments)
    assert ended.code == 2
    assert re.search(message, ended.err), ended.err
    assert not Path("out").exists()


def test_layers_without_weights_have_their_contributions(predictor: SequencePredictor, tmp_path: Path) -> None:
    analysis = analysis_of(untrained(predictor, "mixed"))
    assert list(analysis.contributions.totals) == ["encoder.1.self", "decoder.1.self"]
    assert set(analysis.relative.totals) == {"encoder.2.self", "decoder.2.self"}
    said = analysis.text(quality=False)
    assert "encoder layer 1, self: no weights; largest contributions:" in said
    assert "nothing" not in said
    analysis.write(tmp_path)
    spans = rows(tmp_path / "contributions-encoder.csv")
    assert [row["part"] for row in spans] == ["-1", "0", "+1", "global"] * 2
    assert {row["layer"] for row in spans} == {"encoder.1.self"}
    assert {row["part"] for row in rows(tmp_path / "contributions-decoder.csv")} == {"-1", "0", "-3..-2"}
    drawn = (tmp_path / "contributions-encoder.svg").read_text()
    for text in ("global", "encoder: norm of the contribution"):
        assert f"<!-- {text} -->" in drawn


def test_figures_and_tables_count_layers_from_one(predictor: SequencePredictor, tmp_path: Path) -> None:
    analysis = analysis_of(untrained(predictor, "decoder_only"))
    analysis.write(tmp_path)
    drawn = (tmp_path / "relative-position-decoder.svg").read_text()
    assert [f"<!-- layer {layer} -->" in drawn for layer in range(4)] == [False, True, True, False]
    assert {row["attention"] for row in rows(tmp_path / "entropy.csv")} >= {"decoder.1.cross", "decoder.2.self"}
    (chart,) = analysis.entropies.result()
    assert [panel.title for panel in chart.panels] == ["decoder, self", "decoder, cross"]
    assert all([x for x, _ in panel.lines["evenly"]] == [1, 2] for panel in chart.panels)
    titles = [row[0] for row in analysis.table().rows]
    assert sorted(titles) == [f"decoder layer {layer}, {kind}" for layer in (1, 2) for kind in ("cross", "self")]


def test_even_weights_are_those_of_the_layer_that_sees_furthest(predictor: SequencePredictor) -> None:
    totals = analysis_of(untrained(predictor, "window below")).relative.totals
    encoder = [totals[f"encoder.{layer}.self"] for layer in (1, 2)]
    near, far = (total.even_shares() for total in encoder)
    assert within(near, 2) == pytest.approx(1)
    assert within(far, 2) < 0.9
    np.testing.assert_array_equal(even_shares(encoder), far)
    analysis = RelativePositionAnalysis(2)
    analysis.totals = {name: total for name, total in totals.items() if name.startswith("encoder")}
    panel = analysis.result()[0].panels[0]
    assert dict(panel.lines["evenly"])[0] == pytest.approx(100 * far[SPAN + 1])


def test_a_decoder_only_model_is_read_as_one_sequence(predictor: SequencePredictor) -> None:
    analysis = analysis_of(untrained(predictor, "decoder_only"))
    assert set(analysis.relative.totals) == {"decoder.1.self", "decoder.2.self"}
    names = {f"decoder.{layer}.{kind}" for layer in (1, 2) for kind in ("self", "cross")}
    assert set(analysis.entropies.totals) == names
    shares = analysis.relative.totals["decoder.1.self"].shares()
    assert shares.sum(1) == pytest.approx(1, abs=1e-5)
    assert (shares[:, SPAN + 2 :] == 0).all()


def test_a_model_without_self_attention_is_told(predictor: SequencePredictor, tmp_path: Path) -> None:
    analysis = analysis_of(untrained(predictor, "recurrent"))
    assert list(analysis.entropies.totals) == ["decoder.1.cross"]
    assert "no self-attention and no n-grams: nothing by relative position" in analysis.text(quality=True)
    assert {path.stem for path in analysis.write(tmp_path)} == {"entropy"}
    silent = analysis_of(untrained(predictor, "no attention"))
    assert "this model has no attention: no entropy" in silent.text(quality=True)
    assert silent.write(tmp_path) == []


def test_pairs_that_are_longer_than_the_positions_are_left_out(predictor: SequencePredictor, tmp_path: Path) -> None:
    short = untrained(predictor, "learned positions")  # at most five pieces, of which the first is a mark
    assert short.can_read("abcd", "abcd")
    assert not short.can_read("abcde", "abcd")
    assert not short.can_read("abcd", "abcde")
    for name, lines in (("source", ["abcd", "abcde", "a"]), ("target", ["a", "a", "abcde"])):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    analysis = analysis_of(short, tmp_path / "source", tmp_path / "target")
    assert (analysis.examples, analysis.read) == (3, 1)


def test_a_few_examples_at_a_time_are_in_memory(predictor: SequencePredictor, tmp_path: Path) -> None:
    (tmp_path / "source").write_text("abcd\n" * 300)
    corpus = build_task("translation").given_test_set(predictor.recipe, [tmp_path / "source"])
    assert corpus.size == 300
    alive: list[weakref.ref] = []
    for captured in read(predictor, corpus.examples, ReadOptions()):
        alive.append(weakref.ref(captured.views[0]))
        if len(alive) % 100 == 0:
            gc.collect()
            assert sum(view() is not None for view in alive) <= 64
    assert len(alive) == 300
