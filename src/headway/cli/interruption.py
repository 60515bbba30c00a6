"""Ends a command on Ctrl-C, SIGTERM or SIGHUP at any moment, with at most one line, and 128 + the signal's number.

It is active before the imports that take seconds, so it imports no slow modules.
"""

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

ENDING_SIGNALS = [signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
UNHANDLED = (signal.default_int_handler, signal.SIG_DFL)
AGAIN = 0.02  # seconds until a signal is sent again, because its exception was lost in a callback or it waits
LATEST = 5.0  # seconds that a signal waits for an import, where an exception can abort C++ libraries

received = list[int]()  # the signals that ended this command; later errors result from them
waited = dict[int, float]()  # the signals that came during an import, and the times until which they wait


def _end(number: int, frame: FrameType | None) -> None:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    if frame is not None and time.monotonic() < waited.setdefault(number, time.monotonic() + LATEST):
        threading.Timer(AGAIN, signal.raise_signal, (number,)).start()
        return
    received.append(number)
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


@contextmanager
def ended_by_signals(*, last: bool) -> Iterator[None]:
    """Within this context a signal ends the command by an exception, so that files and processes are cleaned up.

    Libraries may convert the exception into another error, which is silenced, or lose it in a callback of the garbage
    collector, so that the signal is sent again. Signals that have other handlers, or are ignored, are unchanged. `last`
    means that the process ends after this context, where a signal kills it.
    """
    here = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in ENDING_SIGNALS if here}
    before = {number: handler for number, handler in before.items() if handler in UNHANDLED}
    tell = sys.unraisablehook

    def send_again(lost: Any) -> None:
        if not received:
            tell(lost)
        elif issubclass(lost.exc_type, KeyboardInterrupt | SystemExit):
            threading.Timer(AGAIN, signal.raise_signal, (received[-1],)).start()

    received.clear()
    waited.clear()

    def ignore() -> None:
        for number in before:
            signal.signal(number, signal.SIG_IGN)

    try:
        try:
            sys.unraisablehook = send_again
            for number in before:
                signal.signal(number, _end)
            yield
        finally:
            ignore()
    except BaseException:
        ignore()  # a signal can end the first call
        if not (received or waited):
            raise
    finally:
        received.extend(waited if not received else ())
        if received and received[0] == signal.SIGINT:
            with suppress(OSError, ValueError, AttributeError):  # standard error may be missing
                sys.stderr.write("interrupted\n")
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if last else handler)
        sys.unraisablehook = tell
    if received:
        sys.exit(128 + received[0])
