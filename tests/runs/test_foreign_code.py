"""Every verb that loads runs refuses the code that a run names, unless `--allow-code` gives leave."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.augment.link_annotation import _taught
from headway.comparison.executors import ProcessesOfTheirOwn
from headway.core.errors import UserError
from headway.core.registry import foreign_code, leave_given, names_of_a_run, own_code, registry_of
from headway.recipe import parse_recipe
from headway.runs.run import open_run
from tests.conftest import Command, Reversal
from tests.grids.grids import write_grid
from tests.serving.test_limits import served

CODE = "from headway.mixers.attention import Attention\n\n\nclass Mine(Attention):\n    '''Attention of our own.'''\n"
MIXER = "mine_asked:Mine"
REFUSED = f"loading this would import the mixer {MIXER}, which is not a part of headway; allowed: --allow-code"
# Verbs with their arguments, and the error behind the loading of a run; none if they succeed.
VERBS = {
    "predict": ("predict RUN --input LINES", ""),
    "predict several": ("predict RUN OTHER --input LINES", ""),
    "predict an average": ("predict RUN --average 1 --input LINES", ""),
    "predict by an engine": ("predict RUN --engine ctranslate2 --input LINES", "cannot express this run"),
    "predict documents": ("predict RUN --file DOCUMENT --output NEW", ""),
    "score": ("score RUN --source LINES --target LINES", ""),
    "augment": ("augment distill RUN --input LINES --output NEW", ""),
    "compare": ("compare one=RUN other=OTHER", ""),
    "compare, with a report": ("compare one=RUN other=OTHER --output NEW", ""),
    "inspect": ("inspect RUN --text ab --output NEW", ""),
    "inspect page": ("inspect page RUN --text ab --output NEW", ""),
    "inspect figures": ("inspect figures RUN --input LINES --output NEW", ""),
    "inspect figures of a sentence": ("inspect figures RUN --text ab --output NEW.png", ""),
    "inspect ablate": ("inspect ablate RUN --what layers --sentences 4", ""),
    "inspect tables parameters": ("inspect tables parameters RUN", ""),
    "inspect tables attribution": ("inspect tables attribution RUN --text ab", ""),
    "inspect tables dependencies": ("inspect tables dependencies RUN --source LINES", "there is nothing to measure"),
    "inspect tables layers": ("inspect tables layers RUN --data LINES", "only taggers read layers"),
    "export": ("export huggingface RUN --input LINES --output NEW", ""),
    "export --list": ("export --list RUN", ""),
    "serve": ("serve RUN --port 0", "the server has loaded its runs"),
    "train --resume": ("train RUN --resume", ""),
    "train --resume --dry-run": ("train RUN --resume --dry-run", ""),
}


def of_own_mixer(run: Path, copy: Path) -> Path:
    """A copy of a run, as if its mixer had been one of its user's own."""
    shutil.copytree(run, copy)
    recipe, manifest = copy / "recipe.yaml", copy / "manifest.json"
    recipe.write_text(recipe.read_text(encoding="utf-8").replace("kind: attention", f"kind: {MIXER}"), encoding="utf-8")
    known = json.loads(manifest.read_text(encoding="utf-8"))
    known.pop("trained", None)
    manifest.write_text(json.dumps(known), encoding="utf-8")
    return copy


@pytest.fixture
def run(reversal: Reversal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that names a mixer which can be imported, and has not been."""
    (tmp_path / "mine_asked.py").write_text(CODE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine_asked", raising=False)
    return of_own_mixer(reversal.run, tmp_path / "run")


def is_imported() -> bool:
    return "mine_asked" in sys.modules


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_asks_before_it_imports_what_a_run_names(
    name: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_headway: Command
) -> None:
    def stopped(*given: Any) -> None:
        raise UserError("the server has loaded its runs")

    monkeypatch.setattr("headway.serving.models.served_model", stopped)
    verb, problem = VERBS[name]
    files = {"RUN": run, "OTHER": tmp_path / "other", "NEW": tmp_path / "new", "LINES": tmp_path / "lines"}
    files["DOCUMENT"] = tmp_path / "lines.txt"
    for file in (files["LINES"], files["DOCUMENT"]):
        file.write_text("ab\ncab\n", encoding="utf-8")
    shutil.copytree(run, files["OTHER"])
    words = verb
    for key, path in files.items():
        words = words.replace(key, str(path))
    before = {file: file.stat().st_mtime_ns for file in run.rglob("*")}
    refused = run_headway(*words.split())
    assert (refused.code, REFUSED in refused.err, is_imported()) == (2, True, False), refused.err
    assert {file: file.stat().st_mtime_ns for file in run.rglob("*")} == before
    assert not files["NEW"].exists()
    allowed = run_headway(*words.split(), "--allow-code")
    assert (allowed.code, problem in allowed.err, is_imported()) == (2 if problem else 0, True, True), allowed.err


@pytest.mark.parametrize("verb", ["pack RUN", "import RUN", "reproduce", "data annotate RUN", "new RUN", "demo"])
def test_other_verbs_have_no_such_flag(verb: str, run: Path, run_headway: Command) -> None:
    ended = run_headway(*verb.replace("RUN", str(run)).split(), "--allow-code")
    assert (ended.code, "--allow-code" in ended.err, is_imported()) == (2, True, False)


def test_python_asks_too(run: Path, tmp_path: Path) -> None:
    other = shutil.copytree(run, tmp_path / "other")
    entrances = (
        lambda **given: headway.load(run, **given),
        lambda **given: headway.evaluate(run, metrics="exact_match", **given),
        lambda **given: headway.compare({"one": run, "other": other}, "exact_match", output=tmp_path / "new", **given),
    )
    for entrance in entrances:
        with pytest.raises(UserError, match="which is not a part of headway"):
            entrance()
    assert not is_imported()
    for entrance in entrances:
        entrance(allow_code=True)
        assert not leave_given()
    headway.evaluate(headway.load(run, allow_code=True), metrics="exact_match")
    with pytest.raises(UserError, match="which is not a part of headway"):
        headway.load(run)


def test_a_run_has_the_leave_with_which_it_was_opened(run: Path) -> None:
    with foreign_code(True):
        opened = open_run(run)
    refused = open_run(run)
    with foreign_code(True), pytest.raises(UserError, match="which is not a part of headway"):
        refused.without_weights()
    assert not is_imported()
    assert opened.loaded().model is not None


def test_none_changes_nothing() -> None:
    with foreign_code(None):
        assert registry_of("mixers").get("headway.mixers.attention:Attention")  # a name in one's own recipe
    with foreign_code(True), foreign_code(None), names_of_a_run():
        assert leave_given()
    with foreign_code(False), foreign_code(None), pytest.raises(UserError, match="which is not a part of headway"):
        registry_of("mixers").get("headway.mixers.attention:Attention")


def test_names_of_a_run_that_are_refused_are_not_allowed_by_its_recipe() -> None:
    tree = {"model": {"mixer": MIXER}}
    with own_code(tree):
        assert leave_given()
    with own_code({}):
        assert not leave_given()
    with names_of_a_run(), own_code(tree):
        assert not leave_given()
    with foreign_code(True), names_of_a_run(), own_code(tree):
        assert leave_given()


def test_another_process_has_the_leave_of_the_one_that_calls() -> None:
    with ProcessesOfTheirOwn(1, 1) as executor:
        with foreign_code(True):
            given = executor.submit(leave_given)
        assert (given.result(), executor.submit(leave_given).result()) == (True, False)


@pytest.mark.slow
def test_a_grid_imports_what_its_recipes_name_and_a_comparison_of_its_runs_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_headway: Command
) -> None:
    """Its cells are trained, decoded and looked into in other processes."""
    (tmp_path / "mine_asked.py").write_text(CODE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine_asked", raising=False)
    variants = {"attention": {}, "mine": {"model.encoder.mixer": {"kind": MIXER}}}
    made = run_headway("compare", write_grid(tmp_path, variants=variants, seeds=[1]), "--output", tmp_path / "out")
    assert made.code == 0, made.err
    assert "mine" in (tmp_path / "out" / "compare.html").read_text(encoding="utf-8")
    cells = [tmp_path / "out" / "cells" / f"{name}-1" for name in variants]
    monkeypatch.delitem(sys.modules, "mine_asked", raising=False)
    refused = run_headway("compare", *cells)
    assert (refused.code, REFUSED in refused.err, is_imported()) == (2, True, False), refused.err
    assert run_headway("compare", *cells, "--allow-code").code == 0


def test_the_teacher_of_links_is_refused_whatever_the_recipe_names(run: Path) -> None:
    recipe = parse_recipe(
        {"data": {"train": {"tsv": "x"}, "links": {"kind": "teacher", "run": str(run)}}, "training": {"updates": 1}}
    )
    with foreign_code(True), pytest.raises(UserError, match="which is not a part of headway"):
        next(_taught(recipe.data.links, recipe.text, ()))
    assert not is_imported()


@pytest.mark.slow
def test_a_server_with_leave_answers_in_its_threads(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with served(Path(f"en-de={run}"), "--allow-code") as (_, server, _):
        assert server.predict("en-de", "abcd").content["outputs"][0]["text"] == "dcba"
