"""Encoded corpora, which are encoded once and memory-mapped from the cache.

A corpus of N pairs is a folder of .npy files: `source.npy` and `target.npy` with the concatenated ids of all pairs,
`source_offsets.npy` and `target_offsets.npy` (N + 1,) where each pair begins, `lines.npy` (N,) with line numbers,
`labels/NAME.npy` with labels of all tokens, or links with `labels/NAME_offsets.npy`; and `report.json`. The folder's
name is a hash of everything that determines the content: raw text, vocabularies, filters, labellers, the treatment of
unreadable rows, format.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from headway.core.documents import read_json
from headway.core.files import write_json
from headway.core.log import say
from headway.core.processes import batched, cores, in_processes
from headway.core.registry import foreign_code
from headway.core.storage import (
    DAMAGED,
    GrowingArray,
    cache_folder,
    cache_named,
    file_hashes,
    kept_folder,
    read_array,
    software,
    workspace,
)
from headway.corpora.corpus_report import DUPLICATE, EMPTY, TOO_LONG, UNBALANCED, CorpusReport, Counts
from headway.corpora.filters import Filters
from headway.corpora.plan import EncodedPairs
from headway.formats.pairs import Pair, PairSource
from headway.processing.processor import Truncation, encode_beginnings
from headway.processing.text.text_processor import Labeller, TextProcessor, load_processors, save_processors
from headway.tensors.batch import LINKS

CHUNK = 2000  # pairs: enough to outweigh the cost of passing them to a process, but small in memory
PATIENCE = 2.0  # seconds of work in one process before others are started, which takes about as long
SAVED_EVERY = 10.0  # seconds: the maximum work that is lost if the process is killed
JOURNAL = "journal.json"  # the progress of writing, for resuming


@dataclass(frozen=True)
class Chunk:
    """Consecutive pairs as raw text, and the line numbers of duplicates that are left out."""

    lines: list[int]
    sources: list[str]
    targets: list[str]
    duplicates: list[int]


@dataclass(frozen=True)
class EncodedSide:
    """One side of N pairs: the concatenated ids of all lines, and the number of ids (N,) and words (N,) per line."""

    ids: NDArray[np.integer]
    lengths: NDArray[np.int64]
    words: NDArray[np.int64]

    def select(self, kept: NDArray[np.bool_]) -> "EncodedSide":
        """The lines for which `kept` (N,) is True."""
        return EncodedSide(self.ids[np.repeat(kept, self.lengths)], self.lengths[kept], self.words[kept])


@dataclass(frozen=True)
class EncodedLabels:
    """The concatenated labels of N pairs, the number of labels of each pair (N,), and the labeller's counts (N, C)."""

    values: NDArray[np.int32]
    lengths: NDArray[np.int64]
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class EncodedChunk:
    """An encoded chunk: `lines` (N,), both sides of N pairs, and labels by name. An empty text has no ids.

    `truncated` (N,) is True for sources that were truncated.
    """

    lines: NDArray[np.int64]
    source: EncodedSide
    target: EncodedSide
    duplicates: list[int]
    labels: Mapping[str, EncodedLabels]
    truncated: NDArray[np.bool_]


def chunks(pairs: Iterable[Pair], drop_duplicates: bool) -> Iterator[Chunk]:
    """Group pairs into chunks. If duplicates are to be dropped, only their line numbers are kept.

    Duplicates are recognised by a 128-bit hash of every pair, with about 100 bytes of memory per pair. Among a billion
    different pairs, two hashes agree with a probability below 1e-20. A pair with a blank side is never a duplicate.
    """
    seen: set[bytes] = set()
    for some in batched(pairs, CHUNK):
        chunk = Chunk([], [], [], [])
        for line, source, target, _ in some:
            blank = not source.strip() or not target.strip()
            if drop_duplicates and not blank:
                before = len(seen)
                # The length distinguishes ("ab", "c") from ("a", "bc").
                seen.add(hashlib.blake2b(f"{len(source)}:{source}{target}".encode(), digest_size=16).digest())
                if len(seen) == before:
                    chunk.duplicates.append(line)
                    continue
            chunk.lines.append(line)
            chunk.sources.append(source)
            chunk.targets.append(target)
        yield chunk


def encode(
    chunk: Chunk,
    sides: tuple[TextProcessor, TextProcessor],
    labellers: Sequence[Labeller] = (),
    truncation: Truncation | None = None,
) -> EncodedChunk:
    """Encode a chunk and label its tokens. Labels belong to whole lines, so labellers exclude truncation."""
    assert truncation is None or not labellers
    texts = chunk.sources, chunk.targets
    source, truncated = _encode_side(sides[0], chunk.sources, truncation)
    target, _ = _encode_side(sides[1], chunk.targets, None)
    labels = {}
    for labeller in labellers:
        labels[labeller.name] = _labels(labeller, sides, texts)
        if labeller.side is not None:
            assert (labels[labeller.name].lengths == (source, target)[labeller.side].lengths).all()
    lines = np.array(chunk.lines, dtype=np.int64)
    return EncodedChunk(lines, source, target, chunk.duplicates, labels, truncated)


def _labels(
    labeller: Labeller, sides: tuple[TextProcessor, TextProcessor], texts: tuple[Sequence[str], Sequence[str]]
) -> EncodedLabels:
    labelled = [labeller.label(pair, sides) for pair in zip(*texts, strict=True)]
    flat = [values.ravel() for values, _ in labelled]
    values = np.concatenate(flat) if labelled else np.zeros(0)
    counts = np.array([counts for _, counts in labelled], dtype=np.int64).reshape(-1, len(labeller.counted))
    return EncodedLabels(values.astype(np.int32), np.array([len(each) for each in flat], dtype=np.int64), counts)


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
    """Encode chunks in order, on all cores once there is enough work to justify starting processes.

    Only a few chunks per process are in memory at a time.

    Args:
        stream: the chunks.
        sides: the processors of source and target.
        sides_folder: the folder from which other processes load the same processors.
        labellers: the labellers of tokens.
        truncation: the maximum length of sources.

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


# The state of a process of the pool.
_loaded: tuple[tuple[TextProcessor, TextProcessor], Sequence[Labeller], Truncation | None]


def _start(sides_folder: Path, labellers: Sequence[Labeller], truncation: Truncation | None) -> None:
    global _loaded
    with foreign_code(True):  # the parent process has already allowed the code of these sides
        _loaded = load_processors(sides_folder), labellers, truncation


def _encode_here(chunk: Chunk) -> EncodedChunk:
    return encode(chunk, *_loaded)


__all__ = ["Corpus", "CorpusReport", "build_corpus"]

FORMAT = 2  # part of the hash by which runs identify their data

Progress = Callable[[int], object]


class Corpus(EncodedPairs):
    """Encoded pairs, memory-mapped from a folder.

    Args:
        folder: a folder written by `build_corpus`.
        name: the name of the corpus in the report.

    Attributes:
        source_lengths: (N,) int32, the number of tokens without the end-of-sentence token.
        target_lengths: (N,) int32, likewise.
        lines: (N,) int64, the line or row of each pair in its origin, counted from 1.
        report: how many pairs were read, kept and dropped.
        fingerprint: a hash of everything that determines the content.

    Raises:
        OSError, ValueError, KeyError, TypeError, UserError: the folder does not contain a complete corpus.
    """

    def __init__(self, folder: Path, name: str) -> None:
        arrays = ("source", "source_offsets", "target", "target_offsets", "lines")
        self._source, self._source_offsets, self._target, self._target_offsets, self.lines = (
            read_array(folder / f"{array}.npy") for array in arrays
        )
        report = CorpusReport.from_json(read_json(folder / "report.json", what="report"))
        self.report, self.fingerprint = replace(report, name=name), folder.name
        self._labels = {label: read_array(folder / "labels" / f"{label}.npy") for label in report.labels}
        self._label_offsets = {
            label: read_array(offsets)
            if (offsets := folder / "labels" / f"{label}_offsets.npy").exists()
            else (self._source_offsets if label.startswith("source_") else self._target_offsets)
            for label in report.labels
        }
        self.source_lengths, self.target_lengths = (
            np.subtract(ends[1:], ends[:-1], out=np.empty(len(ends) - 1, dtype=np.int32), casting="unsafe")
            for ends in (self._source_offsets, self._target_offsets)
        )

    def source(self, index: int) -> NDArray[np.integer]:
        return self._source[self._source_offsets[index] : self._source_offsets[index + 1]]

    def target(self, index: int) -> NDArray[np.integer]:
        return self._target[self._target_offsets[index] : self._target_offsets[index + 1]]

    def labels(self, index: int) -> dict[str, NDArray[np.integer]]:
        by_name = {}
        for name, values in self._labels.items():
            offsets = self._label_offsets[name]
            chosen = values[offsets[index] : offsets[index + 1]]
            by_name[name] = chosen.reshape(-1, 3) if name == LINKS else chosen
        return by_name


def build_corpus(
    source: PairSource,
    processors: tuple[TextProcessor, TextProcessor],
    filters: Filters,
    *,
    name: str,
    filter: bool,
    progress: Progress | None = None,
    cache: Path | None = None,
    labellers: Sequence[Labeller] = (),
) -> Corpus:
    """Open an encoded corpus from the cache, or encode and cache it. Memory does not grow with the corpus.

    Args:
        source: the pairs.
        processors: the text processors of source and target.
        filters: the conditions for keeping pairs.
        name: the name of the corpus in the report, such as `data.train`.
        filter: whether `max_length`, `max_ratio` and `drop_duplicates` apply; pairs with an empty side are always
            dropped, and `truncate_source` always applies.
        progress: called from time to time with the number of pairs read so far.
        cache: the cache folder, by default that of `cache_folder`.
        labellers: the labellers of tokens.

    Raises:
        UserError: as raised while reading the pairs.
        RunError: the cache cannot be written.
    """
    applied = filters.of_pairs() if filter else {}
    truncation = filters.truncation()
    content = source.fingerprint()
    corpora = (cache_folder() if cache is None else cache) / "corpora"
    with cache_named(corpora), workspace(corpora) as sides:
        save_processors(processors, sides)
        kept = content if source.row_errors.broken == "error" else [content, source.row_errors.broken]
        hashes = list(file_hashes(sides).items())
        labels = {labeller.name: [type(labeller).__qualname__, labeller.fingerprint()] for labeller in labellers}
        key = json.dumps([FORMAT, kept, hashes, applied, labels, str(truncation)], sort_keys=True)
        folder = corpora / hashlib.sha256(key.encode()).hexdigest()
        told = progress or (lambda done: None)
        write = partial(_write, source, processors, applied, sides, told, labellers, truncation)
        return kept_folder(folder, write, partial(Corpus, name=name), resumable=True)


def _write(
    source: PairSource,
    processors: tuple[TextProcessor, TextProcessor],
    filters: dict[str, Any],
    sides: Path,
    progress: Progress,
    labellers: Sequence[Labeller],
    truncation: Truncation | None,
    folder: Path,
) -> None:
    """Write the corpus into `folder`, resuming if interrupted. `sides` is the folder with the saved processors."""
    counts, lengths = Counts(truncated_to="" if truncation is None else str(truncation)), dict[str, int]()
    with suppress(*DAMAGED):
        known = read_json(folder / JOURNAL, what="journal")
        if known["software"] == software():
            counts, lengths = Counts.from_json(known["counts"]), known["lengths"]
            say(f"encoding goes on after {counts.pairs_read:,} pairs")
    (folder / "labels").mkdir(exist_ok=True)
    with ExitStack() as stack:
        arrays: dict[str, GrowingArray] = {}

        def array(name: str, dtype: DTypeLike) -> GrowingArray:
            growing = GrowingArray(folder / f"{name}.npy", dtype, lengths.get(name, 0))
            arrays[name] = stack.enter_context(growing)
            return growing

        def offsets_of(name: str) -> GrowingArray:
            """Where each pair begins, and the last ends; the first begins at 0."""
            offsets = array(f"{name}_offsets", np.int64)
            if not offsets.length:
                offsets.append(np.zeros(1, dtype=np.int64))
            return offsets

        lines = array("lines", np.int64)
        of_sides = [
            (array(name, narrowest(len(side.vocabulary))), offsets_of(name))
            for name, side in zip(("source", "target"), processors, strict=True)
        ]
        labels = {labeller.name: array(f"labels/{labeller.name}", np.int32) for labeller in labellers}
        offsets = {each.name: offsets_of(f"labels/{each.name}") for each in labellers if each.side is None}
        read = islice(chunks(source, bool(filters.get("drop_duplicates"))), -(-counts.pairs_read // CHUNK), None)
        saved = time.monotonic()
        for chunk in encode_all(read, processors, sides, labellers, truncation):
            kept = _keep(chunk, filters, counts)
            counts.truncated += int((chunk.truncated & kept).sum())
            lines.append(chunk.lines[kept])
            for labeller in labellers:
                labelled, values = chunk.labels[labeller.name], labels[labeller.name]
                if labeller.side is None:
                    offsets[labeller.name].append(values.length + np.cumsum(labelled.lengths[kept]))
                values.append(labelled.values[np.repeat(kept, labelled.lengths)])
                counts.label(labeller.name, labeller.counted, labelled.counts[kept])
            for side, (ids, ends), count in zip(
                (chunk.source, chunk.target), of_sides, (counts.source, counts.target), strict=True
            ):
                part = side.select(kept)
                ends.append(ids.length + np.cumsum(part.lengths))
                ids.append(part.ids)
                count.add(part.ids, part.lengths)
            progress(counts.pairs_read)
            if time.monotonic() - saved >= SAVED_EVERY:
                for growing in arrays.values():
                    growing.sync()
                so_far = {name: growing.length for name, growing in arrays.items()}
                write_json(folder / JOURNAL, {"software": software(), "lengths": so_far, "counts": asdict(counts)})
                saved = time.monotonic()
    (folder / JOURNAL).unlink(missing_ok=True)
    origins = source.origins()
    write_json(folder / "report.json", counts.report("", origins, source.row_errors.report(bool(origins))).to_json())


def narrowest(vocabulary: int) -> DTypeLike:
    """The smallest integer type for the ids of a vocabulary of this size."""
    return next((kind for kind in (np.uint8, np.uint16) if vocabulary <= np.iinfo(kind).max + 1), np.int32)


def _keep(chunk: EncodedChunk, filters: dict[str, Any], counts: Counts) -> NDArray[np.bool_]:
    """A mask of the pairs of a chunk that pass the filters. The others are counted by the first reason that applies."""
    counts.pairs_read += len(chunk.lines) + len(chunk.duplicates)
    counts.drop(DUPLICATE, chunk.duplicates)
    reasons = {EMPTY: np.minimum(chunk.source.lengths, chunk.target.lengths) == 0}
    counted = [side.words if filters.get("count") == "words" else side.lengths for side in (chunk.source, chunk.target)]
    shorter, longer = np.minimum(*counted), np.maximum(*counted)
    if "max_length" in filters:
        reasons[TOO_LONG] = longer > filters["max_length"]
    if filters.get("max_ratio") is not None:
        reasons[UNBALANCED] = longer > filters["max_ratio"] * shorter
    kept = np.ones(len(chunk.lines), dtype=np.bool_)
    for reason, applies in reasons.items():
        counts.drop(reason, chunk.lines[kept & applies])
        kept &= ~applies
    counts.pairs_kept += int(kept.sum())
    return kept
