"""The Transformer (Vaswani et al. 2017), with any mixer in the place of self-attention, per layer.

Shapes: B batch, S source, T target, D model, V vocabulary, R rows of a decoding step (hypotheses of all sentences).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from headway.mixers import State
from headway.mixers.attention import CrossAttention
from headway.mixers.positions import build_absolute
from headway.models.block import DecoderLayer, EncoderLayer, SourceView
from headway.models.embeddings import Embedding, SourceReader, output_projection, token_embedding, tying
from headway.models.front_end import FrontEnd
from headway.models.model import Memory, Output, Seq2Seq, wanted
from headway.models.model_config import TransformerConfig
from headway.models.sharing import sentences_of
from headway.models.stacks import attention_options, beside_mixer, shared_positions, stack_mixers
from headway.tensors.batch import Batch
from headway.tensors.linear import few_rows_linear
from headway.tensors.masks import drop_full


@dataclass(frozen=True)
class DecoderState(State):
    """The state of a Transformer decoder. What it sees of the source is kept once a sentence, not once a hypothesis."""

    layers: tuple[State, ...]
    sources: tuple[SourceView, ...]
    allowed: Tensor | None
    position: int
    width: int  # hypotheses a sentence, one after the other

    def select(self, index: Tensor) -> Self:
        """Rows `index`; an index (N, W) keeps the source shared among the W hypotheses of each sentence."""
        layers = tuple(layer.select(index.reshape(-1)) for layer in self.layers)
        width, sentences = sentences_of(index, self.width, self.sources[0].keys.shape[0])
        if sentences is None:
            return replace(self, layers=layers, width=width)
        sources = tuple(SourceView(*(part.index_select(0, sentences) for part in view)) for view in self.sources)
        allowed = None if self.allowed is None else self.allowed.index_select(0, sentences)
        return replace(self, layers=layers, sources=sources, allowed=allowed, width=width)


class Transformer(Seq2Seq):
    """Encoder and decoder stacks.

    Args:
        config: the `model` section of a recipe.
        source_size: size of the source vocabulary or, with a front end, how many numbers a frame has.
        target_size: size of the target vocabulary.
        shared: whether both sides have the same vocabulary.

    Raises:
        UserError: options of the recipe that do not go together.
    """

    def __init__(self, config: TransformerConfig, source_size: int, target_size: int, shared: bool) -> None:
        super().__init__()
        tied = tying(config, shared and config.front_end is None)
        dim = config.dim
        source = token_embedding(source_size, dim) if config.front_end is None else None
        target = token_embedding(target_size, dim)
        positions = [build_absolute(config.position, dim, config.max_position) for _ in range(2)]
        self.source_embedding: SourceReader
        if config.front_end is None:
            assert source is not None
            self.source_embedding = Embedding(source, positions[0], config.dropout)
        else:
            self.source_embedding = FrontEnd(config.front_end, source_size, dim, positions[0], config.dropout)
        self.target_embedding = Embedding(source if source and tied == "all" else target, positions[1], config.dropout)
        self.encoder = nn.ModuleList(_encoder_layers(config))
        self.decoder = nn.ModuleList(_decoder_layers(config))
        # Post-norm layers end in a norm; a pre-norm stack needs one more at its top.
        self.encoder_norm = nn.LayerNorm(dim) if config.norm == "pre" else nn.Identity()
        self.decoder_norm = nn.LayerNorm(dim) if config.norm == "pre" else nn.Identity()
        self.projection = output_projection(self.target_embedding.tokens, tied)

    def encode(self, source: Tensor, mask: Tensor) -> Memory:
        return self._encode(source, mask, ())[0]

    def _encode(self, source: Tensor, mask: Tensor, capture: Sequence[str]) -> tuple[Memory, dict[str, Tensor]]:
        x, mask = self.source_embedding.read(source, mask)
        padding, attention = drop_full(mask), {}
        for number, layer in enumerate(self.encoder):
            name = f"encoder.{number}.self"
            x, weights = layer(x, padding, wanted(name, capture))
            if weights is not None:
                attention[name] = weights
        return Memory(self.encoder_norm(x), mask), attention

    def forward(self, batch: Batch, *, capture: Sequence[str] = ()) -> Output:
        memory, attention = self._encode(batch.source, batch.source_mask, capture)
        x, padding, source_padding = (
            self.target_embedding(batch.target_input), drop_full(batch.target_mask), drop_full(memory.mask)
        )  # fmt: skip
        for number, layer in enumerate(self.decoder):
            names = f"decoder.{number}.self", f"decoder.{number}.cross", f"decoder.{number}.cross_scores"
            need = wanted(names[0], capture), wanted(names[1], capture), names[2] in capture
            x, *given = layer(x, padding, memory.values, source_padding, need)
            attention |= {name: each for name, each in zip(names, given, strict=True) if each is not None}
        return Output(self.projection(self.decoder_norm(x)), attention)

    def start(self, memory: Memory) -> DecoderState:
        count = memory.values.shape[0]
        padding = drop_full(memory.mask)
        return DecoderState(
            layers=tuple(layer.mixer.initial_state(count) for layer in self.decoder),  # type: ignore[operator, union-attr]
            sources=tuple(layer.source_view(memory.values) for layer in self.decoder),  # type: ignore[operator]
            allowed=None if padding is None else padding[:, None, None, :],
            position=0,
            width=1,
        )

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, DecoderState]:
        assert isinstance(state, DecoderState)
        x = self.target_embedding(tokens[:, None], state.position).squeeze(1)
        layers = []
        for layer, mixer_state, source in zip(self.decoder, state.layers, state.sources, strict=True):
            x, after = layer.step(x, mixer_state, source, state.allowed)  # type: ignore[operator]
            layers.append(after)
        logits = few_rows_linear(self.decoder_norm(x), self.projection)
        after_all = replace(state, layers=tuple(layers), position=state.position + 1)
        return F.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32)), after_all

    def source_lengths(self, lengths: Tensor) -> Tensor:
        return self.source_embedding.lengths(lengths)

    def trial_source(self, length: int) -> NDArray[Any]:
        return self.source_embedding.trial(length)

    def layers(self) -> Sequence[nn.Module]:
        return [*shared_positions(self), *self.encoder, *self.decoder]


def _encoder_layers(config: TransformerConfig) -> list[EncoderLayer]:
    return [
        EncoderLayer(mixer, *beside_mixer(config))
        for mixer in stack_mixers(config, config.encoder, False, "model.encoder")
    ]


def _decoder_layers(config: TransformerConfig) -> list[DecoderLayer]:
    return [
        DecoderLayer(mixer, CrossAttention(config.dim, **attention_options(config)), *beside_mixer(config))
        for mixer in stack_mixers(config, config.decoder, True, "model.decoder")
    ]
