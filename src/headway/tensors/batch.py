"""Batches of padded rows, collated from ids or frames and shared among processes; the ids of the special tokens.

Shapes: B batch, S source, T target, F frames, M numbers a frame, P tokens, W words; S and T count the end mark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from headway.tensors.masks import moved, padding_mask

# Ids and names of the special tokens, the same in every kind of vocabulary. Text never turns into the first three.
PAD, BOS, EOS, UNKNOWN = 0, 1, 2, 3
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")

Ids = NDArray[np.integer]
Frames = NDArray[np.float32]
Indices = NDArray[np.int64]
UNLABELLED = -1
LINKS, WHOLE = "links", 1 << 30  # the name of the labels that link tokens of both sides; the unit of their weights


@dataclass(frozen=True, kw_only=True)
class TargetBatch:
    """The ground of the batches of every task: the wanted outputs. All masks: True = real.

    Attributes:
        target_output: (B, T) ids: what the model should say.
        target_mask: (B, T).
        context_mask: (B, T), True at what stands before the wanted output and is neither learned nor scored; None where
            nothing does.
        indices: (B,) positions of the examples in their corpus.
        labels: by name, what else is known of the batch's tokens; `UNLABELLED` where nothing is.
        counts: `target_tokens`, and for each name how many labels there are; in training those of the whole update, of
            which the batch may be a part. In a step that is recorded they are tensors without axes.
    """

    target_output: Tensor
    target_mask: Tensor
    indices: Indices
    labels: Mapping[str, Tensor] = field(default_factory=dict)
    counts: Mapping[str, Any] = field(default_factory=dict)
    context_mask: Tensor | None = None

    @property
    def scored(self) -> Tensor:
        """(B, T), True at the tokens that are learned and scored."""
        return self.target_mask if self.context_mask is None else self.target_mask & ~self.context_mask

    def mean_of_labels(self, weight: float, name: str) -> Any:
        """The factor by which a sum over the labels of a name becomes `weight` times their mean, a target token."""
        labels = self.counts[name]
        least = labels.clamp(min=1) if isinstance(labels, Tensor) else max(1, labels)
        return weight * self.counts["target_tokens"] / least

    def own_tensors(self) -> dict[str, Tensor]:
        """The tensors by name, but for labels."""
        return {name: each for name, each in vars(self).items() if isinstance(each, Tensor)}

    def each_tensor(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same batch with every tensor changed."""
        changed: dict[str, Any] = {name: change(each) for name, each in self.own_tensors().items()}
        labels = {name: change(each) for name, each in self.labels.items()}
        return replace(self, **changed, labels=labels)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        """The same batch on `device`."""
        return self.each_tensor(lambda tensor: moved(tensor, device, non_blocking))


AnyBatch = TypeVar("AnyBatch", bound=TargetBatch)


@dataclass(frozen=True, kw_only=True)
class Batch(TargetBatch):
    """Padded pairs. The target is y1 .. yn EOS, and in `counts` end marks count.

    Attributes:
        source: (B, S) ids x1 .. xm EOS, or (B, S, M) frames of speech, float32, which need no end mark.
        source_mask: (B, S).
        target_input: (B, T) ids BOS y1 .. yn: what the decoder reads; T = 0 where there are no targets.
        labels: by name, one a source piece, (B, S), or a target piece, (B, T), as the name begins (`source_heads`);
            `UNLABELLED` at end marks, padding and tokens without one. `links` (B, T, S) are float32, the shares of each
            target piece in the source pieces that it is linked with: a row adds up to 1, or has none and is 0.
    """

    source: Tensor
    source_mask: Tensor
    target_input: Tensor

    def padded(self, rows: int, source: int, target: int) -> Self:
        """The same batch with padding up to `rows` rows, and to these lengths; spare rows are as those of `rows`."""
        more = {"source": source - self.source.shape[1], "target": target - self.target_output.shape[1]}
        more["context"] = more["target"]

        def longer(name: str, each: Tensor, fill: int) -> Tensor:
            if name == LINKS:
                return F.pad(each, (0, more["source"], 0, more["target"]))
            after = more[name.partition("_")[0]]
            return F.pad(each, [0, 0] * (each.dim() - 2) + [0, after], value=fill)

        tensors = {name: longer(name, each, PAD) for name, each in self.own_tensors().items()}
        labels = {name: longer(name, each, UNLABELLED) for name, each in self.labels.items()}
        count = len(self.indices)
        chosen = np.append(np.arange(count), np.zeros(rows - count, dtype=np.int64))
        wide: dict[str, Any] = {**tensors, "labels": labels, "indices": self.indices[chosen]}
        return _spare(replace(self, **wide).each_tensor(lambda tensor: tensor[chosen]), count)


def collate(
    sources: Sequence[NDArray[Any]],
    targets: Sequence[Ids] | None,
    indices: NDArray[np.integer] | None = None,
    labels: Sequence[Mapping[str, Ids]] = (),
    context: Sequence[int] = (),
) -> Batch:
    """A batch of these pairs, with end marks and padding, on the CPU.

    Args:
        sources: of each pair, source ids (m,) without begin and end marks, or frames (m, M).
        targets: target ids of each pair, or None where only sources are known.
        indices: (B,) positions of the pairs in their corpus; by default 0 .. B - 1.
        labels: the labels of each pair, of the same names; none by default. Those of `links` (N, 3) are target piece,
            source piece, and the share in units of 1 / `WHOLE`.
        context: how many tokens of each target stand before the wanted output; none by default.
    """
    source, source_mask = _padded(sources, PAD, EOS) if sources[0].ndim == 1 else _padded_frames(sources)
    if targets is None:
        target_output = source.new_zeros(len(sources), 0)
        target_input, target_mask = target_output, target_output.bool()
    else:
        target_output, target_mask = _padded(targets, PAD, EOS)
        begin = target_output.new_full((len(targets), 1), BOS)
        target_input = torch.cat([begin, target_output[:, :-1]], dim=1).masked_fill(~target_mask, PAD)
    positions = np.arange(len(sources)) if indices is None else np.asarray(indices, dtype=np.int64)
    names = labels[0] if labels else ()
    padded = {
        name: _padded([each[name] for each in labels], UNLABELLED, UNLABELLED)[0] for name in names if name != LINKS
    }
    counts = {name: int((each != UNLABELLED).sum()) for name, each in padded.items()}
    if LINKS in names:
        padded[LINKS] = _linked([each[LINKS] for each in labels], target_output.shape[1], source.shape[1])
        counts[LINKS] = int(padded[LINKS].any(-1).sum())
    counts |= {"target_tokens": int(target_mask.sum()) - sum(context)}
    context_mask = padding_mask(torch.tensor(context), target_output.shape[1]) if any(context) else None
    return Batch(
        source=source, source_mask=source_mask, target_input=target_input, target_output=target_output,
        target_mask=target_mask, indices=positions, labels=padded, counts=counts, context_mask=context_mask,
    )  # fmt: skip


def _padded(rows: Sequence[Ids], padding: int, end: int) -> tuple[Tensor, Tensor]:
    """(B, L), each row followed by `end` and then `padding`, and the mask (B, L) of rows and ends."""
    lengths = torch.tensor([len(row) for row in rows])
    values = torch.full((len(rows), int(lengths.max()) + 1), padding)
    values[padding_mask(lengths, values.shape[1])] = torch.from_numpy(np.concatenate(rows).astype(np.int64))
    values[torch.arange(len(rows)), lengths] = end
    return values, padding_mask(lengths + 1, values.shape[1])


def _linked(rows: Sequence[Ids], targets: int, sources: int) -> Tensor:
    """(B, T, S) of the links (N, 3) of each pair."""
    links = torch.from_numpy(np.concatenate(rows).astype(np.int64))
    pair = torch.repeat_interleave(torch.tensor([len(row) for row in rows]))
    values = torch.zeros(len(rows), targets, sources)
    values[pair, links[:, 0], links[:, 1]] = links[:, 2].float() / WHOLE
    return values


def _padded_frames(rows: Sequence[Frames]) -> tuple[Tensor, Tensor]:
    """(B, F, M) with zeros after each row's frames, and the mask (B, F) of these."""
    lengths = torch.tensor([len(row) for row in rows])
    mask = padding_mask(lengths)
    values = torch.zeros(*mask.shape, rows[0].shape[1])
    values[mask] = torch.from_numpy(np.concatenate(rows))
    return values, mask


def of_one_update(batches: Sequence[AnyBatch]) -> list[AnyBatch]:
    """The batches of one update, each with the counts of all of them together."""
    counts = {name: sum(batch.counts[name] for batch in batches) for name in batches[0].counts}
    return [replace(batch, counts=counts) for batch in batches]


def rows(batch: AnyBatch, rank: int, world_size: int) -> AnyBatch:
    """The rows of one process of several: rank, rank + world_size, ... with the batch's padding and counts.

    Where the batch has no row for this process it gets the first with `target_mask` all False and without labels, so
    that it takes part in every exchange of gradients without adding to the loss.
    """
    spare = rank >= len(batch.indices)
    chosen = slice(0, 1) if spare else slice(rank, None, world_size)
    shared = replace(batch.each_tensor(lambda tensor: tensor[chosen]), indices=batch.indices[chosen])
    return _spare(shared, 0) if spare else shared


def _spare(batch: AnyBatch, first: int) -> AnyBatch:
    """The same batch without anything to learn in its rows from `first` on."""

    def emptied(each: Tensor, empty: int) -> Tensor:
        return torch.cat([each[:first], torch.full_like(each[first:], empty)])

    labels = {name: emptied(each, UNLABELLED) for name, each in batch.labels.items()}
    return replace(batch, target_mask=emptied(batch.target_mask, False), labels=labels)


@dataclass(frozen=True, kw_only=True)
class TokenBatch(TargetBatch):
    """Padded windows. The target is a label a word, (B, W); `target_mask` is True where a word has one.

    Attributes:
        tokens: (B, P) ids.
        token_mask: (B, P).
        first: (B, W) places of each word's first piece.
        word_mask: (B, W).
    """

    tokens: Tensor
    token_mask: Tensor
    first: Tensor
    word_mask: Tensor
