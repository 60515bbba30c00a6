"""Batches of about equally many tokens, planned for a whole epoch.

Shapes: N pairs, B batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from headway.corpora.mixture import Mixture
from headway.log import progress
from headway.processing.text.subword_sampling import PairSampler
from headway.tensors.batch import Batch, Ids, Indices, collate


def plan_epoch(
    source_widths: NDArray[np.integer],
    target_widths: NDArray[np.integer],
    batch_tokens: int,
    seed: int,
    epoch: int,
    batch_sentences: int | None = None,
) -> list[NDArray[np.int64]]:
    """The batches of one epoch, as positions in the corpus; each pair is in exactly one. A pure function.

    A batch holds pairs of nearly the same lengths, drawn anew in each epoch, and the batches come in random order.

    Args:
        source_widths: (N,) what a source takes of a row: its tokens, with the end of sentence where it gets one.
        target_widths: (N,) what a target takes, likewise.
        batch_tokens: rows times the longest side of a batch, padding counted, is at most this much; a pair that is
            longer than that makes a batch alone.
        seed: of the random order, together with `epoch`.
        epoch: its number.
        batch_sentences: a batch is so many pairs, however long, where this is given.
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(source_widths))
    order = order[_by_width(np.asarray(source_widths)[order], np.asarray(target_widths)[order])]
    widths = np.maximum(source_widths, target_widths)[order].astype(np.int64)
    if batch_sentences is None:
        cuts = _cuts(widths, batch_tokens)
    else:
        cuts = list(range(batch_sentences, len(order), batch_sentences))
    batches = np.split(order, cuts)
    return [batches[position] for position in random.permutation(len(batches))] if len(order) else []


def _by_width(source_widths: NDArray[np.integer], target_widths: NDArray[np.integer]) -> NDArray[np.intp]:
    """The stable order by target width and then source width, ascending and descending in turn.

    Without the turns, the batch in which one target width gives way to the next would hold the longest sources of the
    one and the shortest of the other.
    """
    turned = np.where(target_widths % 2 == 1, source_widths, -source_widths.astype(np.int64))
    return np.lexsort((turned, target_widths))


def _cuts(widths: NDArray[np.int64], batch_tokens: int) -> list[int]:
    """Where new batches begin, given each row's width in the order in which rows are taken."""
    cuts, start = [], 0
    while start < len(widths):
        window = widths[start : start + max(1, batch_tokens // int(widths[start]))]
        tokens = np.maximum.accumulate(window) * np.arange(1, len(window) + 1)
        start += max(1, int(np.searchsorted(tokens, batch_tokens, side="right")))
        cuts.append(start)
    return cuts[:-1]


class EncodedPairs(ABC):
    """Encoded pairs by position, and how they are put into batches.

    Attributes:
        source_lengths: (N,) tokens without the end of sentence.
        target_lengths: (N,) tokens without the end of sentence.
        lines: (N,) the line or row of each pair in its origin, counted from 1.
        fingerprint: a hash of all that decides the content.
        sampler: what cuts words into other pieces in each epoch; None where they stay as they are.
        mixture: how corpora are sampled by weight; None where each pair is learned once an epoch.
    """

    sampler: PairSampler | None = None
    mixture: Mixture | None = None
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
        """Labels of the tokens of pair `index` by name, each as long as the side that the name begins with."""

    def __len__(self) -> int:
        return len(self.target_lengths)

    def plan(self, seed: int, epoch: int, *, batch_tokens: int, batch_sentences: int | None = None) -> list[Indices]:
        """The batches of an epoch (see `plan_epoch`), by the lengths that its pieces have."""
        chosen = np.arange(len(self)) if self.mixture is None else self.mixture.chosen(seed, epoch)
        source, target = (lengths + 1 for lengths in self._lengths(chosen, epoch))  # with the end of sentence
        batches = plan_epoch(source, target, batch_tokens, seed, epoch, batch_sentences)
        return [chosen[batch] for batch in batches]

    def _lengths(self, chosen: Indices, epoch: int) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        """The tokens of both sides of the pairs `chosen` in an epoch."""
        usual = self.source_lengths[chosen], self.target_lengths[chosen]
        if self.sampler is None:
            return usual
        sampled = np.empty((len(chosen), 2), dtype=np.int64)
        with progress("cutting words for the epoch", len(chosen), "pairs") as work:
            for row, index in enumerate(map(int, chosen)):
                sides = self.source(index), self.target(index)
                sampled[row] = [len(self._sampled(self.sampler, epoch, side, index, sides[side])) for side in (0, 1)]
                if row % 1000 == 0:
                    work.update(row)
        return sampled[:, 0], sampled[:, 1]

    def collate(self, indices: Indices, generator: torch.Generator | None = None, epoch: int | None = None) -> Batch:
        """The batch of the pairs at `indices` (B,), with the labels that the pairs have; draws no random numbers.

        With an epoch, the sampler draws the pieces of words as a function of that.
        """
        chosen = [int(index) for index in indices]
        sources, targets = [self.source(index) for index in chosen], [self.target(index) for index in chosen]
        if self.sampler is not None and epoch is not None:
            sample = partial(self._sampled, self.sampler, epoch)
            sources = [sample(0, index, ids) for index, ids in zip(chosen, sources, strict=True)]
            targets = [sample(1, index, ids) for index, ids in zip(chosen, targets, strict=True)]
        return collate(sources, targets, indices, [self.labels(index) for index in chosen])

    @staticmethod
    def _sampled(sampler: PairSampler, epoch: int, side: int, index: int, ids: Ids) -> Ids:
        return np.asarray(sampler.sample(ids.tolist(), side, epoch, index), dtype=np.int64)
