"""The interface of a model, used by search, scoring, training and analysis, and its section of a recipe.

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
    """A `model` section of any kind.

    It may be written as a preset's name, or as `{preset: NAME, ...}` with changes to the preset. `from`: the model that
    training starts from, `hf:FOLDER_OR_NAME` of a Marian model; all other keys are then read from it. `kind`: the
    model, `transformer` by default.
    """

    kind: str
    from_: str | None = Field(default=None, alias="from")

    def width(self) -> int | None:
        """D, or None if the recipe alone does not determine it."""
        return None


class ModelConfig(ModelSection):
    """The options of every kind of sequence-to-sequence model.

    `dim`: the size of embeddings and of vectors between layers. `dropout`: on embeddings and on what each sublayer
    adds. `max_position`: longer inputs, counting the end-of-sentence token, are refused, because the model was not
    trained on them. A sequence that joins source and target, as in a decoder-only model, is one input. `tied`: `all`
    shares source, target and output embeddings, `target` the last two, `none` nothing; the default is `all` if the
    vocabulary is shared, else `target`. `scale_embeddings`: whether embeddings are multiplied by the root of `dim`
    before the first layer (Vaswani et al. 2017, section 3.4), unlike in recurrent models of earlier papers.
    """

    dim: Width = 512
    dropout: Probability = 0.1
    max_position: Annotated[int, Field(gt=0, le=10**6)] = 1024
    tied: Literal["all", "target", "none"] | None = None
    scale_embeddings: bool = True

    def embedding_scale(self) -> float:
        return self.dim**0.5 if self.scale_embeddings else 1.0

    def width(self) -> int | None:
        return self.dim

    def reads_frames(self) -> bool:
        """Whether sources are frames of features, as for speech, instead of tokens."""
        return False


@dataclass(frozen=True)
class Memory:
    """An encoded source: values (B, S, D) and a mask (B, S), True at real positions.

    S is the length of the source, or less if the model shortens its source (`Seq2Seq.source_lengths`).
    """

    values: Tensor
    mask: Tensor


class Axes(NamedTuple):
    """The tokens of a row that attend (`queries`) and those that are attended to (`keys`).

    `source`: x1 .. xm EOS, or the positions of a shortened source. `target`: BOS y1 .. yn. `both`: the source directly
    followed by the target. Padding comes last. `outputs`: no tokens, but the outputs so far, the embeddings first.
    """

    queries: Literal["source", "target", "both"]
    keys: Literal["source", "target", "both", "outputs"]


class Output(NamedTuple):
    """The output of a model for whole targets: logits (B, T, V), and the captured attention weights by name.

    `losses` are those that the model itself adds to the objective in training, by name, each summed over target tokens.

    Names are `encoder.LAYER.self` (B, K, S, S), `decoder.LAYER.self` (B, K, T, T), `decoder.LAYER.cross` (B, K, T, S):
    weights, before dropout. `decoder.LAYER.cross_scores` (B, K, T, S) are the scores before masking and softmax; only
    their full name captures them, no pattern. In a decoder-only model `decoder.LAYER.self` is (B, K, S + T, S + T), and
    `decoder.LAYER.cross` is its part from the target to the source, so its rows sum to at most one. Layers count from
    1. `encoder.layers` and `decoder.layers` (B, J, T, N), in a stack with attention over depth, are the weights of each
    of J sublayers, and last of the top of the stack, over the outputs before it.
    """

    logits: Tensor
    attention: Mapping[str, Tensor]
    losses: Mapping[str, Tensor] = MappingProxyType({})


class Model(nn.Module, ABC, Generic[AnyBatch]):
    """A model of any task as training sees it: a module that maps the batches of its task to logits.

    Attributes:
        Config: the class of the `model` section of a recipe with this kind of model.
    """

    Config: ClassVar[type[ModelSection]]

    @abstractmethod
    def forward(self, batch: AnyBatch, *, capture: Sequence[str] = ()) -> Output:
        """Return the logits of all target positions.

        Args:
            batch: a batch of the model's task.
            capture: patterns (`decoder.*.cross`) of the attention to return; costs nothing when empty.
        """

    def points(self) -> Points:
        """The intermediate values that can be replaced, by name; none by default."""
        return {}

    def steps(self) -> Sequence[tuple[nn.Module, str]]:
        """The modules and names of methods that read new positions (R, n, ...) with a state that has `lengths`."""
        return ()

    def intervened(self, rules: Rules) -> AbstractContextManager[Counter[str]]:
        """Return a context in which the values of named parts are replaced, in scoring, search and evaluation.

        All threads that use the model see the replaced values. Outside of the context nothing is slower.

        Args:
            rules: by the name of a part or a pattern of names (`decoder.*.cross:heads`; see `interventions`): `zero`, a
                rule such as `Mean(recorded)`, or a function of the values (B, L, C). Later rules replace earlier ones.

        Returns:
            A context that yields a counter of how often each part was replaced so far.

        Raises:
            UserError: no part has such a name; within the context, a rule does not return values for a part.
        """
        return intervened(self, rules)

    def recorded(self, patterns: Iterable[str], batches: Iterable[AnyBatch]) -> dict[str, list[Tensor]]:
        """Return the values (L, C) of each named part, in each row of `batches`, for use in rules.

        Raises:
            UserError: no part has such a name.
            ValueError: a batch has padding.
        """
        return recorded(self, patterns, batches)

    def blocks(self) -> Sequence[nn.Module]:
        """The repeated modules of the model, lowest first; none by default.

        Training can recompute their activations in the backward pass instead of storing them.
        """
        return ()

    def layers(self) -> Sequence[nn.Module]:
        """The modules whose weights sharded training gathers one at a time."""
        return self.blocks()


class Seq2Seq(Model[Batch]):
    """A model that encodes a source and predicts the next token of a target."""

    @abstractmethod
    def encode(self, source: Tensor, mask: Tensor) -> Memory:
        """Encode token ids (B, S), or frames (B, S, M) of speech, real where mask (B, S) is True."""

    @abstractmethod
    def forward(self, batch: Batch, *, capture: Sequence[str] = ()) -> Output:
        """Return the logits of all target positions, computed from the true tokens before each position.

        Args:
            batch: sources and target ids with their masks.
            capture: patterns (`decoder.*.cross`) of the attention to return; costs nothing when empty.
        """

    def steps(self) -> Sequence[tuple[nn.Module, str]]:
        return [(self, "extend")]

    @abstractmethod
    def longest_source(self) -> int:
        """The maximum number of tokens, or frames, of a source, not counting the end-of-sentence token."""

    @abstractmethod
    def longest_target(self, source_length: int) -> int | None:
        """The maximum number of tokens of a target whose source has `source_length`, or None if there is no limit."""

    def learned_sources(self) -> bool:
        """Whether source positions have learned weights, so that even evaluation cannot read longer sources."""
        return any(isinstance(part, Location) for part in self.modules())

    def longest_read(self, asked: int | None) -> int:
        """The maximum number of source tokens to read if `asked` are requested; learned positions limit it."""
        longest = self.longest_source()
        if asked is None or self.learned_sources() or self.longest_target(1) is not None:
            return min(longest, asked or longest)
        return asked

    def longest_pair(self, most: int) -> int:
        """The maximum length, up to `most`, of both source and target, not counting end-of-sentence tokens."""

        def too_long(length: int) -> bool:
            longest = self.longest_target(length)
            return length > self.longest_source() or (longest is not None and length > longest)

        return bisect_left(range(1, most + 1), True, key=too_long)

    def source_lengths(self, lengths: Tensor) -> Tensor:
        """The number of memory positions for sources of these lengths, counting end-of-sentence tokens."""
        return lengths

    def trial_source(self, length: int) -> NDArray[Any]:
        """A dummy source of this length, without end-of-sentence token."""
        return np.full(length, UNKNOWN)

    @abstractmethod
    def start(self, memory: Memory, capacity: int) -> State:
        """The state before the first target token, one row per source, with room for `capacity` tokens per row."""

    @abstractmethod
    def extend(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Read the next n tokens (R, n) of each row.

        Returns:
            The log probabilities (R, V) of the token after the last of them, and the new state. `state.select` takes an
            index (R',) or, for W hypotheses of each of N' sentences, (N', W): the entries of each line must be rows of
            one sentence and, if N' is the number of sentences of the state, line i must belong to sentence i.
        """

    def attention_axes(self, name: str) -> Axes:
        """The tokens that the last two axes of the attention called `name` refer to."""
        side: Literal["source", "target"] = "source" if name.startswith("encoder.") else "target"
        if name.endswith(".layers"):
            return Axes(side, "outputs")
        return Axes(side, side if name.endswith(".self") else "source")


def wanted(name: str, capture: Sequence[str]) -> bool:
    """Whether a pattern of `capture` matches the name of an attention."""
    return any(fnmatchcase(name, pattern) for pattern in capture)


CACHED_LOGITS = 1 << 18  # logits whose log softmax is computed at once, so that they stay in the cache of a core


def log_probabilities(logits: Tensor) -> Tensor:
    """The log softmax of logits (..., V), in float32 or wider, which replaces the logits in memory if possible.

    Without gradients, new memory takes as much time on a CPU as the log softmax itself.
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    in_place = logits.device.type == "cpu" and logits.dtype == wide and logits.is_contiguous()
    if not in_place or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return F.log_softmax(logits, -1, dtype=wide)
    rows = logits.view(-1, logits.shape[-1])
    for block in torch.split(rows, max(1, CACHED_LOGITS // rows.shape[1])):
        torch.log_softmax(block, -1, out=block)
    return logits


def sentences_of(index: Tensor, width: int, count: int) -> tuple[int, Tensor | None]:
    """Group the selected rows of a decoding state by sentence, without reading values of `index`.

    Args:
        index: rows; in an index (N', W') the W' entries of each line belong to one sentence, and, if N' is `count`,
            line i belongs to sentence i.
        width: the number of consecutive rows of the state per sentence.
        count: the number of sentences of the state.

    Returns:
        The number of consecutive entries of `index` per sentence, and the index of the sentences, or None if these are
        all sentences of the state in their order.
    """
    if index.dim() == 2:
        return index.shape[1], None if index.shape[0] == count else index[:, 0] // width
    return 1, index // width
