"""Few shapes of batches for a whole corpus, so that work which is done once a shape is done a few times.

Shapes: N examples, C distinct pairs of lengths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.tensors.batch import AnyBatch, Batch, Indices

MOST = 32  # shapes of a corpus
LEAST_GAIN = 1 / 16  # tokens of padding that a further shape saves in an epoch, in times those of a batch

Widths = NDArray[np.integer]


class Shape(NamedTuple):
    """The sizes of a batch: its rows, and what the longest source and target take of one."""

    rows: int
    source: int
    target: int

    def fitted(self, shapes: Sequence[Shape]) -> Shape:
        """The smallest of `shapes` that holds this one; this one where none does."""
        holding = [shape for shape in shapes if all(size <= room for size, room in zip(self, shape, strict=True))]
        return min(holding, key=lambda shape: (shape.rows * shape.row, shape), default=self)

    @property
    def row(self) -> int:
        """The tokens of a row, of both sides."""
        return self.source + self.target


def few_shapes(
    source_widths: Widths, target_widths: Widths, batch_tokens: int, batch_sentences: int | None = None
) -> list[Shape]:
    """The shapes that all batches of a corpus get, those with the shortest rows first. A pure function.

    All examples have one shape to begin with. The split of a shape in two that saves the most padding is made, at a
    length of either side, again and again, as long as it is worth a further batch. Then the batches of a shape share
    its examples evenly, since rows that the last one lacks would be padding.

    Args:
        source_widths: (N,) what a source takes of a row.
        target_widths: (N,) what a target takes.
        batch_tokens: rows times the longest side of a shape are at most this much.
        batch_sentences: the rows of every shape, where this is given.
    """
    base = int(target_widths.max()) + 1  # of numbers that stand for both lengths, which are sorted sooner than pairs
    keys, counts = np.unique(source_widths.astype(np.int64) * base + target_widths, return_counts=True)
    parts = [np.column_stack([keys // base, keys % base, counts])]
    splits = [_best_split(parts[0])]
    while len(parts) < MOST:
        best = max(range(len(parts)), key=lambda number: splits[number][0])
        saved, *halves = splits[best]
        tops = parts[best][:, :2].max(0)
        if saved < LEAST_GAIN * (batch_sentences or max(1, batch_tokens // tops.max())) * tops.sum():
            break
        parts[best : best + 1] = halves
        splits[best : best + 1] = map(_best_split, halves)
    tops = [part[:, :2].max(0).tolist() for part in parts]
    most = {Shape(batch_sentences or max(1, batch_tokens // max(top)), *top) for top in tops}
    shapes = sorted(most, key=lambda shape: (shape.row, shape))
    if batch_sentences is not None:
        return shapes
    source, target, counts = np.concatenate(parts).T
    examples = np.bincount(_homes(source, target, shapes), counts, len(shapes)).tolist()
    sized = ((shape, math.ceil(count / shape.rows), count) for shape, count in zip(shapes, examples, strict=True))
    return [shape._replace(rows=math.ceil(count / batches)) for shape, batches, count in sized if batches]


def _best_split(cells: NDArray[np.int64]) -> tuple[Any, ...]:
    """The split of pairs of lengths (C, 3), with their counts, that saves the most tokens; these, and both halves."""
    best: tuple[Any, ...] = (0,)
    whole = cells[:, 2].sum() * cells[:, :2].max(0).sum()
    for side in (0, 1):
        ordered = cells[np.argsort(cells[:, side], kind="stable")]
        ends = np.flatnonzero(np.diff(ordered[:, side]))
        if not len(ends):
            continue
        sizes, counts = ordered[:, :2], np.cumsum(ordered[:, 2])
        low = np.maximum.accumulate(sizes).sum(1)[ends] * counts[ends]
        high = np.maximum.accumulate(sizes[::-1])[::-1].sum(1)[ends + 1] * (counts[-1] - counts[ends])
        at = int(np.argmin(low + high))
        if (saved := whole - low[at] - high[at]) > best[0]:
            best = saved, ordered[: ends[at] + 1], ordered[ends[at] + 1 :]
    return best


def _homes(source: Widths, target: Widths, shapes: Sequence[Shape]) -> Indices:
    """The number of the shape of each example, whose rows are the shortest that hold it; behind all where none does."""
    homes = np.full(len(source), len(shapes))
    for number in reversed(range(len(shapes))):
        homes[(source <= shapes[number].source) & (target <= shapes[number].target)] = number
    return homes


def batches_of_shapes(
    source_widths: Widths, target_widths: Widths, shapes: Sequence[Shape], random: np.random.Generator
) -> tuple[list[Indices], Indices]:
    """Full batches of `shapes`, drawn anew with each state of `random`; and the examples that no shape holds.

    The examples that are left over of a shape fill the next one that holds them, where that costs less than to fill
    their own with spare rows.
    """
    order = random.permutation(len(source_widths))
    source, target = np.asarray(source_widths)[order], np.asarray(target_widths)[order]
    homes = _homes(source, target, shapes)
    waiting, batches = [order[homes == number] for number in range(len(shapes) + 1)], list[Indices]()
    for number, shape in enumerate(shapes):
        full, left = divmod(len(waiting[number]), shape.rows)
        batches += [waiting[number][start * shape.rows :][: shape.rows] for start in range(full + (left > 0))]
        larger = number + 1 + int(_homes(np.array([shape.source]), np.array([shape.target]), shapes[number + 1 :])[0])
        more = shapes[larger].row - shape.row if larger < len(shapes) else math.inf
        if left and left * more < (shape.rows - left) * shape.row:
            waiting[larger] = np.concatenate([batches.pop(), waiting[larger]])
    return batches, waiting[-1]


def fitted(batch: AnyBatch, shapes: Sequence[Shape]) -> AnyBatch:
    """A batch with padding and spare rows up to the smallest of `shapes` that holds it; as it is where none does."""
    if not (shapes and isinstance(batch, Batch)):
        return batch
    size = Shape(len(batch.indices), batch.source.shape[1], batch.target_output.shape[1])
    return batch.padded(*size.fitted(shapes))
