"""Memory that runs out in training, evaluation or decoding gives one message, which names the batches."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import headway
from headway.core.errors import RunError
from headway.losses import Objective
from headway.training import loop, session
from headway.training.loop import train
from tests.conftest import Reversal
from tests.tiers import thinned
from tests.training import toys

resource = pytest.importorskip("resource")
ROOM = 400 << 20  # bytes of addresses beyond those in use


def in_little_memory(work: Callable[[], object]) -> str:
    """The message of the RunError that `work` ends with, in a copy of this process with little memory."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            work()
            message = "it had enough"
        except RunError as error:
            message = str(error)
        except BaseException as error:
            message = f"{type(error).__name__}: {error}"
        os.write(send, message.encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        message = pipe.read().decode()
    os.waitpid(child, 0)
    if message == "it had enough":
        pytest.skip("this process has freed memory of earlier tests to work with")
    return message


def long_lines(folder: Path, name: str) -> None:
    (folder / f"{name}.tsv").write_text(
        "".join(f"{'ab ' * 340}\t{'ba ' * 340}\n" for _ in range(400)), encoding="utf-8"
    )


@pytest.mark.parametrize(
    ("part", "work"), thinned([("train", "in a batch of"), ("dev", "in the loss of a batch of")], 2)
)
def test_a_process_with_little_memory(tmp_path: Path, part: str, work: str) -> None:
    toys.recipe(tmp_path)  # writes the short lines
    long_lines(tmp_path, part)
    recipe = toys.recipe(tmp_path, updates=2, batch_tokens=600_000)
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"max_length": 1023})})
    message = in_little_memory(lambda: train(recipe, tmp_path / "run"))
    assert message.startswith(f"memory ran out {work} "), message
    assert "lower training.batch_tokens or batch_sentences" in message


def test_decoding_with_little_memory(reversal: Reversal) -> None:
    predictor = headway.load(reversal.run, device="cpu")
    lines = ["abcd" * 100] * 200
    message = in_little_memory(lambda: predictor.predict(lines, batch_tokens=10**6, beam=8))
    assert message.startswith("memory ran out in decoding 200 inputs together; lower batch_tokens"), message
    assert "decoding.batch_tokens" in message
    message = in_little_memory(lambda: predictor.force(lines, lines, capture="all"))
    assert message.startswith("memory ran out in scoring "), message


def burst(*arguments: object, **options: object) -> None:
    raise torch.OutOfMemoryError("too much")


@pytest.mark.parametrize(
    ("owner", "name", "work"),
    [
        (Objective, "__call__", r"in a batch of \d+ examples; lower training\.batch_tokens"),
        (
            session,
            "smoothed_cross_entropy",
            r"in the loss of a batch of \d+ dev examples; lower training\.batch_tok",
        ),
        (session, "scores_of", r"in training; lower training\.batch_tokens"),
        (loop, "make_update", r"in training; lower training\.batch_tokens"),
    ],
)
def test_wherever_it_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, work: str
) -> None:
    recipe = toys.recipe(tmp_path, dev_metrics=["exact_match"])
    monkeypatch.setattr(owner, name, burst)
    with pytest.raises(RunError, match=f"memory ran out {work}"):
        train(recipe, tmp_path / "run")
