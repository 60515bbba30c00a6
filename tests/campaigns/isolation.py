"""One case in a process of its own, with limits of time and memory."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import resource
import select
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headway.errors import HeadwayError
from tests.campaigns.campaign import Campaign, Limits, Outcome

LONGEST_MESSAGE = 4000  # characters of an error that a person may be asked to read
CLOCK = 3  # times the seconds of processor time may pass by the clock
SIGNATURE_FRAMES = 2


def try_case(campaign: Campaign[Any], case: Any, folder: Path) -> Outcome:
    """Try a case in a copy of this process.

    Args:
        campaign: prepared.
        case: what it drew.
        folder: where the case gets a folder of its own, which is removed.
    """
    place = Path(tempfile.mkdtemp(dir=folder))
    try:
        return _try(campaign, case, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _try(campaign: Campaign[Any], case: Any, place: Path) -> Outcome:
    receive, send = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of copies of processes with threads
        process = os.fork()
    if process == 0:
        os.close(receive)
        _run_and_exit(campaign, case, place, send)
    os.close(send)
    try:
        answer = _receive(receive, process, CLOCK * campaign.limits.seconds)
    finally:
        os.close(receive)
    _, status = os.waitpid(process, 0)
    _kill_group(process)  # what the case started and left
    if answer is None or os.WIFSIGNALED(status):
        return _killed(status, answer is None)
    if not answer:
        return Outcome(
            "crash", "crash: no answer", f"the process ended with status {os.waitstatus_to_exitcode(status)}"
        )
    return Outcome(**json.loads(answer))


def _run_and_exit(campaign: Campaign[Any], case: Any, place: Path, send: int) -> None:
    """The life of the copy."""
    try:
        os.setsid()
        faulthandler.disable()  # a crash is an outcome, whose trace nobody reads
        _limit(campaign.limits)
        quiet = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(quiet, descriptor)
        os.chdir(place)
        baseline = _memory()[1]
        outcome = _outcome(campaign, case, place)
        if outcome.kind != "allocation" and _peak() - baseline > campaign.limits.bytes:
            outcome = Outcome("allocation", f"allocation: {outcome.signature or outcome.kind}", outcome.message)
        with os.fdopen(send, "w", encoding="utf-8", errors="backslashreplace") as pipe:
            pipe.write(json.dumps(asdict(outcome)) + "\n")
    finally:
        os._exit(0)


def _outcome(campaign: Campaign[Any], case: Any, place: Path) -> Outcome:
    try:
        trials = campaign.check(case, place)
    except HeadwayError as error:
        if _chain_has(error, MemoryError):
            return Outcome("allocation", f"allocation: {_signature(error)}", str(error)[:LONGEST_MESSAGE])
        message = str(error)
        if not message.strip() or len(message) > LONGEST_MESSAGE or "Traceback (most recent call last)" in message:
            return Outcome("unclear", f"unclear: {_signature(error)}", message[:LONGEST_MESSAGE])
        return Outcome("refused", "", message)
    except MemoryError as error:
        return Outcome("allocation", f"allocation: {_signature(error)}", _end_of_trace(error))
    except AssertionError as error:
        return Outcome("wrong", f"wrong: {_signature(error)} {str(error)[:60]}", _end_of_trace(error))
    except BaseException as error:
        return Outcome("exception", f"{type(error).__name__}: {_signature(error)}", _end_of_trace(error))
    return Outcome("right", trials=1 if trials is None else trials)


def _limit(limits: Limits) -> None:
    seconds = max(1, round(limits.seconds))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Addresses are not memory, which is compared with the limit at the end. This saves the machine until then.
    most = _memory()[0] + 2 * limits.bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _receive(pipe: int, process: int, seconds: float) -> bytes | None:
    """The answer of a process, or None where it has not ended in time, for which it is killed."""
    answer, until = b"", time.monotonic() + seconds
    while not answer.endswith(b"\n"):  # what the case started may hold the pipe open
        ready, _, _ = select.select([pipe], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            _kill_group(process)
            return None
        if not (part := os.read(pipe, 1 << 16)):
            break
        answer += part
    return answer


def _kill_group(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def _killed(status: int, late: bool) -> Outcome:
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if late or number in (signal.SIGXCPU, signal.SIGKILL):
        return Outcome("hang", "hang", "the limit of time")
    return Outcome("crash", f"crash: signal {number}", f"ended by signal {number}")


def _memory() -> tuple[int, int]:
    """The bytes of addresses, and of memory, that this process has."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(pages[0]) * resource.getpagesize(), int(pages[1]) * resource.getpagesize()


def _peak() -> int:
    """The most bytes of memory that this process had, or one that it started and waited for."""
    kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return 1024 * max(resource.getrusage(kind).ru_maxrss for kind in kinds)


def _chain_has(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__ or error.__context__
    return False


def _signature(error: BaseException) -> str:
    """The innermost places in headway that the error came through; without any, those of the campaign."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    inside = [frame for frame in frames if "/headway/" in frame.filename and "/tests/" not in frame.filename]
    shown = (inside or frames)[-SIGNATURE_FRAMES:]
    return " > ".join(f"{Path(frame.filename).name}:{frame.name}" for frame in shown)


def _end_of_trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-LONGEST_MESSAGE:]
