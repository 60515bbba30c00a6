"""Parses of both sides of a recipe's corpora, or of one file; or a few trees, drawn."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from headway.errors import UserError, check_companions, option
from headway.formats.corpus_format import RowReport
from headway.formats.lines import TextFile
from headway.formats.pairs import Side, SideLines, open_source
from headway.log import say
from headway.parses.parse import Parse
from headway.parses.parse_store import annotate, store_beside, store_of
from headway.parses.parsers import ParserConfig, load_parser
from headway.recipe import Recipe, load_recipe


@dataclass(frozen=True)
class Part:
    """One side of one corpus: its lines, its parser and its store.

    Attributes:
        lines: can be read any number of times.
        where: the key that names the parser.
        report: gives the account of the rows of the last reading.
    """

    name: str
    lines: Iterable[str]
    parser: ParserConfig
    store: Path
    where: str
    report: Callable[[], RowReport] = RowReport


def check_annotation(given: Sequence[str]) -> None:
    """Raise UserError where an option that is given would do nothing beside the others, or without another."""
    check_companions(given, {"whitespace": ("parser",), "folder": ("parser",)})
    for name, beside, what in (
        ("overrides", "parser", "a text file has no keys to change"),
        ("folder", "sample", "of a sample no parses are kept"),
        ("processes", "sample", "a sample is parsed by one process"),
    ):
        if name in given and beside in given:
            raise UserError(what, where=option(name), allowed=f"{option(name)} without {option(beside)}")


def load_parts(path: Path, overrides: Sequence[str]) -> list[Part]:
    """The parts of a recipe file. Raises UserError as `parts_of_recipe`, and for a file that is no recipe."""
    try:
        recipe = load_recipe(path, overrides)
    except UserError as error:
        if path.suffix in (".yaml", ".yml"):
            raise
        allowed = f"RECIPE.yaml, or a text file beside {option('parser')} KIND:MODEL"
        raise UserError(f"this is no recipe ({error.what})", where=str(path), allowed=allowed) from error
    return parts_of_recipe(recipe)


def parts_of_recipe(recipe: Recipe) -> list[Part]:
    """Both sides of train and dev, as far as the recipe names parsers. Raises UserError where it names none."""
    parts = []
    for name, corpus in (("train", recipe.data.train), ("dev", recipe.data.dev)):
        for side in get_args(Side):
            parser: ParserConfig | None = getattr(recipe.data.parses, side)
            if corpus is not None and parser is not None:
                pairs = open_source(corpus, f"data.{name}", recipe.data.broken)
                store = store_of(corpus, side, recipe.data.parses)
                where, report = f"data.parses.{side}", pairs.row_errors.report
                parts.append(Part(f"data.{name}.{side}", SideLines(pairs, side), parser, store, where, report))
    if not parts:
        raise UserError(
            "the recipe names no parser",
            where="data.parses",
            allowed="source, target: KIND:MODEL, such as spacy:ja_ginza",
        )
    return parts


def part_of_file(path: Path, parser: ParserConfig, folder: Path | None) -> Part:
    """A text file, one sentence a line. Raises UserError where it cannot be read."""
    lines = TextFile(path)
    next(iter(lines), None)
    return Part(str(path), lines, parser, store_beside(path, parser, folder), option("parser"))


def run_annotate(parts: Iterable[Part], processes: int | None) -> None:
    """Parse all parts, saying what was done. Raises as `annotate` does."""
    for part in parts:
        total = sum(1 for _ in part.lines)
        if amiss := part.report().text():
            say("\n".join([f"{part.name}:", *amiss]))
        done = annotate(part.lines, part.parser, part.store, total=total, processes=processes, where=part.where)
        say(f"{part.name}: {done.text()}")


def draw_samples(parts: Iterable[Part], count: int) -> Iterator[str]:
    """Parse and draw `count` sentences of each part, drawn at random, always the same ones; nothing is kept."""
    for part in parts:
        lines = _sample((line for line in part.lines if line.strip()), count)
        for line, parse in zip(lines, load_parser(part.parser, part.where).parse(lines), strict=True):
            yield f"{part.name}: {line}\n{draw(line, parse)}"


def draw(line: str, parse: Parse) -> str:
    """The trees of a line: a token a row below its head, with its label, in the order of the sentence."""
    if not parse.tokens:
        return "no parse\n"
    below: dict[int, list[int]] = {}
    for token, (_, _, head, _) in enumerate(parse.tokens):
        if head != token:
            below.setdefault(head, []).append(token)

    def grow(token: int, branch: Tree) -> None:
        start, end, _, label = parse.tokens[token]
        twig = branch.add(Text.assemble(line[start:end], "  ", (label, "dim")))
        for child in below.get(token, ()):
            grow(child, twig)

    text = StringIO()
    console = Console(file=text, width=200, emoji=False)
    for token, (_, _, head, _) in enumerate(parse.tokens):
        if head == token:
            whole = Tree("", hide_root=True)
            grow(token, whole)
            console.print(whole)
    return text.getvalue()


def _sample(lines: Iterator[str], count: int) -> list[str]:
    """At most `count` lines, drawn with the same probability, in their order."""
    generator, chosen = random.Random(1), list[tuple[int, str]]()
    for index, line in enumerate(lines):
        if index < count:
            chosen.append((index, line))
        elif (slot := generator.randrange(index + 1)) < count:
            chosen[slot] = (index, line)
    return [line for _, line in sorted(chosen)]
