"""The library's log on standard error: notices, warnings, and progress as a live line.

Where standard error is no terminal, progress of work that takes longer than half a minute is a line with the time at
the start, every half minute and at the end. Long work has its first lines at once and after a few seconds, and the
notices in its course have the time as well.
"""

import logging
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from headway.core.errors import printable
from headway.core.log import Progress, logger, progress_shown, say


class LogConsole(Console):
    """Standard error, which work does not need: where it cannot be written, the rest goes unsaid."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, or fall silent: whoever read has gone, or the disk of a log is full."""
        try:
            super().print(*objects, **options)
        except OSError:
            self.fall_silent()

    def on_broken_pipe(self) -> None:
        """Go on; rich would end the process."""
        self.fall_silent()

    def fall_silent(self) -> None:
        """Print nothing more, and let the end of the process not try what is left."""
        self.quiet = True
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


console = LogConsole(stderr=True, highlight=False, emoji=False, soft_wrap=True)

EVERY = 30.0  # seconds between two lines of progress in a file
SOON = 5.0  # seconds until the first numbers of long work
NARROW = 80  # columns of a terminal below which the bar is half as long
PARTS = " · "

_stamped = ContextVar("_stamped", default=False)  # whether notices have the time
_drawn = list[Bars]()  # what stands on the terminal, the outermost work first


class ConsoleHandler(logging.Handler):
    """Prints messages as they are, warnings and the last words of a process as such."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        try:
            message, style = record.getMessage(), None
            if record.levelno >= logging.WARNING:
                message, style = f"warning: {message}", "yellow"
            if record.levelno == logging.CRITICAL:
                message, style = f"error: {record.getMessage()}", None
            if _stamped.get():
                message = f"{stamp()} {message}"
            console.print(printable(message), style=style, markup=False)
        except Exception:  # a notice must not end what it is of
            self.handleError(record)


@contextmanager
def show(level: int = logging.INFO) -> Iterator[None]:
    """Print what the library logs from `level` on, and its progress; afterwards logging is as it was."""
    handler, before = ConsoleHandler(), logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        with progress_shown(view):
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


@contextmanager
def view(work: Progress) -> Iterator[Callable[[], None]]:
    """A live line, gone when the work ends; on what is no terminal, lines worth reading in a log."""
    with (_live_line if console.is_terminal else _stamped_lines)(work) as redraw:
        yield redraw


def clear() -> None:
    """Take the bars from the terminal, where results are to stand; their work goes on without them."""
    while _drawn:
        _drawn.pop().stop()


def prompt(text: str) -> None:
    """Show a text to who types at a terminal, without a line end behind it."""
    if console.is_terminal and logger.isEnabledFor(logging.INFO):
        console.print(text, end="")


class _BarsAndLines(Bars):
    """Bars with the further lines of some work below them."""

    def __init__(self, work: Progress, *columns: TextColumn | BarColumn, console: Console) -> None:
        self.work = work
        # Results are written to standard output itself; rich would send them to standard error while a bar is drawn.
        super().__init__(*columns, console=console, transient=True, redirect_stdout=False)

    def get_renderables(self) -> Iterator[RenderableType]:
        """The bars, then the lines as they are."""
        yield from super().get_renderables()
        if self.work.below:
            yield Text("\n".join(self.work.below), no_wrap=True, overflow="ellipsis")


@contextmanager
def _live_line(work: Progress) -> Iterator[Callable[[], None]]:
    title, bar_width = printable(work.title), 20 if console.width >= NARROW else 10
    text = TextColumn("{task.fields[text]}", markup=False)
    columns = (TextColumn(title, markup=False), BarColumn(bar_width=bar_width), text)
    room = console.width - cell_len(title) - bar_width - 2  # a space beside the bar, on each side
    with _BarsAndLines(work, *columns, console=console) as bars:
        _drawn.append(bars)
        line = bars.add_task("", total=work.total, text="")
        try:
            yield lambda: bars.update(
                line, completed=work.done, total=work.total, text=fitting(printable(work.text), room)
            )
        finally:
            if bars in _drawn:
                _drawn.remove(bars)


def fitting(text: str, room: int) -> str:
    """The first parts of a text, as many as fit into so many columns, and at least one."""
    parts = text.split(PARTS)
    while len(parts) > 1 and cell_len(PARTS.join(parts)) > room:
        parts.pop()
    return PARTS.join(parts)


def stamp(when: datetime | None = None) -> str:
    """A time, by default now, as lines in a file have it."""
    return f"{when or datetime.now():%Y-%m-%d %H:%M:%S}"


@contextmanager
def _stamped_lines(work: Progress) -> Iterator[Callable[[], None]]:
    """The first line of short work is held back for half a minute: quick work leaves no lines."""
    start, printed, told, wait = datetime.now(), time.monotonic(), "", SOON if work.long else EVERY
    token = _stamped.set(work.long or _stamped.get())

    def line(when: datetime, text: str) -> None:
        console.print(printable(f"{stamp(when)} {work.title}{text}"), markup=False)

    def redraw() -> None:
        nonlocal printed, told, wait
        if time.monotonic() - printed < wait:
            return
        if not told and not work.long:
            line(start, "")
        line(datetime.now(), f": {work.text}")
        printed, told, wait = time.monotonic(), work.text, EVERY

    if work.long:
        line(start, "")
    try:
        yield redraw
    finally:
        _stamped.reset(token)
        if told not in ("", work.text):
            line(datetime.now(), f": {work.text}")


def say_command(why: str, *words: str | Path) -> None:
    """Print the command that is the next one, once for all processes that train."""
    from headway.training.parallel import is_first

    if is_first():
        say(f"{why}: headway {shlex.join(map(str, words))}")
