"""Annotates the corpora of a recipe, or a file, with parses, or draws sample trees."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from headway.core.errors import UserError, option
from headway.core.log import say
from headway.formats.corpus_config import AnyCorpus
from headway.formats.corpus_format import Broken, RowReport
from headway.formats.lines import TextFile
from headway.formats.pairs import Side, SideLines, open_source
from headway.parses.parse import Parse
from headway.parses.parse_store import ParsesConfig, annotate, store_beside, store_of
from headway.parses.parsers import ParserConfig, load_parser


@dataclass(frozen=True)
class Part:
    """One side of a corpus with its parser and store.

    Attributes:
        lines: the lines, which can be iterated repeatedly.
        where: the recipe key of the parser.
        report: returns the report on the rows of the last pass.
    """

    name: str
    lines: Iterable[str]
    parser: ParserConfig
    store: Path
    where: str
    report: Callable[[], RowReport] = RowReport


def parts_of_corpora(corpora: Mapping[str, AnyCorpus | None], parses: ParsesConfig, broken: Broken) -> list[Part]:
    """The sides of corpora, by recipe key, for which `parses` names parsers. Raises UserError if it names none."""
    parts = []
    for name, corpus in corpora.items():
        for side in get_args(Side):
            parser: ParserConfig | None = getattr(parses, side)
            if corpus is not None and parser is not None:
                pairs = open_source(corpus, name, broken)
                lines, store = SideLines(pairs, side), store_of(corpus, side, parses)
                where, report = f"data.parses.{side}", pairs.row_errors.report
                parts.append(Part(f"{name}.{side}", lines, parser, store, where, report))
    if not parts:
        allowed = "source, target: KIND:MODEL, such as spacy:ja_ginza"
        raise UserError("the recipe names no parser", where="data.parses", allowed=allowed)
    return parts


def part_of_file(path: Path, parser: ParserConfig, folder: Path | None) -> Part:
    """A text file with one sentence per line. Raises UserError if it cannot be read."""
    lines = TextFile(path)
    next(iter(lines), None)
    return Part(str(path), lines, parser, store_beside(path, parser, folder), option("parser"))


def run_annotate(parts: Iterable[Part], processes: int | None) -> None:
    """Parse all parts and log the results. Raises as `annotate` does."""
    for part in parts:
        total = sum(1 for _ in part.lines)
        if amiss := part.report().text():
            say("\n".join([f"{part.name}:", *amiss]))
        done = annotate(part.lines, part.parser, part.store, total=total, processes=processes, where=part.where)
        say(f"{part.name}: {done.text()}")


def draw_samples(parts: Iterable[Part], count: int) -> Iterator[str]:
    """Parse and draw a fixed random sample of `count` sentences of each part, without storing the parses."""
    for part in parts:
        lines = list(filter(str.strip, part.lines))
        lines = [lines[index] for index in sorted(random.Random(1).sample(range(len(lines)), min(count, len(lines))))]
        for line, parse in zip(lines, load_parser(part.parser, part.where).parse(lines), strict=True):
            yield f"{part.name}: {line}\n{draw(line, parse)}"


def draw(line: str, parse: Parse) -> str:
    """Draw the trees of a line: a token per row, below its head and with its label, in the order of the sentence."""
    if not parse.tokens:
        return "no parse\n"
    below: dict[int, list[int]] = {}
    for token, (_, _, head, _) in enumerate(parse.tokens):
        if head != token:
            below.setdefault(head, []).append(token)
    rows = list[str]()
    stack = [("", "", token) for token, (_, _, head, _) in enumerate(parse.tokens) if head == token][::-1]
    while stack:
        before, indent, token = stack.pop()
        start, end, _, label = parse.tokens[token]
        rows.append(f"{before}{line[start:end]}  {label}\n")
        children = below.get(token, [])
        for child in reversed(children):
            last = child == children[-1]
            stack.append((indent + ("└── " if last else "├── "), indent + ("    " if last else "│   "), child))
    return "".join(rows)
