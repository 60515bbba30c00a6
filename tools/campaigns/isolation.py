"""Cases in a process of their own, with limits of time and memory."""

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
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headway.core.errors import HeadwayError
from tools.campaigns.campaign import Campaign, Limits, Outcome

LONGEST_MESSAGE = 4000  # characters of an error that a person may be asked to read
CLOCK = 3  # times the seconds of processor time may pass by the clock
SIGNATURE_FRAMES = 2


def try_case(campaign: Campaign[Any], case: Any, folder: Path) -> Outcome:
    """Try a case in a copy of this process, as `try_cases`."""
    (outcome,) = try_cases(campaign, [case], folder)
    return outcome


def try_cases(campaign: Campaign[Any], cases: Sequence[Any], folder: Path) -> list[Outcome]:
    """Try cases one after the other in a copy of this process, and in a further copy after one that ends it.

    Args:
        campaign: prepared.
        cases: what it drew.
        folder: where each case gets an empty folder, which is removed.
    """
    outcomes = list[Outcome]()
    while len(outcomes) < len(cases):
        place = Path(tempfile.mkdtemp(dir=folder))
        try:
            outcomes += _try(campaign, cases[len(outcomes) :], place)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return outcomes


def _try(campaign: Campaign[Any], cases: Sequence[Any], place: Path) -> list[Outcome]:
    """The outcomes of the first cases, up to one that ended the process."""
    receive, send = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of copies of processes with threads
        process = os.fork()
    if process == 0:
        os.close(receive)
        _run_and_exit(campaign, cases, place, send)
    os.close(send)
    outcomes, rest, late = list[Outcome](), b"", False
    try:
        while len(outcomes) < len(cases):
            answer, rest, late = _receive(receive, rest, CLOCK * campaign.limits.seconds)
            if answer is None:
                break
            outcomes.append(Outcome(**json.loads(answer)))
    finally:
        os.close(receive)
        if late:
            _kill_group(process)
        _, status = os.waitpid(process, 0)
        _kill_group(process)  # what the cases started and left
    if len(outcomes) < len(cases):
        outcomes.append(_ended(status, late))
    return outcomes


def _run_and_exit(campaign: Campaign[Any], cases: Sequence[Any], place: Path, send: int) -> None:
    """The life of the copy."""
    try:
        os.setsid()
        faulthandler.disable()  # a crash is an outcome, whose trace nobody reads
        _limit(campaign.limits)
        quiet = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(quiet, descriptor)
        with os.fdopen(send, "w", encoding="utf-8", errors="backslashreplace") as pipe:
            for number, case in enumerate(cases):
                folder = place / str(number)
                folder.mkdir()
                os.chdir(folder)
                signal.setitimer(signal.ITIMER_PROF, campaign.limits.seconds)
                outcome = _limited_outcome(campaign, case, folder)
                signal.setitimer(signal.ITIMER_PROF, 0)
                shutil.rmtree(folder, ignore_errors=True)
                pipe.write(json.dumps(asdict(outcome)) + "\n")
                pipe.flush()
    finally:
        os._exit(0)


def _limited_outcome(campaign: Campaign[Any], case: Any, folder: Path) -> Outcome:
    baseline = _memory()[1]
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is that of now
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    outcome = _outcome(campaign, case, folder)
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # the largest of those that were waited for
    peak = max(_peak(), children if children > before else 0) * 1024
    if outcome.kind != "allocation" and peak - baseline > campaign.limits.bytes:
        return Outcome("allocation", f"allocation: {outcome.signature or outcome.kind}", outcome.message)
    return outcome


def _outcome(campaign: Campaign[Any], case: Any, folder: Path) -> Outcome:
    try:
        trials = campaign.check(case, folder)
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
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Addresses are not memory, which is compared with the limit at the end. This saves the machine until then.
    most = _memory()[0] + 2 * limits.bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _receive(pipe: int, rest: bytes, seconds: float) -> tuple[bytes | None, bytes, bool]:
    """The next answer, None where the process ends or is late; what came after it; and whether it is late."""
    until = time.monotonic() + seconds
    while b"\n" not in rest:  # what the case started may hold the pipe open
        ready, _, _ = select.select([pipe], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return None, rest, True
        if not (part := os.read(pipe, 1 << 16)):
            return None, rest, False
        rest += part
    answer, _, rest = rest.partition(b"\n")
    return answer, rest, False


def _kill_group(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def _ended(status: int, late: bool) -> Outcome:
    if late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF):
        return Outcome("hang", "hang", "the limit of time")
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return Outcome("crash", f"crash: signal {number}", f"ended by signal {number}")
    return Outcome("crash", "crash: no answer", f"the process ended with status {os.waitstatus_to_exitcode(status)}")


def _memory() -> tuple[int, int]:
    """The bytes of addresses, and of memory, that this process has."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(pages[0]) * resource.getpagesize(), int(pages[1]) * resource.getpagesize()


def _peak() -> int:
    """The most kilobytes of memory that this process had."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


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
