"""Flags are the command line's: no other room writes one, in messages or in prose; they name options by their keys."""

import ast
import re
from pathlib import Path

import pytest

import headway

ROOT = Path(headway.__file__).parent
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
ALL = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))
# The plugin declares a flag of the command line of pytest.
MODULES = [path for path in ALL if not path.startswith("cli/") and path != "pytest_plugin.py"]


def flags_in(text: str) -> list[str]:
    """The flags in the strings of a module, docstrings and the constant parts of f-strings among them."""
    strings = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    return [flag for value in strings if isinstance(value, str) for flag in FLAG.findall(value)]


@pytest.mark.parametrize("path", MODULES)
def test_no_flag_stands_outside_the_command_line(path: str) -> None:
    assert flags_in((ROOT / path).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ('raise UserError("x", where="--beam")', ["--beam"]),
        ('f"pass --truncate for {path}"', ["--truncate"]),
        ('f"{a}" f"--max-length {b}"', ["--max-length"]),
        ('def f():\n    """`headway inspect --output`."""', ["--output"]),
        ("# --beam is a comment\nx = 1", []),
        ('"a -- b, a--b, <!-- x -->, ---"', []),
        ('where = option("beam")', []),
    ],
)
def test_flags_are_found(text: str, flags: list[str]) -> None:
    assert flags_in(text) == flags
