"""A small set of batch shapes for a corpus, so that work per shape, such as compilation, is done only a few times.

Shapes: N examples, C distinct pairs of lengths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.tensors.batch import AnyBatch, Batch, Indices

MOST = 32  # the maximum number of shapes of a corpus
LEAST_GAIN = 1 / 16  # minimum padding saved by a further shape in an epoch, as a multiple of the tokens of a batch

Widths = NDArray[np.integer]


class Shape(NamedTuple):
    """The shape of a batch: the number of rows, and the maximum number of tokens of a source and a target."""

    rows: int
    source: int
    target: int

    def fitted(self, shapes: Sequence[Shape]) -> Shape:
        """The smallest of `shapes` that this shape fits into, or this shape if there is none."""
        holding = [shape for shape in shapes if all(size <= room for size, room in zip(self, shape, strict=True))]
        return min(holding, key=lambda shape: (shape.rows * shape.row, shape), default=self)

    @property
    def row(self) -> int:
        return self.source + self.target


def few_shapes(
    source_widths: Widths, target_widths: Widths, batch_tokens: int, batch_sentences: int | None = None
) -> list[Shape]:
    """The shapes of all batches of a corpus, sorted by the length of rows. A pure function.

    At first, all examples have one shape. The shape and the length of either side at which a split saves the most
    padding are then chosen, again and again, as long as the saving is worth a further batch. Finally the examples of a
    shape are distributed evenly over its batches, since missing rows of the last batch would be padding.

    Args:
        source_widths: (N,) the number of tokens of each source.
        target_widths: (N,) the number of tokens of each target.
        batch_tokens: the maximum of rows times the longest side of a shape.
        batch_sentences: the number of rows of every shape, instead of `batch_tokens`.
    """
    base = int(target_widths.max()) + 1  # both lengths are encoded in one number, which sorts faster than pairs
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
    """The split of pairs of lengths with counts (C, 3) that saves the most tokens: the saving, and both halves."""
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
    """For each example, the index of the shape with the shortest rows that it fits into, or `len(shapes)`."""
    homes = np.full(len(source), len(shapes))
    for number in reversed(range(len(shapes))):
        homes[(source <= shapes[number].source) & (target <= shapes[number].target)] = number
    return homes


def batches_of_shapes(
    source_widths: Widths, target_widths: Widths, shapes: Sequence[Shape], random: np.random.Generator
) -> tuple[list[Indices], Indices]:
    """Full batches of the `shapes`, drawn with `random`, and the examples that fit into no shape.

    Left-over examples of a shape are moved to the next shape that they fit into if that costs less than padding their
    own shape with spare rows.
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
    """Pad a batch, with spare rows if needed, to the smallest of `shapes` that it fits into; unchanged if none."""
    if not (shapes and isinstance(batch, Batch)):
        return batch
    size = Shape(len(batch.indices), batch.source.shape[1], batch.target_output.shape[1])
    return batch.padded(*size.fitted(shapes))
