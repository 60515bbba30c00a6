"""Recurrent sequence-to-sequence models: Sutskever et al. (2014), Bahdanau et al. (2015), Luong et al. (2015).

Shapes: B batch, S source, T target, V vocabulary, R rows of a decoding step (hypotheses of all sentences).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headway.mixers import State
from headway.mixers.positions import build_absolute
from headway.models.embeddings import Embedding, token_embedding, tying
from headway.models.model import Memory, Output, Seq2Seq, wanted
from headway.models.model_config import RecurrentConfig
from headway.models.recurrent.recurrent_decoder import Decoder, RecurrentState
from headway.models.recurrent.recurrent_encoder import Encoded, Encoder
from headway.models.recurrent.reinforce import Reinforce
from headway.tensors.batch import Batch
from headway.tensors.dropout import Dropout
from headway.tensors.linear import few_rows_linear

CROSS = "decoder.0.cross"  # there is one attention, whatever the number of layers


class Recurrent(Seq2Seq):
    """An encoder and a decoder of recurrent layers.

    Args:
        config: the `model` section of a recipe.
        source_size: size of the source vocabulary.
        target_size: size of the target vocabulary.
        shared: whether both sides have the same vocabulary.

    Raises:
        UserError: options of the recipe that do not go together.
    """

    def __init__(self, config: RecurrentConfig, source_size: int, target_size: int, shared: bool) -> None:
        super().__init__()
        tied, dim = tying(config, shared), config.dim
        source, target = token_embedding(source_size, dim), token_embedding(target_size, dim)
        nowhere = build_absolute({"kind": "none"}, dim, config.max_position)
        self.source_embedding = Embedding(source, nowhere, config.dropout)
        self.target_embedding = Embedding(source if tied == "all" else target, nowhere, config.dropout)
        self.encoder, self.decoder = Encoder(config), Decoder(config)
        self.dropout = Dropout(config.dropout)
        self.projection = nn.Linear(self.decoder.readout.size, target_size, bias=False)
        nn.init.normal_(self.projection.weight, std=self.decoder.readout.size**-0.5)
        if tied != "none":
            self.projection.weight = self.target_embedding.tokens.weight
        attention = config.attention
        self.reinforce: Reinforce | None = None
        if attention.kind in ("hard", "monotonic") and attention.estimator == "reinforce":
            reaches_later = self.decoder.sequential or attention.kind == "monotonic"
            self.reinforce = Reinforce(target_size, reaches_later, attention.entropy, attention.baseline_decay)

    def encode(self, source: Tensor, mask: Tensor) -> Encoded:
        encoded: Encoded = self.encoder(self.source_embedding(source), mask)
        return encoded

    def forward(self, batch: Batch, *, capture: Sequence[str] = ()) -> Output:
        encoded = self.encode(batch.source, batch.source_mask)
        readouts, choice = self.decoder(self.target_embedding(batch.target_input), encoded)
        logits = self.projection(self.dropout(readouts))
        attention, losses = {}, {}
        if choice is not None and wanted(CROSS, capture):
            attention[CROSS] = choice.weights[:, None]
        if choice is not None and self.training and self.reinforce is not None:
            losses = self.reinforce(logits, choice, batch)
        return Output(logits, attention, losses)

    def start(self, memory: Memory) -> RecurrentState:
        assert isinstance(memory, Encoded)
        return self.decoder.initial(memory)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, RecurrentState]:
        assert isinstance(state, RecurrentState)
        readouts, _, after = self.decoder.step(self.target_embedding(tokens), state)
        logits = few_rows_linear(readouts, self.projection)
        return F.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32)), after
