"""Runs the pages of the documentation: their files are written, their commands are typed in order, at a terminal."""

import re
from collections.abc import Mapping
from pathlib import Path

from tests.docs.shell import type_lines

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?:`(?P<file>[\w./-]+)`:\n\n)?```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)
INDENTED = re.compile(rf"{BLOCK.pattern}|(?<=\n\n)(?P<typed>(?:    [^\n]+\n)+)", re.DOTALL)


def run_page(page: Path, folder: Path, skipped: Mapping[str, str] | None = None, **changes: str) -> str:
    """Write the blocks that follow a file's name, type the lines of the bash blocks, and give what they printed.

    `changes` replace texts of the commands, so that a page can be run in miniature. With `skipped`, the indented blocks
    are commands too, but for the lines that begin as one of `skipped` does, which says why.
    """
    script, used = "", set[str]()
    for block in (BLOCK if skipped is None else INDENTED).finditer(page.read_text(encoding="utf-8")):
        if block["file"]:
            (folder / block["file"]).write_text(block["text"], encoding="utf-8")
        elif block["language"] == "bash":
            script += block["text"]
        elif block["language"] is None:
            script += re.sub("^    ", "", block["typed"], flags=re.MULTILINE)
    for old, new in changes.items():
        script = script.replace(old, new)
    lines = []
    for line in script.splitlines():
        known = [begin for begin in skipped or () if line.startswith(begin)]
        used.update(known)
        lines += [] if known else [line]
    assert used == set(skipped or ()), "these lines are not there"
    return type_lines([line for line in lines if line.strip()], folder)
