"""A trained run in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.models import Model
from headway.processing.processor import Processor
from headway.recipe import Recipe

WEIGHTS = "model.safetensors"  # in the folder of a run


@dataclass(eq=False)
class Run:
    """A trained model with what prepares its inputs and outputs.

    Attributes:
        recipe: the recipe it was trained by.
        source: the processor of its inputs.
        target: the processor of its outputs.
        model: in evaluation mode.
        path: the run folder; None for a model that is still in training.
        as_stored: whether it computes in float32 with the weights of the folder: not with averaged checkpoints, and in
            no other precision.
    """

    recipe: Recipe
    source: Processor
    target: Processor
    model: Model[Any] = field(repr=False)
    path: Path | None = None
    as_stored: bool = True
