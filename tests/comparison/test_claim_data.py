"""Data of claims: made whole or not at all, once, with what their commands say shown and kept."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headway.comparison.claims import ClaimData
from headway.comparison.reproduce import prepare
from headway.errors import RunError, UserError
from headway.log import Progress, progress_shown


def test_data_are_prepared_whole_and_once(tmp_path: Path) -> None:
    made = tmp_path / "times"
    data = ClaimData(about="lines", prepare=f"echo x >> {made}\necho data > $OUTPUT/lines.txt")
    for _ in range(2):
        folder = prepare(data, tmp_path / "out", None, tmp_path)
        assert (folder / "lines.txt").read_text() == "data\n"
    assert made.read_text() == "x\n"
    failing = ClaimData(about="lines", prepare="echo half > $OUTPUT/lines.txt\necho no such thing >&2\nexit 3")
    with pytest.raises(RunError, match=r"could not be prepared \(exit code 3\): no such thing"):
        prepare(failing, tmp_path / "out", None, tmp_path)
    assert (folder / "lines.txt").read_text() == "data\n", "what was there stays"


KILLED = """
from pathlib import Path
from headway.comparison.reproduce import prepare
from headway.comparison.claims import ClaimData
prepare(ClaimData(about="lines", prepare="echo $$ > begun; sleep 100 & wait"), Path("out"), None, Path("."))
"""


def test_a_signal_ends_the_commands_too(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED], cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").is_file() or not (shell := (tmp_path / "begun").read_text()).strip():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    while _group_lives(int(shell)):  # with what the shell began
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_data_that_cells_were_made_of_are_not_replaced(tmp_path: Path) -> None:
    def made(commands: str) -> Path:
        return prepare(ClaimData(about="lines", prepare=commands), tmp_path / "out", None, tmp_path)

    made("echo one > $OUTPUT/lines.txt")
    lines = made("echo two > $OUTPUT/lines.txt") / "lines.txt"
    assert lines.read_text() == "two\n", "there are no cells yet"
    (tmp_path / "out" / "cells" / "a-1").mkdir(parents=True)
    made("printf 'two\\n' > $OUTPUT/lines.txt")
    with pytest.raises(UserError, match=r"output: the cells in .*cells were made of other data"):
        made("echo three > $OUTPUT/lines.txt")
    assert lines.read_text() == "two\n"


def test_data_are_made_again_of_another_folder(tmp_path: Path) -> None:
    data = ClaimData(about="lines", prepare="cp $DATA/lines.txt $OUTPUT", needs=("lines.txt",))
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "one" / "lines.txt").write_text("one\n")
    (tmp_path / "two" / "lines.txt").write_text("other\n")

    def made(given: Path | None) -> str:
        return (prepare(data, tmp_path / "out", given, tmp_path) / "lines.txt").read_text()

    assert made(tmp_path / "one") == made(None) == "one\n"
    assert made(tmp_path / "two") == made(None) == "other\n"
    (tmp_path / "two" / "lines.txt").write_text("other, and more\n")
    assert made(tmp_path / "two") == "other, and more\n"
    (tmp_path / "out" / "cells" / "a-1").mkdir(parents=True)
    with pytest.raises(UserError, match=r"output: the cells in .*cells were made of other data"):
        made(tmp_path / "one")
    with pytest.raises(UserError, match=r"without lines\.txt"):
        made(tmp_path)


def test_missing_data_are_named(tmp_path: Path) -> None:
    data = ClaimData(about="the words of https://example.org", prepare="true", needs=("words.txt",))
    with pytest.raises(UserError, match=r"these claims need the words of https://example\.org; received 'no folder'"):
        prepare(data, tmp_path / "out", None, tmp_path)
    with pytest.raises(UserError, match=r"without words\.txt"):
        prepare(data, tmp_path / "out", tmp_path, tmp_path)
    for command in ("touch $DATA/archive", 'touch "${DATA}/archive"'):
        fetched = ClaimData(about="a folder for archives", prepare=command)
        with pytest.raises(UserError, match="these claims need a folder for archives; received 'no folder'"):
            prepare(fetched, tmp_path / "out", None, tmp_path)
    made = ClaimData(about="nothing", prepare="DATABASE=made; echo $DATABASE > $OUTPUT/lines.txt")
    assert (prepare(made, tmp_path / "out", None, tmp_path) / "lines.txt").read_text() == "made\n"


def test_what_commands_say_is_shown_and_kept_as_they_say_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    works = list[Progress]()

    @contextmanager
    def view(work: Progress) -> Iterator[Callable[[], None]]:
        works.append(work)
        yield lambda: None

    # The second line comes only when the first one is in the file.
    commands = "echo first; timeout 60 bash -c 'until grep first prepare.txt >&2; do sleep 0.05; done'; echo second >&2"
    with progress_shown(view), caplog.at_level(logging.INFO, "headway"):
        prepare(ClaimData(about="lines", prepare=commands), tmp_path, None, tmp_path)
    assert (tmp_path / "prepare.txt").read_text() == "first\nfirst\nsecond\n"
    (work,) = works
    assert work.text.endswith(" · second")


def test_the_error_is_the_last_line_of_errors_whole(tmp_path: Path) -> None:
    commands = "printf 'no such ' >&2; sleep 0.2; printf 'thing\\n\\n' >&2; echo bye; exit 3"
    with pytest.raises(RunError, match=r"\(exit code 3\): no such thing; .*prepare\.txt$"):
        prepare(ClaimData(about="lines", prepare=commands), tmp_path, None, tmp_path)
    with pytest.raises(RunError, match=r"\(exit code 1\): no message;"):
        prepare(ClaimData(about="lines", prepare="false"), tmp_path, None, tmp_path)
