"""The library as Python meets it: its names, what is printed of them, and errors that speak of keywords."""

import inspect
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import pytest

import headway
from headway.core.errors import UserError
from tests.conftest import Reversal


def test_public_names_are_shown() -> None:
    assert {"build_mixer", "build_model", "compare", "evaluate", "load", "load_recipe", "train"} <= set(dir(headway))


def test_a_loaded_run_can_be_completed_by_an_editor() -> None:
    for kind in get_args(get_type_hints(headway.load)["return"]):
        assert callable(getattr(kind, "predict", None))
        assert inspect.getdoc(kind.predict)


def test_everything_is_printed_in_a_line(reversal: Reversal) -> None:
    model = headway.load(reversal.run)
    assert repr(model).startswith(f"<SequencePredictor {reversal.run}: translation, transformer, ")
    (prediction,) = model.predict("abcd", capture="all")
    cross = prediction.captured["decoder.cross"]
    shape = " x ".join(map(str, cross.weights.shape))
    assert repr(cross) == f"<CapturedAttention: layers 1, 2; weights {shape}>"
    assert all("\n" not in repr(each) and len(repr(each)) < 200 for each in (model, prediction, cross))


def test_mixers_print_their_options() -> None:
    mixer = headway.build_mixer("ngram", dim=16, causal=False, n=4, heads=2)
    assert "causal=False, n=4, heads=2, head_dim=8" in repr(mixer)
    assert repr(headway.build_mixer({"kind": "ngram", "n": 4, "heads": 2}, 16, False)) == repr(mixer)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: headway.build_mixer("ngram", dim=16, causal=False, m=4), "m: unknown key; "),
        (lambda: headway.build_mixer("ngram", dim=16, causal=False, n=0), "n: input should be greater than 0"),
        (lambda: headway.build_mixer("ngran", dim=16, causal=False), "kind: unknown mixer; did you mean 'ngram'?"),
        (lambda: headway.build_mixer({"kind": "ngram", "n": 0}, 16, False), "mixer.n: input should be"),
        (lambda: headway.load("nowhere"), "nowhere: this is not a run folder"),
    ],
)
def test_errors_speak_of_keywords(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(UserError) as raised:
        call()
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beem": 2}, "beem: unknown option of predict; did you mean 'beam'?"),
        ({"beam": 0}, "beam: input should be greater than 0"),
        ({"temperature": 0.5}, "temperature: alone, this option does nothing; allowed: beside sample"),
    ],
)
def test_errors_of_predict_speak_of_keywords(reversal: Reversal, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as raised:
        headway.load(reversal.run).predict("ab", **options)
    assert str(raised.value).startswith(message)
