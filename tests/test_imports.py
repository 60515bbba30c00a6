"""Imports point one way, from the general to the particular, so that every room can be read and changed by itself."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import headway

ROOT = Path(headway.__file__).parent
GENERAL = {"errors", "files", "console", "runtime"}

# What each room may import besides itself, the general rooms and the package's own name (for its version).
MAY_IMPORT = {
    "errors": set(),
    "files": set(),
    "console": set(),
    "runtime": set(),
    "recipe": set(),
    "text": {"recipe"},
    "audio": {"recipe", "text"},
    "data": {"recipe", "text", "audio"},
    "scoring": {"text", "data"},
    "mixers": set(),
    "models": {"recipe", "text", "data", "mixers"},
    "objectives": {"recipe", "data", "mixers", "models"},
    "run": {"recipe", "text", "audio", "models"},
    "decoding": {"recipe", "text", "data", "models", "run"},
    "tasks": {"recipe", "text", "audio", "data", "scoring", "models", "objectives", "run", "decoding"},
    "training": {"recipe", "text", "data", "scoring", "tasks", "mixers", "models", "objectives", "run", "decoding"},
    "analysis": {"recipe", "text", "data", "scoring", "tasks", "mixers", "models", "objectives", "run", "decoding"},
}
MAY_IMPORT["experiments"] = {*MAY_IMPORT, "analysis"}
MAY_IMPORT["cli"] = set(MAY_IMPORT)
MAY_IMPORT["__init__"] = set(MAY_IMPORT) - {"cli"}
MAY_IMPORT["__main__"] = {"cli"}

# Batches carry masks, and masks have one home, which itself imports nothing.
EXCEPTIONS = {("data/batches.py", "headway.tensors.masks"), ("data/tokens.py", "headway.tensors.masks")}


def imported(tree: ast.AST) -> Iterator[str]:
    """The full names that a module imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where they point"
            whole = node.module == "headway"  # `from headway import recipe` names a room
            yield from (f"headway.{name.name}" for name in node.names) if whole else [str(node.module)]


def wrong_ways(path: str, text: str) -> list[str]:
    """The imports of a module, `path` from the package's root, that point the wrong way."""
    room = path.split("/")[0].removesuffix(".py")
    allowed = MAY_IMPORT[room] | GENERAL | {room} if room not in GENERAL else {"errors"}
    names = [name for name in imported(ast.parse(text)) if name.startswith("headway.")]
    return [name for name in names if name.split(".")[1] not in allowed and (path, name) not in EXCEPTIONS]


MODULES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES)
def test_imports_point_one_way(path: str) -> None:
    assert wrong_ways(path, (ROOT / path).read_text(encoding="utf-8")) == []


def test_the_ways_make_no_circle() -> None:
    order = list(TopologicalSorter(MAY_IMPORT).static_order())
    assert order.index("recipe") < order.index("data") < order.index("decoding") < order.index("training")
    assert {path.split("/")[0].removesuffix(".py") for path in MODULES} == set(MAY_IMPORT)


def test_every_exception_is_needed() -> None:
    for path, name in EXCEPTIONS:
        assert name in imported(ast.parse((ROOT / path).read_text(encoding="utf-8")))


def test_search_sees_no_more_of_models_than_the_contract() -> None:
    names = set(imported(ast.parse((ROOT / "decoding" / "search.py").read_text(encoding="utf-8"))))
    assert {name for name in names if name.startswith("headway.models")} == {"headway.models.model"}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("scoring/report.py", "from headway.models import Seq2Seq"),
        ("mixers/attention.py", "def f():\n    import headway.runs.training.loop"),
        ("data/corpus.py", "from headway.tensors.masks import padding_mask"),
        ("errors.py", "from headway.recipe import Recipe"),
        ("decoding/search.py", "from headway import training"),
        ("models/blocks.py", "from headway.cli import main"),
    ],
)
def test_wrong_ways_are_found(path: str, text: str) -> None:
    assert len(wrong_ways(path, text)) == 1
