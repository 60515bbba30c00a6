"""SIGINT and SIGTERM while a run trains."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from headway.log import say


class Interrupted(BaseException):
    """A signal came in work that may be left at any moment."""


class Signals:
    """The first signal is noted, so that the update at hand is finished and saved; a second one ends at once.

    Attributes:
        received: the number of the first signal.
        end_at_once: what a second one does if it is SIGINT: the handler that SIGINT had before.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.end_at_once: Callable[[int, FrameType | None], Any] = signal.default_int_handler
        self._may_leave = False

    def note(self, number: int, frame: FrameType | None = None) -> None:
        """Note a signal.

        Raises:
            Interrupted: in work that may be left.
            KeyboardInterrupt: a second signal that is SIGINT.
            SystemExit: a second signal that is SIGTERM.
        """
        if self.received is not None:
            if number == signal.SIGTERM:
                raise SystemExit(128 + number)
            self.end_at_once(number, frame)
            raise KeyboardInterrupt
        self.received = number
        name = signal.Signals(number).name
        if self._may_leave:
            say(f"{name}: leaving the evaluation; its checkpoint is saved")
            raise Interrupted
        say(f"{name}: finishing this update and saving; once more ends at once")

    @contextmanager
    def may_leave(self) -> Iterator[None]:
        """Work that a signal ends at any moment, by Interrupted, whatever error a library makes of that."""
        if self.received is not None:
            raise Interrupted
        self._may_leave = True
        try:
            yield
        except Exception as error:
            if self.received is None:
                raise
            raise Interrupted from error
        finally:
            self._may_leave = False


@contextmanager
def noted_signals() -> Iterator[Signals]:
    """Note SIGINT and SIGTERM within this context; outside of the main thread none come.

    What a signal raises within a callback of the garbage collector is lost there, and Python would print a traceback.
    The signal is noted all the same: the update at hand is the last.
    """
    signals, tell = Signals(), sys.unraisablehook

    def tell_others(lost: Any) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt | SystemExit | Interrupted):
            tell(lost)

    sys.unraisablehook = tell_others
    try:
        before = {number: signal.signal(number, signals.note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: whoever runs this thread handles signals
        before = {}
    if callable(end := before.get(signal.SIGINT)):
        signals.end_at_once = end
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = tell
