"""The package's own source, read once for all tests that look at it."""

import ast
from functools import cache
from pathlib import Path

import headway

ROOT = Path(headway.__file__).parent


@cache
def trees() -> dict[str, ast.Module]:
    """The syntax tree of each file, by its path within the package."""
    paths = sorted(ROOT.rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}
