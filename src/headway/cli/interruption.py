"""The end of a command by Ctrl-C, SIGTERM or SIGHUP at any moment: one line at most, and 128 + the signal's number.

It is in force before the imports that take seconds, so it imports nothing slow.
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
AGAIN = 0.02  # seconds until a signal is sent again whose exception was lost in a callback, or that waits
LATEST = 5.0  # seconds that a signal waits for the end of an import: an exception in it can abort a library's C++

received = list[int]()  # the signals that have ended this command, so that its errors follow from them
waited = dict[int, float]()  # the signals that came during an import, and until when they wait for its end


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

    Libraries may turn the exception into an error of their own, which is silenced, or lose it in a callback of the
    garbage collector, so that the signal is sent again. A signal that is handled otherwise, or ignored, stays so.
    `last` says that the process has nothing else to do: after this context, a signal kills it.
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
    try:
        sys.unraisablehook = send_again
        for number in before:
            signal.signal(number, _end)
        yield
    except BaseException:
        if not (received or waited):
            raise
    finally:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        received.extend(waited if not received else ())
        if received and received[0] == signal.SIGINT:
            with suppress(OSError, ValueError, AttributeError):  # there may be no standard error
                sys.stderr.write("interrupted\n")
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if last else handler)
        sys.unraisablehook = tell
    if received:
        sys.exit(128 + received[0])
