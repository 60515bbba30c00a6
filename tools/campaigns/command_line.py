"""Command lines, run in this process as the shell would start them."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from headway.core.errors import UserError

LONGEST = 3000  # characters of standard error that are looked at
AGAIN = 1.0  # seconds from one end by a signal to the next, where a callback swallowed the first


class _EnoughError(BaseException):
    """Ends work that was understood, and would go on for long."""


def _enough(*_: object) -> NoReturn:
    raise _EnoughError


@dataclass(frozen=True)
class Ended:
    """The end of a command: its exit code (0 where it was stopped at work), and what it wrote."""

    code: int
    out: str
    err: str
    heard: bool = True  # whether anybody listened to standard output

    def check(self) -> None:
        """Nothing, where the command did what it was asked for.

        Raises:
            UserError: it refused that, with the message that it wrote.
            AssertionError: a traceback, an escape sequence, or an exit code that has no meaning.
        """
        assert "Traceback (most recent call last)" not in self.err, self.err[-LONGEST:]
        assert not set("\x1b\x07\x85\u202e") & set(self.err), "what a terminal obeys stands in standard error"
        assert self.code in (0, 1, 2), f"exit code {self.code}"
        assert self.code or not re.search("^error: ", self.err, re.MULTILINE), "an error ends with exit code 0"
        if self.code == 2 or (self.code == 1 and self.heard and not self.out):
            raise UserError(self.err[-LONGEST:])


def run_command(
    arguments: Sequence[str], folder: Path, *, stdin: bytes | None = b"", stdout: str = "file", seconds: float = 0.0
) -> Ended:
    """Run `headway` with these arguments.

    Args:
        arguments: of the command line.
        folder: an empty folder, or one in which no name begins with a dot.
        stdin: what standard input holds; None where it is closed.
        stdout: `file`, `closed`, `full` (a disk) or `broken` (a pipe that nobody reads).
        seconds: stop the command after so many; 0 waits for its end.

    Raises:
        Exception: whatever is no end that headway has on purpose.
    """
    import torch

    from headway.cli import main

    out, err = folder / ".stdout", folder / ".stderr"
    with _streams(stdin, stdout, out, err), _swallowed_in_silence():
        sys.argv = ["headway", *arguments]
        signal.signal(signal.SIGALRM, _enough)
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
        try:
            main(arguments)
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        except BaseException as error:
            if not _was_enough(error):
                raise
            code = 0
            torch.set_grad_enabled(True)  # which work that ends in the midst of no_grad's own lines leaves off
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in (out, err))
    return Ended(code, *texts, heard=stdout != "broken")


def _was_enough(error: BaseException | None) -> bool:
    """Whether an error is the end by a signal, or was made of it, as pydantic makes errors of its own."""
    return isinstance(error, _EnoughError) or (error is not None and _was_enough(error.__cause__))


@contextmanager
def _swallowed_in_silence() -> Iterator[None]:
    """Python does not print that a callback, such as those of weak references, swallowed the end by a signal."""
    tell = sys.unraisablehook
    sys.unraisablehook = lambda lost: None if lost.exc_type is _EnoughError else tell(lost)
    try:
        yield
    finally:
        sys.unraisablehook = tell


@contextmanager
def _streams(stdin: bytes | None, stdout: str, out: Path, err: Path) -> Iterator[None]:
    """Standard input and output as they are asked for; standard error goes to a file."""
    kept, before = [os.dup(number) for number in range(3)], (sys.stdin, sys.stdout, sys.stderr)
    source = out.with_name(".stdin")
    source.write_bytes(stdin or b"")
    out.touch()
    broken, pipe = os.pipe()
    os.close(broken)
    opened = {
        0: os.open(source, os.O_RDONLY),
        1: pipe if stdout == "broken" else os.open("/dev/full" if stdout == "full" else out, os.O_WRONLY),
        2: os.open(err, os.O_WRONLY | os.O_CREAT),
    }
    for number, descriptor in opened.items():
        os.dup2(descriptor, number)
    files: list[Any] = [open(number, mode, closefd=False) for number, mode in enumerate(("r", "w", "w"))]  # noqa: SIM115
    sys.stdin, sys.stdout, sys.stderr = (
        None if stdin is None else files[0],
        None if stdout == "closed" else files[1],
        files[2],
    )
    try:
        yield
    finally:
        for file in files[1:]:
            with suppress(OSError, ValueError):
                file.flush()
        sys.stdin, sys.stdout, sys.stderr = before
        for number, descriptor in enumerate(kept):
            os.dup2(descriptor, number)
        for descriptor in {*kept, *opened.values(), pipe}:
            os.close(descriptor)
