"""Where parallel examples come from: line-aligned files, TSV, JSON lines, data sets of the Hugging Face hub.

A source streams its pairs and can be read any number of times; nothing of it stays in memory.
"""

import gzip
import hashlib
import json
import lzma
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from headway.errors import UserError
from headway.files import sha256
from headway.recipe import CorpusConfig

PAIR_ORIGINS = ("target", "tsv", "jsonl", "hub", "trees")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Pair(NamedTuple):
    """A source and its target, as raw text, with the number of their line or row, counted from 1.

    `wanted` is what metrics compare outputs with, where that is not the target itself.
    """

    line: int
    source: str
    target: str
    wanted: str | None = None

    @property
    def references(self) -> tuple[str, ...]:
        """What metrics compare outputs with."""
        return (self.target if self.wanted is None else self.wanted,)


class PairSource(ABC):
    """A stream of pairs from one origin.

    Attributes:
        name: the origin, for messages.
        files: the files that hold it.
    """

    def __init__(self, name: str, files: Sequence[Path], columns: Sequence[str | int] = ()) -> None:
        self.name, self.files, self.columns = name, tuple(files), tuple(columns)

    @abstractmethod
    def __iter__(self) -> Iterator[Pair]:
        """All pairs, in their order. Raises UserError, with file and line, where the origin is at fault."""

    def fingerprint(self) -> str:
        """A hash of the content (not of names and dates) and of how it is read."""
        return _hash([type(self).__name__, *map(repr, self.columns), *map(sha256, self.files)])


class ParallelFiles(PairSource):
    """Two files; line n of the one belongs to line n of the other."""

    def __init__(self, source: Path, target: Path) -> None:
        super().__init__(f"{source} and {target}", (source, target))

    def __iter__(self) -> Iterator[Pair]:
        source, target = (read_lines(path) for path in self.files)
        for line, (left, right) in enumerate(zip_longest(source, target), start=1):
            if left is None or right is None:
                rest = sum(1 for _ in (target if left is None else source))
                raise self._uneven(line, rest, shorter=0 if left is None else 1)
            yield Pair(line, left, right)

    def _uneven(self, line: int, rest: int, shorter: int) -> UserError:
        counts = {self.files[shorter]: line - 1, self.files[1 - shorter]: line + rest}
        received = ", ".join(f"{path} has {counts[path]} lines" for path in self.files)
        return UserError(f"this line has no partner: {received}", where=f"{self.files[1 - shorter]}:{line}")


class TabSeparated(PairSource):
    """A file with a pair a row, in columns that tabs separate. Quotes mean nothing special.

    Without `columns` a row has exactly two. With them it may have more, but all rows equally many: a stray tab would
    silently shift the text into another column. Where `columns` are names, the first row is not a pair but holds them.
    """

    def __init__(self, path: Path, columns: tuple[int, int] | tuple[str, str] | None) -> None:
        super().__init__(str(path), (path,), columns or ())

    def __iter__(self) -> Iterator[Pair]:
        rows = enumerate(read_lines(self.files[0]), start=1)
        expected = None if self.columns else 2
        source, target = self.columns or (1, 2)
        if isinstance(source, str):
            header = next(rows)[1].split("\t")
            source, target, expected = self._place(source, header), self._place(str(target), header), len(header)
        source, target = int(source), int(target)
        for line, row in rows:
            if not row.strip():
                yield Pair(line, "", "")
                continue
            cells = row.split("\t")
            if expected is None and len(cells) >= max(source, target):
                expected = len(cells)
            if len(cells) != expected:
                needed = f"{expected}" if expected else f"at least {max(source, target)}"
                where = f"{self.files[0]}:{line}"
                raise UserError("wrong number of columns", where=where, received=len(cells), allowed=needed)
            yield Pair(line, cells[source - 1], cells[target - 1])

    def _place(self, name: str, header: list[str]) -> int:
        if name not in header:
            where = f"{self.files[0]}:1"
            raise UserError("no column has this name", where=where, received=name, allowed=header)
        return header.index(name) + 1


class JsonLines(PairSource):
    """A file with a JSON object a line; `columns` are the fields of source and target, dots reach into nested ones."""

    def __init__(self, path: Path, columns: tuple[str, str]) -> None:
        super().__init__(str(path), (path,), columns)
        self.source_field, self.target_field = columns

    def __iter__(self) -> Iterator[Pair]:
        for line, text in enumerate(read_lines(self.files[0]), start=1):
            if not text.strip():
                yield Pair(line, "", "")
                continue
            where = f"{self.files[0]}:{line}"
            try:
                record = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise UserError(f"this line is not JSON ({error})", where=where) from error
            yield Pair(line, _field(record, self.source_field, where), _field(record, self.target_field, where))


class HubDataSet(PairSource):
    """One split of a data set of the Hugging Face hub, or of a local folder in its format."""

    def __init__(self, config: CorpusConfig, where: str) -> None:
        assert config.hub is not None
        columns = cast(tuple[str, str], config.columns)
        self.rows = _load_data_set(config.hub, config.hub_config, config.split, where)
        # Arrow files hold the content; a data set in memory has none.
        files = [Path(each["filename"]) for each in self.rows.cache_files]
        super().__init__(f"{config.hub} {config.split}", files, columns)
        self.split, (self.source_field, self.target_field) = config.split, columns

    def __iter__(self) -> Iterator[Pair]:
        for line, record in enumerate(self.rows, start=1):
            where = f"{self.name}:{line}"
            yield Pair(line, _field(record, self.source_field, where), _field(record, self.target_field, where))

    def fingerprint(self) -> str:
        content = [] if self.files else [json.dumps(pair) for pair in self]
        return _hash([super().fingerprint(), str(self.split), str(len(self.rows)), *content])


def _load_data_set(name: str, config: str | None, split: str | None, where: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        message = "data sets of the hub need a package that is not installed: pip install 'headway[hub]'"
        raise UserError(message, where=f"{where}.hub", received=name) from error
    try:
        rows = datasets.load_dataset(name, config, split=split, streaming=False)
    except Exception as error:  # no network, an unknown name, configuration or split: each has a class of its own
        raise UserError(f"cannot load this data set ({error})", where=f"{where}.hub", received=name) from error
    if isinstance(rows, Mapping):
        raise UserError("say which split of the data set to read", where=f"{where}.split", allowed=list(rows))
    if not len(rows):
        raise UserError("this data set is empty", where=f"{where}.hub", received=f"{name} {split}")
    return rows


def _field(record: Any, name: str, where: str) -> str:
    """The text at `name`, in which dots reach into nested mappings."""
    value = record
    for part in name.split("."):
        if not isinstance(value, Mapping):
            raise UserError(f"no fields to find {name} in", where=where, received=value, allowed="a mapping of fields")
        if part not in value:
            raise UserError(f"no field {part} on the way to {name}", where=where, allowed=list(map(str, value)))
        value = value[part]
    if not isinstance(value, str):
        raise UserError(f"field {name} holds no text", where=where, received=value)
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise UserError(f"field {name} holds half of a surrogate pair, which is no character", where=where)
    return value


def open_source(config: CorpusConfig, where: str) -> PairSource:
    """The pairs that `config` names.

    Args:
        config: one corpus of the recipe.
        where: its recipe key, such as `data.train`, for messages.

    Raises:
        UserError: a file that is missing, unreadable or empty; a data set that cannot be loaded.
    """
    check_origin(config, where, PAIR_ORIGINS)
    for key in ("source", "target", "tsv", "jsonl", "trees"):
        if (path := getattr(config, key)) is not None:
            check_file(path, f"{where}.{key}")
    if config.source is not None and config.target is not None:
        return ParallelFiles(config.source, config.target)
    if config.tsv is not None:
        return TabSeparated(config.tsv, config.columns)
    if config.jsonl is not None:
        return JsonLines(config.jsonl, cast(tuple[str, str], config.columns))
    if config.trees is not None:
        from headway.data.trees.pairs import TreePairs  # which reads files as all sources here do

        return TreePairs(config.trees, config.leaves, config.functions)
    return HubDataSet(config, where)


def check_origin(config: CorpusConfig, where: str, allowed: Sequence[str]) -> None:
    """Raise UserError unless the corpus is of an `allowed` kind, such as `tsv`."""
    if config.origin() not in allowed:
        raise UserError("the task reads no such corpus", where=where, received=config.origin(), allowed=allowed)


def check_file(path: Path, where: str) -> None:
    """Raise UserError, with the recipe key `where`, unless there is such a file with something in it."""
    if not path.exists():
        raise UserError("there is no such file", where=where, received=str(path))
    if not path.is_file():
        raise UserError("this is not a file that can be read again and again", where=where, received=str(path))
    if next(read_lines(path), None) is None:
        raise UserError("this file is empty", where=where, received=str(path))


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a text file, plain, .gz or .xz, without their ends.

    Only \\n and \\r\\n end a line, so that rarer separators (U+2028, U+0085, form feed) cannot shift an alignment. A
    byte order mark at the beginning is left out, and a last line need not be ended.

    Raises:
        UserError: a file that cannot be read, is damaged, or is not UTF-8; with file and line.
    """
    number = 0
    try:
        with open_bytes(path) as file:
            for number, raw in enumerate(file, start=1):
                line = raw.removeprefix(BYTE_ORDER_MARK) if number == 1 else raw
                if line.endswith(b"\n"):
                    line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
                elif not line:  # nothing but a byte order mark
                    return
                yield line.decode()
    except UnicodeDecodeError as error:
        byte, column = error.object[error.start], error.start + 1
        raise UserError(
            f"invalid UTF-8: byte 0x{byte:02x} at byte {column} of the line", where=f"{path}:{number}"
        ) from error
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise UserError(
            f"this compressed file is damaged or cut off ({error})", where=f"{path}:{number + 1}"
        ) from error
    except OSError as error:
        raise UserError(f"cannot read this file ({error.strerror or error})", where=str(path)) from error


def open_bytes(path: Path) -> IO[bytes]:
    """A file's content, decompressed where its name ends in .gz or .xz. Raises OSError."""
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path))
    return lzma.open(path) if path.suffix == ".xz" else path.open("rb")


@dataclass(frozen=True)
class Overlap:
    """How much of dev stands in train as well, in raw text.

    Attributes:
        dev_pairs: dev pairs with text on both sides.
        pairs: how many of them are train pairs.
        sources: how many of them have the source of a train pair, whatever its target.
    """

    dev_pairs: int
    pairs: int
    sources: int

    def __str__(self) -> str:
        def share(count: int) -> str:
            return f"{count:,} ({count / max(1, self.dev_pairs):.1%})"

        shared = f"{share(self.pairs)} also stand in train, and {share(self.sources)} with their source alone"
        return f"data.dev: of {self.dev_pairs:,} pairs with text, {shared}"


def overlap(train: PairSource, dev: PairSource) -> Overlap:
    """Count what dev shares with train. Only dev is held in memory, train streams."""
    pairs = [(pair.source, pair.target) for pair in dev if pair.source.strip() and pair.target.strip()]
    sources = {source for source, _ in pairs}
    wanted = set(pairs)
    seen_sources, seen_pairs = set(), set()
    for pair in train:
        if pair.source in sources:
            seen_sources.add(pair.source)
            if (pair.source, pair.target) in wanted:
                seen_pairs.add((pair.source, pair.target))
    return Overlap(
        len(pairs), sum(pair in seen_pairs for pair in pairs), sum(source in seen_sources for source, _ in pairs)
    )


def _hash(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
