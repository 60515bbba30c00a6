"""Recurrent sequence-to-sequence models: Sutskever et al. (2014), Bahdanau et al. (2015), Luong et al. (2015).

Hard attention is trained by REINFORCE (Williams 1992; Xu et al. 2015, section 4.1).
Shapes: B batch, S source, T target, V vocabulary, R rows of a decoding step (hypotheses of all sentences).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import BeforeValidator, Field, model_validator
from torch import Tensor, nn

from headway.core.config import named
from headway.mixers import State
from headway.mixers.points import Points, output_of
from headway.mixers.positions import build_absolute
from headway.models.cross_attention import Choice
from headway.models.embeddings import Embedding, token_embedding, tying
from headway.models.model import Memory, ModelConfig, Output, Seq2Seq, log_probabilities, wanted
from headway.models.recurrent.recurrent_decoder import (
    Decoder,
    ReadoutConfig,
    RecurrentAttentionConfig,
    RecurrentDecoderConfig,
    RecurrentState,
)
from headway.models.recurrent.recurrent_encoder import EncodedSource, Encoder, RecurrentEncoderConfig
from headway.tensors.batch import Batch
from headway.tensors.dropout import Dropout
from headway.tensors.exchange import summed
from headway.tensors.linear import Linear


class Reinforce(nn.Module):
    """REINFORCE losses of hard attention, and an entropy bonus, which keeps its choices uncertain.

    The reward of a choice is log P of the target tokens that it influences: its own or, if the choice also reaches
    later steps, all from its own on. The moving average of these rewards is subtracted from each as a baseline. It is a
    buffer, so that it is saved with the weights.

    Args:
        target_size: V; the initial baseline is log 1/V, the reward of a uniform distribution.
        reaches_later: whether a choice influences later steps.
        entropy: the weight of the entropy bonus.
        decay: the weight of the old baseline in the moving average.
    """

    def __init__(self, target_size: int, reaches_later: bool, entropy: float, decay: float) -> None:
        super().__init__()
        self.reaches_later, self.entropy, self.decay = reaches_later, entropy, decay
        self.register_buffer("baseline", torch.tensor(-math.log(target_size)))
        self.baseline: Tensor

    def forward(self, logits: Tensor, choice: Choice, batch: Batch) -> dict[str, Tensor]:
        """The losses by name, each summed over target tokens, for logits (B, T, V) and the choices of attention."""
        assert choice.log_probability is not None
        assert choice.entropy is not None
        mask = batch.scored
        rewards = _log_probabilities(logits, batch)
        advantages = (rewards - self.baseline.to(rewards.dtype)).masked_fill(~mask, 0)
        if self.reaches_later:
            advantages = advantages.flip(1).cumsum(1).flip(1)
        self._remember(rewards, mask)
        return {
            "reinforce": -(advantages * choice.log_probability).masked_fill(~mask, 0).sum(),
            "entropy": -self.entropy * choice.entropy.masked_fill(~mask, 0).sum(),
        }

    @torch.no_grad()
    def _remember(self, rewards: Tensor, mask: Tensor) -> None:
        earned = rewards.masked_fill(~mask, 0).sum()
        # Processes have different rows but share one baseline.
        totals = summed(torch.stack((earned, mask.sum().to(earned))))
        mean = totals[0] / totals[1].clamp(min=1)
        usable = mean.isfinite() & (totals[1] > 0)
        self.baseline.lerp_(torch.where(usable, mean.to(self.baseline), self.baseline), 1 - self.decay)


@torch.no_grad()
def _log_probabilities(logits: Tensor, batch: Batch) -> Tensor:
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return wide.gather(2, batch.target_output[:, :, None]).squeeze(2) - wide.logsumexp(2)


CROSS = "decoder.1.cross"  # there is one attention, whatever the number of layers


class RecurrentConfig(ModelConfig):
    """An encoder-decoder of recurrent layers, with or without attention.

    `dim`: the size of embeddings and, by default, of the readout. `cell`: the kind of both sides: `lstm`, `gru`, or
    `cho_gru`, whose reset gate is applied before the product (Cho et al. 2014). `dropout`: on embeddings, between
    layers and on the readout. `encoder`, `decoder`: the layers of both sides. `attention`: how the decoder reads the
    source. `readout`: the vector from which words are predicted. `uniform_range`: all weights are initialised uniformly
    between minus and plus this number (0.08 in Sutskever et al. 2014, 0.1 in Luong et al. 2015); by default each module
    has its own initialisation.
    """

    kind: Literal["recurrent"] = "recurrent"
    cell: Literal["gru", "lstm", "cho_gru"] = "lstm"
    encoder: RecurrentEncoderConfig = RecurrentEncoderConfig()
    decoder: RecurrentDecoderConfig = RecurrentDecoderConfig()
    attention: Annotated[RecurrentAttentionConfig, BeforeValidator(lambda value: named(value, "kind"))] = (
        RecurrentAttentionConfig()
    )
    readout: Annotated[ReadoutConfig, BeforeValidator(lambda value: named(value, "kind"))] = ReadoutConfig()
    uniform_range: Annotated[float, Field(gt=0, le=10)] | None = None

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        encoder, decoder, attention = self.encoder, self.decoder, self.attention
        if decoder.start == "copy" and (encoder.layers, encoder.hidden) != (decoder.layers, decoder.hidden):
            raise ValueError(
                "decoder.start copy needs as many layers and hidden in the encoder as in the decoder; set project"
            )
        if attention.weighs and attention.score_kind() == "dot" and encoder.hidden != decoder.hidden:
            raise ValueError(
                f"attention.score dot compares states of one size, and encoder.hidden ({encoder.hidden}) is not"
                f" decoder.hidden ({decoder.hidden}); set general"
            )
        self._readout_fits()
        return self

    def _readout_fits(self) -> None:
        attention, readout, hidden = self.attention, self.readout, self.decoder.hidden
        if attention.kind != "none" and attention.timing == "luong" and readout.kind == "state":
            raise ValueError("readout state does not see what attention of timing luong found; set tanh or maxout")
        if readout.state == "previous" and (not attention.weighs or attention.timing == "luong"):
            raise ValueError(
                "readout of the previous state belongs to attention of timing bahdanau, which has read the same state"
            )
        named, size = ("decoder.hidden", hidden) if readout.kind == "state" else ("readout.size", readout.size)
        if size not in (None, self.dim) and self.tied != "none":
            raise ValueError(
                f"readout {readout.kind} predicts from {named} ({size}), embeddings have dim ({self.dim});"
                " make them equal or set tied: none"
            )


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

    Config: ClassVar = RecurrentConfig

    def __init__(self, config: RecurrentConfig, source_size: int, target_size: int, shared: bool) -> None:
        super().__init__()
        tied, dim, scale = tying(config, shared), config.dim, config.embedding_scale()
        source, target = token_embedding(source_size, dim), token_embedding(target_size, dim)
        nowhere = build_absolute({"kind": "none"}, dim, config.max_position)
        self.source_embedding = Embedding(source, nowhere, config.dropout, scale)
        self.target_embedding = Embedding(source if tied == "all" else target, nowhere, config.dropout, scale)
        self.encoder = Encoder(config.encoder, dim, config.cell, config.dropout)
        self.decoder = Decoder(
            config.decoder, config.attention, config.encoder, dim=dim, cell=config.cell, readout=config.readout,
            dropout=config.dropout, max_position=config.max_position,
        )  # fmt: skip
        self.dropout = Dropout(config.dropout)
        self.projection = Linear(self.decoder.readout.size, target_size, bias=False)
        nn.init.normal_(self.projection.weight, std=self.decoder.readout.size**-0.5)
        if tied != "none":
            self.projection.weight = self.target_embedding.tokens.weight
        if config.uniform_range is not None:
            for parameter in self.parameters():
                nn.init.uniform_(parameter, -config.uniform_range, config.uniform_range)
        attention, reads = config.attention, self.decoder.attention
        self.max_position = config.max_position
        self.reinforce: Reinforce | None = None
        if reads is not None and reads.sampled:
            reaches_later = self.decoder.sequential or reads.ordered
            self.reinforce = Reinforce(target_size, reaches_later, attention.entropy, attention.baseline_decay)

    def points(self) -> Points:
        decoder = self.decoder
        layers = list(self.encoder.states)[: None if decoder.attention else -1]  # else the top is not read
        found = {f"encoder.{number}.state": output_of(state) for number, state in enumerate(layers, start=1)}
        found[f"decoder.{decoder.start.layers}.state"] = output_of(decoder.handed_on)
        if decoder.attention is not None:
            within = decoder.attention.points()
            found |= {CROSS: output_of(decoder.context)} | {f"{CROSS}{part}": place for part, place in within.items()}
        return found

    def steps(self) -> Sequence[tuple[nn.Module, str]]:
        return [(self, "extend"), (self.decoder, "step")]

    def encode(self, source: Tensor, mask: Tensor) -> EncodedSource:
        encoded: EncodedSource = self.encoder(self.source_embedding(source), mask)
        return encoded

    def forward(self, batch: Batch, *, capture: Sequence[str] = ()) -> Output:
        encoded = self.encode(batch.source, batch.source_mask)
        words = self.target_embedding(batch.target_input)
        readouts, read, _ = self.decoder(words, encoded, need_weights=wanted(CROSS, capture))
        logits = self.projection(self.dropout(readouts))
        attention, losses = {}, {}
        if read is not None and read.weights is not None and wanted(CROSS, capture):
            attention[CROSS] = read.weights
        if read is not None and read.choice is not None and self.training and self.reinforce is not None:
            losses = self.reinforce(logits, read.choice, batch)
        return Output(logits, attention, losses)

    def longest_source(self) -> int:
        return self.max_position - 1

    def longest_target(self, source_length: int) -> int | None:
        return None

    def start(self, memory: Memory, capacity: int) -> RecurrentState:
        assert isinstance(memory, EncodedSource)
        return self.decoder.initial(memory)

    def extend(self, tokens: Tensor, state: State) -> tuple[Tensor, RecurrentState]:
        assert isinstance(state, RecurrentState)
        readouts, _, after = self.decoder.extend(self.target_embedding(tokens), state)
        return log_probabilities(self.projection(readouts[:, -1])), after
