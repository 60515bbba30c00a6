"""The page of all keys of a recipe, docs/recipe-keys.md, made from the classes that check them.

python tools/recipe_keys.py

The meaning of a key stands in the docstring of its class, after "`key`:" or in the list of arguments, or is the
description of the field.
"""

import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel

from headway.core.config import sections_in
from headway.core.errors import HeadwayError, UserError
from headway.core.registry import REQUIRED, Setting, choices_of, config_of, registry_of, type_in_words
from headway.models import PRESETS
from headway.recipe.sections import Recipe

PAGE = Path(__file__).parents[1] / "docs" / "recipe-keys.md"
WIDTH = 128  # of a line of text
HEAD = """\
# All keys of a recipe

Every key of every section: its type, its default if it has one, and its meaning. [Recipes](recipes.md) shows how a
recipe is written. A dot joins the keys of nested sections, as on the command line: `data.context.source=2`. A mapping
is a component with its options, `{kind: NAME, ...}`. The name alone is short for it, as for sections with a `kind`.
`headway list` prints the components that are installed, with the same options."""
# The kinds of components that a section names, in the order of the page.
COMPONENTS = {
    "task": ["tasks"],
    "data": ["formats"],
    "text": ["segmenters"],
    "model": ["models", "mixers", "positions", "cross-attentions", "feed-forwards", "norms"],
    "objective": ["losses"],
    "optimizer": ["optimizers", "schedules"],
    "training": ["metrics", "loggers"],
}
WITH_EQUATIONS = {"mixers", "optimizers", "schedules", "formats"}  # whose components are described in full
NAMES = re.compile(r"(?:(?<=[.;] )|^)(`\w+`(?:, `\w+`)*): ")
ARGUMENTS = re.compile(r"^(?:Args|Attributes|Raises)\b", re.MULTILINE)
ARGUMENT = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


class Key(NamedTuple):
    """A row of a table: the name of a key, its type, its default and its meaning."""

    name: str
    type: str
    default: str
    meaning: str


Shown = dict[type[BaseModel], str]  # the sections that the page names so far, and their headings


def page() -> str:
    """The page as Markdown. Raises UserError if a key has no meaning."""
    lines, shown = [HEAD], Shown({})
    for name, field in Recipe.model_fields.items():
        lines += ["", f"## `{name}`"]
        for section in sections_in(field.annotation):
            lines += _section(name, section, shown)
        if name == "task":
            lines += _paragraph(f"The name of a task, `{field.default}` by default.")
        for kind in COMPONENTS.get(name, []):
            lines += _components(name, kind, shown)
        if name == "model":
            lines += _presets()
    return "\n".join(lines) + "\n"


def _presets() -> Iterator[str]:
    yield from ("", "### Presets", "")
    for name, keys in PRESETS.items():
        written = yaml.safe_dump(keys, default_flow_style=True, sort_keys=False, width=sys.maxsize).strip()
        yield from _wrapped(f"`{name}`: `{written}`", "- ")


def _section(path: str, section: type[BaseModel], shown: Shown, of: str = "") -> Iterator[str]:
    """A section, and those within it. Keys that a section of the page has already are not repeated."""
    bases = [base for base in section.__mro__[1:] if base in shown]
    inherited = {name for base in bases for name in _names(base)}
    shown.setdefault(section, _heading(path, of))
    for paragraph in [*_description(section), *(f"It also has the keys of {shown[base]}." for base in bases[:1])]:
        yield from _paragraph(paragraph)
    keys = [key for key in _keys(section, [section], path, of, shown) if key.name not in inherited]
    yield from _table(["key", *Key._fields[1:]], [[f"`{key.name}`", *key[1:]] for key in keys])
    yield from _within(path, section, shown, of)


def _within(path: str, section: type[BaseModel], shown: Shown, of: str = "") -> Iterator[str]:
    """The sections within a section, below the heading by which the page named each first."""
    for name, field in section.model_fields.items():
        below = f"{path}.{field.alias or name}"
        for inner in dict.fromkeys(sections_in(field.annotation)):
            if shown[inner] == _heading(below, of):
                yield from ("", f"### {shown[inner]}")
                yield from _section(below, inner, shown, of)


def _heading(path: str, of: str) -> str:
    return f"`{path}`{f' of {of}' if of else ''}"


def _components(path: str, kind: str, shown: Shown) -> Iterator[str]:
    """The components of a kind, one table of their options, and the sections within these."""
    components = {name: registry_of(kind).get(name) for name in registry_of(kind)}
    yield from ("", f"### {kind.capitalize()}", "")
    rows: dict[Key, list[str]] = {}
    for name, component in components.items():
        first, *others = _description(component)
        yield from _wrapped(f"`{name}`: {first}", "- ")
        for paragraph in others if kind in WITH_EQUATIONS else ():
            yield from ("", *(f"    {line}" for line in _lines(paragraph)))
        section = config_of(component)
        known = {"kind", *(key for base in section.__mro__ if base in shown for key in _names(base))}
        for key in _keys(section, [section, component], path, name, shown):
            if key.name not in known:
                rows.setdefault(key, []).append(name)
    if rows:
        cells = [[f"`{key.name}`", ", ".join(names), *key[1:]] for key, names in rows.items()]
        yield from _table(["key", "of", *Key._fields[1:]], cells)
    for name, component in components.items():
        yield from _within(path, config_of(component), shown, name)


def _names(section: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in section.model_fields.items()]


def _keys(section: type[BaseModel], documented: Sequence[type[Any]], path: str, of: str, shown: Shown) -> Iterator[Key]:
    """The keys of a section, with their meanings from its fields, or from the docstrings of `documented` and its bases.

    Raises:
        UserError: a key without a meaning.
    """
    fields = {field.alias or name: field for name, field in section.model_fields.items()}
    meanings = _meanings(documented, {*fields})
    settings = choices_of(section)
    if kind := section.model_fields.get("kind"):
        settings.insert(0, Setting("kind", type_in_words(kind.annotation), kind.default))
    for name, words, default in settings:
        meaning = fields[name].description or meanings.get(name)
        if meaning is None and name != "kind":
            raise UserError(
                "the docstring of the class does not describe this key", where=f"{path} {of}", received=name
            )
        for inner in sections_in(fields[name].annotation):
            heading = shown.setdefault(inner, _heading(f"{path}.{name}", of))
            words = words.replace(inner.__name__, f"[section](#{re.sub(r'[^a-z_ -]', '', heading).replace(' ', '-')})")
        yield Key(name, _type(words, default), _default(default), _sentence(meaning or ""))


def _type(words: str, default: Any) -> str:
    """A type in the words of a recipe. A key that is unset by default may also be unset."""
    words = words.replace("RelativePositions or ", "").replace("dict", "mapping").replace("Mapping", "mapping")
    return (words.removesuffix(" or None") if default is None else words).replace("|", " | ")


def _meanings(documented: Sequence[type[Any]], names: set[str]) -> dict[str, str]:
    """The meaning of each key in the docstrings of classes and their bases, of the nearest class that has one."""
    found: dict[str, str] = {}
    for documentation in (base.__doc__ or "" for each in documented for base in each.__mro__):
        text = inspect.cleandoc(documentation)
        found = {name: meaning for name, meaning in ARGUMENT.findall(text) if name in names} | found
        for paragraph in text.split("\n\n"):
            parts = NAMES.split(" ".join(paragraph.split()))[1:]
            for keys, meaning in zip(parts[::2], parts[1::2], strict=True):
                found = {name: meaning for name in re.findall(r"\w+", keys) if name in names} | found
    return found


def _description(documented: type[Any]) -> list[str]:
    """The paragraphs and tables of a docstring, without its keys and arguments."""
    text = ARGUMENTS.split(inspect.cleandoc(documented.__doc__ or ""))[0]
    return [described for paragraph in text.split("\n\n") if (described := _described(paragraph))]


def _described(paragraph: str) -> str:
    """A paragraph up to its first key, or a table with a line below its heading."""
    if paragraph.startswith("|"):
        heading, *rows = paragraph.splitlines()
        return "\n".join([heading, re.sub("[^|]+", "---", heading), *map(_escaped, rows)])
    return _escaped(NAMES.split(" ".join(paragraph.split()))[0].strip())


def _escaped(text: str) -> str:
    """Text without emphasis: `_` and `*` outside code are signs of formulas."""
    return re.sub(r"(`[^`]*`)|([_*])", lambda sign: sign[1] or f"\\{sign[2]}", text)


def _sentence(text: str) -> str:
    text = " ".join(text.split()).rstrip(";")
    if re.match(r"(a|[a-z]{2,})\b", text):  # not a symbol, as d_k is
        text = text[:1].upper() + text[1:]
    return _escaped(text) + ("" if text.endswith(".") or not text else ".")


def _default(value: Any) -> str:
    """The default of a key as it is written in a recipe; empty if there is none, or if it is a section."""
    if value is REQUIRED or value is None or isinstance(value, BaseModel):
        return ""
    if isinstance(value, dict):
        value = value["kind"]
    text = f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)
    return f"`{text.lower() if isinstance(value, bool) else text}`"


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield from ("", f"| {' | '.join(heading)} |", f"|{'---|' * len(heading)}")
    for row in rows:
        cells = " | ".join(cell.replace("|", r"\|") for cell in row)
        yield f"| {cells} |"


def _paragraph(text: str) -> Iterator[str]:
    yield from ("", *_lines(text))


def _lines(text: str) -> list[str]:
    return text.splitlines() if text.startswith("|") else _wrapped(text)


def _wrapped(text: str, mark: str = "") -> list[str]:
    indent = " " * len(mark)
    return textwrap.wrap(text, WIDTH, initial_indent=mark, subsequent_indent=indent, break_long_words=False)


if __name__ == "__main__":
    try:
        PAGE.write_text(page(), encoding="utf-8")
    except HeadwayError as error:
        sys.exit(f"error: {error}")
