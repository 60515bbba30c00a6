"""The contract of a task: all that training, reports and the command line know of what is learned.

A task says what its examples are, which model reads them, what is compared on dev and how a trained model is used. The
loop, resumption, the run folder, scores and reports are the same for all.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from headway.errors import UserError, flag, nearest
from headway.formats.pairs import PairSource, open_source
from headway.models import Model
from headway.predictors.word_alignment import WordAlignment
from headway.recipe import Recipe, parse_corpus
from headway.runs.run_folder import RunFolder
from headway.tensors.batch import Indices, TargetBatch


class TrainingCorpus(Protocol):
    """Encoded examples: how they are put into batches.

    Attributes:
        lines: (N,) where each example begins in its origin, counted from 1, for messages.
        fingerprint: a hash of all that decides the content.
    """

    lines: npt.NDArray[np.int64]
    fingerprint: str

    def __len__(self) -> int:
        """N."""

    def plan(self, seed: int, epoch: int, *, batch_tokens: int, batch_sentences: int | None = None) -> list[Indices]:
        """The batches of one epoch, as positions; each example is in exactly one. A pure function."""

    def collate(self, indices: Indices, generator: torch.Generator | None = None) -> TargetBatch:
        """The batch of the examples at `indices`, on the CPU.

        Random numbers come from `generator`, by default torch's own, and from nowhere else.
        """


class DevOutputs(NamedTuple):
    """What metrics compare: the N outputs of a model, and sets of N references each."""

    hypotheses: list[str]
    references: list[list[str]]


class Prepared(ABC):
    """What training needs, made from a recipe.

    Attributes:
        train: the examples that are learned from.
        dev: the examples that are not; None without them.
    """

    train: TrainingCorpus
    dev: TrainingCorpus | None

    @abstractmethod
    def new_model(self, *, initial: bool) -> Model[Any]:
        """The recipe's model: with its initial weights, drawn from torch's global generator, or for others to come."""

    @abstractmethod
    def dev_outputs(self, model: Model[Any], device: torch.device) -> DevOutputs:
        """What the model, in evaluation mode on `device`, makes of dev, beside what it should; draws no randomness."""

    def dev_baselines(self) -> Mapping[str, DevOutputs]:
        """Outputs for dev that need no model, by name, to be scored beside it; by default none."""
        return {}


@dataclass(frozen=True)
class Example:
    """One example with what a model made of it, for reports and figures.

    Attributes:
        source: raw text.
        hypothesis: the model's output.
        reference: the wanted output.
        score: the model's score of its output.
        source_tokens: what attention looks at, the end marker included where it is attended.
        target_tokens: what looks, likewise.
        attention: weights (heads, target tokens, source tokens) by name, such as `decoder.0.cross`.
        drawings: pictures made of characters, by name.
    """

    source: str
    hypothesis: str
    reference: str | None
    score: float | None
    source_tokens: list[str]
    target_tokens: list[str]
    attention: dict[str, npt.NDArray[np.floating[Any]]] = field(default_factory=dict)
    drawings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        expected = (len(self.target_tokens), len(self.source_tokens))
        for name, weights in self.attention.items():
            if weights.ndim != 3 or weights.shape[1:] != expected:
                raise ValueError(
                    f"attention {name} has shape {weights.shape}, expected (heads, {expected[0]}, {expected[1]})"
                )


@dataclass(frozen=True)
class Reading:
    """One example as a model read it, for figures over a corpus.

    Attributes:
        source: raw text.
        attention: weights (heads, queries, keys) by name: `*.self`, `*.cross`, and `layers` (heads, words, layers).
        target: the output that was read beside the source; None for a model that reads no output.
        hypothesis: the model's own output, where it was asked for.
        references: the wanted outputs, where they are known.
        words: the queries that begin a word, where words are what the model says something of.
    """

    source: str
    attention: Mapping[str, npt.NDArray[np.floating[Any]]]
    target: str | None = None
    hypothesis: str | None = None
    references: tuple[str, ...] = ()
    words: tuple[int, ...] | None = None


class Chunk(NamedTuple):
    """Examples that were read together: of so many, those that there was something to read in."""

    examples: int
    readings: list[Reading]


class Readings(NamedTuple):
    """A corpus as a model reads it: so many examples, chunk by chunk, of which one at a time is in memory."""

    examples: int
    chunks: Iterator[Chunk]


class DataReport(Protocol):
    """What `headway data check` says."""

    def to_json(self) -> dict[str, Any]:
        """The findings as values that JSON can hold."""

    def text(self) -> str:
        """The findings in a few lines, to be read."""


class Task(ABC):
    """A kind of work: its examples, its model and its metrics.

    Attributes:
        name: what the recipe's `task` says.
        metrics: what dev is scored by unless the recipe says otherwise.
    """

    name: str
    metrics: tuple[dict[str, Any], ...]

    @abstractmethod
    def check(self, recipe: Recipe) -> None:
        """Find what cannot work before any work is done. Raises UserError."""

    @abstractmethod
    def check_data(self, recipe: Recipe) -> DataReport:
        """Read the recipe's corpora as training would. Raises UserError."""

    @abstractmethod
    def prepare(self, recipe: Recipe, folder: RunFolder) -> Prepared:
        """All that training needs, saying what was read; what prediction needs is stored in `folder`.

        Raises:
            UserError: files that are missing or at fault; nothing to train on.
        """

    @abstractmethod
    def load(self, runs: Sequence[Path], device: str, average: int | None) -> Any:
        """What predicts with the model of a run, or of several. Raises UserError."""

    @abstractmethod
    def predict(
        self, runs: Sequence[Path], device: str, average: int | None, options: Mapping[str, Any]
    ) -> list[WordAlignment]:
        """`headway predict`: from standard input, or `files`, to standard output; `options` are those that were given.

        Returns:
            Alignments of the first lines to be drawn, where these were asked for.
        """

    @abstractmethod
    def score(self, run: Path, device: str, options: Mapping[str, Any]) -> list[WordAlignment]:
        """`headway score RUN`: given outputs under the run's model, to standard output. Returns as `predict` does."""

    @abstractmethod
    def examples(self, run: Path, recipe: Recipe, count: int) -> list[Example]:
        """The first `count` dev examples with what the run's model makes of them; none without dev."""

    def pairs(self, recipe: Recipe, files: Sequence[Path]) -> list[tuple[str, str | None]]:
        """Sentences as lines that the model can be given, each with what it should say where that is known.

        Args:
            recipe: the run's.
            files: where they are; without any they are dev's, and none without dev.

        Raises:
            UserError: files that are missing or at fault; a task whose examples are no lines.
        """
        raise UserError("the examples of this task are no lines of text", where="task", received=self.name)

    def readings(
        self, predictor: Any, source: Path | None, reference: Path | None, *, hypotheses: bool = True
    ) -> Readings:
        """Read a corpus with all the attention that the model has, in constant memory.

        Args:
            predictor: what `load` gave for one run.
            source: the corpus; by default the recipe's dev.
            reference: the outputs that the model is given, where these are not in the same file as the source; without
                them it is given its own.
            hypotheses: whether the model's own outputs come with it where there are references.

        Raises:
            UserError: files that are missing or at fault, no dev, or a task whose examples no figure is made of.
        """
        raise UserError("there are no figures over a corpus for this task", where="--figures", received=self.name)


def check_readings(recipe: Recipe, source: Path | None, reference: Path | None) -> None:
    """Raise UserError unless there is a corpus to read: files, or the recipe's dev."""
    if reference is not None and source is None:
        raise UserError("references need their sources", where="--reference", allowed="--input FILE beside it")
    if source is None and recipe.data.dev is None:
        raise UserError("the recipe has no dev to read", where="data.dev", allowed="--input FILE --reference FILE")


def given_pairs(source: Path, reference: Path) -> PairSource:
    """The lines of two files. Raises UserError where one is missing or empty."""
    return open_source(parse_corpus({"source": str(source), "target": str(reference)}, "headway inspect"), "--input")


def check_options(options: Iterable[str], allowed: Iterable[str], task: str) -> None:
    """Raise UserError unless all `options` of a command are among those that the task has."""
    names = [flag(name) for name in allowed]
    for option in options:
        if option == "files" and flag(option) not in names:
            what, allowed = f"{task} reads lines from standard input", "headway predict RUN < FILE"
            raise UserError(what, where="FILE", received="files among the runs", allowed=allowed)
        if flag(option) not in names:
            hint = nearest(flag(option), names)
            raise UserError(f"{task} has no such option{hint}", where=flag(option), allowed=names)


def numbers(text: str | None, option: str) -> list[int] | None:
    """The numbers of an option such as 1,2,3; None without one. Raises UserError."""
    try:
        return None if text is None else [int(each) for each in text.split(",")]
    except ValueError as error:
        raise UserError("these are no numbers, separated by commas", where=option, received=text) from error
