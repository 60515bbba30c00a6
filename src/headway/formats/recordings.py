"""Recordings and their transcripts: manifests, and folders in the layout of LibriSpeech."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator, Field

from headway.core.errors import UserError
from headway.formats.corpus_config import CorpusConfig, GivenCorpus
from headway.formats.corpus_format import RECORDINGS, Broken, CorpusFormat, open_corpora
from headway.formats.lines import read_rows
from headway.formats.pairs import Pair, PairSource, joined

SUFFIXES = (".flac", ".wav")  # of recordings in LibriSpeech's layout


class Utterance(NamedTuple):
    """A recording and its transcript. `line` counts from 1 in its manifest, or across the whole corpus."""

    line: int
    audio: Path
    text: str


class Manifest(PairSource):
    """Pairs of a path and a transcript; paths are relative to the folder of the manifest."""

    source_is_text = False

    def __init__(self, table: PairSource) -> None:
        super().__init__(table.name, table.files, table.columns)
        self.table, self.folder = table, table.files[0].parent

    def rows(self) -> Iterator[Pair | UserError]:
        for row in self.table.rows():
            if isinstance(row, UserError):
                yield row
                continue
            name = row.source.strip()
            if not name and row.target.strip():
                yield UserError("this row names no recording", where=f"{self.files[0]}:{row.line}")
                continue
            yield row._replace(source=str(self.folder / name) if name else "")


class Transcripts(PairSource):
    """Files `*.trans.txt`, with a line `ID TEXT` for each `ID.flac` in the same folder."""

    source_is_text = False

    def rows(self) -> Iterator[Pair | UserError]:
        line = 0
        for file in self.files:
            for row in read_rows(file):
                line += 1
                if isinstance(row, UserError):
                    yield row
                    continue
                name, _, text = row.strip().partition(" ")
                paths = [str(file.parent / f"{name}{suffix}") for suffix in SUFFIXES]
                audio = next((path for path in paths if os.path.exists(path)), paths[0])  # noqa: PTH110  (never raises)
                yield Pair(line, audio if name else "", text)


class LibriSpeech(CorpusFormat):
    """Folders with files `*.trans.txt` at any depth, each in the folder of its recordings."""

    class Config(CorpusConfig):
        """`folders`: one or more folders of LibriSpeech."""

        folders: Annotated[
            tuple[Path, ...],
            Field(min_length=1),
            BeforeValidator(lambda value: [value] if isinstance(value, str | Path) else value),
        ]

    config: Config
    products = (RECORDINGS,)

    def check(self) -> None:
        self.recordings()

    def recordings(self) -> PairSource:
        names = ", ".join(map(str, self.config.folders))
        files = [sorted(folder.rglob("*.trans.txt")) for folder in self.config.folders]
        if not all(files):
            what = "there is no such folder, or it has no transcripts (*.trans.txt)"
            raise UserError(what, where=self.key("folders"), received=names)
        return Transcripts(names, list(chain(*files)))


def open_recordings(corpus: GivenCorpus, where: str, broken: Broken = "error") -> PairSource:
    """Open the pairs of paths and transcripts of a corpus, or of several.

    Args:
        corpus: the corpus as in a recipe; a mapping is parsed like a part of a recipe.
        where: its recipe key, such as `data.train`, for messages.
        broken: how unreadable rows are treated.

    Raises:
        UserError: a manifest or folder is missing or empty, or the corpus is of another kind.
    """
    return joined([format.recordings() for format in open_corpora(corpus, where, RECORDINGS)], broken)


def read_utterances(source: PairSource) -> list[Utterance]:
    """Read all utterances, skipping blank rows.

    Raises:
        UserError: a manifest is damaged, with its line, or contains no recording.
    """
    utterances = [Utterance(pair.line, Path(pair.source), pair.target) for pair in source if pair.source]
    if not utterances:
        at_fault = source.row_errors.all()
        raise UserError("there is no recording here", where=source.name, received=at_fault[0] if at_fault else None)
    return utterances


def hash_of_audio(path: Path) -> str:
    """A hash of a recording's content, or `unreadable` if the file cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except (OSError, ValueError):  # missing file, or invalid file name
        return "unreadable"
