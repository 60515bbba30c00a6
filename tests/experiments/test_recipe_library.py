"""The recipes that come with headway are listed and copied, from a wheel as from a checkout."""

import os
import re
from functools import cache
from pathlib import Path

import pytest

from headway.core.errors import UserError
from headway.experiments import recipe_library
from headway.experiments.recipe_library import about, copy_recipe, files_of, library, opening, recipe_list, recipe_names
from headway.recipe import load_recipe
from tests.conftest import Command
from tests.docs.pages import ROOT

NAMES = recipe_names()
READ = cache(recipe_library.read_tree)
NUMBER = re.compile(r"\d+(?:\.\d+)?")


@pytest.fixture(autouse=True)
def _recipes_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe_library, "read_tree", READ)


def test_all_recipes_are_listed() -> None:
    assert {"tanaka/transformer-small", "tanaka/mixers/ngram", "lengths/variants/rotary"} <= set(NAMES)
    assert len(NAMES) > 80


def test_a_recipe_begins_with_what_it_is() -> None:
    assert [name for name in NAMES if len(about(name)) <= 15] == []


@pytest.mark.parametrize("path", sorted(library().rglob("*.yaml")), ids=lambda path: path.stem)
def test_a_recipe_names_corpus_commands_and_records(path: Path) -> None:
    """Numbers are those of a record in results/, rounded where they have a point; without one, nothing was measured."""
    facts = opening(path)
    assert list(facts) == ["", "Corpus", "Train", "Score", "Measured"]
    assert "FOLDER" in facts["Corpus"] + facts["Train"]
    assert re.search(rf"headway (train|compare) recipes/{path.relative_to(library())} ", facts["Train"])
    assert "headway score" in facts["Score"] or "compare.html" in facts["Score"]
    if facts["Measured"] == "not measured yet.":
        return
    claim, _, record = facts["Measured"].removesuffix(").").partition(" (results/")
    recorded = {float(number) for number in NUMBER.findall(_record(record).replace(",", ""))}
    claimed = NUMBER.findall(re.sub("F0.5|ROUGE-1", "", claim).replace(",", ""))
    assert claimed
    for number in claimed:
        decimals = len(number.partition(".")[2])
        rounded = {round(each, decimals) for each in recorded} if decimals else set[float]()
        assert float(number) in recorded | rounded


def _record(name: str) -> str:
    """The record as text, without the commas between its values."""
    text = (ROOT / "results" / name).read_text(encoding="utf-8")
    return re.sub(r",\s", " ", text)


def test_a_copy_has_what_it_begins_from(tmp_path: Path) -> None:
    copies = copy_recipe("tanaka/mixers/ngram", tmp_path)
    assert [path.name for path in copies if path.suffix == ".yaml"] == [
        "ngram.yaml",
        "base.yaml",
        "transformer-small.yaml",
    ]
    script = tmp_path / "tanaka" / "prepare.sh"
    assert script in copies
    assert os.access(script, os.X_OK) == os.access(library() / "tanaka" / "prepare.sh", os.X_OK)
    original = load_recipe(library() / "tanaka/mixers/ngram.yaml")
    assert load_recipe(copies[0]).model == original.model
    assert copy_recipe("tanaka/mixers/ngram", tmp_path) == copies, "the same again is no mistake"


def test_a_copy_has_scripts_that_its_scripts_call(tmp_path: Path) -> None:
    names = {path.relative_to(tmp_path).as_posix() for path in copy_recipe("fine-tuning/captions-general", tmp_path)}
    assert {"fine-tuning/captions-general.yaml", "fine-tuning/prepare.sh", "fine-tuning/messages.py"} <= names


@cache
def _named(script: Path) -> set[Path]:
    """The files beside a script that its code names, without what comments and the docstring say."""
    code = re.sub(r'"""(?s:.*?)"""|^#.*$', "", script.read_text(encoding="utf-8"), flags=re.MULTILINE)
    beside = {path for path in script.parent.iterdir() if path.is_file() and path != script}
    return {path for path in beside if re.search(rf"\b{path.name}\b", code)}


def test_a_copy_has_the_files_that_its_scripts_name() -> None:
    for name in NAMES:
        copied = {library() / path for path in files_of(name)}
        for script in (path for path in copied if path.suffix in (".sh", ".py")):
            assert _named(script) <= copied, (name, script)


def test_a_changed_copy_is_kept(tmp_path: Path) -> None:
    (path, *_) = copy_recipe("tanaka/transformer-small", tmp_path)
    path.write_text("task: translation\n", encoding="utf-8")
    with pytest.raises(UserError, match="it differs from the recipe"):
        copy_recipe("tanaka/mixers/ngram", tmp_path)
    assert path.read_text(encoding="utf-8") == "task: translation\n"
    assert not (tmp_path / "tanaka" / "mixers").exists()


def test_an_unknown_name_has_its_nearest() -> None:
    with pytest.raises(UserError, match="allowed: tanaka/mixers/ngram"):
        copy_recipe("tanaka/mixer/ngram", Path())
    with pytest.raises(UserError, match=r"no recipe is for this task.*allowed: error_detection"):
        recipe_list("cooking")


def test_the_commands(run_headway: Command, tmp_path: Path) -> None:
    listed = run_headway("recipes")
    assert listed.code == 0
    assert all(name in listed.out for name in NAMES)
    seen = "38.1 to 39.6 BLEU on dev (3 seeds), after 22.6 to 25.0 CPU minutes"
    assert f"  tanaka/transformer-small: {seen}\n      Tanaka corpus, Japanese" in listed.out
    assert max(map(len, listed.out.splitlines())) <= 100
    parsing = run_headway("recipes", "--task", "parsing").out
    assert "parsing/wsj-only" in parsing
    assert "tanaka" not in parsing
    found = run_headway("recipes", "NGRAM", "tanaka").out
    assert "tanaka/mixers/ngram" in found
    assert "vaswani2017" not in found
    unknown = run_headway("recipes", "tanaka/mixer/ngram")
    assert unknown.code == 2
    assert "there is no such recipe" in unknown.err
    assert "tanaka/mixers/ngram" in unknown.err
    shown = run_headway("recipes", "tanaka/transformer-small").out
    assert f"Measured: {seen} (results/tanaka-fast.json)." in shown
    copied = run_headway("recipes", "tanaka/mixers/local", "--output", tmp_path)
    assert copied.code == 0
    assert copied.out.splitlines()[0] == str(tmp_path / "tanaka/mixers/local.yaml")
