"""A run loaded in another precision: products rounded, outputs of a sure model as before."""

from pathlib import Path

import pytest

import headway
from headway.core.errors import UserError
from headway.runs.load import kept_trials
from headway.tensors import linear
from headway.tensors.linear import TRIALS, Linear, prepare, trial
from tests.conftest import Command, Reversal


@pytest.fixture
def all_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small weights are prepared, too."""
    monkeypatch.setattr(linear, "LEAST_PREPARED", 0)


@pytest.mark.parametrize("precision", ["float32", "bf16", "int8", "auto"])
@pytest.mark.usefixtures("all_prepared")
def test_outputs_in_every_precision(reversal: Reversal, predictor, precision: str) -> None:
    if precision in ("bf16", "int8") and trial(precision, 32, 32) is None:
        pytest.skip(f"no {precision} products on this machine")
    words = list(reversal.words[::7])
    other = headway.load(reversal.run, device="cpu", precision=precision)
    if precision in ("bf16", "int8"):
        layers = [layer for layer in other.models[0].modules() if isinstance(layer, Linear)]
        assert {type(layer.product).__module__ for layer in layers} == {"headway.tensors.linear"}
    found, expected = other.predict(words), predictor.predict(words)
    assert [each.text for each in found] == [each.text for each in expected]
    allowed = 1e-5 if precision == "float32" else 0.1
    assert all(abs(one.score - two.score) < allowed for one, two in zip(found, expected, strict=True))
    forced = other.score(words, [each.text for each in found])
    assert all(abs(one.score - two.score) < 1e-5 for one, two in zip(forced, found, strict=True))


def test_the_command_line_takes_a_precision(reversal: Reversal, run_headway: Command) -> None:
    found = run_headway("predict", reversal.run, "--precision", "auto", stdin="abc\n")
    assert (found.code, found.out) == (0, "cba\n")
    wrong = run_headway("predict", reversal.run, "--precision", "int4", stdin="abc\n")
    assert wrong.code == 2
    assert "--precision: there is no such precision; received 'int4'; allowed: float32, bf16, int8, auto" in wrong.err


def test_an_engine_has_a_precision_of_its_own(reversal: Reversal) -> None:
    with pytest.raises(UserError, match="the precision of its export"):
        headway.load(reversal.run, engine="ctranslate2", precision="int8")


def test_products_are_tried_once_on_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path))
    tries = list[type]()
    working = linear._working
    monkeypatch.setattr(linear, "_working", lambda kind, *given: tries.append(kind) or working(kind, *given))

    def started() -> dict[str, tuple[str, str, float]]:
        """The results that a new process knows after it has prepared a layer."""
        TRIALS.clear()
        trial.cache_clear()
        tries.clear()
        with kept_trials():
            prepare(Linear(64, 512), "float32")
        return dict(TRIALS)

    first = started()
    assert list(first) == ["float32 512 64"]
    assert tries
    assert started() == first
    assert tries == []
    for damage in ("{", '{"float32 512 64": ["Nothing", "PlainProduct", 1]}'):
        next(tmp_path.rglob("*.json")).write_text(damage, encoding="utf-8")
        started()
        assert tries
