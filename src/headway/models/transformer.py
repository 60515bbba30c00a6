"""The Transformer (Vaswani et al. 2017), with any mixer instead of self-attention in each layer.

Shapes: B batch, S source, T target, D model, V vocabulary, R rows of a decoding step (hypotheses of all sentences).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headway.mixers import State
from headway.mixers.mixer import next_positions
from headway.mixers.points import Points
from headway.mixers.positions import build_absolute
from headway.models.block import Block, DepthAttention, Stream, Wanted, ended, points_of
from headway.models.cross_attention import View
from headway.models.embeddings import Embedding, SourceReader, output_projection, token_embedding, tying
from headway.models.front_end import FrontEnd, FrontEndConfig
from headway.models.model import Memory, Output, Seq2Seq, log_probabilities, sentences_of, wanted
from headway.models.stacks import (
    ReadingStackConfig,
    StackConfig,
    StackedConfig,
    build_blocks,
    build_norm,
    last_norm,
    shared_positions,
    stack_end,
)
from headway.tensors.batch import Batch
from headway.tensors.masks import drop_full


class TransformerConfig(StackedConfig):
    """The encoder-decoder of Vaswani et al. (2017).

    `encoder`, `decoder`: a stack of layers. `front_end`: convolutions, for sources that are frames of speech.
    `output_bias`: whether logits have a bias, as in Marian. `first_input`: the first input of the decoder, the vector
    of the begin-of-sentence token (`bos`) or, as in Marian, a zero vector (`zero`), plus position 0. `embedding_norm`:
    whether the sum of token and position vectors is normalised, as in BART.
    """

    kind: Literal["transformer"] = "transformer"
    output_bias: bool = False
    first_input: Literal["bos", "zero"] = "bos"
    embedding_norm: bool = False
    front_end: FrontEndConfig | None = None
    encoder: StackConfig = StackConfig()
    decoder: ReadingStackConfig = ReadingStackConfig()

    def reads_frames(self) -> bool:
        return self.front_end is not None


@dataclass(frozen=True)
class DecoderState(State):
    """The state of a Transformer decoder. The source views are stored per sentence, not per hypothesis.

    `lengths` (R,) counts the tokens so far.
    """

    layers: tuple[State, ...]
    sources: tuple[View, ...]
    lengths: Tensor
    width: int  # hypotheses per sentence, in consecutive rows

    def select(self, index: Tensor) -> DecoderState:
        """Select rows by `index`. With an index (N, W), the W hypotheses of each sentence share its source views."""
        rows = index.reshape(-1)
        width, sentences = sentences_of(index, self.width, self.lengths.shape[0] // self.width)
        return DecoderState(
            layers=tuple(layer.select(rows) for layer in self.layers),
            sources=self.sources if sentences is None else tuple(view.select(sentences) for view in self.sources),
            lengths=self.lengths.index_select(0, rows),
            width=width,
        )


class Transformer(Seq2Seq):
    """Encoder and decoder stacks.

    Args:
        config: the `model` section of a recipe.
        source_size: the size of the source vocabulary or, with a front end, the numbers per frame.
        target_size: the size of the target vocabulary.
        shared: whether both sides have the same vocabulary.

    Raises:
        UserError: options of the recipe that do not go together.
    """

    Config: ClassVar = TransformerConfig

    def __init__(self, config: TransformerConfig, source_size: int, target_size: int, shared: bool) -> None:
        super().__init__()
        tied = tying(config, shared and config.front_end is None)
        dim, dropout, scale = config.dim, config.dropout, config.embedding_scale()
        source = token_embedding(source_size, dim) if config.front_end is None else None
        target = token_embedding(target_size, dim)
        positions = [build_absolute(config.position, dim, config.max_position) for _ in range(2)]
        norms = [build_norm(config) if config.embedding_norm else None for _ in range(2)]
        self.source_embedding: SourceReader
        if config.front_end is None:
            assert source is not None
            self.source_embedding = Embedding(source, positions[0], dropout, scale, norm=norms[0])
        else:
            self.source_embedding = FrontEnd(config.front_end, source_size, dim, positions[0], dropout, scale)
        tokens, zero = source if source and tied == "all" else target, config.first_input == "zero"
        self.target_embedding = Embedding(tokens, positions[1], dropout, scale, zero, norms[1])
        self.encoder = build_blocks(config, config.encoder, False, "model.encoder")
        self.decoder = build_blocks(config, config.decoder, True, "model.decoder")
        self.encoder_end, self.decoder_end = stack_end(config, config.encoder), stack_end(config, config.decoder)
        self.encoder_norm, self.decoder_norm = last_norm(config), last_norm(config)
        self.projection = output_projection(self.target_embedding.tokens, tied, bias=config.output_bias)
        self.max_position, self.trained_positions = config.max_position, config.trained_positions()

    def points(self) -> Points:
        return points_of(encoder=self.encoder, decoder=self.decoder)

    def encode(self, source: Tensor, mask: Tensor) -> Memory:
        return self._encode(source, mask, ())[0]

    def _encode(self, source: Tensor, mask: Tensor, capture: Sequence[str]) -> tuple[Memory, dict[str, Tensor]]:
        vectors, mask = self.source_embedding.read(source, mask)
        padding = drop_full(mask)
        attention: dict[str, Tensor] = {}
        depth: list[Tensor] = []  # torch.compile does not support `list[Tensor]()`
        over_depth = isinstance(self.encoder_end, DepthAttention) and wanted("encoder.layers", capture)
        x: Stream = vectors
        first: Tensor | None = None
        for number, layer in enumerate(self.encoder, start=1):
            name = f"encoder.{number}.self"
            x, attended = layer(x, padding, wanted=Wanted(wanted(name, capture), depth=over_depth), first=first)
            depth, first = [*depth, *attended.depth], attended.first
            if attended.mixer is not None:
                attention[name] = attended.mixer
        values, weights = ended(self.encoder_end, x, depth)
        attention |= {} if weights is None else {"encoder.layers": weights}
        return Memory(self.encoder_norm(values), mask), attention

    def forward(self, batch: Batch, *, capture: Sequence[str] = ()) -> Output:
        memory, attention = self._encode(batch.source, batch.source_mask, capture)
        x: Stream = self.target_embedding(batch.target_input)
        first: Tensor | None = None
        padding, source_padding = drop_full(batch.target_mask), drop_full(memory.mask)
        depth: list[Tensor] = []
        over_depth = isinstance(self.decoder_end, DepthAttention) and wanted("decoder.layers", capture)
        for number, layer in enumerate(self.decoder, start=1):
            names = f"decoder.{number}.self", f"decoder.{number}.cross", f"decoder.{number}.cross_scores"
            needs = Wanted(wanted(names[0], capture), wanted(names[1], capture), names[2] in capture, over_depth)
            x, attended = layer(x, padding, memory.values, source_padding, needs, first)
            depth, first = [*depth, *attended.depth], attended.first
            given = zip(names, attended[:3], strict=True)
            attention |= {name: weights for name, weights in given if weights is not None}
        values, weights = ended(self.decoder_end, x, depth)
        attention |= {} if weights is None else {"decoder.layers": weights}
        return Output(self.projection(self.decoder_norm(values)), attention)

    @torch.no_grad()
    def start(self, memory: Memory, capacity: int) -> DecoderState:
        padding, rows = drop_full(memory.mask), len(memory.mask)
        return DecoderState(
            layers=tuple(layer.initial_state(rows, capacity) for layer in self._decoder_blocks()),
            sources=tuple(layer.view(memory.values, padding) for layer in self._decoder_blocks()),
            lengths=torch.zeros(rows, dtype=torch.int64, device=memory.values.device),
            width=1,
        )

    @torch.no_grad()
    def extend(self, tokens: Tensor, state: State) -> tuple[Tensor, DecoderState]:
        assert isinstance(state, DecoderState)
        count, layers = tokens.shape[1], []
        first: list[Tensor] = []
        x: Stream = self.target_embedding.at(tokens, next_positions(state.lengths, count))
        for layer, mixer_state, source in zip(self._decoder_blocks(), state.layers, state.sources, strict=True):
            x, after = layer.extend(x, mixer_state, source, state.width, state.lengths, first=first)
            layers.append(after)
        logits = self.projection(self.decoder_norm(self.decoder_end(x)[:, -1]))
        after = DecoderState(tuple(layers), state.sources, state.lengths + count, state.width)
        return log_probabilities(logits), after

    def _decoder_blocks(self) -> list[Block]:
        return list(self.decoder)  # type: ignore[arg-type]

    def longest_source(self) -> int:
        return self.source_embedding.longest(self.max_position)

    def longest_target(self, source_length: int) -> int | None:
        return None if self.trained_positions is None else self.trained_positions - 1

    def source_lengths(self, lengths: Tensor) -> Tensor:
        return self.source_embedding.lengths(lengths)

    def trial_source(self, length: int) -> NDArray[Any]:
        return self.source_embedding.trial(length)

    def blocks(self) -> Sequence[nn.Module]:
        return [*self.encoder, *self.decoder]

    def layers(self) -> Sequence[nn.Module]:
        return [*shared_positions(self), *self.blocks()]
