"""Notices and progress: on standard error, as they are, and no progress line where nobody watches."""

import io
import time

import pytest
from rich.console import Console

from headway import console
from headway.console import duration, progress, say, warn


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0:00"), (59.6, "1:00"), (61, "1:01"), (3599, "59:59"), (3600, "1:00:00"), (36610, "10:10:10")],
)
def test_durations(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_messages_go_to_standard_error_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    message = "data:a: [bold]x[/bold] [1, 2] :smile: " + "long " * 60
    say(message)
    warn(message)
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err == f"{message}\nwarning: {message}\n"


def test_no_progress_line_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("decoding", total=3, unit="lines") as line:
        for done in range(4):
            line.update(done)
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a user at a terminal sees."""
    screen = io.StringIO()
    monkeypatch.setattr(console, "console", Console(file=screen, force_terminal=True, width=120, soft_wrap=True))
    return screen


def test_a_progress_line_says_how_far_how_fast_how_long(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with progress("training [x]", total=1000, unit="updates") as line:
        line.update(200)  # where a resumed run starts: not work of this process
        now += 10
        line.update(400)
        line.bar.refresh()
        assert "400 updates 20/s · 0:30 left" in terminal.getvalue()
        line.update(500, "loss 1.25")
        line.bar.refresh()
    assert "loss 1.25" in terminal.getvalue()
    assert "training [x]" in terminal.getvalue()


def test_the_progress_line_is_gone_at_the_end(terminal: io.StringIO) -> None:
    with progress("reading") as line:
        line.update(1)
        line.bar.refresh()
    assert terminal.getvalue().endswith("\x1b[2K")  # the line is erased
