"""The library's log on standard error: notices, warnings, and progress as a live line.

Where standard error is no terminal, progress of work that takes longer than half a minute is a line with the time at
the start, every half minute and at the end.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from rich.console import Console, RenderableType
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from headway.errors import printable
from headway.log import Progress, logger, progress_shown

console = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)

EVERY = 30.0  # seconds between two lines of progress in a file


class ConsoleHandler(logging.Handler):
    """Prints messages as they are, and warnings as such."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        try:
            message, style = record.getMessage(), None
            if record.levelno >= logging.WARNING:
                message, style = f"warning: {message}", "yellow"
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


class _BarsAndLines(Bars):
    """Bars with the further lines of some work below them."""

    def __init__(self, work: Progress, *columns: TextColumn | BarColumn, console: Console, transient: bool) -> None:
        self.work = work
        super().__init__(*columns, console=console, transient=transient)

    def get_renderables(self) -> Iterator[RenderableType]:
        """The bars, then the lines as they are."""
        yield from super().get_renderables()
        if self.work.below:
            yield Text("\n".join(self.work.below), no_wrap=True, overflow="ellipsis")


@contextmanager
def _live_line(work: Progress) -> Iterator[Callable[[], None]]:
    text = TextColumn("{task.fields[text]}", markup=False)
    columns = (TextColumn(printable(work.title), markup=False), BarColumn(bar_width=20), text)
    with _BarsAndLines(work, *columns, console=console, transient=True) as bars:
        line = bars.add_task("", total=work.total, text="")
        yield lambda: bars.update(line, completed=work.done, total=work.total, text=printable(work.text))


@contextmanager
def _stamped_lines(work: Progress) -> Iterator[Callable[[], None]]:
    """The first line, with the time of the start, is held back for half a minute: quick work leaves no lines."""
    start, printed, any_printed = datetime.now(), time.monotonic(), False

    def line(when: datetime, text: str) -> None:
        console.print(printable(f"{when:%Y-%m-%d %H:%M:%S} {work.title}{text}"), markup=False)

    def redraw() -> None:
        nonlocal printed, any_printed
        if time.monotonic() - printed < EVERY:
            return
        if not any_printed:
            line(start, "")
        line(datetime.now(), f": {work.text}")
        printed, any_printed = time.monotonic(), True

    try:
        yield redraw
    finally:
        if any_printed:
            line(datetime.now(), f": {work.text}")
