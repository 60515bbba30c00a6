"""The recipes that come with headway: their list, and copies of them in a folder of the user."""

from __future__ import annotations

import difflib
import re
import shutil
import textwrap
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from headway.core.errors import UserError, option
from headway.core.files import shipped, write_bytes
from headway.recipe import read_tree

FACTS = ("Corpus", "Train", "Score", "Measured")
NOT_MEASURED = "not measured yet"
OTHERS = re.compile(r"\b(?:base|match_parameters): *(?:\{to: *)?([\w./-]+\.yaml)")  # recipes that it refers to
SCRIPTS = re.compile(r"\brecipes/([\w./-]+\.(?:sh|py))\b")  # the scripts that prepare its corpus
# The files that such a script uses from its own folder.
BESIDE = re.compile(r"""(?:\$here/|\$\(dirname "\$0"\)/|\bwith_name\(")([\w.-]+\.\w+)""")


def library() -> Path:
    """The folder of the recipes, which installed packages also include."""
    return shipped("recipes")


def recipe_names() -> list[str]:
    """The names of all recipes, such as `tanaka/mixers/ngram`, sorted."""
    paths = (path for path in sorted(library().rglob("*.yaml")) if not path.stem.endswith("-grid"))  # not grids
    return [path.relative_to(library()).with_suffix("").as_posix() for path in paths]


def opening(path: Path) -> dict[str, str]:
    """The opening comment of a recipe: its description under an empty name, and its facts by `FACTS`."""
    facts, fact = {"": ""}, ""
    for line in takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines()):
        named, _, rest = line.removeprefix("# ").partition(": ")
        fact, text = (named, rest) if named in FACTS else (fact, line.lstrip("# "))
        facts[fact] = f"{facts.get(fact, '')} {text}".strip()
    return facts


def about(name: str) -> str:
    """The first sentence of the opening comment of a recipe."""
    text = opening(library() / f"{name}.yaml")[""]
    return re.split(r"(?<!et al)\.\s", text + " ")[0].strip().removesuffix(".")


def measured(name: str) -> str:
    """The measured minutes and scores of a recipe, such as `38.3 BLEU after 9 CPU minutes`; empty if not measured."""
    text = opening(library() / f"{name}.yaml").get("Measured", NOT_MEASURED).partition(" (results/")[0]
    return "" if text.startswith(NOT_MEASURED) else text.removesuffix(".")


def recipe_facts(name: str) -> str:
    """The text on a recipe: its description, its corpus, the commands that train and score it, and the results.

    Raises:
        UserError: no recipe has this name.
    """
    facts = opening(library() / files_of(name)[0])
    return "\n".join(text if not fact else f"{fact}: {text}" for fact, text in facts.items())


def recipe_list(task: str | None = None, words: Sequence[str] = ()) -> str:
    """The list of recipes by task: their names and results, with a description below each.

    Args:
        task: list only this task.
        words: list only recipes whose name or opening comment has all of these words, ignoring case.

    Raises:
        UserError: no recipe is for this task, or has these words.
    """
    tasks = {name: str(read_tree(library() / f"{name}.yaml").get("task", "translation")) for name in recipe_names()}
    if task is not None and task not in tasks.values():
        allowed = ", ".join(sorted(set(tasks.values())))
        raise UserError("no recipe is for this task", where=option("task"), received=task, allowed=allowed)
    chosen = {name: its_task for name, its_task in tasks.items() if _has(name, words) and task in (None, its_task)}
    if not chosen:
        near = difflib.get_close_matches(" ".join(words), tasks, n=3, cutoff=0.3)
        allowed = f"{', '.join(near)}; `headway recipes` lists all" if near else "`headway recipes` lists all"
        raise UserError("there is no such recipe", where=option("name"), received=" ".join(words), allowed=allowed)
    lines = []
    for listed in dict.fromkeys(chosen.values()):
        lines += [listed, ""]
        for name in (name for name, its_task in chosen.items() if its_task == listed):
            found = measured(name)
            lines += _wrapped(f"{name}: {found}" if found else name, "  ") + _wrapped(about(name), "      ")
        lines.append("")
    lines += _wrapped("`headway recipes NAME` has its corpus and the commands that train and score it.", "")
    lines += _wrapped("With an output folder it copies the recipe, with those that it begins from.", "")
    return "\n".join(lines)


def _has(name: str, words: Sequence[str]) -> bool:
    text = " ".join([name, *opening(library() / f"{name}.yaml").values()]).casefold()
    return all(word.casefold() in text for word in words)


def _wrapped(text: str, indent: str) -> list[str]:
    width = min(shutil.get_terminal_size().columns, 120)
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False)


def files_of(name: str) -> list[Path]:
    """The files of a recipe, relative to the library: the recipe, those that it begins from or matches, and scripts.

    Raises:
        UserError: no recipe has this name.
    """
    folder = library().resolve()
    first = folder / f"{name.removesuffix('.yaml')}.yaml"
    if not first.is_file():
        near = difflib.get_close_matches(name, recipe_names(), n=3, cutoff=0.3)
        allowed = f"{', '.join(near)}; `headway recipes` lists all" if near else "`headway recipes` lists all"
        raise UserError("there is no such recipe", where=option("name"), received=name, allowed=allowed)
    needed, reached = [first], [first]
    while needed:
        path = needed.pop()
        text = path.read_text(encoding="utf-8") if path.suffix in (".yaml", ".sh", ".py") else ""
        named = [path.parent / other for pattern in (OTHERS, BESIDE) for other in pattern.findall(text)]
        for target in map(Path.resolve, [*named, *(folder / script for script in SCRIPTS.findall(text))]):
            if target not in reached:
                reached.append(target)
                needed.append(target)
    return [path.relative_to(folder) for path in reached]


def copy_recipe(name: str, output: Path) -> list[Path]:
    """Copy a recipe and all files that it needs into a folder. Returns the copies, the recipe's first.

    The files are the recipes that it begins from, and the scripts that prepare its corpus. Subfolders of the library
    are kept, so that recipes find each other. In a folder `recipes`, the commands in opening comments work as written.

    Raises:
        UserError: no recipe has this name, or a file exists with other content.
    """
    paths = files_of(name)
    for path in paths:
        copy, original = output / path, library() / path
        if copy.exists() and (not copy.is_file() or copy.read_bytes() != original.read_bytes()):
            raise UserError("a file of this name is there, and it differs from the recipe", where=str(copy))
    for path in paths:
        (output / path).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(output / path, (library() / path).read_bytes())
        shutil.copymode(library() / path, output / path)
    return [output / path for path in paths]
