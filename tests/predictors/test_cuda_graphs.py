"""Predictions with recorded steps, where a record is the function that it repeats, are those without."""

import pytest
import torch

import headway
from headway.predictors.backend import TorchBackend
from headway.search import recorded_model
from tests.conftest import Reversal
from tests.rounding import rounding


@pytest.fixture
def recording(reversal: Reversal, monkeypatch: pytest.MonkeyPatch):
    """A predictor whose device is said to record steps."""
    monkeypatch.setattr("headway.predictors.backend.recorder", lambda device: lambda run: run)
    monkeypatch.setattr(recorded_model, "ROOM", 4)
    predictor = headway.load(reversal.run, device="cpu")
    assert isinstance(predictor.backend, TorchBackend)
    return predictor


def records(predictor) -> int:
    return sum(record is not None for record in predictor.backend.recorded.records.values())


@pytest.mark.parametrize("options", [{}, {"beam": 1, "batch_tokens": 40}, {"sample": True, "nbest": 2}])
def test_predictions_are_the_same(recording, reversal: Reversal, options) -> None:
    words = ["", *reversal.words[::7]]
    expected = recording.predict(words, **options)
    assert not recording.backend.recorded.records
    for _ in range(2):
        found = recording.predict(words, cuda_graphs=True, **options)
        assert [[one.text for one in each.hypotheses] for each in found] == [
            [one.text for one in each.hypotheses] for each in expected
        ]
        assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=rounding())
    assert records(recording)


def test_a_step_that_is_another_one_for_the_time_being_is_not_replayed(recording, reversal: Reversal) -> None:
    words = list(reversal.words[:3])
    whole = [recording.predict(words, cuda_graphs=True)[0].text for _ in range(3)]
    assert len(set(whole)) == 1
    count = len(recording.backend.recorded.records)
    with recording.models[0].intervened({"decoder.*.cross": "zero"}):
        inside = recording.predict(words, cuda_graphs=True)[0].text
        assert inside == recording.predict(words)[0].text != whole[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        recording.predict([*words, "abcabcabc"], cuda_graphs=True)
    assert len(recording.backend.recorded.records) == count
