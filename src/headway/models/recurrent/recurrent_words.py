"""A tagger over recurrent layers of words (Rei and Yannakoudakis 2016).

Shapes: B batch, P words, V vocabulary, D tanh layer.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headway.mixers.points import Points, output_of
from headway.models.embeddings import token_embedding
from headway.models.recurrent.recurrent_encoder import Encoder, RecurrentEncoderConfig
from headway.models.tagger import RecurrentWordsConfig, Tagger
from headway.tensors.batch import TokenBatch
from headway.tensors.dropout import Dropout
from headway.tensors.linear import Linear


class EncoderSizes(NamedTuple):
    """The sizes of an encoder that a tagger asks for, by Hugging Face's names."""

    hidden_size: int
    num_hidden_layers: int


class RecurrentWords(nn.Module):
    """d_t = tanh(W_d [h_t forwards; h_t backwards]), with the states h of recurrent layers over word embeddings.

    Args:
        config: the sizes.
        vocabulary_size: V.
        dropout: on embeddings and between layers.
    """

    def __init__(self, config: RecurrentWordsConfig, vocabulary_size: int, dropout: float) -> None:
        super().__init__()
        both = RecurrentEncoderConfig(layers=config.layers, hidden=2 * config.hidden, bidirectional=True)
        self.config = EncoderSizes(config.output, 1)  # for a mix of layers, all layers together are one
        self.embedding, self.dropout = token_embedding(vocabulary_size, config.dim), Dropout(dropout)
        self.recurrent = Encoder(both, config.dim, config.cell, dropout)
        self.output = Linear(both.hidden, config.output, bias=False)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """The vectors (B, P, D) of words (B, P), real where mask (B, P) is True."""
        return torch.tanh(self.output(self.recurrent(self.dropout(self.embedding(tokens)), mask).values))


class RecurrentTagger(Tagger):
    """A tagger over `RecurrentWords`, which has no attention over words."""

    def points(self) -> Points:
        """Intervention points: the states of recurrent layers, both directions together, and the tanh layer."""
        states = enumerate(self.encoder.recurrent.states, start=1)  # type: ignore[union-attr, arg-type]
        return {f"encoder.{number}.state": output_of(state) for number, state in states} | super().points()

    def blocks(self) -> Sequence[nn.Module]:
        return ()

    def _encode(self, batch: TokenBatch, capture: Sequence[str]) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        return [self.encoder(batch.tokens, batch.token_mask)], {}
