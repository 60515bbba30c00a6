"""Ctrl-C at a terminal, at any moment of any verb: one line, exit code 130, and nothing half-written."""

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.claims.toy_claims import write_claims
from tests.cli.test_shell import VERBS
from tests.cli.test_terminals import LINES as WRITING
from tests.cli.test_terminals import made
from tests.conftest import Reversal
from tests.grids.grids import write_grid
from tests.terminal import LIMIT, available, on_screen

# What the installed script does, which tells when Python itself has begun.
SCRIPT = "import os; from headway.cli import main; os.write(2, b'begun\\n'); main()"
BEGUN = b"begun\r\n"
LONGEST = 12.0  # seconds of a command in which it is interrupted
SHARES = [0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9, 0.97]
# A command line of each verb, and more of some; those that do not write results, or read standard input.
LINES = {name: line for name, line in WRITING.items() if name != "predict"} | {
    "train": "train reversal.yaml --output trained training.updates=60 training.checkpoint_every=20",
    "compare a grid": "compare grid.yaml --output compared",
    "reproduce": "reproduce nobody2024/words --claims claims --data . --output reproduced --yes",
    "serve": "serve en-de=RUN --port 18734",
    "new": "new train.tsv --output begun --source-language en --target-language de",
    "demo": "demo --output demo",
    "doctor": "doctor",
    "data annotate": "data annotate words.txt --parser conllu:made.conllu --processes 2",
    "import": "import hf no-such-folder",
    "gate new": "gate new new.jsonl --baseline base --scores base.tsv",
    "gate propose": "gate propose loop.jsonl --propose copy --scores base.tsv",
    "gate close": "gate close loop.jsonl",
}
DATA = {"about": "words", "needs": ["train.tsv"], "prepare": "sleep 1; cp $DATA/*.tsv $OUTPUT"}
LATER = ("train", "compare a grid", "reproduce", "demo", "serve")  # these save, and say how to go on


class Ended(NamedTuple):
    """How a command ended: `code` as a shell has it, what stands on the screen below ^C, and after how long."""

    code: int
    said: list[str]
    seconds: float


def interrupted(line: str, folder: Path, after: float) -> Ended:
    """Runs a command at a terminal of its own, and types Ctrl-C; the process and its children have ended."""
    import fcntl
    import termios

    def lead() -> None:
        fcntl.ioctl(2, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell begins what is in its background without it

    master, slave = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *line.split()],
        stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, cwd=folder, start_new_session=True,
        preexec_fn=lead,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TERM": "xterm", "COLUMNS": "200"},
    )  # fmt: skip
    os.close(slave)
    drawn, began, typed = b"", 0.0, False
    while True:
        wait = LIMIT if typed or not began else max(0.0, began + after - time.monotonic())
        if select.select([master], [], [], wait)[0]:
            if not (part := available(master)):
                break  # nobody has the terminal open any more
            drawn += part
            began = began or (time.monotonic() if BEGUN in drawn else 0.0)
        elif typed or not began:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            os.write(master, b"\x03")
            typed = True
    os.close(master)
    code, seconds = process.wait(), time.monotonic() - began
    said = on_screen(drawn.decode().partition("^C")[2])
    return Ended(128 - code if code < 0 else code, [text for text in said if text.strip()], seconds)


def check(name: str, ended: Ended, folder: Path) -> None:
    """A command that was interrupted has said so in a line, or how to go on, and left nothing unfinished."""
    assert ended.code == 128 + signal.SIGINT, ended
    assert name in LATER or ended.said[-1:] in ([], ["interrupted"]), ended  # without a word once all is done
    check_clean(ended, folder)


def check_clean(ended: Ended, folder: Path) -> None:
    """No trace of an exception, and no unfinished file."""
    assert not [text for text in ended.said if "Traceback" in text or "ignored" in text], ended
    left = [path for path in folder.rglob("*.tmp") if "demo" not in path.parts]
    assert not left


def prepared(folder: Path, reversal: Reversal) -> Path:
    """A folder with what the commands read."""
    folder = made(folder, reversal)
    write_grid(folder)
    (folder / "claims").mkdir()
    for path in (folder / "base.yaml", write_claims(folder, data=DATA)):
        shutil.copy(path, folder / "claims")
    (folder / "made.conllu").write_text("1\tab\tab\tX\t_\t_\t0\troot\t_\t_\n\n", encoding="utf-8")
    return folder


def test_every_verb_is_interrupted() -> None:
    lines = [line.split() for line in LINES.values()]
    assert [path for path in VERBS if not any(tuple(line[: len(path)]) == path for line in lines)] == []


@pytest.mark.parametrize(
    ("name", "after"), [("list", 0.02), ("score files", 0.4), ("predict to a file", 0.9), ("compare a grid", 4.0)]
)
def test_an_interrupted_command_says_so_in_a_line(name: str, after: float, reversal: Reversal, tmp_path: Path) -> None:
    folder = prepared(tmp_path / "work", reversal)
    ended = interrupted(LINES[name].replace("RUN", str(reversal.run)), folder, after)
    check(name, ended, folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", LINES)
def test_every_verb_at_any_moment(name: str, reversal: Reversal, tmp_path: Path) -> None:
    line = LINES[name].replace("RUN", str(reversal.run))
    whole = interrupted(line, prepared(tmp_path / "whole", reversal), LONGEST)
    for number, share in enumerate(SHARES[list(LINES).index(name) % 2 :: 2]):  # its neighbour has the others
        folder = prepared(tmp_path / str(number), reversal)
        ended = interrupted(line, folder, 0.02 + share * min(whole.seconds, LONGEST))
        if number and ended.code in (0, whole.code):  # this time it was quicker
            check_clean(ended, folder)
        else:
            check(name, ended, folder)
