"""Scripts that prepare data, run as users run them."""

import os
import subprocess
import sys
from pathlib import Path

from tests.command_server import commands_path

RECIPES = Path(__file__).parents[1] / "recipes"


def prepare(script: Path, *arguments: str | Path, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a script of recipes/ with the `headway` and the `python` of these tests."""
    interpreter = sys.executable if script.suffix == ".py" else "sh"
    return subprocess.run(
        [interpreter, str(script), *map(str, arguments)],
        capture_output=True, text=True, timeout=seconds, check=False, env={**os.environ, "PATH": commands_path()},
    )  # fmt: skip


def write(path: Path, text: str) -> Path:
    """Write a file in a folder that may not be there yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
