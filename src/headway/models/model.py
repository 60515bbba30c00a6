"""The contract of a sequence-to-sequence model: all that search, scoring, training and analysis know of it.

Shapes: B batch, S source, T target, K heads, D model, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Generic, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from headway.mixers import State
from headway.tensors.batch import UNKNOWN, AnyBatch, Batch

__all__ = ["Memory", "Model", "Output", "Seq2Seq", "State", "wanted"]


@dataclass(frozen=True)
class Memory:
    """An encoded source: values (B, S, D) and a mask (B, S), True where a position is real.

    S is the source's own length, or what a model that shortens its source makes of it (`Seq2Seq.source_lengths`).
    """

    values: Tensor
    mask: Tensor


class Axes(NamedTuple):
    """Which tokens attend (`queries`) and which are attended to (`keys`), of each row.

    `source`: x1 .. xm EOS, or the positions of a shortened source; `target`: BOS y1 .. yn; `both`: the one directly
    followed by the other. Padding comes last.
    """

    queries: Literal["source", "target", "both"]
    keys: Literal["source", "target", "both"]


class Output(NamedTuple):
    """What a model says of a whole target: logits (B, T, V), and the attention that was asked for, by name.

    `losses` are what the model itself adds to the objective in training, by name, each summed over target tokens.

    Names are `encoder.LAYER.self` (B, K, S, S), `decoder.LAYER.self` (B, K, T, T), `decoder.LAYER.cross` (B, K, T, S):
    weights, before dropout. `decoder.LAYER.cross_scores` (B, K, T, S), which no pattern but its full name asks for, are
    what the last are the softmax of, before masking. In a decoder-only model `decoder.LAYER.self` is
    (B, K, S + T, S + T), of which `decoder.LAYER.cross` is the part with which the target reads the source, so that its
    rows sum to at most one.
    """

    logits: Tensor
    attention: Mapping[str, Tensor]
    losses: Mapping[str, Tensor] = MappingProxyType({})


class Model(nn.Module, ABC, Generic[AnyBatch]):
    """What training needs of a model, whatever its task: it reads the batches of that task."""

    @abstractmethod
    def forward(self, batch: AnyBatch, *, capture: Sequence[str] = ()) -> Output:
        """Logits for every target position at once.

        Args:
            batch: a batch of the model's task.
            capture: patterns (`decoder.*.cross`) of the attention to return; costs nothing when empty.
        """

    def layers(self) -> Sequence[nn.Module]:
        """The modules that sharded training gathers one at a time; none unless a model says so."""
        return ()


class Seq2Seq(Model[Batch]):
    """A model that reads a source and says which token comes next in a target."""

    @abstractmethod
    def encode(self, source: Tensor, mask: Tensor) -> Memory:
        """Encode token ids (B, S), or frames (B, S, M) of speech, real where mask (B, S) is True."""

    @abstractmethod
    def forward(self, batch: Batch, *, capture: Sequence[str] = ()) -> Output:
        """Logits for every target position at once, given the true tokens before it.

        Args:
            batch: sources and target ids with their masks.
            capture: patterns (`decoder.*.cross`) of the attention to return; costs nothing when empty.
        """

    def source_lengths(self, lengths: Tensor) -> Tensor:
        """How many positions the memory has for sources of these lengths, end marks included."""
        return lengths

    def trial_source(self, length: int) -> NDArray[Any]:
        """A source of this length, without its end mark, to try the model on."""
        return np.full(length, UNKNOWN)

    @abstractmethod
    def start(self, memory: Memory) -> State:
        """The state before the first target token, one row a source."""

    @abstractmethod
    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Log probabilities (B, V) of the next token, given the last ones, tokens (B,), and the state after them.

        `state.select` takes an index (B',) or, for the W hypotheses of each of N sentences, (N, W): all entries of a
        row then are rows of the same sentence.
        """

    def attention_axes(self, name: str) -> Axes:
        """Which tokens the last two axes of the attention called `name` stand for."""
        own: Literal["source", "target"] = "source" if name.startswith("encoder.") else "target"
        return Axes(own, own if name.endswith(".self") else "source")


def wanted(name: str, capture: Sequence[str]) -> bool:
    """Whether the attention called `name` was asked for."""
    return any(fnmatchcase(name, pattern) for pattern in capture)
