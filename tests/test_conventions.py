"""Conventions that a machine can check: docstrings, flags in the shell, one way to standard output."""

import ast
import re
import tomllib
from collections.abc import Iterator

from tests.sources import ROOT, trees


def definitions() -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Each class and function of the package, with the file that it stands in."""
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    vague = [
        f"{path}:{node.lineno} {node.name}"
        for path, node in definitions()
        if re.match(r"(What|Which|Whose)\b", ast.get_docstring(node) or "")
    ]
    vague += [
        path for path, tree in trees().items() if re.match(r"(What|Which|Whose)\b", ast.get_docstring(tree) or "")
    ]
    assert vague == []


def test_results_reach_standard_output_through_one_function() -> None:
    """The one that makes them printable; what fails before it has a place to be told is `shell`."""
    calls = []
    for path, tree in trees().items():
        if path in ("cli/standard_streams.py", "cli/shell.py"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "typer.echo", "sys.stdout.write"):
                calls.append(f"{path}:{node.lineno}")
    assert calls == []


def test_security_names_the_lower_bounds_of_packages() -> None:
    repository = ROOT.parents[1]
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = sum(project["optional-dependencies"].values(), project["dependencies"])
    bounds = dict(each.split(">=") for each in needed if ">=" in each)
    section = (repository / "SECURITY.md").read_text(encoding="utf-8").split("## Dependencies")[1].split("\n## ")[0]
    named = dict(re.findall(r"^\| ([a-z]+) \| ([0-9.]+) \|", section, re.MULTILINE))
    assert len(named) >= 6
    assert named == {name: bounds[name] for name in named}
