"""Runs the pages of the documentation: their files are written, their commands run in order."""

import os
import re
import subprocess
from pathlib import Path

from tests.command_server import commands_path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?:`(?P<file>[\w./-]+)`:\n\n)?```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)


def run_page(page: Path, folder: Path, **changes: str) -> str:
    """Write the blocks that follow a file's name, run the bash blocks, and give what the commands printed.

    `changes` replace texts of the commands, so that a page can be run in miniature.
    """
    commands = []
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["file"]:
            (folder / block["file"]).write_text(block["text"], encoding="utf-8")
        elif block["language"] == "bash":
            commands.append(block["text"])
    script = "\n".join(commands)
    for old, new in changes.items():
        script = script.replace(old, new)
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder, env=os.environ | {"PATH": commands_path(), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout
