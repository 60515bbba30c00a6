"""Notices, warnings and progress of the library, through the logger `headway`.

A program that uses the library sees warnings alone, as with any library; `logging` decides what else is shown, and
where. `progress_shown` says how progress is drawn; without it, it is drawn in notebooks alone.
"""

import html
import importlib
import logging
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

from headway.core.errors import spelled

logger = logging.getLogger("headway")


def say(message: str) -> None:
    """Log a notice, at the level INFO."""
    logger.info("%s", spelled(message, str))  # options by their keys


def warn(message: str) -> None:
    """Log something that went differently from what was asked, and how work goes on, at the level WARNING."""
    logger.warning("%s", spelled(message, str))


def last_word(message: str) -> None:
    """Log why this process ends at once, at the level CRITICAL, also where all else is silenced."""
    logger.handle(logger.makeRecord(logger.name, logging.CRITICAL, __file__, 0, "%s", (message,), None))


@contextmanager
def silenced() -> Iterator[None]:
    """Log nothing within this context, and show no progress."""
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def duration(seconds: float) -> str:
    """Seconds as h:mm:ss or m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def counted(number: int, noun: str) -> str:
    """A number with its noun, such as `1 thread` or `1,000 sentences`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


Item = TypeVar("Item")


RECENT = 30.0  # seconds over which speed is measured: what slowed work down an hour ago says nothing of its end


class Pace:
    """The speed of work over the last half minute, or since it began."""

    def __init__(self, began: float, done: float) -> None:
        self._points = deque([(began, done)])

    def seconds_each(self, now: float, done: float) -> float:
        """The seconds of one unit; infinite before any is done."""
        points = self._points
        if now - points[-1][0] >= 1:
            points.append((now, done))
        while len(points) > 2 and now - points[1][0] >= RECENT:
            points.popleft()
        before, first = points[0]
        return (now - before) / (done - first) if done > first else math.inf


class Progress:
    """Work that is under way: how far, how fast, how long still.

    Attributes:
        title: what the work is called.
        done: how much of it is done.
        total: how much there is, None where that is not known.
        text: all this in words, empty before the first update; parts between ` · `, the most important first.
        below: further lines, where they can be shown live.
        long: whether the work takes so long that its start is worth a line of its own.
    """

    def __init__(self, title: str, total: float | None, unit: str, long: bool = False) -> None:
        self.title, self.total, self.unit, self.began = title, total, unit, time.monotonic()
        self.done, self.text, self.below, self.long = 0.0, "", tuple[str, ...](), long
        self.redraw: Callable[[], None] = lambda: None
        self._pace: Pace | None = None

    def update(
        self, done: float, text: str | None = None, *, total: float | None = None, below: Sequence[str] = ()
    ) -> None:
        """Note that `done` of the total is done; `text` replaces the speed and the time left."""
        self.done, self.total = done, total or self.total
        self._pace = self._pace or Pace(self.began, done)
        each = self._pace.seconds_each(time.monotonic(), done)
        speed = ""  # how much is done in a second or, of what takes longer, the seconds of one
        if each < math.inf:
            speed = f" {1 / max(each, 1e-9):,.0f}/s" if each <= 1 else f" {each:,.1f} s each"
        self.text = text if text is not None else f"{done:,.0f} {self.unit}{speed}"
        self.below = tuple(below)
        if self.total and each < math.inf and text is None:
            self.text += f" · {duration(max(0.0, (self.total - done) * each))} left"
        self.redraw()

    def over(self, items: Iterable[Item]) -> Iterator[Item]:
        """The same items, each counted when it is done with."""
        for count, item in enumerate(items, start=1):
            yield item
            self.update(count)


# Draws the progress that it is given until the context ends, anew at each call of the function that the context gives.
View = Callable[[Progress], AbstractContextManager[Callable[[], None]]]

_view: ContextVar[View | None] = ContextVar("_view", default=None)


@contextmanager
def progress_shown(view: View) -> Iterator[None]:
    """Draw by `view` the progress of all work within this context."""
    token = _view.set(view)
    try:
        yield
    finally:
        _view.reset(token)


def _notebook_view() -> View | None:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return _in_cell if hasattr(shell, "kernel") else None


@contextmanager
def _in_cell(work: Progress) -> Iterator[Callable[[], None]]:
    """A bar below the cell of a notebook, from a second on and twice a second, gone when the work ends."""
    notebook = importlib.import_module("IPython.display")
    cell, drawn = None, work.began + 0.5

    def redraw() -> None:
        nonlocal cell, drawn
        if (now := time.monotonic()) < drawn + 0.5:
            return
        drawn = now
        bar = f'<progress value="{work.done}" max="{work.total}"></progress> ' if work.total else ""
        markup = notebook.HTML(f"{html.escape(work.title)} {bar}{html.escape(work.text)}")
        if cell is None:
            cell = notebook.display(markup, display_id=True)
        else:
            cell.update(markup)

    try:
        yield redraw
    finally:
        if cell is not None:
            cell.update(notebook.HTML(""))


@contextmanager
def progress(
    title: str, total: float | None = None, unit: str = "", *, long: bool = False, shown: bool = True
) -> Iterator[Progress]:
    """Progress of the work within this context, drawn where a program shows progress and notices are logged."""
    work, view = Progress(spelled(title, str), total, unit, long), _view.get() or _notebook_view()
    wanted = logging.WARNING if view is _in_cell else logging.INFO  # a cell shows the bar alone, without notices
    if view is None or not shown or total == 0 or not logger.isEnabledFor(wanted):
        yield work
        return
    with view(work) as redraw:
        work.redraw = redraw
        yield work
