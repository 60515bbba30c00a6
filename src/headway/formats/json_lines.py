"""Records with named fields: JSON lines, and data sets of the Hugging Face hub."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import model_validator

from headway.errors import UserError, check_characters, not_installed
from headway.files import exists
from headway.formats.corpus_config import CorpusConfig
from headway.formats.corpus_format import PAIRS, RECORDINGS, CorpusFormat, Pair, PairSource, content_hash
from headway.formats.lines import read_rows
from headway.formats.recordings import Manifest
from headway.processing.hub import check_on_hub, files_of_bounded_size
from headway.storage import cache_folder


class RecordsConfig(CorpusConfig):
    """`columns` are the fields of the source and of one or more targets; dots reach into nested ones.

    Metrics compare with all targets, training learns the first.
    """

    columns: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _two_columns(self) -> Self:
        if not self.columns:
            raise ValueError("a jsonl or hub corpus needs columns: [source field, target field]")
        if len(self.columns) < 2:
            raise ValueError("columns are those of the source and of one or more targets")
        return self


class JsonLines(PairSource):
    """A file with a JSON object a line; `columns` are the fields of source and target, dots reach into nested ones."""

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        super().__init__(str(path), (path,), columns)
        self.fields = columns

    def rows(self) -> Iterator[Pair | UserError]:
        for line, text in enumerate(read_rows(self.files[0]), start=1):
            if isinstance(text, UserError):
                yield text
            elif not text.strip():
                yield Pair.of(line, [""] * len(self.fields))
            else:
                yield self._read(text, line)

    def _read(self, text: str, line: int) -> Pair | UserError:
        where = f"{self.files[0]}:{line}"
        try:
            record = json.loads(text, object_pairs_hook=_unique)
        except (ValueError, RecursionError) as error:
            return UserError(f"this line is not JSON ({error})", where=where)
        return _pair_of(record, self.fields, line, where)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of an object. Raises ValueError where one is there twice."""
    record = dict(pairs)
    if len(record) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"the field {twice!r} is there twice")
    return record


class JsonLinesFile(CorpusFormat):
    """A JSON object a line: pairs, or recordings, whose paths are relative to the file's folder, with transcripts."""

    class Config(RecordsConfig):
        """The file and its `columns`."""

        path: Path

    config: Config
    products = (PAIRS, RECORDINGS)

    def pairs(self) -> PairSource:
        return JsonLines(self.config.path, self.config.columns)

    def recordings(self) -> PairSource:
        return Manifest(self.pairs())


class HubDataSet(PairSource):
    """One split of a data set of the Hugging Face hub, or of a local folder in its format."""

    def __init__(self, name: str, records: Any, split: str | None, columns: tuple[str, ...]) -> None:
        # Arrow files hold the content; a data set in memory has none.
        files = [Path(file["filename"]) for file in records.cache_files]
        super().__init__(f"{name} {split}", files, columns)
        self.records, self.split, self.fields = records, split, columns

    def rows(self) -> Iterator[Pair | UserError]:
        for line, record in enumerate(self.records, start=1):
            yield _pair_of(record, self.fields, line, f"{self.name}:{line}")

    def fingerprint(self) -> str:
        content = [] if self.files else [json.dumps(pair) for pair in self]
        return content_hash([super().fingerprint(), str(self.split), str(len(self.records)), *content])


class Hub(CorpusFormat):
    """A data set of the Hugging Face hub, which the extra [hub] reads."""

    class Config(RecordsConfig):
        """The data set's `name` and `configuration`, as the hub calls them, and one `split` of it."""

        name: str
        configuration: str | None = None
        split: str | None = None

    config: Config
    products = (PAIRS,)

    def pairs(self) -> PairSource:
        config = self.config
        return HubDataSet(config.name, self._rows(), config.split, config.columns)

    def annotations(self, side: str) -> Path:
        parts = filter(None, (self.config.name, self.config.configuration, self.config.split))
        return Path(f"{cache_folder() / 'parses' / '-'.join(parts)}.{side}")

    def _rows(self) -> Any:
        name, split, where = self.config.name, self.config.split, f"{self.where}.name"
        try:
            import datasets
        except ImportError as error:
            raise not_installed(f"the data set {name}", ["datasets"], "hub", where) from error
        if not exists(Path(name), "folder"):
            check_on_hub(name, where, "datasets")
        try:
            with files_of_bounded_size():
                rows = datasets.load_dataset(name, self.config.configuration, split=split, streaming=False)
        except Exception as error:  # no network, an unknown name, configuration or split: each has a class of its own
            raise UserError(f"cannot load this data set ({error})", where=where, received=name) from error
        if isinstance(rows, Mapping):
            key = f"{self.where}.split"
            raise UserError("say which split of the data set to read", where=key, allowed=list(rows))
        if not len(rows):
            raise UserError("this data set is empty", where=where, received=f"{name} {split}")
        return rows


def _pair_of(record: Any, fields: Sequence[str], line: int, where: str) -> Pair | UserError:
    try:
        return Pair.of(line, [field_of(record, name, where) for name in fields])
    except UserError as error:
        return error


def field_of(record: Any, name: str, where: str) -> str:
    """The text at `name`, in which dots reach into nested mappings. Raises UserError where there is none."""
    value = record
    for part in name.split("."):
        if not isinstance(value, Mapping):
            raise UserError(f"no fields to find {name} in", where=where, received=value, allowed="a mapping of fields")
        if part not in value:
            raise UserError(f"no field {part} on the way to {name}", where=where, allowed=list(map(str, value)))
        value = value[part]
    if not isinstance(value, str):
        raise UserError(f"field {name} holds no text", where=where, received=value)
    check_characters(value, where, f"field {name}")
    return value
