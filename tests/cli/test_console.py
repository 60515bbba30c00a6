"""Notices and progress on standard error: as they are, a live line at a terminal, lines with the time elsewhere."""

import io
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from headway.cli import console
from headway.cli.console import show
from headway.core.log import logger, progress, say, warn


def test_messages_go_to_standard_error_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    message = "data:a: [bold]x[/bold] [1, 2] :smile: %s " + "long " * 60
    with show():
        say(message)
        warn(message)
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err == f"{message}\nwarning: {message}\n"


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        (logging.DEBUG, "detail\nnotice\nwarning: warned\n"),
        (logging.INFO, "notice\nwarning: warned\n"),
        (logging.WARNING, "warning: warned\n"),
    ],
)
def test_levels(level: int, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    with show(level):
        logger.debug("detail")
        say("notice")
        warn("warned")
    assert capsys.readouterr().err == shown


def test_logging_is_as_before_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    before = logger.level, list(logger.handlers)
    with show(logging.DEBUG):
        logger.setLevel(logging.ERROR)
    assert (logger.level, logger.handlers) == before
    with progress("decoding") as work:
        work.update(1)
    say("nobody listens")
    assert capsys.readouterr() == ("", "")


STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "


def test_redirected_progress_is_a_line_at_the_start_now_and_then_and_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with show(), progress("decoding [x]", total=90, unit="lines") as work:
        for done in range(90):
            work.update(done)
            now += 1
    lines = capsys.readouterr().err.splitlines()
    expected = ["", ": 30 lines 1/s · 1:00 left", ": 60 lines 1/s · 0:30 left", ": 89 lines 1/s · 0:01 left"]
    assert len(lines) == len(expected)
    for line, rest in zip(lines, expected, strict=True):
        assert re.fullmatch(STAMP + re.escape(f"decoding [x]{rest}"), line)


def test_redirected_progress_tells_its_end_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with show(), progress("measuring", total=1, unit="rounds") as work:
        work.update(0)
        now += 40
        work.update(1)
    assert [line[20:] for line in capsys.readouterr().err.splitlines()] == [
        "measuring", "measuring: 1 rounds 40.0 s each · 0:00 left",
    ]  # fmt: skip


def test_redirected_progress_of_quick_work_leaves_no_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with show(), progress("decoding") as work:
        work.update(1)
    assert capsys.readouterr() == ("", "")


def test_redirected_long_work_is_told_at_once_and_its_notices_have_the_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with show():
        with progress("training", total=90, unit="updates", long=True) as work:
            for done in range(40):
                work.update(done, f"update {done}")
                now += 1
            say("update 40 · dev loss 2.5")
        say("a notice")
    *lines, notice = capsys.readouterr().err.splitlines()
    expected = [
        "training",
        "training: update 5",
        "training: update 35",
        "update 40 · dev loss 2.5",
        "training: update 39",
    ]
    assert [re.sub(STAMP, "", line) for line in lines] == expected
    assert all(re.match(STAMP, line) for line in lines)
    assert notice == "a notice"


@pytest.mark.parametrize(
    ("room", "shown"), [(80, "update 7 · loss 1.250 · 1:14 left · epoch 2"), (36, "update 7 · loss 1.250 · 1:14 left"),
                        (20, "update 7"), (3, "update 7")]
)  # fmt: skip
def test_what_does_not_fit_is_left_out_from_the_end(room: int, shown: str) -> None:
    assert console.fitting("update 7 · loss 1.250 · 1:14 left · epoch 2", room) == shown


@pytest.mark.parametrize("width", [60, 80])
def test_bar_and_numbers_fit_into_narrow_terminals(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(console, "console", Console(file=screen, force_terminal=True, width=width, highlight=False))
    with show(), progress("training", 3000, "updates", long=True) as line:
        line.update(
            1234, "update 1234 · loss 0.043 · 1:02:03 left · best exact_match 77.90 · epoch 12 · 10,556 tokens/s"
        )
        line.update(1235, line.text)
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\r", screen.getvalue()).replace("\n", "\r").split("\r")
    longest = max("".join(drawn).split("training")[1:], key=len)
    assert "1:02:03 left" in longest
    assert len("training" + longest.rstrip()) <= width


def test_quiet_progress_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with show(logging.WARNING), progress("decoding") as work:
        work.update(1)
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What a user at a terminal sees."""
    screen = io.StringIO()
    monkeypatch.setattr(console, "console", Console(file=screen, force_terminal=True, width=120, highlight=False))
    with show():
        yield screen


def test_a_live_line_says_how_far_how_fast_how_long(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with progress("training [x]", total=1000, unit="updates") as line:
        line.update(200)  # where a resumed run starts: not work of this process
        now += 10
        line.update(400)
        assert line.text == "400 updates 20/s · 0:30 left"
        say("[a notice]")  # printed above the line, which is drawn anew
        assert "[a notice]" in terminal.getvalue()
        line.update(500, "loss 1.25")
    assert "loss 1.25" in terminal.getvalue()
    assert "training [x]" in terminal.getvalue()


def test_the_live_line_is_gone_at_the_end(terminal: io.StringIO) -> None:
    with progress("reading") as line:
        line.update(1)
    assert terminal.getvalue().endswith("\x1b[2K")  # the line is erased


WORK = """
import sys
from headway.cli.console import show
from headway.core.log import progress, say
with show(), progress("work", long=True) as line:
    for number in range(3):
        say(f"notice {number}")
        line.update(number, "far")
print("done")
"""


@pytest.mark.parametrize("gone", ["reader", "room"])
def test_work_goes_on_where_its_notices_cannot_be_written(gone: str) -> None:
    if gone == "room":
        with Path("/dev/full").open("wb") as errors:
            ended = subprocess.run([sys.executable, "-c", WORK], stdout=subprocess.PIPE, stderr=errors, check=False)
    else:
        reader, writer = os.pipe()
        os.close(reader)
        ended = subprocess.run([sys.executable, "-c", WORK], stdout=subprocess.PIPE, stderr=writer, check=False)
        os.close(writer)
    assert (ended.returncode, ended.stdout) == (0, b"done\n")
