"""A decoder-only Transformer: one causal stack reads source and target as one sequence (Radford et al. 2018).

Shapes: B batch, S source, T target, L both in one sequence, K heads, D model, V vocabulary, R rows of a decoding step.

The sequence of a row is x1 .. xm EOS BOS y1 .. yn without padding between source and target; padding follows, so a row
does not depend on the other rows of its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from headway.mixers import State
from headway.mixers.mixer import next_positions
from headway.mixers.points import Points
from headway.mixers.positions import build_absolute
from headway.models.block import Block, DepthAttention, Stream, Wanted, ended, points_of
from headway.models.embeddings import output_projection, token_embedding, tying
from headway.models.model import Axes, Memory, Output, Seq2Seq, log_probabilities, wanted
from headway.models.stacks import StackConfig, StackedConfig, build_blocks, last_norm, shared_positions, stack_end
from headway.tensors.batch import Batch
from headway.tensors.dropout import Dropout
from headway.tensors.masks import drop_full, padding_mask


class DecoderOnlyConfig(StackedConfig):
    """One causal stack that reads source and target as one sequence; the loss is on the target alone.

    `decoder`: the stack of layers.
    """

    kind: Literal["decoder_only"] = "decoder_only"
    decoder: StackConfig = StackConfig()


@dataclass(frozen=True)
class DecoderOnlyState(State):
    """The state of each layer. `lengths` (R,) counts the tokens so far, including the source."""

    layers: tuple[State, ...]
    lengths: Tensor


class DecoderOnly(Seq2Seq):
    """A stack of causal layers over source and target; only the target has logits, and a loss.

    Args:
        config: the `model` section of a recipe.
        source_size: the size of the source vocabulary.
        target_size: the size of the target vocabulary.
        shared: whether both sides have the same vocabulary; if so they share one embedding, unless `tied` says
            otherwise. Sides with different vocabularies have separate embeddings.

    Raises:
        UserError: options of the recipe that do not go together.
    """

    Config: ClassVar = DecoderOnlyConfig

    def __init__(self, config: DecoderOnlyConfig, source_size: int, target_size: int, shared: bool) -> None:
        super().__init__()
        tied, dim = tying(config, shared), config.dim
        self.source_tokens = token_embedding(source_size, dim)
        self.target_tokens = self.source_tokens if tied == "all" else token_embedding(target_size, dim)
        self.scale, self.dropout = config.embedding_scale(), Dropout(config.dropout)
        self.max_position, self.trained_positions = config.max_position, config.trained_positions()
        self.position = build_absolute(config.position, dim, config.max_position)
        self.decoder = build_blocks(config, config.decoder, True, "model.decoder")
        self.end, self.norm = stack_end(config, config.decoder), last_norm(config)
        self.projection = output_projection(self.target_tokens, tied)

    def points(self) -> Points:
        return points_of(decoder=self.decoder)

    def forward(self, batch: Batch, *, capture: Sequence[str] = ()) -> Output:
        lengths, steps = batch.source_mask.sum(1), batch.target_input.shape[1]
        vectors, mask = self._pack(batch, lengths)
        padding = drop_full(mask)
        attention: dict[str, Tensor] = {}
        depth: list[Tensor] = []  # torch.compile does not support `list[Tensor]()`
        over_depth = isinstance(self.end, DepthAttention) and wanted("decoder.layers", capture)
        x: Stream = self._embed(vectors)
        first: Tensor | None = None
        # (B, T): the positions of the target; those of padding beyond the end are clamped to the last position.
        target = next_positions(lengths, steps).clamp(max=mask.shape[1] - 1)
        for number, layer in enumerate(self.decoder, start=1):
            names = f"decoder.{number}.self", f"decoder.{number}.cross"
            asked = [wanted(name, capture) for name in names]
            x, attended = layer(x, padding, wanted=Wanted(any(asked), depth=over_depth), first=first)
            depth, first = [*depth, *attended.depth], attended.first
            if attended.mixer is not None:
                given = attended.mixer, _of_source(attended.mixer, target, batch.source_mask)
                attention |= {name: weights for name, weights, ask in zip(names, given, asked, strict=True) if ask}
        values, weights = ended(self.end, x, depth)
        attention |= {} if weights is None else {"decoder.layers": weights}
        return Output(self.projection(self.norm(take(values, target))), attention)

    def _pack(self, batch: Batch, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The token vectors (B, L, D) of the packed sequences, and their mask; `lengths` (B,) are of the sources."""
        size, steps, all_lengths = (
            batch.source.shape[1],
            batch.target_input.shape[1],
            lengths + batch.target_mask.sum(1),
        )
        length = size + steps
        if self.trained_positions is not None and length > self.trained_positions:
            # The longest source and target may be in different rows, so the limit applies to real positions only.
            length = int(all_lengths.max())
        both = torch.cat([self.source_tokens(batch.source), self.target_tokens(batch.target_input)], 1)
        return take(both, packing(lengths, size, steps)[:, :length]), padding_mask(all_lengths, length)

    def longest_source(self) -> int:
        return self.max_position - 2  # without the end and begin tokens between source and target

    def longest_target(self, source_length: int) -> int | None:
        return None if self.trained_positions is None else self.trained_positions - 2 - source_length

    def attention_axes(self, name: str) -> Axes:
        axes = super().attention_axes(name)
        return axes if name.endswith(".cross") else Axes("both", axes.keys if name.endswith(".layers") else "both")

    def encode(self, source: Tensor, mask: Tensor) -> Memory:
        return Memory(self._embed(self.source_tokens(source)), mask)

    @torch.no_grad()
    def start(self, memory: Memory, capacity: int) -> DecoderOnlyState:
        rows, size, _ = memory.values.shape
        x: Stream = memory.values
        layers, lengths = [], memory.mask.sum(1)
        first: list[Tensor] = []
        for block in self._decoder_blocks():
            x, state = block.extend(x, block.initial_state(rows, size + capacity), lengths=lengths, first=first)
            layers.append(state)
        return DecoderOnlyState(tuple(layers), lengths)

    @torch.no_grad()
    def extend(self, tokens: Tensor, state: State) -> tuple[Tensor, DecoderOnlyState]:
        assert isinstance(state, DecoderOnlyState)
        count, layers = tokens.shape[1], []
        first: list[Tensor] = []
        positions = next_positions(state.lengths, count)
        if self.trained_positions is not None:
            # Finished rows may move past the last position during a search. Their outputs are ignored.
            positions = positions.clamp(max=self.trained_positions - 1)
        x: Stream = self.dropout(self.target_tokens(tokens) * self.scale + self.position(positions))
        for block, before in zip(self._decoder_blocks(), state.layers, strict=True):
            x, after = block.extend(x, before, first=first)
            layers.append(after)
        logits = self.projection(self.norm(self.end(x)[:, -1]))
        return log_probabilities(logits), DecoderOnlyState(tuple(layers), state.lengths + count)

    def _decoder_blocks(self) -> list[Block]:
        return list(self.decoder)  # type: ignore[arg-type]

    def _embed(self, vectors: Tensor) -> Tensor:
        """Scale token vectors (B, L, D) and add positions 0, 1, ...: the input of the first layer."""
        x = vectors * self.scale + self.position.between(0, vectors.shape[1])
        return self.dropout(x)  # type: ignore[no-any-return]

    def blocks(self) -> Sequence[nn.Module]:
        return list(self.decoder)

    def layers(self) -> Sequence[nn.Module]:
        return [*shared_positions(self), *self.blocks()]


def packing(lengths: Tensor, size: int, steps: int) -> Tensor:
    """The index (B, L) that packs padded source and target, concatenated to S + T positions, without gaps.

    Args:
        lengths: (B,) of the sources, counting end-of-sentence tokens.
        size: S.
        steps: T.
    """
    indices = torch.arange(size + steps, device=lengths.device)
    in_target = indices - lengths[:, None]
    return torch.where(in_target < 0, indices, size + in_target).clamp(max=size + steps - 1)


def take(x: Tensor, index: Tensor) -> Tensor:
    """The vectors (B, N, D) of x (B, L, D) at the positions `index` (B, N) of each row."""
    offsets = torch.arange(len(x), device=x.device)[:, None] * x.shape[1]
    return x.flatten(0, 1).index_select(0, (offsets + index).flatten()).view(*index.shape, -1)


def _of_source(weights: Tensor, target: Tensor, source_mask: Tensor) -> Tensor:
    """The part (B, K, T, S) of the weights (B, K, L, L) from the target to the source."""
    index = target[:, None, :, None].expand(-1, weights.shape[1], -1, source_mask.shape[1])
    read = weights[..., : source_mask.shape[1]].gather(2, index)
    return read.masked_fill(~source_mask[:, None, None, :], 0)
