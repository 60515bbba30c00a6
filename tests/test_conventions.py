"""Conventions that a machine can check: unique names, short modules and functions, docstrings, flags in the shell."""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import headway

ROOT = Path(headway.__file__).parent
LONGEST_FUNCTION, LONGEST_MODULE = 60, 400  # lines
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")

TREES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(ROOT.rglob("*.py"))
}


def definitions() -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Each class and function of the package, with the file that it stands in."""
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node


def several(places: dict[str, list[str]]) -> dict[str, list[str]]:
    """The names that stand in several places."""
    return {name: where for name, where in places.items() if len(where) > 1}


def test_no_two_files_have_one_name() -> None:
    places = defaultdict(list)
    for path in TREES:
        name = path.rpartition("/")[2]
        if name not in ("__init__.py", "__main__.py"):
            places[name].append(path)
    assert several(places) == {}


def test_no_two_classes_have_one_name() -> None:
    places = defaultdict(list)
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path)
    assert several(places) == {}


def test_modules_can_be_read_at_a_glance() -> None:
    sizes = {path: len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in TREES}
    assert {path: lines for path, lines in sizes.items() if lines > LONGEST_MODULE} == {}


def test_functions_fit_a_screen() -> None:
    long = {}
    for path, node in definitions():
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if not isinstance(node, ast.ClassDef) and lines > LONGEST_FUNCTION:
            long[f"{path}:{node.lineno} {node.name}"] = lines
    assert long == {}


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    vague = [
        f"{path}:{node.lineno} {node.name}"
        for path, node in definitions()
        if re.match(r"(What|Which|Whose)\b", ast.get_docstring(node) or "")
    ]
    vague += [path for path, tree in TREES.items() if re.match(r"(What|Which|Whose)\b", ast.get_docstring(tree) or "")]
    assert vague == []


def test_flags_stand_in_the_command_line_alone() -> None:
    flags = []
    for path, tree in TREES.items():
        if path.startswith("cli/"):
            continue
        documentation = {id(node.body[0].value) for node in ast.walk(tree) if _has_docstring(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
                flags += [f"{path}:{node.lineno} {flag}" for flag in FLAG.findall(node.value)]
    assert flags == []


def test_results_reach_standard_output_through_one_function() -> None:
    """The one that makes them printable; what fails before it has a place to be told is `failures`."""
    calls = []
    for path, tree in TREES.items():
        if path in ("cli/standard_streams.py", "cli/failures.py"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "typer.echo", "sys.stdout.write"):
                calls.append(f"{path}:{node.lineno}")
    assert calls == []


def _has_docstring(node: ast.AST) -> bool:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return isinstance(node, kinds) and ast.get_docstring(node) is not None


def test_security_names_the_lower_bounds_of_packages() -> None:
    repository = ROOT.parents[1]
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = sum(project["optional-dependencies"].values(), project["dependencies"])
    bounds = dict(each.split(">=") for each in needed if ">=" in each)
    section = (repository / "SECURITY.md").read_text(encoding="utf-8").split("## Dependencies")[1].split("\n## ")[0]
    named = dict(re.findall(r"^\| ([a-z]+) \| ([0-9.]+) \|", section, re.MULTILINE))
    assert len(named) >= 6
    assert named == {name: bounds[name] for name in named}
