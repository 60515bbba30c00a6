"""A decoder-only Transformer: one causal stack reads source and target as one sequence (Radford et al. 2018).

Shapes: B batch, S source, T target, L both in one sequence, K heads, D model, V vocabulary, R rows of a decoding step.

The sequence of a row is x1 .. xm EOS BOS y1 .. yn without anything in between, and padding follows it, so that what the
row looks like does not depend on what else is in its batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headway.mixers import State
from headway.mixers.positions import build_absolute
from headway.models.block import EncoderLayer
from headway.models.embeddings import output_projection, token_embedding, tying
from headway.models.model import Axes, Memory, Output, Seq2Seq, wanted
from headway.models.model_config import DecoderOnlyConfig
from headway.models.stacks import beside_mixer, shared_positions, stack_mixers
from headway.tensors.batch import Batch
from headway.tensors.dropout import Dropout
from headway.tensors.linear import few_rows_linear
from headway.tensors.masks import drop_full, padding_mask


@dataclass(frozen=True)
class Group(State):
    """Rows whose sources are equally long, and so stand at the same `position` at every step.

    `rows` (R,) says which of the rows of the whole state they are.
    """

    rows: Tensor
    layers: tuple[State, ...]
    position: int


@dataclass(frozen=True)
class DecoderOnlyState(State):
    """Rows in groups. A step takes all rows of a group at once, so that none has padding among its past."""

    groups: tuple[Group, ...]

    def select(self, index: Tensor) -> "DecoderOnlyState":
        """Rows `index`, each in the group where it was."""
        wished = index.reshape(-1)
        groups = []
        for group in self.groups:
            # Where in this group the wished rows are: `place` is the first match, and `found` whether there is one.
            found, place = (wished[:, None] == group.rows).max(1)
            rows = found.nonzero().squeeze(1)
            if len(rows):
                layers = tuple(layer.select(place[rows]) for layer in group.layers)
                groups.append(replace(group, rows=rows, layers=layers))
        return DecoderOnlyState(tuple(groups))


class DecoderOnly(Seq2Seq):
    """A stack of causal layers over source and target; the logits, and so the loss, are the target's alone.

    Args:
        config: the `model` section of a recipe.
        source_size: size of the source vocabulary.
        target_size: size of the target vocabulary.
        shared: whether both sides have the same vocabulary; then they also share one embedding, unless `tied` says
            otherwise. Sides with vocabularies of their own each have an embedding.

    Raises:
        UserError: options of the recipe that do not go together.
    """

    def __init__(self, config: DecoderOnlyConfig, source_size: int, target_size: int, shared: bool) -> None:
        super().__init__()
        tied, dim = tying(config, shared), config.dim
        self.source_tokens = token_embedding(source_size, dim)
        self.target_tokens = self.source_tokens if tied == "all" else token_embedding(target_size, dim)
        self.scale, self.dropout = dim**0.5, Dropout(config.dropout)
        self.trained_positions = config.trained_positions()
        self.position = build_absolute(config.position, dim, config.max_position)
        mixers = stack_mixers(config, config.decoder, True, "model.decoder")
        self.decoder = nn.ModuleList(EncoderLayer(mixer, *beside_mixer(config)) for mixer in mixers)
        self.norm = nn.LayerNorm(dim) if config.norm == "pre" else nn.Identity()
        self.projection = output_projection(self.target_tokens, tied)

    def forward(self, batch: Batch, *, capture: Sequence[str] = ()) -> Output:
        lengths, steps = batch.source_mask.sum(1), batch.target_input.shape[1]
        x, mask = self._pack(batch, lengths)
        x, padding = self._place(x, 0), drop_full(mask)
        attention: dict[str, Tensor] = {}
        target = lengths[:, None] + torch.arange(steps, device=lengths.device)  # (B, T): where the target stands
        for number, layer in enumerate(self.decoder):
            names = f"decoder.{number}.self", f"decoder.{number}.cross"
            asked = [wanted(name, capture) for name in names]
            x, weights = layer(x, padding, any(asked))
            if weights is not None:
                given = weights, _of_source(weights, target, batch.source_mask)
                attention |= {name: each for name, each, ask in zip(names, given, asked, strict=True) if ask}
        return Output(self.projection(self.norm(take(x, target))), attention)

    def _pack(self, batch: Batch, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Token vectors (B, L, D) of the packed sequences, and their mask; `lengths` (B,) are those of the sources."""
        size, steps, all_lengths = (
            batch.source.shape[1],
            batch.target_input.shape[1],
            lengths + batch.target_mask.sum(1),
        )
        length = size + steps
        if self.trained_positions is not None and length > self.trained_positions:
            # The longest source and the longest target need not be of one row: only real positions can be too many.
            length = int(all_lengths.max())
        both = torch.cat([self.source_tokens(batch.source), self.target_tokens(batch.target_input)], 1)
        return take(both, packing(lengths, size, steps)[:, :length]), padding_mask(all_lengths, length)

    def attention_axes(self, name: str) -> Axes:
        return Axes("both", "both") if name.endswith(".self") else super().attention_axes(name)

    def encode(self, source: Tensor, mask: Tensor) -> Memory:
        return Memory(self._place(self.source_tokens(source), 0), mask)

    def start(self, memory: Memory) -> DecoderOnlyState:
        lengths = memory.mask.sum(1)
        groups = []
        for length in sorted(set(lengths.tolist())):
            rows = (lengths == length).nonzero().squeeze(1)
            x, layers = memory.values[rows, :length], []
            for layer in self.decoder:
                x, state = layer.prefill(x)  # type: ignore[operator]
                layers.append(state)
            groups.append(Group(rows, tuple(layers), length))
        return DecoderOnlyState(tuple(groups))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, DecoderOnlyState]:
        assert isinstance(state, DecoderOnlyState)
        hidden, groups = [], []
        for group in state.groups:
            x = self._place(self.target_tokens(tokens[group.rows, None]), group.position).squeeze(1)
            layers = []
            for layer, mixer_state in zip(self.decoder, group.layers, strict=True):
                x, after = layer.step(x, mixer_state)  # type: ignore[operator]
                layers.append(after)
            hidden.append(x)
            groups.append(replace(group, layers=tuple(layers), position=group.position + 1))
        order = torch.cat([group.rows for group in groups]).argsort()
        logits = few_rows_linear(self.norm(torch.cat(hidden)[order]), self.projection)
        return F.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32)), DecoderOnlyState(
            tuple(groups)
        )

    def _place(self, vectors: Tensor, start: int) -> Tensor:
        """Token vectors (..., L, D) as the first layer reads them, at positions start, start + 1, ..."""
        x = vectors * self.scale + self.position.between(start, start + vectors.shape[-2])
        return self.dropout(x)  # type: ignore[no-any-return]

    def layers(self) -> Sequence[nn.Module]:
        return [*shared_positions(self), *self.decoder]


def packing(lengths: Tensor, size: int, steps: int) -> Tensor:
    """(B, L): which of the S + T places, source beside target, each place of the packed sequences is filled from.

    Args:
        lengths: (B,) of the sources, end marks included.
        size: S.
        steps: T.
    """
    places = torch.arange(size + steps, device=lengths.device)
    in_target = places - lengths[:, None]
    return torch.where(in_target < 0, places, size + in_target).clamp(max=size + steps - 1)


def take(x: Tensor, index: Tensor) -> Tensor:
    """The vectors of x (B, L, D) at `index` (B, N) of their own rows: (B, N, D)."""
    offsets = torch.arange(len(x), device=x.device)[:, None] * x.shape[1]
    return x.flatten(0, 1).index_select(0, (offsets + index).flatten()).view(*index.shape, -1)


def _of_source(weights: Tensor, target: Tensor, source_mask: Tensor) -> Tensor:
    """(B, K, T, S): the part of the weights (B, K, L, L) with which the target reads the source."""
    index = target[:, None, :, None].expand(-1, weights.shape[1], -1, source_mask.shape[1])
    read = weights[..., : source_mask.shape[1]].gather(2, index)
    return read.masked_fill(~source_mask[:, None, None, :], 0)
