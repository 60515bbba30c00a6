"""Batches of about equally many tokens: planned for a whole epoch, collated from ids, shared among processes.

Shapes: B batch, S source, T target; S and T count the end mark.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.mixers.masks import padding_mask
from headway.text.vocabulary import BOS, EOS, PAD

Ids = NDArray[np.integer]


class Examples(Protocol):
    """Encoded pairs by position, such as a `Corpus`: ids without begin and end marks."""

    def source(self, index: int) -> Ids:
        """The source ids of one pair."""

    def target(self, index: int) -> Ids:
        """The target ids of one pair."""


@dataclass(frozen=True)
class Batch:
    """Padded pairs. All masks: True = real.

    Attributes:
        source: (B, S) ids x1 .. xm EOS.
        source_mask: (B, S).
        target_input: (B, T) ids BOS y1 .. yn: what the decoder reads; T = 0 where there are no targets.
        target_output: (B, T) ids y1 .. yn EOS: what it should say.
        target_mask: (B, T), of both target tensors.
        indices: (B,) positions of the pairs in their corpus.
    """

    source: Tensor
    source_mask: Tensor
    target_input: Tensor
    target_output: Tensor
    target_mask: Tensor
    indices: NDArray[np.int64]

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on `device`."""
        moved: dict[str, Any] = {name: each.to(device) for name, each in vars(self).items() if isinstance(each, Tensor)}
        return replace(self, **moved)


def plan_epoch(
    source_lengths: NDArray[np.integer],
    target_lengths: NDArray[np.integer],
    batch_tokens: int,
    seed: int,
    epoch: int,
) -> list[NDArray[np.int64]]:
    """The batches of one epoch, as positions in the corpus; each pair is in exactly one. A pure function.

    A batch holds pairs of nearly the same lengths, drawn anew in each epoch, and the batches come in random order.

    Args:
        source_lengths: (N,) pieces without the end mark.
        target_lengths: (N,) pieces without the end mark.
        batch_tokens: rows times the longest side of a batch, end marks and padding counted, is at most this much; a
            pair that is longer than that makes a batch of its own.
        seed: of the random order, together with `epoch`.
        epoch: its number.
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(source_lengths))
    order = order[_by_length(np.asarray(source_lengths)[order], np.asarray(target_lengths)[order])]
    widths = np.maximum(source_lengths, target_lengths)[order].astype(np.int64) + 1
    batches = np.split(order, _cuts(widths, batch_tokens))
    return [batches[position] for position in random.permutation(len(batches))] if len(order) else []


def _by_length(source_lengths: NDArray[np.integer], target_lengths: NDArray[np.integer]) -> NDArray[np.intp]:
    """The stable order by target length and then source length, ascending and descending in turn.

    Without the turns, the batch in which one target length gives way to the next would hold the longest sources of the
    one and the shortest of the other.
    """
    turned = np.where(target_lengths % 2 == 0, source_lengths, -source_lengths.astype(np.int64))
    return np.lexsort((turned, target_lengths))


def _cuts(widths: NDArray[np.int64], batch_tokens: int) -> list[int]:
    """Where new batches begin, given each row's width in the order in which rows are taken."""
    cuts, start = [], 0
    while start < len(widths):
        window = widths[start : start + max(1, batch_tokens // int(widths[start]))]
        tokens = np.maximum.accumulate(window) * np.arange(1, len(window) + 1)
        start += max(1, int(np.searchsorted(tokens, batch_tokens, side="right")))
        cuts.append(start)
    return cuts[:-1]


def collate(sources: Sequence[Ids], targets: Sequence[Ids] | None, indices: NDArray[np.integer] | None = None) -> Batch:
    """A batch of these pairs, with end marks and padding, on the CPU.

    Args:
        sources: source ids of each pair, without begin and end marks.
        targets: target ids of each pair, or None where only sources are known.
        indices: (B,) positions of the pairs in their corpus; by default 0 .. B - 1.
    """
    source, source_mask = _padded(sources)
    if targets is None:
        target_output = source.new_zeros(len(sources), 0)
        target_input, target_mask = target_output, target_output.bool()
    else:
        target_output, target_mask = _padded(targets)
        begin = target_output.new_full((len(targets), 1), BOS)
        target_input = torch.cat([begin, target_output[:, :-1]], dim=1).masked_fill(~target_mask, PAD)
    positions = np.arange(len(sources)) if indices is None else np.asarray(indices, dtype=np.int64)
    return Batch(source, source_mask, target_input, target_output, target_mask, positions)


def _padded(rows: Sequence[Ids]) -> tuple[Tensor, Tensor]:
    """Ids (B, L), each row followed by EOS and then PAD, and their mask (B, L)."""
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), int(lengths.max()) + 1), PAD)
    ids[padding_mask(lengths, ids.shape[1])] = torch.from_numpy(np.concatenate(rows).astype(np.int64))
    ids[torch.arange(len(rows)), lengths] = EOS
    return ids, padding_mask(lengths + 1, ids.shape[1])


def collate_corpus(corpus: Examples, indices: NDArray[np.integer]) -> Batch:
    """The batch of the pairs at `indices` (B,) of a corpus."""
    sources = [corpus.source(int(index)) for index in indices]
    return collate(sources, [corpus.target(int(index)) for index in indices], indices)


def rows(batch: Batch, rank: int, world_size: int) -> Batch:
    """The rows of one process of several: rank, rank + world_size, ... with the batch's padding.

    Where the batch has no row for this process it gets the first with `target_mask` all False, so that it takes part in
    every exchange of gradients without adding to the loss.
    """
    spare = rank >= len(batch.indices)
    chosen = slice(0, 1) if spare else slice(rank, None, world_size)
    shared = replace(batch, **{name: value[chosen] for name, value in vars(batch).items()})
    return replace(shared, target_mask=torch.zeros_like(shared.target_mask)) if spare else shared
