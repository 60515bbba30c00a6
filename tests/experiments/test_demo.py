"""`headway demo`, made small: data, training, scores, report."""

import re
from functools import partial
from pathlib import Path

import pytest

from headway.core.errors import UserError
from headway.corpora.generated.dates import DateExample, generate_dates, languages
from headway.experiments import demo
from headway.experiments.demo import exact_match, run_demo
from headway.predictors.output import Example, Output, TextHypothesis
from headway.runs.run_folder import RunFolder

SMALL = ("training.updates=20", "training.checkpoint_every=10", "training.precision=float32", "model.dim=16",
         "model.feed_forward=16", "model.heads=2", "optimizer.warmup=5")  # fmt: skip


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "generate_dates", partial(generate_dates, train_size=600, dev_size=20, test_size=80))


@pytest.mark.usefixtures("small")
def test_what_the_demo_leaves_and_that_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    output = tmp_path / "runs #1: [dates]"
    with monkeypatch.context() as patch:
        patch.setattr(demo, "train", lambda recipe, output, resume: 130)
        with pytest.raises(UserError, match="there is no demo to go on with"):
            run_demo(output, 3, SMALL, resume=True)
        assert run_demo(output, 3, SMALL) == 130  # stopped by a signal
        assert not (output / "report.html").exists()
    (output / "checkpoints").mkdir()  # as if killed before there was a recipe
    assert run_demo(output, 3, SMALL) == 0
    shown = caplog.text
    assert f"dates in {len(languages())} languages" in shown
    for part in ("dates never seen", "language and pattern never seen together", "headway predict", "read as"):
        assert part in shown
    assert len((output / "data" / "train.tsv").read_text(encoding="utf-8").splitlines()) == 600
    assert {path.stem for path in (output / "data").glob("*.tsv")} >= {"dev", "test-unseen-dates", "test-unseen-pairs"}
    assert (output / "alignment.png").read_bytes().startswith(b"\x89PNG")
    page = (output / "report.html").read_text(encoding="utf-8")
    for part in ("Exact match", "Dates never seen in training, by language", "decoder layer 2, cross"):
        assert part in page
    assert '<script type="application/json" id="inside">"inside.html"</script>' in page
    assert (output / "inside.html").is_file()
    folder = RunFolder(output)
    assert (folder.read_manifest()["seed"], folder.read_manifest()["updates"]) == (3, 20)
    weights = folder.weights.read_bytes()

    assert run_demo(output, 3, SMALL) == 0  # nothing is left to train: only scored again
    assert folder.weights.read_bytes() == weights
    with pytest.raises(UserError, match=r"this schedule ends with training\.updates"):
        run_demo(output, 3, (*SMALL, "training.updates=30"))
    assert folder.weights.read_bytes() == weights


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    notes, file, run = tmp_path / "notes", tmp_path / "file", tmp_path / "run"
    notes.mkdir()
    (notes / "thesis.txt").touch()
    file.touch()
    run.mkdir()
    (run / "recipe.yaml").write_text("{data: {train: {tsv: mine.tsv}}, training: {updates: 1}}", encoding="utf-8")
    for output in (notes, file, run):
        with pytest.raises(UserError, match=rf"output: this folder holds something else .*{re.escape(str(output))}"):
            run_demo(output, 1)
    assert {path.name for path in tmp_path.rglob("*")} == {"notes", "thesis.txt", "file", "run", "recipe.yaml"}


def test_exact_match_in_percent() -> None:
    dates = [DateExample(text, iso, "en", "d MMM y") for text, iso in (("a", "2024-05-03"), ("b", "2024-05-04"))]
    said = [Output(Example(each.text), [TextHypothesis("2024-05-03", 0.0, [], [])]) for each in dates]
    assert exact_match(dates, said) == 50


def test_a_program_that_path_lacks_is_named_by_its_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.argv", [".venv/bin/headway", "demo"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert demo._program() == str(Path(".venv/bin/headway"))
    monkeypatch.setattr("sys.argv", ["/usr/lib/python3/site-packages/headway/__main__.py", "demo"])
    assert demo._program() == "headway"
