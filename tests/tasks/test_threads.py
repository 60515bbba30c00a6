"""Threads share a loaded model: of every task, two at a time give what one gives."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headway
from headway.predictors.label_predictor import LabelPredictor
from tests.rounding import rounding
from tests.runs.old_runs import copied

RUNS = ["translation-transformer", "summarization", "parsing", "speech_recognition", "error_detection", "tagging"]
ROUNDS = 3


@pytest.mark.parametrize("name", RUNS)
def test_two_threads_say_what_one_says(name: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    case = copied(name, tmp_path / "case")
    predictor = headway.load(case.run, device="cpu")
    lines = case.lines()
    halves = [lines[: len(lines) // 2], lines[len(lines) // 2 :]]
    captures: list[Any] = ["all", ()]  # one thread reads attention while the other does not
    alone = [predictor.predict(half, capture=capture) for half, capture in zip(halves, captures, strict=True)]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(ROUNDS):
            together = list(pool.map(lambda half, capture: predictor.predict(half, capture=capture), halves, captures))
            for expected, found in zip(alone, together, strict=True):
                assert list(map(values, found)) == list(map(values, expected))
                if isinstance(predictor, LabelPredictor):
                    for one, other in zip(found, expected, strict=True):
                        np.testing.assert_allclose(one.probabilities, other.probabilities, atol=rounding())


@pytest.mark.parametrize("name", RUNS)
def test_two_workers_say_what_one_says(name: str, tmp_path: Path) -> None:
    case = copied(name, tmp_path / "case")
    lines = case.lines() * 3
    alone, several = headway.load(case.run, device="cpu", workers=1), headway.load(case.run, device="cpu", workers=2)
    expected, found = (each.predict(lines, batch_tokens=30, capture="all") for each in (alone, several))
    assert list(map(values, found)) == list(map(values, expected))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.log_probabilities, other.log_probabilities)


def values(result: Any) -> Any:
    """What must be the same of a result."""
    if hasattr(result, "labels"):
        return result.words, result.labels, len(result.windows)
    return result.text, result.tokens, result.hypotheses[0].repairs, sorted(result.attention)
