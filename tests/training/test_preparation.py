"""Preparation: references that a model cannot write are scored as it can write them."""

import json
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.processing.text.text_processor import PreparationConfig, TextConfig
from headway.recipe import Recipe
from headway.runs.run import open_run
from headway.runs.run_folder import RunFolder
from headway.tasks.task import Corpora
from headway.training import session
from headway.training.loop import train
from headway.training.session import Evaluation
from headway.training.start import prepare
from tests.tasks.test_speech_recognition import write_recipe as write_speech
from tests.training import toys

WANTED = "  Ａb\u2028“C”   D "


def recipe_of(folder: Path, steps: tuple[str, ...], **training: Any) -> Recipe:
    recipe, known = toys.recipe(folder, **training), (folder / "train.tsv").read_text(encoding="utf-8")
    if WANTED not in known:
        (folder / "train.tsv").write_text(f"{known}ab\t{WANTED}\n", encoding="utf-8")
    (folder / "dev.tsv").write_text(f"ab\t{WANTED}\ncd\tDc\n", encoding="utf-8")
    text = TextConfig(target=PreparationConfig.model_validate({"normalise": steps}))
    return recipe.model_copy(update={"text": text})


def prepared(recipe: Recipe, folder: Path) -> Corpora:
    folder.mkdir()
    return prepare(recipe, RunFolder(folder))


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        ((), "Ａb “C” D"),
        (("lower",), "ａb “c” d"),
        (("nfkc",), "Ab “C” D"),
        (("punctuation",), 'Ａb "C" D'),
        (("nfkc", "punctuation", "lower"), 'ab "c" d'),
    ],
)
def test_references_are_normalised_as_outputs_are(tmp_path: Path, caplog, steps: tuple[str, ...], wanted: str) -> None:
    caplog.set_level("INFO")
    recipe = recipe_of(tmp_path, steps)
    corpora = prepared(recipe.model_copy(update={"task": "summarization"}), tmp_path / "run")
    assert corpora.dev is not None
    assert corpora.dev.references == [[wanted, "dc" if "lower" in steps else "Dc"]]
    target = corpora.processors.target
    assert target.decode(target.encode(WANTED).values) == wanted
    said = f"references are normalised before they are scored, as outputs are ({', '.join(steps)})"
    assert caplog.text.count("references are normalised") == caplog.text.count(said) == bool(steps)


def test_outputs_that_need_no_model_are_scored_alike(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, ("lower",))
    (tmp_path / "dev.tsv").write_text("AB cd\tAB\n", encoding="utf-8")
    corpora = prepared(recipe.model_copy(update={"task": "summarization"}), tmp_path / "run")
    assert list(corpora.baselines.values()) == [["ab"]]


def test_transcripts(tmp_path: Path) -> None:
    path = write_speech(tmp_path, 20, text={"target": {"normalise": ["lower"]}})
    rows = (tmp_path / "dev.tsv").read_text().upper().replace(".WAV", ".wav").replace("DEV", "dev")
    (tmp_path / "dev.tsv").write_text(rows)
    corpora = prepared(headway.load_recipe(path), tmp_path / "run")
    assert corpora.dev is not None
    assert all(text.islower() for text in corpora.dev.references[0])


def test_a_run_says_what_its_scores_are_of(tmp_path: Path, monkeypatch) -> None:
    recipe, run = recipe_of(tmp_path, ("lower",), dev_metrics=["exact_match"], updates=2), tmp_path / "run"
    assert train(recipe, run) == 0
    assert open_run(run).manifest["references"] == "lower"
    assert "&#124;refs:lower`" in (run / "README.md").read_text()
    report = headway.evaluate(run, metrics=["exact_match"])
    assert "|refs:lower" in report.text()
    monkeypatch.setattr("headway.grids.run.decode", lambda *_: (["ａb “c” d", "dc"], [0, 0]))
    assert headway.evaluate(run, metrics=["exact_match"]).variants[0].scores["exact_match"].mean == 100


def test_a_run_that_began_with_references_as_they_stand_goes_on_so(tmp_path: Path, monkeypatch) -> None:
    seen: list[list[list[str]]] = []
    monkeypatch.setattr(session, "evaluate", lambda _, dev, *rest: seen.append(dev.references) or Evaluation(1.0, {}))
    for updates in (2, 4):
        assert train(recipe_of(tmp_path, ("lower",), updates=updates), tmp_path / "run", resume=updates > 2) == 0
    assert [texts[0][1] for texts in seen] == ["dc", "dc"]
    folder = RunFolder(tmp_path / "run")
    manifest = folder.read_manifest()
    del manifest["references"]  # as older versions wrote it
    folder.manifest_file.write_text(json.dumps(manifest))
    assert train(recipe_of(tmp_path, ("lower",), updates=6), tmp_path / "run", resume=True) == 0
    assert seen[-1][0][1] == "Dc"
    assert "references" not in folder.read_manifest()
