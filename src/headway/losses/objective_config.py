"""The `objective` section of a recipe."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from headway.config import Probability, Section

Weight = Annotated[float, Field(gt=0)]
Head = Annotated[int, Field(ge=0)]
Heads = Annotated[tuple[Head, ...], Field(min_length=1)]


class DependencyConfig(Section):
    """Attention heads that are taught the dependency heads of `data.parses` (dependency-based self-attention).

    `layer` counts from 1, as papers do, `heads` from 0. `index_by`: the decoder's row t, which reads y(t-1) and says
    y(t), stands for the word that it says (`output`) or that it reads (`input`).
    """

    weight: Weight = 0.5
    layer: PositiveInt = 1
    heads: Heads = (0,)
    sides: Annotated[tuple[Literal["source", "target"], ...], Field(min_length=1)] = ("source", "target")
    index_by: Literal["output", "input"] = "output"


class SynchronousConfig(Section):
    """The decoder's self-attention D is drawn to D', the encoder's E carried over by cross-attention C.

    `layer` and `cross_layer` count from 1. `heads`: which heads of `layer` E and D are the mean of; by default those of
    `dependency` where it is on the same layer, else all. `cross_head`: which head C is, or the mean of all. `reverse`:
    the way back is C transposed, or a softmax of its own over the transposed scores. `target`: what makes D' from the
    masked product C E C_back, a softmax (equation 12) or a division by the sum of each row. `detach`: which side gets
    no gradient, the `projected` D' or the `decoder`'s D.
    """

    weight: Weight = 10.0
    layer: PositiveInt = 1
    heads: Heads | None = None
    cross_layer: PositiveInt = 5
    cross_head: Literal["mean"] | Head = "mean"
    reverse: Literal["transpose", "softmax"] = "transpose"
    target: Literal["softmax", "renormalise"] = "softmax"
    detach: Literal["projected", "decoder"] | None = None


class ObjectiveConfig(Section):
    """What training minimises: cross-entropy with label smoothing (Szegedy et al. 2016), and constraints beside it."""

    label_smoothing: Probability = 0.1
    dependency: DependencyConfig | None = None
    synchronous: SynchronousConfig | None = None

    def synchronous_heads(self) -> tuple[int, ...] | None:
        """The heads that the synchronous constraint is about; None for the mean of all."""
        assert self.synchronous is not None
        if self.synchronous.heads is not None:
            return self.synchronous.heads
        taught = self.dependency
        return taught.heads if taught is not None and taught.layer == self.synchronous.layer else None
