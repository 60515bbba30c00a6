"""The library's log on standard error: notices, warnings, and progress as a live line.

If standard error is not a terminal, work of more than half a minute prints a line with the time at the start, every
half minute, and at the end. Long work prints its first lines immediately and after a few seconds, and notices during it
have the time as well.
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
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from headway.core.errors import UserError, option, printable
from headway.core.log import Progress, logger, progress_shown, say

if TYPE_CHECKING:
    from headway.core.tables import Table


class LogConsole(Console):
    """Standard error. If it cannot be written, further output is dropped, because no command depends on it."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, or drop the output if the reader has gone or the disk is full."""
        try:
            super().print(*objects, **options)
        except OSError:
            self.fall_silent()

    def on_broken_pipe(self) -> None:
        """Continue, instead of ending the process as rich does."""
        self.fall_silent()

    def fall_silent(self) -> None:
        """Print nothing more, and keep the exit of the process from flushing the rest."""
        self.quiet = True
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


console = LogConsole(stderr=True, highlight=False, emoji=False, soft_wrap=True)

EVERY = 30.0  # seconds between lines of progress in a file
SOON = 5.0  # seconds until the first numbers of long work
NARROW = 80  # columns of a terminal below which the bar is half as long
PARTS = " · "

_stamped = ContextVar("_stamped", default=False)  # whether notices have the time
_drawn = list[Bars]()  # the bars on the terminal, the outermost work first


class ConsoleHandler(logging.Handler):
    """Prints log messages: warnings with `warning:`, critical messages with `error:`."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message, style = record.getMessage(), None
            if record.levelno >= logging.WARNING:
                message, style = f"warning: {message}", "yellow"
            if record.levelno == logging.CRITICAL:
                message, style = f"error: {record.getMessage()}", None
            if _stamped.get():
                message = f"{stamp()} {message}"
            console.print(printable(message), style=style, markup=False)
        except Exception:  # a notice must not stop the work
            self.handleError(record)


@contextmanager
def show(level: int = logging.INFO) -> Iterator[None]:
    """Print the library's log from `level` on, and its progress, within this context."""
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
    """Show progress as a live line that disappears at the end or, without a terminal, as lines for a log."""
    with (_live_line if console.is_terminal else _stamped_lines)(work) as redraw:
        yield redraw


def clear() -> None:
    """Remove the bars from the terminal before results are written; the work continues without bars."""
    while _drawn:
        _drawn.pop().stop()


def prompt(text: str) -> None:
    """Show a text without a line end, if standard error is a terminal."""
    if console.is_terminal and logger.isEnabledFor(logging.INFO):
        console.print(text, end="")


def confirmed(commands: "Table") -> bool:
    """Show commands, and ask whether to run them. False if standard input is not a terminal."""
    from rich.prompt import Confirm

    say(commands.text())
    asked = sys.stdin is not None and sys.stdin.isatty()
    return asked and Confirm.ask("Run these commands?", console=console, default=False)


def allow_command(command: str, whose: str, where: str, *, yes: bool) -> None:
    """Ask whether a command may run, unless `yes`. Raises UserError, which names `where`, if it may not."""
    from headway.core.tables import Table

    shown = command if command.isprintable() else repr(command)
    if not (yes or confirmed(Table([f"command of {whose}"], [[shown]]))):
        allowed = f"{option('yes')}, for a command that you trust"
        raise UserError("this command was not allowed", where=where, received=shown, allowed=allowed)


class _BarsAndLines(Bars):
    """Bars, with further lines of some work below them."""

    def __init__(self, work: Progress, *columns: TextColumn | BarColumn, console: Console) -> None:
        self.work = work
        # Results go to standard output; rich would redirect them to standard error while a bar is drawn.
        super().__init__(*columns, console=console, transient=True, redirect_stdout=False)

    def get_renderables(self) -> Iterator[RenderableType]:
        """The bars, then the lines unchanged."""
        yield from super().get_renderables()
        if self.work.below:
            yield Text("\n".join(self.work.below), no_wrap=True, overflow="ellipsis")


@contextmanager
def _live_line(work: Progress) -> Iterator[Callable[[], None]]:
    title, bar_width = printable(work.title), 20 if console.width >= NARROW else 10
    text = TextColumn("{task.fields[text]}", markup=False)
    columns = (TextColumn(title, markup=False), BarColumn(bar_width=bar_width), text)
    room = console.width - cell_len(title) - bar_width - 2  # a space on each side of the bar
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
    """The first parts of a text that fit into `room` columns, at least one."""
    parts = text.split(PARTS)
    while len(parts) > 1 and cell_len(PARTS.join(parts)) > room:
        parts.pop()
    return PARTS.join(parts)


def stamp(when: datetime | None = None) -> str:
    """A time, by default now, in the format of log lines."""
    return f"{when or datetime.now():%Y-%m-%d %H:%M:%S}"


@contextmanager
def _stamped_lines(work: Progress) -> Iterator[Callable[[], None]]:
    """Print progress as lines. Short work prints its first line after half a minute, so that quick work prints none."""
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
    """Print the next command to run; if several processes train, only the first prints it."""
    from headway.training.parallel import is_first

    if is_first():
        say(f"{why}: headway {shlex.join(map(str, words))}")
