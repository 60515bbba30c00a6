"""Workers decode what one thread decodes, in order, and only where there are several batches."""

import itertools
from typing import Any

import pytest
import torch

import headway
from headway.core.device import threads_set
from headway.core.errors import UserError
from headway.predictors import predictor as module
from headway.predictors.sequence_predictor import LEAST_PART, SequencePredictor
from tests.conftest import Reversal

LINES = ["".join(letters) for length in (4, 1, 3) for letters in itertools.permutations("abcd", length)]
MIXED: list[Any] = [*LINES[:20], "", *LINES[20:], 7, "abcd"]  # the number is no text


@pytest.fixture
def predictor(reversal: Reversal) -> SequencePredictor:
    found = headway.load(reversal.run, device="cpu")
    assert isinstance(found, SequencePredictor)
    found.together = 9
    return found


@pytest.mark.parametrize("options", [{"beam": 3, "nbest": 2}, {"sample": True, "seed": 5}, {"kind": "mbr"}])
def test_workers_decode_what_one_thread_does(predictor: SequencePredictor, options: dict[str, Any]) -> None:
    def said(workers: int, **more: Any) -> list[Any]:
        predictor.workers = workers
        outputs = predictor.stream(MIXED, batch_tokens=16, **options, **more)
        return [(output.source, output.hypotheses, str(output.problem)) for output in outputs]

    for more in ({}, {"skip_broken": True}):
        assert said(1, **more) == said(3, **more)
    assert len(said(3)) == len(MIXED) - 1  # the line that cannot be read is the last
    assert len(said(3, skip_broken=True)) == len(MIXED)


def test_a_list_is_counted_once(predictor: SequencePredictor) -> None:
    predictor.workers, counts = 2, list[int]()
    predictor.answered = counts.append
    assert [output.source for output in predictor.predict(LINES, batch_tokens=40)] == LINES
    assert sum(counts) == len(LINES)
    assert len(counts) > 2


def test_one_batch_starts_no_thread(predictor: SequencePredictor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "workers", None)
    predictor.workers = 4
    assert predictor.predict("abcd")[0].text == "dcba"
    with pytest.raises(TypeError):
        predictor.predict(LINES, batch_tokens=16)


def test_the_number_of_workers_is_that_of_torch_and_of_the_cores(
    predictor: SequencePredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "cores", lambda: 4)
    for threads, expected in ((1, 1), (3, 3), (6, 4)):
        with threads_set(threads):
            assert predictor.worker_count() == expected
    predictor.workers = 8
    assert predictor.worker_count() == 8


def test_a_model_that_is_changed_has_one_worker(predictor: SequencePredictor) -> None:
    predictor.workers = 2
    with predictor.models[0].intervened({"decoder.1.cross:heads": "zero"}):
        assert predictor.worker_count() == 1
    with torch.autocast("cpu", torch.bfloat16):
        assert predictor.worker_count() == 1
    assert predictor.worker_count() == 2


def test_a_window_has_several_batches_whatever_the_number_of_workers(predictor: SequencePredictor) -> None:
    def sizes(workers: int, **options: Any) -> list[int]:
        predictor.workers = workers
        chosen = predictor.Options(**options)
        return [len(job.args[1]) for job in predictor.jobs(predictor.request(LINES * 30, chosen, 1))]

    assert sizes(1) == sizes(4)
    assert len(sizes(4)) > 4
    assert max(sizes(4)) <= LEAST_PART // 3
    assert sizes(4, batch_tokens=10**6) == [len(LINES) * 30]


@pytest.mark.parametrize("more", [{"workers": 0}, {"workers": 10**6}, {"workers": 2, "engine": "ctranslate2"}])
def test_numbers_of_workers_that_cannot_be(reversal: Reversal, more: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="workers"):
        headway.load(reversal.run, device="auto", **more)
