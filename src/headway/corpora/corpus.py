"""A corpus in ids: encoded once, kept in a cache, memory-mapped ever after.

A corpus of N pairs is a folder of .npy files, `source.npy` and `target.npy` with the ids of all pairs one after the
other, `source_offsets.npy` and `target_offsets.npy` (N + 1,) where each pair begins, `lines.npy` (N,) with line
numbers, `labels/NAME.npy` with labels of all tokens, and `report.json`. Its name is a hash of all that decides its
content: raw text, vocabularies, filters, what labels come from, what becomes of broken rows, format.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.corpora.corpus_report import DUPLICATE, EMPTY, TOO_LONG, UNBALANCED, CorpusReport, Counts
from headway.corpora.encoding import EncodedChunk, EncodedSide, chunks, encode_all
from headway.corpora.filters import Filters
from headway.corpora.plan import EncodedPairs
from headway.documents import read_json
from headway.files import write_json
from headway.formats.pairs import PairSource
from headway.processing.labeller import Labeller
from headway.processing.processor import Truncation
from headway.processing.text.text_processor import TextProcessor, save_processors
from headway.storage import GrowingArray, cache_folder, cache_named, file_hashes, kept_folder, read_array, workspace

__all__ = ["Corpus", "CorpusReport", "build_corpus"]

FORMAT = 2  # runs know their data by the hash that it is a part of

Progress = Callable[[int], object]


class Corpus(EncodedPairs):
    """Encoded pairs, memory-mapped from a folder.

    Args:
        folder: what `build_corpus` wrote.
        name: what the report calls the corpus.

    Attributes:
        source_lengths: (N,) int32, tokens without the end of sentence.
        target_lengths: (N,) int32.
        lines: (N,) int64, the line or row of each pair in its origin, counted from 1.
        report: what was read, kept and dropped.
        fingerprint: a hash of all that decides the content.

    Raises:
        OSError, ValueError, KeyError, TypeError, UserError: the folder holds no whole corpus.
    """

    def __init__(self, folder: Path, name: str) -> None:
        arrays = ("source", "source_offsets", "target", "target_offsets", "lines")
        self._source, self._source_offsets, self._target, self._target_offsets, self.lines = (
            read_array(folder / f"{array}.npy") for array in arrays
        )
        report = CorpusReport.from_json(read_json(folder / "report.json", what="report"))
        self.report, self.fingerprint = replace(report, name=name), folder.name
        self._labels = {label: read_array(folder / "labels" / f"{label}.npy") for label in report.labels}
        self.source_lengths = np.diff(self._source_offsets).astype(np.int32)
        self.target_lengths = np.diff(self._target_offsets).astype(np.int32)

    def source(self, index: int) -> NDArray[np.integer]:
        return self._source[self._source_offsets[index] : self._source_offsets[index + 1]]

    def target(self, index: int) -> NDArray[np.integer]:
        return self._target[self._target_offsets[index] : self._target_offsets[index + 1]]

    def labels(self, index: int) -> dict[str, NDArray[np.integer]]:
        by_name = {}
        for name, values in self._labels.items():
            offsets = self._source_offsets if name.startswith("source_") else self._target_offsets
            by_name[name] = values[offsets[index] : offsets[index + 1]]
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
    """The encoded corpus: opened from the cache, or read, encoded and put there. Memory does not grow with the corpus.

    Args:
        source: where the pairs come from.
        processors: source and target text preparation with vocabularies.
        filters: which pairs are kept.
        name: what the report calls the corpus, such as `data.train`.
        filter: whether `max_length`, `max_ratio` and `drop_duplicates` apply; pairs with an empty side are always
            dropped, and `truncate_source` always applies.
        progress: called with the number of pairs read so far, now and then.
        cache: the cache folder, by default that of `cache_folder`.
        labellers: what labels the tokens.

    Raises:
        UserError: what the source's pairs raise.
        RunError: the cache cannot be written.
    """
    applied = filters.of_pairs() if filter else {}
    truncation = filters.truncation()
    content = source.fingerprint()
    corpora = (cache_folder() if cache is None else cache) / "corpora"
    with cache_named(corpora), workspace(corpora) as sides:
        save_processors(processors, sides)
        kept = content if source.row_errors.broken == "error" else [content, source.row_errors.broken]
        folder = corpora / _key(kept, sides, applied, labellers, truncation)
        told = progress or (lambda done: None)
        write = partial(_write, source, processors, applied, sides, told, labellers, truncation)
        return kept_folder(folder, write, partial(Corpus, name=name))


def _key(
    content: str | list[str],
    sides: Path,
    filters: dict[str, Any],
    labellers: Sequence[Labeller],
    truncation: Truncation | None,
) -> str:
    hashes = list(file_hashes(sides).items())
    labels = {labeller.name: [type(labeller).__qualname__, labeller.fingerprint()] for labeller in labellers}
    parts = json.dumps([FORMAT, content, hashes, filters, labels, str(truncation)], sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()


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
    """Write the corpus into `folder`; the processors are stored in `sides`."""
    counts = Counts(truncated_to="" if truncation is None else str(truncation))
    (folder / "labels").mkdir()
    with ExitStack() as stack:
        lines = stack.enter_context(GrowingArray(folder / "lines.npy", np.int64))
        write_source = _side_writer(folder, "source", processors[0], stack)
        write_target = _side_writer(folder, "target", processors[1], stack)
        labels = {
            labeller.name: stack.enter_context(GrowingArray(folder / "labels" / f"{labeller.name}.npy", np.int32))
            for labeller in labellers
        }
        read = chunks(source, bool(filters.get("drop_duplicates")))
        for chunk in encode_all(read, processors, sides, labellers, truncation):
            kept = _keep(chunk, filters, counts)
            counts.truncated += int((chunk.truncated & kept).sum())
            lines.append(chunk.lines[kept])
            for labeller in labellers:
                lengths, labelled = (chunk.source, chunk.target)[labeller.side].lengths, chunk.labels[labeller.name]
                labels[labeller.name].append(labelled.values[np.repeat(kept, lengths)])
                counts.label(labeller.name, labeller.counted, labelled.counts[kept])
            for side, write, count in (
                (chunk.source, write_source, counts.source),
                (chunk.target, write_target, counts.target),
            ):
                part = side.select(kept)
                write(part)
                count.add(part.ids, part.lengths)
            progress(counts.pairs_read)
    origins = source.origins()
    write_json(folder / "report.json", counts.report("", origins, source.row_errors.report(bool(origins))).to_json())


def _side_writer(folder: Path, name: str, side: TextProcessor, stack: ExitStack) -> Callable[[EncodedSide], None]:
    """A function that appends the ids and offsets of one side to its files."""
    dtype = np.uint16 if len(side.vocabulary) <= 1 << 16 else np.int32
    ids = stack.enter_context(GrowingArray(folder / f"{name}.npy", dtype))
    offsets = stack.enter_context(GrowingArray(folder / f"{name}_offsets.npy", np.int64))
    offsets.append(np.zeros(1, dtype=np.int64))

    def write(part: EncodedSide) -> None:
        offsets.append(ids.length + np.cumsum(part.lengths))
        ids.append(part.ids)

    return write


def _keep(chunk: EncodedChunk, filters: dict[str, Any], counts: Counts) -> NDArray[np.bool_]:
    """The pairs of a chunk that pass (a mask), counting them and those that do not by the first reason that applies."""
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
