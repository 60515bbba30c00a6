"""The list of all components: every kind is there, and every component with its options."""

import pytest

from headway.core.errors import UserError
from headway.core.registry import CATALOGUE, Registry, choices_of, config_of, listing, registry_of
from tests.conftest import Command


@pytest.mark.parametrize("kind", CATALOGUE)
def test_every_component_is_listed(kind: str) -> None:
    registry = registry_of(kind)
    assert isinstance(registry, Registry)
    assert [line.split()[0] for line in listing(kind)] == list(registry)


def test_options_stand_with_types_and_defaults(run_headway: Command) -> None:
    code, out, err = run_headway("list", "metrics")
    assert (code, err) == (0, "")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert "smooth_method: exp|floor|add-k|none = exp" in lines["bleu"]
    assert "smooth_value: float or None = None" in lines["bleu"]
    columns = "conllu_label: upos|xpos|lemma|deprel = upos"
    assert lines["f0.5"].endswith(f"label: text = i, beta: float = 0.5, {columns}")
    assert lines["exact_match"] == "exact_match"


def test_an_unknown_kind(run_headway: Command) -> None:
    ended = run_headway("list", "metric")
    assert ended.code == 2
    assert ended.err.startswith("error: KIND: unknown kind of component; did you mean 'metrics'?; received 'metric'")
    with pytest.raises(UserError, match="kind: unknown kind"):
        listing("metric")


def test_what_is_not_installed_is_listed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry_of("metrics")._homes, "bleu", "no_such_library:Bleu")
    assert any(line.endswith("(not installed: No module named 'no_such_library')") for line in listing("metrics"))


def test_types_in_words() -> None:
    class Component:
        def __init__(self, *, sizes: tuple[int, ...] = (1, 2), pair: tuple[int, float] = (1, 0.5), name: str) -> None:
            pass

    choices = choices_of(config_of(Component))
    assert [choice.type for choice in choices] == ["list of int", "int, float", "text"]
