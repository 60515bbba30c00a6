"""Notices, warnings and progress of the library, through the logger `headway`.

By default a program that uses the library sees only warnings; `logging` configures this. Progress is drawn in
notebooks, or by the function that `progress_shown` sets.
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
    """Log a notice at level INFO."""
    logger.info("%s", spelled(message, str))  # options are shown by their keys


def warn(message: str) -> None:
    """Log a deviation from the request, and how work continues, at level WARNING."""
    logger.warning("%s", spelled(message, str))


def last_word(message: str) -> None:
    """Log at level CRITICAL why this process exits immediately, even if logging is silenced."""
    logger.handle(logger.makeRecord(logger.name, logging.CRITICAL, __file__, 0, "%s", (message,), None))


@contextmanager
def silenced() -> Iterator[None]:
    """Within this context, nothing is logged and no progress is shown."""
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def duration(seconds: float) -> str:
    """The duration as h:mm:ss or m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def counted(number: int, noun: str) -> str:
    """A number with its noun, such as `1 thread` or `1,000 sentences`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


Item = TypeVar("Item")


RECENT = 30.0  # seconds for measuring the speed, as older speeds do not help to predict the end


class Pace:
    """Measures the speed of work over the last half minute, or since the start."""

    def __init__(self, began: float, done: float) -> None:
        self._points = deque([(began, done)])

    def seconds_each(self, now: float, done: float) -> float:
        """The seconds per unit of work; infinite before the first unit is done."""
        points = self._points
        if now - points[-1][0] >= 1:
            points.append((now, done))
        while len(points) > 2 and now - points[1][0] >= RECENT:
            points.popleft()
        before, first = points[0]
        return (now - before) / (done - first) if done > first else math.inf


class Progress:
    """The progress of some work: the amount done, the speed and the remaining time.

    Attributes:
        title: the name of the work.
        done: the amount of work that is done.
        total: the total amount of work; None if it is unknown.
        text: the progress in words, in parts between ` · `, the most important first. Empty before the first update.
        below: further lines, for live displays.
        long: whether the work takes so long that its start is logged.
    """

    def __init__(self, title: str, total: float | None, unit: str, long: bool = False) -> None:
        self.title, self.total, self.unit, self.began = title, total, unit, time.monotonic()
        self.done, self.text, self.below, self.long = 0.0, "", tuple[str, ...](), long
        self.redraw: Callable[[], None] = lambda: None
        self._pace: Pace | None = None

    def update(
        self, done: float, text: str | None = None, *, total: float | None = None, below: Sequence[str] = ()
    ) -> None:
        """Set the amount of work that is done. `text` replaces the speed and the remaining time."""
        self.done, self.total = done, total or self.total
        self._pace = self._pace or Pace(self.began, done)
        each = self._pace.seconds_each(time.monotonic(), done)
        speed = ""  # units per second or, if a unit takes longer, seconds per unit
        if each < math.inf:
            speed = f" {1 / max(each, 1e-9):,.0f}/s" if each <= 1 else f" {each:,.1f} s each"
        self.text = text if text is not None else f"{done:,.0f} {self.unit}{speed}"
        self.below = tuple(below)
        if self.total and each < math.inf and text is None:
            self.text += f" · {duration(max(0.0, (self.total - done) * each))} left"
        self.redraw()

    def over(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items, and count each item when the next one is requested."""
        for count, item in enumerate(items, start=1):
            yield item
            self.update(count)


# Draws a progress until the context ends, again whenever the function that the context returns is called.
View = Callable[[Progress], AbstractContextManager[Callable[[], None]]]

_view: ContextVar[View | None] = ContextVar("_view", default=None)


@contextmanager
def progress_shown(view: View) -> Iterator[None]:
    """Within this context, `view` draws the progress of all work."""
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
    """A progress bar below a notebook cell: shown after a second, updated twice a second, and removed at the end."""
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
    """The progress of the work within this context. It is drawn if a view is set and notices are logged."""
    work, view = Progress(spelled(title, str), total, unit, long), _view.get() or _notebook_view()
    wanted = logging.WARNING if view is _in_cell else logging.INFO  # a cell shows only the bar, without notices
    if view is None or not shown or total == 0 or not logger.isEnabledFor(wanted):
        yield work
        return
    with view(work) as redraw:
        work.redraw = redraw
        yield work
