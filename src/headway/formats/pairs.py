"""Where parallel examples come from: line-aligned files, TSV, JSON lines, data sets of the Hugging Face hub.

A source streams its pairs and can be read any number of times; nothing of it stays in memory.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, cast

from headway.errors import UserError
from headway.files import sha256
from headway.formats.corpus_config import CorpusConfig
from headway.formats.lines import check_file, read_lines

PAIR_ORIGINS = ("target", "references", "tsv", "jsonl", "hub", "trees")


class Pair(NamedTuple):
    """A source and its target, as raw text, with the number of their line or row, counted from 1.

    `compared` is what metrics compare outputs with, where that is not the target alone: equally many references in
    every pair of a corpus.
    """

    line: int
    source: str
    target: str
    compared: tuple[str, ...] = ()

    @classmethod
    def of(cls, line: int, texts: Sequence[str]) -> "Pair":
        """The pair of a source and its references, of which the first is the target."""
        source, *references = texts
        return cls(line, source, references[0], tuple(references) if len(references) > 1 else ())

    @property
    def references(self) -> tuple[str, ...]:
        """What metrics compare outputs with."""
        return self.compared or (self.target,)


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
    """A file of sources and one or more of references; line n of the one belongs to line n of the others."""

    def __init__(self, source: Path, *references: Path) -> None:
        super().__init__(" and ".join(map(str, (source, *references))), (source, *references))

    def __iter__(self) -> Iterator[Pair]:
        streams = [read_lines(path) for path in self.files]
        for line, texts in enumerate(zip_longest(*streams), start=1):
            if None in texts:
                raise self._uneven(line, texts, streams)
            yield Pair.of(line, cast(tuple[str, ...], texts))

    def _uneven(self, line: int, texts: Sequence[str | None], streams: Sequence[Iterator[str]]) -> UserError:
        counts = [
            line - 1 if text is None else line + sum(1 for _ in rest) for text, rest in zip(texts, streams, strict=True)
        ]
        received = ", ".join(f"{path} has {count} lines" for path, count in zip(self.files, counts, strict=True))
        longer = self.files[counts.index(max(counts))]
        return UserError(f"this line has no partner: {received}", where=f"{longer}:{line}")


class TabSeparated(PairSource):
    """A file with a pair a row, in columns that tabs separate. Quotes mean nothing special.

    Without `columns` a row has exactly two. With them it may have more, but all rows equally many: a stray tab would
    silently shift the text into another column. Where `columns` are names, the first row is not a pair but holds them.
    """

    def __init__(self, path: Path, columns: tuple[int, ...] | tuple[str, ...] | None) -> None:
        super().__init__(str(path), (path,), columns or ())

    def __iter__(self) -> Iterator[Pair]:
        rows = enumerate(read_lines(self.files[0]), start=1)
        expected, chosen = None if self.columns else 2, self.columns or (1, 2)
        if any(isinstance(column, str) for column in chosen):
            header = next(rows)[1].split("\t")
            chosen, expected = tuple(self._place(str(name), header) for name in chosen), len(header)
        places = [int(column) - 1 for column in chosen]
        least = max(places) + 1
        for line, row in rows:
            if not row.strip():
                yield Pair.of(line, [""] * len(places))
                continue
            cells = row.split("\t")
            if expected is None and len(cells) >= least:
                expected = len(cells)
            if len(cells) != expected:
                needed = f"{expected}" if expected else f"at least {least}"
                where = f"{self.files[0]}:{line}"
                raise UserError("wrong number of columns", where=where, received=len(cells), allowed=needed)
            yield Pair.of(line, [cells[place] for place in places])

    def _place(self, name: str, header: list[str]) -> int:
        """The number of the column of this name."""
        if name not in header:
            where = f"{self.files[0]}:1"
            raise UserError("no column has this name", where=where, received=name, allowed=header)
        return header.index(name) + 1


class JsonLines(PairSource):
    """A file with a JSON object a line; `columns` are the fields of source and target, dots reach into nested ones."""

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        super().__init__(str(path), (path,), columns)
        self.fields = columns

    def __iter__(self) -> Iterator[Pair]:
        for line, text in enumerate(read_lines(self.files[0]), start=1):
            if not text.strip():
                yield Pair.of(line, [""] * len(self.fields))
                continue
            where = f"{self.files[0]}:{line}"
            try:
                record = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise UserError(f"this line is not JSON ({error})", where=where) from error
            yield Pair.of(line, [_field(record, name, where) for name in self.fields])


class HubDataSet(PairSource):
    """One split of a data set of the Hugging Face hub, or of a local folder in its format."""

    def __init__(self, config: CorpusConfig, where: str) -> None:
        assert config.hub is not None
        columns = cast(tuple[str, ...], config.columns)
        self.rows = _load_data_set(config.hub, config.hub_config, config.split, where)
        # Arrow files hold the content; a data set in memory has none.
        files = [Path(each["filename"]) for each in self.rows.cache_files]
        super().__init__(f"{config.hub} {config.split}", files, columns)
        self.split, self.fields = config.split, columns

    def __iter__(self) -> Iterator[Pair]:
        for line, record in enumerate(self.rows, start=1):
            where = f"{self.name}:{line}"
            yield Pair.of(line, [_field(record, name, where) for name in self.fields])

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
    for path in config.references:
        check_file(path, f"{where}.references")
    if config.source is not None:
        return ParallelFiles(config.source, *([config.target] if config.target else config.references))
    if config.tsv is not None:
        return TabSeparated(config.tsv, config.columns)
    if config.jsonl is not None:
        return JsonLines(config.jsonl, cast(tuple[str, ...], config.columns))
    if config.trees is not None:
        from headway.formats.treebanks import TreePairs

        return TreePairs(config.trees, config.leaves, config.functions)
    return HubDataSet(config, where)


def check_origin(config: CorpusConfig, where: str, allowed: Sequence[str]) -> None:
    """Raise UserError unless the corpus is of an `allowed` kind, such as `tsv`."""
    if config.origin() not in allowed:
        raise UserError("the task reads no such corpus", where=where, received=config.origin(), allowed=allowed)


def _hash(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
