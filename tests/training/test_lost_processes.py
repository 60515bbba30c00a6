"""Of two processes that train together one dies or hangs: the other says so in time, and the run can be resumed."""

import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from headway.core.errors import HeadwayError
from headway.core.log import logger
from headway.recipe import Recipe
from headway.runs.run_folder import list_checkpoints
from headway.training import loop, parallel
from headway.training.loop import train
from tests.tiers import thinned, tiered
from tests.training import toys

WAIT = 0.05  # minutes


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def fail_in_update(number: int, fail: Callable[[], object]) -> None:
    calls, whole = [], loop.make_update

    def failing(*arguments: object) -> None:
        calls.append(1)
        if len(calls) == number:
            fail()
        whole(*arguments)  # type: ignore[arg-type]

    loop.make_update = failing


class LastWords(logging.Handler):
    """Writes to a pipe why the process ends."""

    def __init__(self, pipe: int) -> None:
        super().__init__(logging.CRITICAL)
        self.pipe = pipe

    def emit(self, record: logging.LogRecord) -> None:
        os.write(self.pipe, record.getMessage().encode())


def together(recipe: Recipe, output: Path, fails: int, fail: Callable[[], object]) -> tuple[int, str, float]:
    """Train in two processes, of which one fails in its third update: the other's exit status, message and seconds."""
    port, children = free_port(), []
    receive, send = os.pipe()
    for rank in range(2):
        child = os.fork()
        if child == 0:
            torch.set_num_threads(1)
            os.environ.update(
                RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
            )
            if rank == fails:
                fail_in_update(3, fail)
            else:
                logger.addHandler(LastWords(send))
            code, message = 1, ""
            try:
                code = train(recipe, output)
            except HeadwayError as error:
                message = str(error)
            except BaseException as error:
                message = f"{type(error).__name__}: {error}"
            if rank != fails:
                os.write(send, message.encode())
            os._exit(code)
        children.append(child)
    os.close(send)
    began = time.monotonic()
    _, status = os.waitpid(children[1 - fails], 0)
    seconds = time.monotonic() - began
    with suppress(ProcessLookupError):
        os.kill(children[fails], signal.SIGKILL)
    os.waitpid(children[fails], 0)
    with os.fdopen(receive, "rb") as pipe:
        return os.waitstatus_to_exitcode(status), pipe.read().decode(), seconds


@pytest.mark.parametrize(
    ("how", "fails", "wait"),
    [tiered("dies", 0, 60.0, slow=True), ("dies", 1, 60.0), ("hangs", 1, WAIT)],
)
def test_the_other_process_says_so(tmp_path: Path, how: str, fails: int, wait: float) -> None:
    """Of a dead one within a minute, however long one that works is waited for."""
    fail = {"dies": lambda: os._exit(9), "hangs": lambda: time.sleep(600)}[how]
    recipe = toys.recipe(tmp_path, wait_minutes=wait, precision="float32")
    code, message, seconds = together(recipe, tmp_path / "run", fails, fail)
    assert (code, message) == (
        1,
        f"another process of this run has ended, or has not answered within training.wait_minutes ({wait:g});"
        " resume starts from the last checkpoint",
    )
    assert seconds < 60
    assert [folder.name for folder in list_checkpoints(tmp_path / "run" / "checkpoints")] == ["update-00000002"]
    toys.run(tmp_path, resume=True, precision="float32")


@pytest.mark.parametrize("fails", thinned([1, 0], 2))
def test_a_process_that_is_stopped_is_named_long_before_the_wait_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    monkeypatch.setattr(parallel, "EVERY", 0.2)
    monkeypatch.setattr(parallel, "SILENCE", 2.0)
    recipe = toys.recipe(tmp_path, precision="float32")
    code, message, seconds = together(recipe, tmp_path / "run", fails, lambda: os.kill(os.getpid(), signal.SIGSTOP))
    assert code == 1
    assert seconds < 60
    assert message.startswith(f"rank {fails}")
    assert message.count("no sign of life for 2 seconds") == 1
    toys.run(tmp_path, resume=True, precision="float32")


def test_a_process_that_works_longer_than_the_silence_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "EVERY", 0.1)
    monkeypatch.setattr(parallel, "SILENCE", 1.0)
    recipe = toys.recipe(tmp_path, precision="float32")
    code, message, _ = together(recipe, tmp_path / "run", 1, lambda: time.sleep(2))
    assert (code, message) == (0, "")
