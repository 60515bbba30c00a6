"""The library logs as libraries do: notices that nobody asked for are not seen, warnings are."""

import contextlib
import logging
import subprocess
import sys
import types

import pytest

from headway.core.log import counted, duration, logger, progress, say, silenced, warn


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0:00"), (59.6, "1:00"), (61, "1:01"), (3599, "59:59"), (3600, "1:00:00"), (36610, "10:10:10")],
)
def test_durations(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_a_program_sees_warnings_alone_unless_it_asks_for_more() -> None:
    program = "from headway.core.log import *\nwith progress('work') as line: line.update(1)\n"
    program += r"say('\0notice\0'); warn('\0warned\0')"  # as options are named
    asked = f"import logging; logging.basicConfig(level=logging.INFO)\n{program}"
    seen = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.splitlines()
        for code in (program, asked)
    ]
    assert seen == [["warned"], ["INFO:headway:notice", "WARNING:headway:warned"]]


def test_silence_ends(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "headway"):
        with contextlib.suppress(KeyError), silenced():
            say("notice")
            warn("warned")
            raise KeyError
        assert not caplog.records
        say("notice")
    assert caplog.messages == ["notice"]


def test_progress_of_resumed_work_counts_what_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with progress("training", total=1000, unit="updates") as line:
        line.update(200)
        now += 10
        line.update(400)
        assert line.text == "400 updates 20/s · 0:30 left"
    assert logger.level == logging.NOTSET


def test_the_time_left_follows_the_last_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with progress("training", total=1000, unit="updates") as line:
        line.update(0)
        for seconds, done in ((10, 100), (20, 200), (30, 201), (40, 202), (50, 203), (60, 204)):
            now = seconds
            line.update(done)
    assert line.text == "204 updates 10.0 s each · 2:12:40 left"


def test_progress_of_slow_work_has_the_seconds_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with progress("measuring", total=4, unit="rounds") as line:
        line.update(0)
        assert line.text == "0 rounds"
        now += 25
        line.update(2)
        assert line.text == "2 rounds 12.5 s each · 0:25 left"


def test_a_number_has_its_noun() -> None:
    assert [counted(number, "thread") for number in (0, 1, 2, 1000)] == [
        "0 threads", "1 thread", "2 threads", "1,000 threads",
    ]  # fmt: skip


def test_a_notebook_has_a_bar_in_the_cell_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[str]()

    class Cell:
        def update(self, markup: str) -> None:
            seen.append(markup)

    def display(markup: str, display_id: bool) -> Cell:
        assert display_id
        seen.append(markup)
        return Cell()

    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(HTML=str, display=display))
    now = iter(range(0, 100, 2))
    monkeypatch.setattr("time.monotonic", lambda: float(next(now)))
    with progress("<training>", 10, "updates") as work:
        work.update(4)
        work.update(5)
    assert seen[0].startswith('&lt;training&gt; <progress value="4" max="10"></progress> 4 updates')
    assert 'value="5"' in seen[1]
    assert seen[2:] == [""]
    with silenced(), progress("training", 10, "updates") as work:
        work.update(4)
    assert len(seen) == 3
