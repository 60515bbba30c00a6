"""The contract of a model: all that search, scoring, training and analysis know of it, and its part of a recipe.

Shapes: B batch, S source, T target, K heads, D model, V vocabulary, R rows of a decoding step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from headway.core.config import Probability, Section, Width
from headway.mixers import State
from headway.mixers.points import Points
from headway.models.interventions import Rules, intervened, recorded
from headway.models.scored_attention import Location
from headway.tensors.batch import UNKNOWN, AnyBatch, Batch


class ModelSection(Section):
    """A `model` section, whatever its kind.

    A model may be written as a preset's name, or as `{preset: NAME, ...}` with changes to it. `from`: the model that
    training begins from, `hf:FOLDER_OR_NAME` of a Marian model; all other keys are then read from it.
    """

    kind: str
    from_: str | None = Field(default=None, alias="from")

    def width(self) -> int | None:
        """D, or None where the recipe alone does not say it."""
        return None


class ModelConfig(ModelSection):
    """The options of every kind of sequence-to-sequence model.

    `max_position`: longer inputs are refused (end mark included), since no model was trained on such; what a model
    reads as one sequence, as a decoder-only model does source and target, counts as one input. `tied`: `all`
    shares source, target and output embeddings, `target` the last two, `none` nothing; by default `all` where the
    vocabulary is shared and `target` elsewhere. `scale_embeddings`: whether vectors that enter the layers are
    multiplied by the root of `dim` (Vaswani et al. 2017, section 3.4), which recurrent models of papers before do not.
    """

    dim: Width = 512
    dropout: Probability = 0.1
    max_position: Annotated[int, Field(gt=0, le=10**6)] = 1024
    tied: Literal["all", "target", "none"] | None = None
    scale_embeddings: bool = True

    def embedding_scale(self) -> float:
        """The factor of vectors that enter the layers."""
        return self.dim**0.5 if self.scale_embeddings else 1.0

    def width(self) -> int | None:
        return self.dim

    def reads_frames(self) -> bool:
        """Whether a source is frames of numbers, as speech is, instead of tokens of text."""
        return False


@dataclass(frozen=True)
class Memory:
    """An encoded source: values (B, S, D) and a mask (B, S), True where a position is real.

    S is the source's own length, or what a model that shortens its source makes of it (`Seq2Seq.source_lengths`).
    """

    values: Tensor
    mask: Tensor


class Axes(NamedTuple):
    """The tokens of a row that attend (`queries`) and those that are attended to (`keys`).

    `source`: x1 .. xm EOS, or the positions of a shortened source; `target`: BOS y1 .. yn; `both`: the one directly
    followed by the other. Padding comes last. `outputs` are no tokens, but what sublayers have given so far, the
    embeddings first.
    """

    queries: Literal["source", "target", "both"]
    keys: Literal["source", "target", "both", "outputs"]


class Output(NamedTuple):
    """The answer of a model for a whole target: logits (B, T, V), and the attention that was asked for, by name.

    `losses` are those that the model itself adds to the objective in training, by name, each summed over target tokens.

    Names are `encoder.LAYER.self` (B, K, S, S), `decoder.LAYER.self` (B, K, T, T), `decoder.LAYER.cross` (B, K, T, S):
    weights, before dropout. `decoder.LAYER.cross_scores` (B, K, T, S), which no pattern but its full name asks for, are
    what the last are the softmax of, before masking. In a decoder-only model `decoder.LAYER.self` is
    (B, K, S + T, S + T), of which `decoder.LAYER.cross` is the part with which the target reads the source, so that its
    rows sum to at most one. Layers count from 1. `encoder.layers` and `decoder.layers` (B, J, T, N) are the weights of
    each of J sublayers, and last of the top of the stack, over the outputs before it, where a stack has such.
    """

    logits: Tensor
    attention: Mapping[str, Tensor]
    losses: Mapping[str, Tensor] = MappingProxyType({})


class Model(nn.Module, ABC, Generic[AnyBatch]):
    """A model as training sees it, whatever its task: it reads the batches of that task.

    Attributes:
        Config: the `model` section of a recipe with this kind of model.
    """

    Config: ClassVar[type[ModelSection]]

    @abstractmethod
    def forward(self, batch: AnyBatch, *, capture: Sequence[str] = ()) -> Output:
        """Logits for every target position at once.

        Args:
            batch: a batch of the model's task.
            capture: patterns (`decoder.*.cross`) of the attention to return; costs nothing when empty.
        """

    def points(self) -> Points:
        """The places whose values can be replaced, by name; none unless a model says so."""
        return {}

    def steps(self) -> Sequence[tuple[nn.Module, str]]:
        """The modules with their methods that read new positions (R, n, ...), given a state with `lengths`."""
        return ()

    def intervened(self, rules: Rules) -> AbstractContextManager[Counter[str]]:
        """The context in which the values of named parts are replaced, in scoring, search and evaluation alike.

        It is the same for all threads that use the model. Without it nothing of it is there, and nothing is slower.

        Args:
            rules: by the name of a part or a pattern of names (`decoder.*.cross:heads`; see `interventions`): `zero`,
                a rule such as `Mean(recorded)`, or a function of the values (B, L, C). A later one replaces an earlier.

        Returns:
            A context; it gives how often each place was reached so far.

        Raises:
            UserError: a name that no part has; within the context, a rule that leaves a part no value.
        """
        return intervened(self, rules)

    def recorded(self, patterns: Iterable[str], batches: Iterable[AnyBatch]) -> dict[str, list[Tensor]]:
        """The values (L, C) of each place in each row of batches without padding, as rules read them.

        Raises:
            UserError: a name that no part has.
            ValueError: a batch with padding.
        """
        return recorded(self, patterns, batches)

    def blocks(self) -> Sequence[nn.Module]:
        """The modules that are alike and follow each other, lowest first; none unless a model says so.

        Training may compute what happens in them a second time instead of keeping it.
        """
        return ()

    def layers(self) -> Sequence[nn.Module]:
        """The modules that sharded training gathers one at a time."""
        return self.blocks()


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

    def steps(self) -> Sequence[tuple[nn.Module, str]]:
        return [(self, "extend")]

    @abstractmethod
    def longest_source(self) -> int:
        """The most tokens, or frames, that a source may have, its end mark not counted."""

    @abstractmethod
    def longest_target(self, source_length: int) -> int | None:
        """The most tokens that a target can have beside a source of so many, or None where there is no limit."""

    def learned_sources(self) -> bool:
        """Whether each place of a source is learned, so that no source can be longer, not even in evaluation."""
        return any(isinstance(part, Location) for part in self.modules())

    def longest_read(self, asked: int | None) -> int:
        """The most tokens of a source that are read where so many are asked for: learned places are all there are."""
        longest = self.longest_source()
        if asked is None or self.learned_sources() or self.longest_target(1) is not None:
            return min(longest, asked or longest)
        return asked

    def longest_pair(self, most: int) -> int:
        """The most tokens, up to `most`, that a source and a target can both have, their end marks not counted."""

        def too_long(length: int) -> bool:
            longest = self.longest_target(length)
            return length > self.longest_source() or (longest is not None and length > longest)

        return bisect_left(range(1, most + 1), True, key=too_long)

    def source_lengths(self, lengths: Tensor) -> Tensor:
        """How many positions the memory has for sources of these lengths, end marks included."""
        return lengths

    def trial_source(self, length: int) -> NDArray[Any]:
        """A source of this length, without its end mark, to try the model on."""
        return np.full(length, UNKNOWN)

    @abstractmethod
    def start(self, memory: Memory, capacity: int) -> State:
        """The state before the first target token, one row a source, with room for `capacity` tokens of each row."""

    @abstractmethod
    def extend(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Read n more tokens (R, n) of each row.

        Returns:
            Log probabilities (R, V) of the token after the last of them, and the state after them. `state.select` takes
            an index (R',) or, for the W hypotheses of each of N' sentences, (N', W): all entries of a line then are
            rows of the same sentence, and, where N' is the number of sentences of the state, line i those of sentence
            i.
        """

    def attention_axes(self, name: str) -> Axes:
        """The tokens that the last two axes of the attention called `name` stand for."""
        side: Literal["source", "target"] = "source" if name.startswith("encoder.") else "target"
        if name.endswith(".layers"):
            return Axes(side, "outputs")
        return Axes(side, side if name.endswith(".self") else "source")


def wanted(name: str, capture: Sequence[str]) -> bool:
    """Whether the attention called `name` was asked for."""
    return any(fnmatchcase(name, pattern) for pattern in capture)


def log_probabilities(logits: Tensor) -> Tensor:
    """The log softmax of logits (..., V), in float32 or wider."""
    return F.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))


def sentences_of(index: Tensor, width: int, count: int) -> tuple[int, Tensor | None]:
    """The sentences whose hypotheses the rows `index` of a state are; no value of `index` is looked at.

    Args:
        index: rows; two axes (N', W') say that the W' entries of each line belong to one sentence, and, where N' is
            `count`, that line i belongs to sentence i.
        width: how many consecutive rows of the state belong to one sentence.
        count: the sentences of the state.

    Returns:
        How many consecutive entries of `index` belong to one sentence, and the sentences in their order, or None where
        these are those of the state as they are.
    """
    if index.dim() == 2:
        return index.shape[1], None if index.shape[0] == count else index[:, 0] // width
    return 1, index // width
