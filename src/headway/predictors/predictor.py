"""The contract of a predictor: all that a shell knows of a trained model."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import torch
from pydantic import BaseModel

from headway.errors import option
from headway.predictors.predict_options import Capture, PredictorOptions
from headway.predictors.run import Run

SMALLER_BATCHES = f"lower {option('batch_tokens')} (in a recipe: decoding.batch_tokens) or the beam"

In = TypeVar("In")
Out = TypeVar("Out")


class Predictor(ABC, Generic[In, Out]):
    """One model, or several whose probabilities are averaged, with the processors of the first run.

    A predictor keeps nothing of what it has predicted, so threads may share it.

    Args:
        runs: the loaded runs.
        device: where their models are.

    Attributes:
        Options: the options of `predict`: Python's keywords, the command line's flags and the fields of JSON.
    """

    Options: ClassVar[type[PredictorOptions]]

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if {"predict", "Options"} & vars(cls).keys() and hasattr(cls, "Options"):
            cls.predict = _with_keywords(cls.predict, cls.Options)  # type: ignore[method-assign]

    def __init__(self, runs: Sequence[Run], device: torch.device) -> None:
        self.runs, self.device, self.recipe = tuple(runs), device, runs[0].recipe

    def __repr__(self) -> str:
        runs = ", ".join(str(run.path) for run in self.runs)
        count = sum(parameter.numel() for parameter in self.runs[0].model.parameters())
        return f"<{type(self).__name__} {runs}: {self.recipe.task}, {self.recipe.model.kind}, {count:,} parameters>"

    @abstractmethod
    def predict(
        self, inputs: In | Sequence[In], options: BaseModel | None = None, *, first_line: int = 1, **keywords: Any
    ) -> list[Out]:
        """Results in the order of the inputs.

        Args:
            inputs: any number of inputs, or one.
            options: `Options`, or a part of them.
            first_line: the number of the first input, for messages and random streams.
            keywords: single options by name.

        Raises:
            UserError: an input that cannot be read, or options that are not allowed.
        """

    @abstractmethod
    def force(self, inputs: Sequence[In], targets: Sequence[Any], *, capture: Capture = ()) -> list[Out]:
        """Results whose output is the given target, with its probabilities.

        Raises:
            UserError: different numbers of inputs and targets, or a target that cannot be read.
        """


def _with_keywords(predict: Callable[..., Any], options: type[PredictorOptions]) -> Callable[..., Any]:
    """`predict`, whose signature has the options one by one, so that `help` shows them and notebooks complete them."""
    inner = inspect.unwrap(predict)

    @functools.wraps(inner)
    def named(*given: Any, **keywords: Any) -> Any:
        return inner(*given, **keywords)

    signature, kinds = inspect.signature(inner), inspect.Parameter
    fixed = [one for one in signature.parameters.values() if one.kind is not kinds.VAR_KEYWORD]
    keywords = [
        kinds(name, kinds.KEYWORD_ONLY, default=field.default, annotation=field.annotation)
        for name, field in options.model_fields.items()
        if name not in signature.parameters
    ]
    named.__signature__ = signature.replace(parameters=fixed + keywords)  # type: ignore[attr-defined]
    return named


def batches(lengths: Sequence[int], budget: int, end_marks: int = 0) -> Iterator[list[int]]:
    """Rows of like length, longest first, in batches of at most `budget` padded positions; empty rows are left out.

    Args:
        lengths: of the rows.
        budget: a row alone may be longer.
        end_marks: positions that are added to each row.
    """
    rows = sorted((row for row, length in enumerate(lengths) if length), key=lambda row: -lengths[row])
    batch: list[int] = []
    for row in rows:
        if batch and (len(batch) + 1) * (lengths[batch[0]] + end_marks) > budget:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
