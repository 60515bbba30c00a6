"""The contract of a task: all that training, reports and shells know of what is learned.

A task says what its examples are, which model reads them, what is compared on dev and what predicts with a trained
model. The loop, resumption, the run folder, scores and reports are the same for all. A task reads no standard input,
prints nothing and knows no flags.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from headway.errors import UserError, option
from headway.formats.corpus_config import AnyCorpus
from headway.formats.lines import check_file
from headway.formats.pairs import PairSource, open_source
from headway.metrics.metric import Kind
from headway.models import Model
from headway.predictors.input_account import InputAccount, accounted
from headway.predictors.predictor import Predictor
from headway.predictors.run import Run
from headway.processing.processor import Processors
from headway.processing.text.extension import WHERE as EXTENSION
from headway.processing.text.text_processor import PreparationConfig, as_written
from headway.recipe import Recipe
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
        """The batches of one epoch, as positions; each example is in exactly one, unless
        corpora are sampled by weight. A pure function."""

    def collate(
        self, indices: Indices, generator: torch.Generator | None = None, epoch: int | None = None
    ) -> TargetBatch:
        """The batch of the examples at `indices`, on the CPU; random numbers, if it needs any, are the generator's.

        With an epoch, which training gives, an example may be cut into other pieces in each.
        """


class DevOutputs(NamedTuple):
    """The texts that metrics compare: the N outputs of a model, and sets of N references each."""

    hypotheses: list[str]
    references: list[list[str]]


class DevSet(NamedTuple):
    """Examples that are not learned from.

    Attributes:
        corpus: the examples, encoded.
        inputs: the examples as `decode` reads them.
        decode: the outputs of a model, in evaluation mode on a device, for some inputs, as metrics read them; draws no
            randomness.
        references: sets of wanted outputs.
    """

    corpus: TrainingCorpus
    inputs: Sequence[Any]
    decode: Callable[[Sequence[Any], Model[Any], torch.device], list[str]]
    references: list[list[str]]

    def outputs(self, model: Model[Any], device: torch.device) -> DevOutputs:
        """The outputs of a model, beside the wanted ones."""
        with accounted(InputAccount()):  # the account of the data has told what there is to tell
            return DevOutputs(self.decode(self.inputs, model, device), self.references)

    def sample(self, most: int) -> DevSet:
        """The same with at most so many inputs, evenly spread; the encoded examples are all there still."""
        step = max(1, math.ceil(len(self.inputs) / most))
        return self._replace(inputs=self.inputs[::step], references=[texts[::step] for texts in self.references])


@dataclass(frozen=True)
class Corpora:
    """All that training needs, made from a recipe.

    Attributes:
        processors: what encoded the examples.
        train: the examples that are learned from.
        dev: those that are not; None without them.
        general: those of `data.general`, likewise.
        baselines: outputs for dev that need no model, by name, to be scored beside it.
        references: the steps that normalised the references, separated by commas.
    """

    processors: Processors
    train: TrainingCorpus
    dev: DevSet | None = None
    general: DevSet | None = None
    baselines: Mapping[str, list[str]] = field(default_factory=dict)
    references: str = ""

    def as_written(self, config: PreparationConfig) -> Corpora:
        """The same with references, and baselines, as a model can write them."""

        def changed(dev: DevSet | None) -> DevSet | None:
            return dev and dev._replace(references=[as_written(texts, config) for texts in dev.references])

        baselines = {name: as_written(texts, config) for name, texts in self.baselines.items()}
        dev, general, steps = changed(self.dev), changed(self.general), ", ".join(config.normalise)
        return replace(self, dev=dev, general=general, baselines=baselines, references=steps)

    def held_out(self) -> list[DevSet]:
        """Dev and general, where they are."""
        return [dev for dev in (self.dev, self.general) if dev is not None]

    def dev_baselines(self) -> dict[str, DevOutputs]:
        """The outputs for dev that need no model, by name."""
        references = [] if self.dev is None else self.dev.references
        return {name: DevOutputs(texts, references) for name, texts in self.baselines.items()}


@dataclass(frozen=True)
class Example:
    """One example with what a model made of it, for reports and figures.

    Attributes:
        source: raw text.
        hypothesis: the model's output.
        reference: the wanted output.
        score: the model's score of its output.
        source_tokens: the labels of what is attended to, the end mark included where it is.
        target_tokens: the labels of what attends, likewise.
        attention: weights (heads, target tokens, source tokens) by name, such as `decoder.1.cross`.
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


@dataclass(frozen=True)
class RawExample:
    """One example of a corpus as raw text, for inspection.

    Attributes:
        source: the text, or the path of a recording.
        target: the output that a model can be given for it; None where none is known.
        references: the wanted outputs, as metrics compare them; none where they are not known.
        words: the words of the source, where the corpus has them apart.
    """

    source: str
    target: str | None = None
    references: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    def as_written(self, config: PreparationConfig) -> RawExample:
        """The same with references as a model can write them."""
        return replace(self, references=tuple(as_written(self.references, config)))


class RawCorpus(NamedTuple):
    """So many raw examples, of which one at a time is in memory where their origin allows it."""

    size: int
    examples: Iterable[RawExample]


class DataReport(Protocol):
    """The findings of `headway data check`."""

    def to_json(self) -> dict[str, Any]:
        """The findings as values that JSON can hold."""

    def text(self) -> str:
        """The findings in a few lines, to be read."""

    def refuse(self) -> None:
        """Raise UserError where training would end at what was found."""


class Task(ABC):
    """A kind of work: its examples, its model and its metrics.

    Attributes:
        name: the name in the recipe's `task`.
        metrics: what dev is scored by unless the recipe says otherwise.
        writes: what its outputs are, which says by what they can be scored.
        mixes_corpora: whether it reads `data.general`, and weights and tags of corpora.
    """

    mixes_corpora: ClassVar[bool] = False
    name: ClassVar[str]
    metrics: ClassVar[tuple[dict[str, Any], ...]]
    writes: ClassVar[Kind] = "text"

    def written(self, recipe: Recipe) -> PreparationConfig | None:
        """How outputs are normalised, and so references before they are scored; None where these stay as they are."""
        return recipe.text.target if self.writes == "text" else None

    @abstractmethod
    def check(self, recipe: Recipe) -> None:
        """Find what cannot work before any work is done. Raises UserError."""

    def check_origin(self, recipe: Recipe) -> Model[Any] | None:
        """The model that begins as `model.from` says; None where that says nothing. Raises UserError."""
        if recipe.model.from_ is not None:
            what = f"a model for {self.name} does not begin from another"
            raise UserError(what, where="model.from", received=recipe.model.from_)
        return None

    def check_extension(self, recipe: Recipe, processors: Processors) -> None:
        """Raise UserError where these processors cannot get further tokens; reads no data."""
        what = f"the vocabulary of a model for {self.name} does not grow"
        raise UserError(what, where=EXTENSION, received=recipe.training.extend_vocabulary, allowed="translation")

    def extend(self, recipe: Recipe, older: Path, folder: Path) -> None:
        """Store processors in `folder`: those of the folder `older`, with up to `training.extend_vocabulary` tokens
        of the training corpus each. Called after `check_extension`."""
        raise NotImplementedError

    @abstractmethod
    def check_data(self, recipe: Recipe) -> DataReport:
        """Read the recipe's corpora as training would. Raises UserError."""

    @abstractmethod
    def corpora(self, recipe: Recipe, folder: Path) -> Corpora:
        """All that training needs, logging what was read.

        Args:
            recipe: what to train.
            folder: where the processors are; where it does not exist they are made, and stored there whole.

        Raises:
            UserError: files that are missing or at fault; nothing to train on.
        """

    @abstractmethod
    def processors(self, folder: Path) -> Processors:
        """The processors that `corpora` stored. Raises UserError where they are missing or damaged."""

    @abstractmethod
    def model(self, recipe: Recipe, processors: Processors, *, initial: bool = True) -> Model[Any]:
        """The recipe's model: with its initial weights, drawn from torch's global generator, or for others to come."""

    @abstractmethod
    def predictor(self, runs: Sequence[Run], device: torch.device) -> Predictor[Any, Any]:
        """The predictor of a run, or of several together. Raises UserError where these do not go together."""

    @abstractmethod
    def examples(self, predictor: Any, count: int) -> list[Example]:
        """The first `count` dev examples with what the task's predictor makes of them; none without dev."""

    def raw_corpus(self, recipe: Recipe, sources: Sequence[Path] = (), reference: Path | None = None) -> RawCorpus:
        """The examples of files, or of the recipe's dev, as a model of this task can be given them.

        Args:
            recipe: the run's.
            sources: where they are; without any they are dev's.
            reference: their targets, where these are not in the same file; for one source.

        Raises:
            UserError: files that are missing or at fault, no dev, or a task whose examples are not raw text.
        """
        raise UserError("the examples of this task are no lines of text", where="task", received=self.name)

    def named_corpus(self, recipe: Recipe, corpus: AnyCorpus, where: str) -> RawCorpus:
        """The examples of a corpus that is named as those of a recipe are.

        Args:
            recipe: the run's, which says how corpora are read.
            corpus: the corpus, or several.
            where: the key that names it, for messages.

        Raises:
            UserError: as `raw_corpus`.
        """
        raise UserError("the examples of this task are no lines of text", where="task", received=self.name)


def check_raw_corpus(recipe: Recipe, sources: Sequence[Path], reference: Path | None) -> None:
    """Raise UserError unless there is a corpus to read: files, or the recipe's dev."""
    files = f"{option('input')} FILE"
    if reference is not None and len(sources) != 1:
        raise UserError("references need their sources", where=option("reference"), allowed=f"{files} beside it")
    if not sources and recipe.data.dev is None:
        raise UserError("the recipe has no dev to read", where="data.dev", allowed=files)
    for source in sources:
        check_file(source, option("input"))


def given_pairs(source: Path, reference: Path) -> PairSource:
    """The lines of two files. Raises UserError where one is missing or empty."""
    return open_source({"source": source, "target": reference}, option("input"))
