"""Batches with about the same number of tokens, planned for a whole epoch.

Shapes: N pairs, B batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headway.core.errors import UserError
from headway.core.log import progress
from headway.corpora.corpus_report import CorpusReport
from headway.corpora.shapes import Shape, batches_of_shapes
from headway.formats.corpus_config import GivenCorpus, parts
from headway.processing.text.subword_sampling import PairSampler
from headway.tensors.batch import Batch, Ids, Indices, collate

SORTED_TOGETHER = 5_000_000  # pairs; another number would change the batches of larger corpora


class Mixture:
    """Samples the pairs of each epoch from several corpora in fixed proportions.

    An epoch has N pairs. Each corpus is traversed in one random order after the other, and each epoch continues where
    the preceding one ended. So all pairs of a corpus are used equally often, however small its share is.

    Args:
        parts: the positions of each corpus's pairs; none of them is empty.
        weights: the weights of the corpora, which need not sum to 1.
    """

    def __init__(self, parts: Sequence[Indices], weights: Sequence[float]) -> None:
        self.parts = [np.asarray(part, dtype=np.int64) for part in parts]
        exact = [Fraction(weight) for weight in weights]
        self.shares = [weight / sum(exact) for weight in exact]

    def chosen(self, seed: int, epoch: int) -> NDArray[np.int64]:
        """The positions of an epoch's pairs, with epochs counted from 0. A pure function of seed and epoch."""
        size = sum(map(len, self.parts))
        drawn = []
        for number, (part, share) in enumerate(zip(self.parts, self.shares, strict=True)):
            first, last = (int(share * size * bound) for bound in (epoch, epoch + 1))
            passes = range(first // len(part), -(-last // len(part)))
            orders = [np.random.default_rng([seed, number, turn]).permutation(part) for turn in passes]
            begin = first - passes.start * len(part)
            drawn += [np.concatenate(orders)[begin : begin + last - first]] if orders else []
        return np.concatenate(drawn)


def split_by_origin(lines: Indices, ends: Sequence[int]) -> list[NDArray[np.int64]]:
    """The positions of the pairs of each corpus.

    Args:
        lines: (N,) the line of each pair, counted across all corpora.
        ends: the last line of each corpus.
    """
    origin = np.searchsorted(np.asarray(ends), np.asarray(lines), side="left")
    return [np.flatnonzero(origin == number) for number in range(len(ends))]


def mixture_of(corpora: GivenCorpus, lines: Indices, report: CorpusReport) -> Mixture | None:
    """The sampling of the corpora of `data.train`, or None if they have no weights.

    Args:
        corpora: the corpora as in the recipe.
        lines: (N,) the line of each kept pair, counted across all corpora.
        report: the report of all corpora together.

    Raises:
        UserError: no pair of a corpus is kept.
    """
    given = parts(corpora, "data.train")
    weights = [part.weight for _, part in given if part.weight is not None]
    if len(weights) < 2:
        return None
    positions = split_by_origin(lines, [last for _, last in report.origins])
    for (key, _), part in zip(given, positions, strict=True):
        if not len(part):
            raise UserError("no pair is left of this corpus to be drawn", where=key, received=report.dropped)
    return Mixture(positions, weights)


def plan_epoch(
    source_widths: NDArray[np.integer],
    target_widths: NDArray[np.integer],
    batch_tokens: int,
    seed: int,
    epoch: int,
    batch_sentences: int | None = None,
    shapes: Sequence[Shape] = (),
) -> list[Indices]:
    """The batches of one epoch, as positions in the corpus; each pair is in exactly one batch. A pure function.

    A batch contains pairs of similar lengths, drawn anew in each epoch, and the batches are in random order. More than
    `SORTED_TOGETHER` pairs are split into random parts of equal size, which are sorted one after the other, so that
    memory grows by 4 bytes per pair.

    Args:
        source_widths: (N,) the number of tokens of each source, with the end-of-sentence token if it has one.
        target_widths: (N,) the number of tokens of each target, likewise.
        batch_tokens: the maximum of rows times the longest side of a batch, including padding; a longer pair forms a
            batch on its own.
        seed: the seed of the random order, together with `epoch`.
        epoch: the number of the epoch.
        batch_sentences: the number of pairs of a batch, instead of `batch_tokens`.
        shapes: the allowed shapes of batches, if any, except for pairs that fit into none of them.
    """
    random, count = np.random.default_rng([seed, epoch]), len(source_widths)
    if shapes:
        batches, rest = batches_of_shapes(source_widths, target_widths, shapes, random)
        others = plan_epoch(source_widths[rest], target_widths[rest], batch_tokens, seed, epoch, batch_sentences)
        batches += [rest[batch] for batch in others]
        return [batches[position] for position in random.permutation(len(batches))]
    order = np.arange(count, dtype=np.int32 if count < 1 << 31 else np.int64)
    random.shuffle(order)
    batches = []
    for part in np.array_split(order, max(1, -(-count // SORTED_TOGETHER))):
        # By target width and then source width, alternately ascending and descending. Otherwise the batch in
        # which the target width changes would contain the longest sources of one width and the shortest of
        # the next.
        source, target = (np.asarray(widths)[part].astype(np.int32) for widths in (source_widths, target_widths))
        part[:] = part[np.lexsort((np.where(target % 2 == 1, source, -source), target))]
        widths = np.maximum(source_widths[part], target_widths[part])
        batches += np.split(part, _cuts(widths, batch_tokens, batch_sentences))
    return [batches[position] for position in random.permutation(len(batches))] if count else []


def _cuts(widths: NDArray[np.integer], batch_tokens: int, batch_sentences: int | None) -> list[int]:
    """The start indices of all batches but the first, for rows with these widths."""
    cuts, start = [], 0
    while start < len(widths):
        if batch_sentences is None:
            window = widths[start : start + max(1, batch_tokens // int(widths[start]))].astype(np.int64)
            tokens = np.maximum.accumulate(window) * np.arange(1, len(window) + 1)
            start += max(1, int(np.searchsorted(tokens, batch_tokens, side="right")))
        else:
            start += batch_sentences
        cuts.append(start)
    return cuts[:-1]


class EncodedPairs(ABC):
    """Encoded pairs by position, and their grouping into batches.

    Attributes:
        source_lengths: (N,) the number of tokens without the end-of-sentence token.
        target_lengths: (N,) likewise.
        lines: (N,) the line or row of each pair in its origin, counted from 1.
        fingerprint: a hash of everything that determines the content.
        sampler: samples the segmentation of words in each epoch; None for a fixed segmentation.
        mixture: samples corpora by weight; None if each pair is used once per epoch.
        after_mark: finds the sentence in a target with preceding sentences; None for single sentences.
    """

    sampler: PairSampler | None = None
    mixture: Mixture | None = None
    after_mark: Callable[[Sequence[int]], int] | None = None
    source_lengths: NDArray[np.integer]
    target_lengths: NDArray[np.integer]
    lines: Indices
    fingerprint: str

    @abstractmethod
    def source(self, index: int) -> Ids:
        """The source ids of pair `index`, without special tokens."""

    @abstractmethod
    def target(self, index: int) -> Ids:
        """The target ids of pair `index`, without special tokens."""

    @abstractmethod
    def labels(self, index: int) -> Mapping[str, Ids]:
        """The labels of pair `index` by name, and `links` (N, 3) as in `collate`.

        Labels are as long as the side that their name begins with.
        """

    def __len__(self) -> int:
        return len(self.target_lengths)

    def widths(self) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        """The numbers of source and target tokens of all pairs, with end-of-sentence tokens."""
        return self.source_lengths + 1, self.target_lengths + 1

    def plan(self, seed: int, epoch: int, **sizes: Any) -> list[Indices]:
        """Group the examples of an epoch into batches of similar length (see `plan_epoch`, which takes the `sizes`)."""
        chosen = None if self.mixture is None else self.mixture.chosen(seed, epoch)
        source, target = (lengths + 1 for lengths in self._lengths(chosen, epoch))  # with the end-of-sentence token
        batches = plan_epoch(source, target, seed=seed, epoch=epoch, **sizes)
        return batches if chosen is None else [chosen[batch] for batch in batches]

    def _lengths(self, chosen: Indices | None, epoch: int) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        """The numbers of tokens of both sides in an epoch, for the pairs `chosen` or for all."""
        if self.sampler is None:
            usual = self.source_lengths, self.target_lengths
            return usual if chosen is None else (usual[0][chosen], usual[1][chosen])
        chosen = np.arange(len(self)) if chosen is None else chosen
        sampled = np.empty((len(chosen), 2), dtype=np.int64)
        with progress("cutting words for the epoch", len(chosen), "pairs") as work:
            for row, index in enumerate(map(int, chosen)):
                sides = self.source(index), self.target(index)
                sampled[row] = [len(self._sampled(self.sampler, epoch, side, index, sides[side])) for side in (0, 1)]
                if row % 1000 == 0:
                    work.update(row)
        return sampled[:, 0], sampled[:, 1]

    def collate(self, indices: Indices, generator: torch.Generator | None = None, epoch: int | None = None) -> Batch:
        """The batch of the pairs at `indices` (B,), with their labels. Draws no random numbers.

        If `epoch` is given, the sampler segments words as a function of it.
        """
        chosen = [int(index) for index in indices]
        sources, targets = [self.source(index) for index in chosen], [self.target(index) for index in chosen]
        if self.sampler is not None and epoch is not None:
            sample = partial(self._sampled, self.sampler, epoch)
            sources = [sample(0, index, ids) for index, ids in zip(chosen, sources, strict=True)]
            targets = [sample(1, index, ids) for index, ids in zip(chosen, targets, strict=True)]
        context = [] if self.after_mark is None else [self.after_mark(ids.tolist()) for ids in targets]
        return collate(sources, targets, indices, [self.labels(index) for index in chosen], context)

    @staticmethod
    def _sampled(sampler: PairSampler, epoch: int, side: int, index: int, ids: Ids) -> Ids:
        return np.asarray(sampler.sample(ids.tolist(), side, epoch, index), dtype=np.int64)
