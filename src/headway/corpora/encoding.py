"""From raw pairs to ids, in chunks, on all cores, in order."""

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headway.formats.pairs import Pair
from headway.processes import batched, cores, in_processes
from headway.processing.labeller import Labeller
from headway.processing.processor import Truncation, encode_beginnings
from headway.processing.text.text_processor import TextProcessor, load_processors
from headway.registry import foreign_code

CHUNK = 2000  # pairs: large beside the cost of handing them to a process, small in memory
PATIENCE = 2.0  # seconds of work in one process before others, which take as long to start, join in


@dataclass(frozen=True)
class Chunk:
    """Some consecutive pairs as raw text, and the lines of those that are left out as duplicates."""

    lines: list[int]
    sources: list[str]
    targets: list[str]
    duplicates: list[int]


@dataclass(frozen=True)
class EncodedSide:
    """One side of N pairs: the ids of all lines one after the other, each line's length, (N,), and its words, (N,)."""

    ids: NDArray[np.integer]
    lengths: NDArray[np.int64]
    words: NDArray[np.int64]

    def select(self, kept: NDArray[np.bool_]) -> "EncodedSide":
        """The lines where `kept` (N,) is True."""
        return EncodedSide(self.ids[np.repeat(kept, self.lengths)], self.lengths[kept], self.words[kept])


@dataclass(frozen=True)
class EncodedLabels:
    """Labels of one side of N pairs: those of all tokens one after the other, and what was counted of each line."""

    values: NDArray[np.int32]
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class EncodedChunk:
    """A chunk in ids: `lines` (N,), both sides of N pairs, and labels by name. An empty text has no ids.

    `truncated` (N,) is True where the source is longer than what was read of it.
    """

    lines: NDArray[np.int64]
    source: EncodedSide
    target: EncodedSide
    duplicates: list[int]
    labels: Mapping[str, EncodedLabels]
    truncated: NDArray[np.bool_]


def chunks(pairs: Iterable[Pair], drop_duplicates: bool) -> Iterator[Chunk]:
    """The pairs in chunks; duplicates, if they are to be dropped, only as line numbers.

    To find duplicates, a hash of every pair is kept, in about 100 bytes a pair. With 128 bits, two of a billion
    different pairs agree with a probability below 1e-20. A pair with a blank side is never a duplicate.
    """
    seen: set[bytes] = set()
    for some in batched(pairs, CHUNK):
        chunk = Chunk([], [], [], [])
        for line, source, target, _ in some:
            blank = not source.strip() or not target.strip()
            if drop_duplicates and not blank:
                before = len(seen)
                seen.add(_hash(source, target))
                if len(seen) == before:
                    chunk.duplicates.append(line)
                    continue
            chunk.lines.append(line)
            chunk.sources.append(source)
            chunk.targets.append(target)
        yield chunk


def _hash(source: str, target: str) -> bytes:
    # The length keeps ("ab", "c") and ("a", "bc") apart.
    return hashlib.blake2b(f"{len(source)}:{source}{target}".encode(), digest_size=16).digest()


def encode(
    chunk: Chunk,
    sides: tuple[TextProcessor, TextProcessor],
    labellers: Sequence[Labeller] = (),
    truncation: Truncation | None = None,
) -> EncodedChunk:
    """Encode one chunk, and label its tokens. Labels are those of whole lines, so that nothing may be left out then."""
    assert truncation is None or not labellers
    texts = chunk.sources, chunk.targets
    source, truncated = _encode_side(sides[0], chunk.sources, truncation)
    target, _ = _encode_side(sides[1], chunk.targets, None)
    labels = {}
    for labeller in labellers:
        encoded = (source, target)[labeller.side]
        labels[labeller.name] = _labels(labeller, sides[labeller.side], texts[labeller.side], encoded.lengths)
    lines = np.array(chunk.lines, dtype=np.int64)
    return EncodedChunk(lines, source, target, chunk.duplicates, labels, truncated)


def _labels(labeller: Labeller, side: TextProcessor, texts: Sequence[str], lengths: NDArray[np.int64]) -> EncodedLabels:
    labelled = [labeller.label(text, side) for text in texts]
    assert [len(values) for values, _ in labelled] == lengths.tolist()
    values = np.concatenate([values for values, _ in labelled]) if labelled else np.zeros(0)
    counts = np.array([counts for _, counts in labelled], dtype=np.int64)
    return EncodedLabels(values.astype(np.int32), counts.reshape(len(texts), len(labeller.counted)))


def _encode_side(
    side: TextProcessor, texts: Sequence[str], truncation: Truncation | None
) -> tuple[EncodedSide, NDArray[np.bool_]]:
    prepared = [side.prepare(text) for text in texts]
    lines, truncated = encode_beginnings(side.vocabulary, prepared, truncation)
    lengths = np.array([len(line) for line in lines], dtype=np.int64)
    words = np.array([len(line.split()) for line in prepared], dtype=np.int64)
    if truncation is not None and truncation.unit == "words":
        words = np.minimum(words, truncation.length)
    ids = np.fromiter(chain.from_iterable(lines), dtype=np.int32, count=int(lengths.sum()))
    return EncodedSide(ids, lengths, words), np.array(truncated, dtype=np.bool_)


def encode_all(
    stream: Iterator[Chunk],
    sides: tuple[TextProcessor, TextProcessor],
    sides_folder: Path,
    labellers: Sequence[Labeller] = (),
    truncation: Truncation | None = None,
) -> Iterator[EncodedChunk]:
    """Encode chunks in order, with all cores once there is enough work for it to pay to start processes.

    Only a few chunks a process are in memory at a time.

    Args:
        stream: the chunks.
        sides: source and target side.
        sides_folder: where the same sides are stored, for the processes to load.
        labellers: what labels the tokens.
        truncation: how much of the sources is read.

    Raises:
        RunError: a process died.
    """
    processes = cores()
    began = time.monotonic()
    for chunk in stream:
        yield encode(chunk, sides, labellers, truncation)
        if processes > 1 and time.monotonic() - began > PATIENCE:
            arguments = sides_folder, labellers, truncation
            yield from in_processes(stream, _encode_here, processes, _start, arguments, "encodes the corpus")


# Of this process, where it is one of the pool's.
_loaded: tuple[tuple[TextProcessor, TextProcessor], Sequence[Labeller], Truncation | None]


def _start(sides_folder: Path, labellers: Sequence[Labeller], truncation: Truncation | None) -> None:
    global _loaded
    with foreign_code(True):  # the process that began this one has the same sides, with leave for their code
        _loaded = load_processors(sides_folder), labellers, truncation


def _encode_here(chunk: Chunk) -> EncodedChunk:
    return encode(chunk, *_loaded)
