"""Where recordings and their transcripts come from: manifests (TSV, JSON lines), folders laid out as LibriSpeech's."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from headway.errors import UserError
from headway.formats.corpus_config import CorpusConfig
from headway.formats.lines import read_lines
from headway.formats.pairs import Pair, PairSource, check_origin, open_source

RECORDING_ORIGINS = ("tsv", "jsonl", "librispeech")
SUFFIXES = (".flac", ".wav")  # of audio beside LibriSpeech's transcripts


class Utterance(NamedTuple):
    """A recording and what is said in it; `line` counts from 1 in its manifest, or among all of a folder."""

    line: int
    audio: Path
    text: str


class LibriSpeech(PairSource):
    """Folders with files `*.trans.txt`, below them at any depth: a line `ID TEXT` for each `ID.flac` beside it."""

    def __init__(self, folders: Sequence[Path], where: str) -> None:
        files: list[Path] = []
        for folder in folders:
            if not folder.is_dir():
                raise UserError("there is no such folder", where=f"{where}.librispeech", received=str(folder))
            files += sorted(folder.rglob("*.trans.txt"))
        if not files:
            raise UserError(
                "no transcripts (*.trans.txt) are in there", where=f"{where}.librispeech",
                received=", ".join(map(str, folders)),
            )  # fmt: skip
        super().__init__(", ".join(map(str, folders)), files)

    def __iter__(self) -> Iterator[Pair]:
        number = 0
        for file in self.files:
            for row in read_lines(file):
                number += 1
                name, _, text = row.strip().partition(" ")
                yield Pair(number, str(_audio_beside(file, name)) if name else "", text)


def _audio_beside(transcripts: Path, name: str) -> Path:
    candidates = [transcripts.parent / f"{name}{suffix}" for suffix in SUFFIXES]
    return next((path for path in candidates if path.exists()), candidates[0])


def open_recordings(config: CorpusConfig, where: str) -> PairSource:
    """The pairs of paths and transcripts that `config` names.

    Args:
        config: one corpus of the recipe.
        where: its recipe key, such as `data.train`, for messages.

    Raises:
        UserError: a manifest or folder that is missing or empty, or another kind of corpus.
    """
    check_origin(config, where, RECORDING_ORIGINS)
    return LibriSpeech(config.librispeech, where) if config.librispeech else open_source(config, where)


def read_utterances(source: PairSource) -> list[Utterance]:
    """All utterances, their paths taken from where the manifest stands; blank rows are left out.

    Raises:
        UserError: a manifest that is at fault, with its line, or that holds nothing.
    """
    folder = source.files[0].parent
    named = (pair for pair in source if pair.source.strip())
    utterances = [Utterance(pair.line, folder / pair.source.strip(), pair.target) for pair in named]
    if not utterances:
        raise UserError("there is no recording here", where=source.name)
    return utterances


def hash_of_audio(path: Path) -> str:
    """A hash of a recording's content, or of its being missing."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError:
        return "unreadable"
