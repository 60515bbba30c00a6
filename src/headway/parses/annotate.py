"""Parsing a corpus: every sentence once, in several processes, kept as it goes, so that a second start goes on."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.log import counted, progress
from headway.parses.parse import Parse
from headway.parses.parse_store import key_of, open_writer
from headway.parses.parsers import Parser, ParserConfig, load_parser
from headway.processes import cores, in_processes

CHUNK = 200  # sentences parsed between two writes

Chunk = list[tuple[str, str]]  # keys and sentences
Parsed = list[tuple[str, Parse]]


@dataclass
class Annotated:
    """The work done: lines read, different sentences parsed now, how many of them have no parse, and how long it took.

    `processes` shared the work; where they are several, the time they took to start counts.
    """

    store: Path
    lines: int
    parsed: int
    without: int
    seconds: float
    processes: int

    def text(self) -> str:
        """One line to be read."""
        speed = self.parsed / max(self.seconds, 1e-9)
        missing = f", {self.without:,} of them without a parse" if self.without else ""
        return (
            f"{counted(self.lines, 'line')}, {counted(self.parsed, 'sentence')} newly parsed{missing}:"
            f" {speed:,.0f} sentences/s, {speed / self.processes:,.0f} a process; {self.store}"
        )


def annotate(
    lines: Iterable[str],
    config: ParserConfig,
    store: Path,
    *,
    total: int | None = None,
    processes: int | None = None,
    where: str = "parser",
) -> Annotated:
    """Parse the lines that `store` does not hold yet, blank ones aside, and add them to it.

    Args:
        lines: raw text; they are read once.
        config: the parser.
        store: where parses are kept.
        total: how many lines there are, for the progress line.
        processes: how many parse; by default one a core (a CoNLL-U file is only looked up, in this one).
        where: the recipe key of the parser, for messages.

    Raises:
        UserError: the parser is not there, or the store is another parser's or cannot be written.
        RunError: a process died.
    """
    parser = load_parser(config, where)
    used = 1 if config.kind == "conllu" else processes or cores()
    result = Annotated(store, 0, 0, 0, 0.0, used)
    with open_writer(store, parser.identity()) as writer, progress(store.name, total, "lines") as line:
        began = time.monotonic()
        for parsed in _parse_all(_fresh(lines, writer.known, result), parser, config, used, where):
            writer.add(parsed)
            result.parsed += len(parsed)
            result.without += sum(not parse.tokens for _, parse in parsed)
            result.seconds = time.monotonic() - began
            line.update(result.lines)
    return result


def _fresh(lines: Iterable[str], known: set[str], result: Annotated) -> Iterator[Chunk]:
    """The sentences that are not known yet, each once, in chunks; counts all lines."""
    chunk = Chunk()
    for result.lines, text in enumerate(lines, start=1):
        if not text.strip() or (key := key_of(text)) in known:
            continue
        known.add(key)
        chunk.append((key, text))
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _parse_all(
    stream: Iterator[Chunk], parser: Parser, config: ParserConfig, processes: int, where: str
) -> Iterator[Parsed]:
    if processes == 1:
        for chunk in stream:
            yield _parse_chunk(chunk, parser)
    else:
        yield from in_processes(stream, _parse_here, processes, _start, (config, where), "parses")


def _parse_chunk(chunk: Chunk, parser: Parser) -> Parsed:
    keys, lines = zip(*chunk, strict=True)
    return list(zip(keys, parser.parse(lines), strict=True))


_loaded: Parser  # of this process, where it is one of the pool's


def _start(config: ParserConfig, where: str) -> None:
    global _loaded
    _loaded = load_parser(config, where)


def _parse_here(chunk: Chunk) -> Parsed:
    return _parse_chunk(chunk, _loaded)
