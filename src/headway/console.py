"""What the command line shows beside its results: notices, warnings and a live progress line, all on standard error.

Where standard error is no terminal there is no progress line, only lines that stay worth reading in a log.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

console = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)


def say(message: str) -> None:
    """A notice."""
    console.print(message, markup=False)


def warn(message: str) -> None:
    """Something that went differently from what was asked, and how work goes on."""
    console.print(f"warning: {message}", style="yellow", markup=False)


def duration(seconds: float) -> str:
    """Seconds as h:mm:ss or m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Task:
    """One piece of work with a live line: how far, how fast, how long still."""

    def __init__(self, bar: Progress, total: float | None, unit: str) -> None:
        self.bar, self.total, self.unit, self.began = bar, total, unit, time.monotonic()
        self.first: float | None = None
        self.task = bar.add_task("", total=total, text="")

    def update(self, done: float, text: str | None = None, *, total: float | None = None) -> None:
        """Say that `done` of the total is done; `text` replaces the speed."""
        self.total = total or self.total
        self.first = done if self.first is None else self.first
        elapsed, fresh = time.monotonic() - self.began, done - self.first
        shown = text if text is not None else f"{done:,.0f} {self.unit} {fresh / max(elapsed, 1e-9):,.0f}/s"
        if self.total and fresh > 0:
            shown += f" · {duration(max(0.0, (self.total - done) * elapsed / fresh))} left"
        self.bar.update(self.task, completed=done, total=self.total, text=shown)


@contextmanager
def progress(what: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
    """A live line for work called `what`, gone when it ends; invisible where standard error is no terminal."""
    columns = TextColumn("{task.fields[text]}", markup=False)
    with Progress(
        TextColumn(what, markup=False), BarColumn(bar_width=20), columns,
        console=console, transient=True, disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        yield Task(bar, total, unit)
