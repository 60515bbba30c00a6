"""Several models that decode as one: the mean of their probabilities."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.models.model import Memory, Seq2Seq, State


@dataclass(frozen=True)
class EnsembleMemory(Memory):
    """The memories of all models; `values` and `mask` are those of the first."""

    members: tuple[Memory, ...]


@dataclass(frozen=True)
class EnsembleState(State):
    """The states of all models."""

    members: tuple[State, ...]

    def select(self, index: Tensor) -> "EnsembleState":
        """Rows `index` of every model's state."""
        return EnsembleState(tuple(member.select(index) for member in self.members))


class Ensemble:
    """Models over the same vocabularies; the next token's probability is the mean of theirs."""

    def __init__(self, models: Sequence[Seq2Seq]) -> None:
        self.models = tuple(models)

    def encode(self, source: Tensor, mask: Tensor) -> EnsembleMemory:
        """Encode a source with every model."""
        members = tuple(model.encode(source, mask) for model in self.models)
        return EnsembleMemory(members[0].values, members[0].mask, members)

    def start(self, memory: Memory, capacity: int) -> EnsembleState:
        """The states of all models before the first token."""
        assert isinstance(memory, EnsembleMemory)
        pairs = zip(self.models, memory.members, strict=True)
        return EnsembleState(tuple(model.start(member, capacity) for model, member in pairs))

    def extend(self, tokens: Tensor, state: State) -> tuple[Tensor, EnsembleState]:
        """Log of the mean probability (R, V) of the token after tokens (R, n)."""
        assert isinstance(state, EnsembleState)
        steps = [model.extend(tokens, member) for model, member in zip(self.models, state.members, strict=True)]
        scores = torch.stack([log_probabilities for log_probabilities, _ in steps]).logsumexp(0) - math.log(len(steps))
        return scores, EnsembleState(tuple(after for _, after in steps))
