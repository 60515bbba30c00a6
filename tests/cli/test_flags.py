"""Flags are the command line's: no other room writes one, in messages or in prose; they name options by their keys."""

import ast
import re

import pytest

from tests.sources import trees

FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def flags_in(tree: ast.Module) -> list[str]:
    """The flags in the strings of a module, docstrings and the constant parts of f-strings among them."""
    strings = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return [flag for value in strings if isinstance(value, str) for flag in FLAG.findall(value)]


def test_no_flag_stands_outside_the_command_line() -> None:
    """The plugin declares a flag of the command line of pytest."""
    others = {path: tree for path, tree in trees().items() if path.split("/")[0] not in ("cli", "pytest_plugin.py")}
    found = {path: flags_in(tree) for path, tree in others.items()}
    assert {path: flags for path, flags in found.items() if flags} == {}


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
    assert flags_in(ast.parse(text)) == flags
