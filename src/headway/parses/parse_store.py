"""Annotations on disk, beside the corpus, with a hash of the sentence as the key: a changed sentence has no annotation.

A store is a text file: a JSON line describing the tool, then one line per sentence, `KEY TAB PARSE`. It is append-only,
and an incomplete last line after a crash is ignored, so that annotation can be resumed.
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
KEY_BYTES = 16  # a collision among a billion sentences has a probability below 1e-20


class ParsesConfig(Section):
    """The parsers of both sides. `source`, `target`: the parser of that side. `folder`: the folder of the parses, by
    default that of the corpus.
    """

    source: AnyParser | None = None
    target: AnyParser | None = None
    folder: Path | None = None


def key_of(line: str) -> str:
    return hashlib.blake2b(line.encode(), digest_size=KEY_BYTES).hexdigest()


def store_of(corpus: AnyCorpus, side: str, parses: ParsesConfig) -> Path:
    """The path of the store of one side (`source`, `target`) of a corpus, with the parser that `parses` names for it.

    Several corpora share the store of the first, since sentences are looked up by text.

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
    """The path of the store of a text file, beside it or in `folder`."""
    name = f"{file.name}.{parser.kind}-{Path(parser.model).name}.parses"
    return (file.parent if folder is None else folder) / name


class AnnotationStore:
    """Looks up the annotations of a store. Only an index is in memory, with 16 bytes per sentence.

    Attributes:
        noun: the name of the annotations in messages.
        maker: the name of the tool in messages.
        command: the command that creates the annotations.

    Raises:
        UserError: the store does not exist, or is damaged.
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
        for offset in self._offsets:
            yield self._content[int(offset) : int(offset) + 2 * KEY_BYTES].decode()

    def _read_header(self, path: Path) -> dict[str, Any]:
        """The description of the tool that made the store. Raises UserError if the store is missing or damaged."""
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
        """The annotation of a sentence as stored, or None if there is none."""
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
        return hashes_of([self.path])[0]

    def damaged(self, text: str, error: Exception) -> UserError:
        return UserError(f"{self.noun} are damaged ({error})", where=str(self.path), received=text)


class ParseStore(AnnotationStore):
    """A store of parses."""

    noun, maker = "parses", "parser"

    def get(self, line: str) -> Parse | None:
        """The parse of a sentence (without tokens if the parser had none), or None if it was never parsed.

        Raises:
            UserError: the store is damaged.
        """
        text = self.text(line)
        try:
            return None if text is None else Parse.read(text)
        except ValueError as error:
            raise self.damaged(str(text), error) from error


Store = TypeVar("Store", bound=AnnotationStore)


class StoreLabeller(Labeller, Generic[Store]):
    """A labeller that reads annotations from a store, which is reopened after unpickling.

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
        return self.kind(self.path)  # type: ignore[return-value]

    def fingerprint(self) -> str:
        return self._fingerprint


class StoreWriter:
    """Appends annotations to a store. `known` are the keys that are already in it."""

    def __init__(self, path: Path, file: FileIO, known: set[str]) -> None:
        self.path, self.known, self._file = path, known, file

    def add(self, annotations: Iterable[tuple[str, str]]) -> None:
        """Append annotations by key, and flush them to the disk."""
        lines = [f"{key}\t{text}\n" for key, text in annotations]
        _write(self.path, self._file, "".join(lines))
        os.fsync(self._file.fileno())


def _write(path: Path, file: FileIO, text: str) -> None:
    """Append all of a text, since the system may write only part of it, as on a disk that is almost full."""
    rest = memoryview(text.encode())
    with named_in_errors(path):
        while rest:
            rest = rest[file.write(rest) :]


@contextmanager
def open_writer(path: Path, maker: dict[str, Any], kind: type[AnnotationStore]) -> Iterator[StoreWriter]:
    """Create a store, or open an existing one with the same `maker` (as JSON) for appending.

    Raises:
        UserError: the store has another maker, another process writes to it, or it cannot be written.
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
    """Write the header of a new store, or check it and truncate an incomplete line. Returns the existing keys."""
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


CHUNK = 200  # sentences per write

Chunk = list[tuple[str, str]]  # keys and sentences
Parsed = list[tuple[str, Parse]]


@dataclass
class Annotated:
    """The result of annotating: lines read, distinct sentences newly parsed, how many lack a parse, and the time taken.

    With several `processes`, the time includes starting them.
    """

    store: Path
    lines: int
    parsed: int
    without: int
    seconds: float
    processes: int

    def text(self) -> str:
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
    """Parse the lines that are not yet in `store`, except blank ones, and add them to it.

    Args:
        lines: raw text, which is iterated once.
        config: the parser.
        store: the path of the store.
        total: the number of lines, for the progress line.
        processes: the number of processes, by default one per core (a CoNLL-U file is only looked up, in this process).
        where: the recipe key of the parser, for messages.

    Raises:
        UserError: the parser is not installed, or the store belongs to another parser or cannot be written.
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
    """The distinct sentences that are not known yet, in chunks. Counts all lines."""
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


_loaded: Parser  # the parser of a process of the pool


def _start(config: ParserConfig, where: str) -> None:
    global _loaded
    _loaded = load_parser(config, where)


def _parse_here(chunk: Chunk) -> Parsed:
    return _parse_chunk(chunk, _loaded)
