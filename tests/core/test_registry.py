"""The list of all components: every kind is there, and every component with its options."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.core.errors import UserError
from headway.core.registry import CATALOGUE, Registry, choices_of, config_of, listing, names_of_a_run, registry_of
from tests.conftest import Command


@pytest.mark.parametrize("kind", CATALOGUE)
def test_every_component_is_listed(kind: str) -> None:
    registry = registry_of(kind)
    assert isinstance(registry, Registry)
    lines = listing(kind)
    assert [line.split()[0] for line in lines] == list(registry)
    assert [line for line in lines if not re.match(r"\S+ +(\S+ )+", line) or "The same" in line] == []


def test_options_stand_with_types_and_defaults(run_headway: Command) -> None:
    code, out, err = run_headway("list", "metrics")
    assert (code, err) == (0, "")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert "smooth_method: exp|floor|add-k|none = exp" in lines["bleu"]
    assert "smooth_value: float or None = None" in lines["bleu"]
    columns = "conllu_label: upos|xpos|lemma|deprel = upos"
    assert lines["f0.5"].endswith(f"label: text = i, beta: float = 0.5, {columns}")
    assert lines["exact_match"].split(maxsplit=1)[1].startswith("Segments equal to any of their references")


def test_an_unknown_kind(run_headway: Command) -> None:
    ended = run_headway("list", "metric")
    assert ended.code == 2
    assert ended.err.startswith("error: KIND: unknown kind of component; did you mean 'metrics'?; received 'metric'")
    with pytest.raises(UserError, match="kind: unknown kind"):
        listing("metric")


def test_what_is_not_installed_is_listed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry_of("metrics")._homes, "bleu", "no_such_library:Bleu")
    assert any(line.endswith("(not installed: No module named 'no_such_library')") for line in listing("metrics"))


@pytest.fixture
def _beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A mixer and a module named as one of Python's, in the current folder, which is not on the path."""
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.chdir(tmp_path)
    code = "import tabnanny\nfrom headway.mixers.ssru import Ssru\n\nclass Mine(Ssru): ...\n"
    (tmp_path / "beside.py").write_text(code)
    (tmp_path / "tabnanny.py").write_text("raise ValueError('the wrong module')")
    yield
    sys.modules.pop("beside", None)


@pytest.mark.usefixtures("_beside")
def test_code_that_the_user_names_may_be_in_the_current_folder() -> None:
    assert registry_of("mixers").get("beside:Mine").__module__ == "beside"


@pytest.mark.usefixtures("_beside")
def test_what_a_run_names_without_leave_is_not_looked_for_in_the_current_folder(tmp_path: Path) -> None:
    with names_of_a_run(), pytest.raises(UserError, match="which is not a part of headway"):
        registry_of("mixers").get("beside:Mine")
    assert str(tmp_path) not in sys.path


def test_types_in_words() -> None:
    class Component:
        def __init__(self, *, sizes: tuple[int, ...] = (1, 2), pair: tuple[int, float] = (1, 0.5), name: str) -> None:
            pass

    choices = choices_of(config_of(Component))
    assert [choice.type for choice in choices] == ["list of int", "int, float", "text"]
