"""Annotations on disk, beside the corpus, found by a hash of their sentence: a changed sentence has none.

A store is a text file: a line of JSON that says what made it, then one line a sentence, `KEY TAB PARSE`. It only grows,
and a line that a crash cut off is no line, so that annotating goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import FileIO
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from headway.core.config import Section
from headway.core.errors import UserError, option
from headway.core.files import exists, named_in_errors
from headway.core.log import counted, progress
from headway.core.processes import cores, in_processes
from headway.core.storage import hashes_of, locked
from headway.formats.corpus_config import AnyCorpus, parts
from headway.formats.corpus_format import open_format
from headway.parses.parse import Parse
from headway.parses.parsers import AnyParser, Parser, ParserConfig, load_parser
from headway.processing.text.text_processor import Labeller

FORMAT = 1
KEY_BYTES = 16  # two of a billion sentences share a key with a probability below 1e-20


class ParsesConfig(Section):
    """The parsers of both sides. Parses are kept beside the corpus, or in `folder` where it is given."""

    source: AnyParser | None = None
    target: AnyParser | None = None
    folder: Path | None = None


def key_of(line: str) -> str:
    """The key of a sentence: a hash of its raw text."""
    return hashlib.blake2b(line.encode(), digest_size=KEY_BYTES).hexdigest()


def store_of(corpus: AnyCorpus, side: str, parses: ParsesConfig) -> Path:
    """The store of one side (`source`, `target`) of a corpus, by the parser that `parses` names for it.

    Several corpora share the store of the first, since sentences are found by their text.

    Raises:
        UserError: the recipe names no parser for the side.
    """
    parser: ParserConfig | None = getattr(parses, side)
    if parser is None:
        what, allowed = "the recipe names no parser", "KIND:MODEL, such as spacy:ja_ginza"
        raise UserError(what, where=f"data.parses.{side}", allowed=allowed)
    where, first = parts(corpus, "data")[0]
    return store_beside(open_format(first, where).annotations(side), parser, parses.folder)


def store_beside(file: Path, parser: ParserConfig, folder: Path | None) -> Path:
    """The store of a text file's sentences, beside it or in `folder`."""
    name = f"{file.name}.{parser.kind}-{Path(parser.model).name}.parses"
    return (file.parent if folder is None else folder) / name


class AnnotationStore:
    """The annotations of a store, looked up one at a time; only an index is in memory, 16 bytes a sentence.

    Attributes:
        noun: what they are called in messages.
        maker: what makes them.
        command: how they are made.

    Raises:
        UserError: there is no such store, or it is damaged.
    """

    noun: ClassVar[str]
    maker: ClassVar[str]
    command: ClassVar[str] = "headway data annotate"

    def __init__(self, path: Path) -> None:
        self.path, self.header = path, self._read_header(path)
        with path.open("rb") as file:
            self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        prefixes, offsets = [], []
        self._content.readline()
        while True:
            offset = self._content.tell()
            line = self._content.readline()
            if not line.endswith(b"\n"):
                break
            prefixes.append(int(line[:16], 16))
            offsets.append(offset)
        unordered = np.array(prefixes, dtype=np.uint64)
        order = np.argsort(unordered, kind="stable")
        self._prefixes, self._offsets = unordered[order], np.array(offsets, dtype=np.int64)[order]

    def __len__(self) -> int:
        return len(self._offsets)

    def keys(self) -> Iterator[str]:
        """The keys of all sentences."""
        for offset in self._offsets:
            yield self._content[int(offset) : int(offset) + 2 * KEY_BYTES].decode()

    def _read_header(self, path: Path) -> dict[str, Any]:
        """Who made the store. Raises UserError where there is none or it is damaged."""
        if not exists(path):
            what, allowed = f"these sentences have no {self.noun} yet", f"{self.command} makes them"
            raise UserError(what, where=str(path), allowed=allowed)
        try:
            with path.open("rb") as file:
                header: Any = json.loads(file.readline())
            error = "" if isinstance(header, dict) and header.get("format") == FORMAT else "another format"
        except (OSError, ValueError) as damage:
            error = str(damage)
        if error:
            raise UserError(f"this is no store of {self.noun} ({error})", where=str(path))
        return dict(header)

    def text(self, line: str) -> str | None:
        """The annotation of a sentence as it is written; None where there is none."""
        key = key_of(line)
        at = int(np.searchsorted(self._prefixes, np.uint64(int(key[:16], 16))))
        while at < len(self._prefixes) and int(self._prefixes[at]) == int(key[:16], 16):
            offset = int(self._offsets[at])
            text = self._content[offset : self._content.find(b"\n", offset)].decode()
            if text.startswith(f"{key}\t"):
                return text[len(key) + 1 :]
            at += 1
        return None

    def fingerprint(self) -> str:
        """A hash of the content."""
        return hashes_of([self.path])[0]

    def damaged(self, text: str, error: Exception) -> UserError:
        """The error of an annotation that cannot be read."""
        return UserError(f"{self.noun} are damaged ({error})", where=str(self.path), received=text)


class ParseStore(AnnotationStore):
    """The parses of a store."""

    noun, maker = "parses", "parser"

    def get(self, line: str) -> Parse | None:
        """The parse of a sentence, without tokens where the parser had none; None where it was never parsed.

        Raises:
            UserError: the store is damaged there.
        """
        text = self.text(line)
        try:
            return None if text is None else Parse.read(text)
        except ValueError as error:
            raise self.damaged(str(text), error) from error


Store = TypeVar("Store", bound=AnnotationStore)


class StoreLabeller(Labeller, Generic[Store]):
    """A labeller whose labels are made of annotations; they are opened anew in another process.

    Raises:
        UserError: the store is missing or damaged.
    """

    kind: ClassVar[type[AnnotationStore]]

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fingerprint = self.store.fingerprint()

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in vars(self).items() if key != "store"}

    @cached_property
    def store(self) -> Store:
        """The annotations."""
        return self.kind(self.path)  # type: ignore[return-value]

    def fingerprint(self) -> str:
        return self._fingerprint


class StoreWriter:
    """Adds annotations to a store. `known` holds the keys of those that are there already."""

    def __init__(self, path: Path, file: FileIO, known: set[str]) -> None:
        self.path, self.known, self._file = path, known, file

    def add(self, annotations: Iterable[tuple[str, str]]) -> None:
        """Append annotations by key; once this returns they survive a crash."""
        lines = [f"{key}\t{text}\n" for key, text in annotations]
        _write(self.path, self._file, "".join(lines))
        os.fsync(self._file.fileno())


def _write(path: Path, file: FileIO, text: str) -> None:
    """Append all of a text: the system may take a part of it alone, as on a disk that is nearly full."""
    rest = memoryview(text.encode())
    with named_in_errors(path):
        while rest:
            rest = rest[file.write(rest) :]


@contextmanager
def open_writer(path: Path, maker: dict[str, Any], kind: type[AnnotationStore]) -> Iterator[StoreWriter]:
    """Make a store, or go on with one that the same `maker` (as JSON has it) made.

    Raises:
        UserError: another one made it, another process writes it, or it cannot be written.
    """
    with ExitStack() as held:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(path.with_name(f".{path.name}.lock")))
            file = held.enter_context(FileIO(path, "a"))
        except OSError as error:
            raise UserError(
                f"{kind.noun} cannot be kept here ({error.strerror})",
                where=str(path),
                allowed=f"data.{kind.noun}.folder" + (f" or {option('folder')}" if kind is ParseStore else ""),
            ) from error
        yield StoreWriter(path, file, _go_on(path, file, {"format": FORMAT} | maker, kind))


def _go_on(path: Path, file: FileIO, header: dict[str, Any], kind: type[AnnotationStore]) -> set[str]:
    """Write the header of a new store, or check it and cut off an unfinished line; gives the keys that are there."""
    content = path.read_bytes()
    file.truncate(content.rfind(b"\n") + 1)
    if b"\n" not in content:
        _write(path, file, json.dumps(header, ensure_ascii=False) + "\n")
        return set()
    store = kind(path)
    if store.header != header:
        raise UserError(
            f"another {kind.maker}, or version of it, made these {kind.noun};"
            " remove them, or keep the new ones in another folder",
            where=str(path),
            received=header,
            allowed=str(store.header),
        )
    return set(store.keys())


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
    with open_writer(store, parser.identity(), ParseStore) as writer, progress(store.name, total, "lines") as line:
        began = time.monotonic()
        for parsed in _parse_all(_fresh(lines, writer.known, result), parser, config, used, where):
            writer.add((key, parse.write()) for key, parse in parsed)
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
