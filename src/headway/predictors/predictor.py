"""Predictors: the interface of a trained model for the command line, servers and Python."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch
from pydantic import BaseModel

from headway.core.errors import UserError, option
from headway.core.forks import Work
from headway.core.processes import batched, cores
from headway.core.workers import workers
from headway.models import Model
from headway.predictors.output import Example, Output
from headway.predictors.predict_options import Capture, CaptureOptions, checked_options
from headway.processing.processor import Encoded, Processor
from headway.recipe import Recipe

SMALLER_BATCHES = f"lower {option('batch_tokens')} (in a recipe: decoding.batch_tokens) or the beam"
WEIGHTS = "model.safetensors"  # in the folder of a run

In = TypeVar("In")
Out = TypeVar("Out", bound=Output)


@dataclass(eq=False)
class Run:
    """A trained model with the processors of its inputs and outputs.

    Attributes:
        recipe: the recipe that it was trained with.
        source: the processor of the inputs.
        target: the processor of the outputs.
        model: the model, in evaluation mode.
        path: the run folder; None for a model that is being trained.
        as_stored: whether the model uses the weights of the folder, without further averaging, and computes in float32.
    """

    recipe: Recipe
    source: Processor
    target: Processor
    model: Model[Any] = field(repr=False)
    path: Path | None = None
    as_stored: bool = True


@dataclass(eq=False)
class Row:
    """One input of a request.

    Attributes:
        number: the line number, for messages and random streams.
        raw: the text, recording or Example that the caller passed.
        text: the text that was encoded.
        encoded: the encoded input; empty if the row has a problem.
        prefix: the token ids that the output begins with.
        longest: the maximum number of tokens of the output.
        problem: the reason why the input has no output.
    """

    number: int
    raw: Any
    text: Any = ""
    encoded: Encoded = field(default_factory=lambda: Encoded([]))
    prefix: Sequence[int] = ()
    longest: int = 0
    problem: UserError | None = None


@dataclass(frozen=True)
class Request:
    """Encoded inputs, and the options of their prediction."""

    rows: Sequence[Row]
    options: CaptureOptions

    @property
    def width(self) -> int:
        """The number of hypotheses that search keeps of each input."""
        return 1

    def until_broken(self) -> Request:
        """The rows up to the first one with a problem, or all rows if `skip_broken` is set."""
        broken = (place for place, row in enumerate(self.rows, start=1) if row.problem is not None)
        return self if self.options.skip_broken else replace(self, rows=self.rows[: next(broken, None)])

    def check(self) -> None:
        """Raise the first problem of a row, unless `skip_broken` is set."""
        for row in self.rows:
            if row.problem is not None and not self.options.skip_broken:
                raise row.problem


class Predictor(ABC, Generic[In, Out]):
    """A model, or an ensemble whose probabilities are averaged, with the processors of the first run.

    A predictor stores nothing about its predictions, so threads may share it.

    Args:
        runs: the loaded runs.
        device: the device of the models.

    Attributes:
        Options: the options of `predict`: keywords in Python, flags of the command line, and fields of JSON requests.
        together: the largest number of inputs of a stream that are in memory at once (see `window`).
        workers: the number of workers (see `headway.core.workers`) that decode the batches of a list or stream. None
            lets `worker_count` decide.
        answered: is called with the number of outputs after each batch.
    """

    Options: ClassVar[type[CaptureOptions]]
    together = 1000

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if "Options" in vars(cls):
            cls.predict = _with_keywords(cls.predict, cls.Options)  # type: ignore[method-assign]

    def __init__(self, runs: Sequence[Run], device: torch.device) -> None:
        self.runs, self.device, self.recipe = tuple(runs), device, runs[0].recipe
        self.workers: int | None = None
        self.answered: Callable[[int], None] = lambda count: None

    def __repr__(self) -> str:
        runs = ", ".join(str(run.path) for run in self.runs)
        count = sum(parameter.numel() for parameter in self.runs[0].model.parameters())
        return f"<{type(self).__name__} {runs}: {self.recipe.task}, {self.recipe.model.kind}, {count:,} parameters>"

    def predict(
        self,
        inputs: In | Example | Iterable[In | Example],
        options: BaseModel | None = None,
        *,
        first_line: int = 1,
        **keywords: Any,
    ) -> list[Out]:
        """The outputs, in the order of the inputs. An empty line has an empty output.

        Args:
            inputs: the inputs: an iterable, or a single text, path or Example.
            options: an object of `Options` or of a base class; see `headway.predictors.predict_options`.
            first_line: the number of the first input, for messages and random streams.
            keywords: single options by name (`beam=1`, `capture="all"`). With `skip_broken`, an input that cannot be
                read raises nothing, and its output has a `problem`.

        Raises:
            UserError: an input cannot be read, or options are not allowed or incompatible.
        """
        request = self.request(each(inputs), checked_options(self.Options, options, keywords), first_line)
        request.check()
        (outputs,) = self._answers([request])
        return outputs

    def stream(
        self, inputs: Iterable[In | Example], options: BaseModel | None = None, *, first_line: int = 1, **keywords: Any
    ) -> Iterator[Out]:
        """Yield outputs as `predict` returns them, for any number of inputs. Only a few of them are in memory at once.

        The output of an input that cannot be read has a `problem`. Without `skip_broken`, it is the last output.

        Raises:
            UserError: options are not allowed or contradict each other.
        """
        chosen = checked_options(self.Options, options, keywords)

        def requests() -> Iterator[Request]:
            number = first_line
            for some in batched(inputs, self.window(chosen.capture)):
                request = self.request(some, chosen, number).until_broken()
                yield request
                if request.rows[-1].problem is not None and not chosen.skip_broken:
                    return
                number += len(some)

        for outputs in self._answers(requests()):
            yield from outputs
            chosen = self.following(chosen, outputs)

    def _answers(self, requests: Iterable[Request]) -> Iterator[list[Out]]:
        """Yield the outputs of each request. Several workers begin later requests before the first is finished."""
        count, begin, begun = 0, None, deque[tuple[Request, list[Work]]]()
        with ExitStack() as stack:
            for request in requests:
                jobs = self.jobs(request)
                count = count or (self.worker_count() if len(jobs) > 1 else 1)
                if count == 1:
                    yield self.joined(request, (work() for work in jobs))
                    continue
                begin = begin or stack.enter_context(workers(count))
                begun.append((request, begin(jobs)))
                while sum(len(later) for _, later in islice(begun, 1, None)) >= count:
                    first, results = begun.popleft()
                    yield self.joined(first, (wait() for wait in results))
            for request, results in begun:
                yield self.joined(request, (wait() for wait in results))

    def worker_count(self) -> int:
        """The number of workers of several jobs: by default one for each core that torch and the system allow."""
        return (self.workers or min(cores(), torch.get_num_threads())) if self.divisible() else 1

    def divisible(self) -> bool:
        """Whether several threads may decode: on a CPU, if no output is context of later inputs."""
        in_order = self.recipe.data.context.most > 0
        return self.device.type == "cpu" and not in_order and not torch.is_autocast_enabled("cpu")

    def stream_forced(
        self, inputs: Iterable[In | Example], targets: Iterable[Any], *, capture: Capture = ()
    ) -> Iterator[Out]:
        """Yield outputs as `force` returns them, for any number of pairs. Only a few of them are in memory at once."""
        for pairs in batched(zip(inputs, targets, strict=True), self.window(capture)):
            sources, texts = zip(*pairs, strict=True)
            yield from self.force(sources, texts, capture=capture)

    def window(self, capture: Capture) -> int:
        """The number of inputs of a stream that are in memory at once, if the attention in `capture` is kept."""
        return self.together

    def following(self, options: Any, outputs: Sequence[Output]) -> Any:
        """The options for the inputs that follow `outputs`, which may be context of these inputs."""
        return options

    @abstractmethod
    def request(self, inputs: Sequence[Any], options: Any, first_line: int) -> Request:
        """Encode the inputs. An input that cannot be read becomes a row with a problem.

        Raises:
            UserError: options contradict each other, or all inputs are of another kind.
        """

    @abstractmethod
    def jobs(self, request: Any) -> list[Work]:
        """The work of predicting the outputs of a request, in parts that may be done by several threads at once."""

    @abstractmethod
    def joined(self, request: Any, results: Iterable[Any]) -> list[Out]:
        """The outputs of all rows of a request, from the results of its jobs."""

    def answer(self, request: Any) -> list[Out]:
        """Predict the outputs of all rows of a request in this thread."""
        return self.joined(request, (work() for work in self.jobs(request)))

    @abstractmethod
    def force(self, inputs: Sequence[In], targets: Sequence[Any], *, capture: Capture = ()) -> list[Out]:
        """Force the outputs to be `targets`, and return them with their probabilities.

        Raises:
            UserError: the numbers of inputs and targets differ, or a target cannot be read.
        """


def _with_keywords(predict: Callable[..., Any], options: type[CaptureOptions]) -> Callable[..., Any]:
    """Return `predict` with a signature that lists all options, for `help` and for completion in notebooks."""
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


def each(lines: Any) -> Sequence[Any]:
    """The inputs as a sequence; a text, path or Example becomes one input. Raises UserError for any other type."""
    if isinstance(lines, str | Path | Example):
        return [lines]
    if isinstance(lines, bytes | Mapping) or not isinstance(lines, Iterable):
        raise UserError("predictors read a text, or several", received=lines)
    return lines if isinstance(lines, Sequence) else list(lines)


def batches(lengths: Sequence[int], budget: int, end_marks: int = 0) -> Iterator[list[int]]:
    """Yield batches of rows of similar length, longest first, of at most `budget` padded positions, without empty rows.

    Args:
        lengths: the lengths of the rows.
        budget: the largest number of positions of a batch; a single row may exceed it.
        end_marks: the number of positions that are added to each row.
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
