"""Batches of padded rows, collated from ids or frames and shared among processes; the ids of the special tokens.

Shapes: B batch, S source, T target, F frames, M numbers a frame, P tokens, W words; S and T count EOS.
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

# Ids and names of the special tokens, the same in every kind of vocabulary. Text is never encoded as the first three.
PAD, BOS, EOS, UNKNOWN = 0, 1, 2, 3
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")

Ids = NDArray[np.integer]
Frames = NDArray[np.float32]
Indices = NDArray[np.int64]
UNLABELLED = -1
LINKS, WHOLE = (
    "links",
    1 << 30,
)  # the name of the labels that link tokens of both sides; the integer that stands for a weight of 1


@dataclass(frozen=True, kw_only=True)
class TargetBatch:
    """The base of the batches of every task: the reference outputs. All masks: True = real.

    Attributes:
        target_output: (B, T) ids that the model should predict.
        target_mask: (B, T).
        context_mask: (B, T), True at context before the reference output, neither trained on nor scored; None without
            context.
        indices: (B,) positions of the examples in their corpus.
        labels: additional labels of tokens by name; `UNLABELLED` for tokens without one.
        counts: `target_tokens`, and the number of labels by name; in training those of the whole update, of which the
            batch may be a part. In a recorded step they are scalar tensors.
    """

    target_output: Tensor
    target_mask: Tensor
    indices: Indices
    labels: Mapping[str, Tensor] = field(default_factory=dict)
    counts: Mapping[str, Any] = field(default_factory=dict)
    context_mask: Tensor | None = None

    @property
    def scored(self) -> Tensor:
        """The mask (B, T) of the tokens that are trained on and scored."""
        return self.target_mask if self.context_mask is None else self.target_mask & ~self.context_mask

    def mean_of_labels(self, weight: float, name: str) -> Any:
        """The factor that turns a sum over the labels of a name into `weight` times their mean per target token."""
        labels = self.counts[name]
        least = labels.clamp(min=1) if isinstance(labels, Tensor) else max(1, labels)
        return weight * self.counts["target_tokens"] / least

    def own_tensors(self) -> dict[str, Tensor]:
        return {name: each for name, each in vars(self).items() if isinstance(each, Tensor)}

    def each_tensor(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same batch with `change` applied to every tensor."""
        changed: dict[str, Any] = {name: change(each) for name, each in self.own_tensors().items()}
        labels = {name: change(each) for name, each in self.labels.items()}
        return replace(self, **changed, labels=labels)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        return self.each_tensor(lambda tensor: moved(tensor, device, non_blocking))


AnyBatch = TypeVar("AnyBatch", bound=TargetBatch)


@dataclass(frozen=True, kw_only=True)
class Batch(TargetBatch):
    """Padded pairs. The target is y1 .. yn EOS; `counts` include end-of-sentence tokens.

    Attributes:
        source: (B, S) ids x1 .. xm EOS, or (B, S, M) frames of speech, float32, which have no end-of-sentence token.
        source_mask: (B, S).
        target_input: (B, T) ids BOS y1 .. yn, the input of the decoder; T = 0 without targets.
        labels: by name, one per source token, (B, S), or target token, (B, T), by the prefix of the name
            (`source_heads`); `UNLABELLED` at end-of-sentence tokens, padding and tokens without one. `links` (B, T, S)
            are float32, the weights of the source tokens linked to each target token: a row sums to 1, or is 0.
    """

    source: Tensor
    source_mask: Tensor
    target_input: Tensor

    def padded(self, rows: int, source: int, target: int) -> Self:
        """The same batch, padded to `rows` rows and these lengths; added rows have nothing to learn."""
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
    """Collate pairs into a batch on the CPU, with end-of-sentence tokens and padding.

    Args:
        sources: of each pair, source ids (m,) without special tokens, or frames (m, M).
        targets: target ids of each pair, or None if there are no targets.
        indices: (B,) positions of the pairs in their corpus; by default 0 .. B - 1.
        labels: the labels of each pair, of the same names; none by default. Those of `links` (N, 3) are target token,
            source token, and the weight in units of 1 / `WHOLE`.
        context: the number of context tokens at the start of each target; none by default.
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
    """Rows (B, L), each followed by `end` and then `padding`, and the mask (B, L) of tokens and ends."""
    lengths = torch.tensor([len(row) for row in rows])
    values = torch.full((len(rows), int(lengths.max()) + 1), padding)
    values[padding_mask(lengths, values.shape[1])] = torch.from_numpy(np.concatenate(rows).astype(np.int64))
    values[torch.arange(len(rows)), lengths] = end
    return values, padding_mask(lengths + 1, values.shape[1])


def _linked(rows: Sequence[Ids], targets: int, sources: int) -> Tensor:
    """The weights (B, T, S) of the links (N, 3) of each pair."""
    links = torch.from_numpy(np.concatenate(rows).astype(np.int64))
    pair = torch.repeat_interleave(torch.tensor([len(row) for row in rows]))
    values = torch.zeros(len(rows), targets, sources)
    values[pair, links[:, 0], links[:, 1]] = links[:, 2].float() / WHOLE
    return values


def _padded_frames(rows: Sequence[Frames]) -> tuple[Tensor, Tensor]:
    """Frames (B, F, M), padded with zeros, and their mask (B, F)."""
    lengths = torch.tensor([len(row) for row in rows])
    mask = padding_mask(lengths)
    values = torch.zeros(*mask.shape, rows[0].shape[1])
    values[mask] = torch.from_numpy(np.concatenate(rows))
    return values, mask


def of_one_update(batches: Sequence[AnyBatch]) -> list[AnyBatch]:
    """The batches of one update, each with the counts summed over all of them."""
    counts = {name: sum(batch.counts[name] for batch in batches) for name in batches[0].counts}
    return [replace(batch, counts=counts) for batch in batches]


def rows(batch: AnyBatch, rank: int, world_size: int) -> AnyBatch:
    """The rows of one process of several: rank, rank + world_size, ... with the batch's padding and counts.

    If there is no row for this process, it gets the first with `target_mask` all False and without labels, so that it
    takes part in every exchange of gradients without adding to the loss.
    """
    spare = rank >= len(batch.indices)
    chosen = slice(0, 1) if spare else slice(rank, None, world_size)
    shared = replace(batch.each_tensor(lambda tensor: tensor[chosen]), indices=batch.indices[chosen])
    return _spare(shared, 0) if spare else shared


def _spare(batch: AnyBatch, first: int) -> AnyBatch:
    """The same batch without targets and labels in the rows from `first` on."""

    def emptied(each: Tensor, empty: int) -> Tensor:
        return torch.cat([each[:first], torch.full_like(each[first:], empty)])

    labels = {name: emptied(each, UNLABELLED) for name, each in batch.labels.items()}
    return replace(batch, target_mask=emptied(batch.target_mask, False), labels=labels)


@dataclass(frozen=True, kw_only=True)
class TokenBatch(TargetBatch):
    """Padded windows. The target is one label per word, (B, W); `target_mask` is True at words with a label.

    Attributes:
        tokens: (B, P) ids.
        token_mask: (B, P).
        first: (B, W) positions of the first token of each word.
        word_mask: (B, W).
    """

    tokens: Tensor
    token_mask: Tensor
    first: Tensor
    word_mask: Tensor
