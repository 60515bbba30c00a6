"""The interface of a task, for training, reports and commands.

A task defines the examples, the model, the metrics on dev, and the predictor of a trained model. The training loop,
resuming, the run folder, scores and reports are the same for all tasks. A task reads no standard input, prints nothing
and knows no flags.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from headway.core.errors import UserError, option
from headway.core.log import progress
from headway.corpora.data_checks import DataCheck
from headway.formats.corpus_config import AnyCorpus
from headway.formats.lines import check_file
from headway.formats.pairs import PairSource, open_source
from headway.metrics.metric import Kind
from headway.models import Model
from headway.predictors.input_account import InputAccount, accounted
from headway.predictors.output import Example, Output, TestSet
from headway.predictors.predictor import Predictor, Run
from headway.processing.processor import Processors
from headway.processing.text.extension import WHERE as EXTENSION
from headway.processing.text.text_processor import PreparationConfig, as_written
from headway.recipe import Recipe
from headway.tensors.batch import Indices, TargetBatch


class TrainingCorpus(Protocol):
    """A corpus of encoded examples, which plans and collates batches.

    Attributes:
        lines: the line (N,) of each example in its source, counted from 1, for messages.
        fingerprint: a hash of everything that determines the content.
    """

    lines: npt.NDArray[np.int64]
    fingerprint: str

    def __len__(self) -> int:
        """The number N of examples."""

    def widths(self) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]:
        """The lengths of sources and of targets, (N,) each, that count for the size of a batch."""

    def plan(self, seed: int, epoch: int, **sizes: Any) -> list[Indices]:
        """The batches of one epoch, as indices of examples. Each example is in exactly one batch, unless corpora are
        sampled by weight. The result depends on the arguments only.

        `sizes` are `batch_tokens`, `batch_sentences` and `shapes`, as in `plan_epoch`.
        """

    def collate(
        self, indices: Indices, generator: torch.Generator | None = None, epoch: int | None = None
    ) -> TargetBatch:
        """The batch of the examples at `indices`, on the CPU. Random numbers, if any, are drawn from `generator`.

        With an epoch, as in training, the segmentation of an example may differ between epochs.
        """


class DevSet(NamedTuple):
    """A set of held-out examples.

    Attributes:
        corpus: the examples, encoded.
        examples: the examples as text.
        predictor: returns the predictor of a model in evaluation mode on a device; it draws no random numbers.
    """

    corpus: TrainingCorpus
    examples: Sequence[Example]
    predictor: Callable[[Model[Any], torch.device], Predictor[Any, Any]]

    @property
    def references(self) -> list[list[str]]:
        """The references as sets: set i has the i-th reference of every example."""
        return [list(texts) for texts in zip(*(example.references for example in self.examples), strict=True)]

    def outputs(self, model: Model[Any], device: torch.device) -> list[str]:
        """The raw text that a model writes for each example, before the task converts it."""
        predictor = self.predictor(model, device)
        cut: dict[str, Any] = {"truncate": True} if "truncate" in predictor.Options.model_fields else {}
        shown = progress("decoding dev", len(self.examples), "examples")
        with accounted(InputAccount()), shown as line:  # training has logged these warnings already
            predictor.answered = lambda count: line.update(line.done + count)
            return [output.written for output in predictor.stream(self.examples, **cut)]

    def sample(self, most: int) -> DevSet:
        """A copy with at most `most` evenly spread examples. The encoded corpus stays complete."""
        return self._replace(examples=self.examples[:: max(1, math.ceil(len(self.examples) / most))])


@dataclass(frozen=True)
class Corpora:
    """The data for training with a recipe.

    Attributes:
        processors: the processors that encoded the examples.
        train: the training examples.
        dev: the dev set; None if there is none.
        general: the general dev set `data.general`; None if there is none.
        baselines: outputs for dev from simple baselines without a model, by name.
        references: the steps that normalised the references, separated by commas.
    """

    processors: Processors
    train: TrainingCorpus
    dev: DevSet | None = None
    general: DevSet | None = None
    baselines: Mapping[str, list[str]] = field(default_factory=dict)
    references: str = ""

    def as_written(self, config: PreparationConfig) -> Corpora:
        """A copy with references and baselines normalised to what a model can write."""

        def changed(dev: DevSet | None) -> DevSet | None:
            return dev and dev._replace(examples=[example.as_written(config) for example in dev.examples])

        baselines = {name: as_written(texts, config) for name, texts in self.baselines.items()}
        dev, general, steps = changed(self.dev), changed(self.general), ", ".join(config.normalise)
        return replace(self, dev=dev, general=general, baselines=baselines, references=steps)

    def held_out(self) -> list[DevSet]:
        """The dev set and the general dev set, if they exist."""
        return [dev for dev in (self.dev, self.general) if dev is not None]


class Task(ABC):
    """The base class of tasks: the examples, the model and the metrics.

    Attributes:
        name: the name in the recipe's `task`.
        metrics: the default dev metrics.
        writes: the kind of outputs, which determines the possible metrics.
        reads_text: whether the sources are texts.
        mixes_corpora: whether the task supports `data.general`, and weights and tags of corpora.
    """

    mixes_corpora: ClassVar[bool] = False
    name: ClassVar[str]
    metrics: ClassVar[tuple[dict[str, Any], ...]]
    writes: ClassVar[Kind] = "text"
    reads_text: ClassVar[bool] = True

    def written(self, recipe: Recipe) -> PreparationConfig | None:
        """The normalisation of outputs, which is applied to references before scoring; None if there is none."""
        return recipe.text.target if self.writes == "text" else None

    @abstractmethod
    def check(self, recipe: Recipe) -> None:
        """Check the recipe before any work is done. Raises UserError."""

    def check_origin(self, recipe: Recipe) -> Model[Any] | None:
        """The model initialised from `model.from`; None if that is not set. Raises UserError."""
        if recipe.model.from_ is not None:
            what = f"a model for {self.name} does not begin from another"
            raise UserError(what, where="model.from", received=recipe.model.from_)
        return None

    def check_extension(self, recipe: Recipe, processors: Processors) -> None:
        """Raise UserError if tokens cannot be added to these processors. Reads no data."""
        what = f"the vocabulary of a model for {self.name} does not grow"
        raise UserError(what, where=EXTENSION, received=recipe.training.extend_vocabulary, allowed="translation")

    def extend(self, recipe: Recipe, older: Path, folder: Path) -> None:
        """Store the processors in `older` with up to `training.extend_vocabulary` new tokens each in `folder`."""
        raise NotImplementedError

    @abstractmethod
    def check_data(self, recipe: Recipe) -> DataCheck:
        """Read the recipe's corpora as training does, and report their problems. Raises UserError."""

    @abstractmethod
    def corpora(self, recipe: Recipe, folder: Path) -> Corpora:
        """Read and encode the corpora, and log what was read.

        Args:
            recipe: the recipe to train.
            folder: the folder of the processors. If it does not exist, they are trained and stored in it.

        Raises:
            UserError: files are missing or damaged, or no training example is left.
        """

    @abstractmethod
    def processors(self, folder: Path) -> Processors:
        """Load the processors that `corpora` stored. Raises UserError if they are missing or damaged."""

    @abstractmethod
    def model(self, recipe: Recipe, processors: Processors, *, initial: bool = True) -> Model[Any]:
        """Build the recipe's model, with initial weights from torch's global generator or for loading weights."""

    @abstractmethod
    def predictor(self, runs: Sequence[Run], device: torch.device) -> Predictor[Any, Any]:
        """The predictor of one run, or of an ensemble. Raises UserError if the runs do not fit together."""

    @abstractmethod
    def test_set(self, recipe: Recipe, corpus: AnyCorpus, where: str) -> TestSet:
        """The examples of a corpus, read as the recipe says. `where` is its key, for messages.

        Raises:
            UserError: files are missing or damaged.
        """

    @abstractmethod
    def test_set_of_files(self, recipe: Recipe, sources: Sequence[Path], reference: Path | None) -> TestSet:
        """The examples of files. For a single source, `reference` has the targets if they are in another file.

        Raises:
            UserError: as `test_set`.
        """

    def given_test_set(self, recipe: Recipe, sources: Sequence[Path] = (), reference: Path | None = None) -> TestSet:
        """The examples of files or, without files, of the recipe's dev set.

        Raises:
            UserError: as `test_set`, or the recipe has no dev set.
        """
        files = f"{option('input')} FILE"
        if reference is not None and len(sources) != 1:
            raise UserError("references need their sources", where=option("reference"), allowed=f"{files} beside it")
        for source in sources:
            check_file(source, option("input"))
        if sources:
            return self.test_set_of_files(recipe, sources, reference)
        if recipe.data.dev is None:
            raise UserError("the recipe has no dev to read", where="data.dev", allowed=files)
        return self.test_set(recipe, recipe.data.dev, "data.dev")

    def examples(self, predictor: Any, count: int) -> list[Output]:
        """The outputs for the first `count` examples of dev, for reports. Empty without a dev set."""
        dev = predictor.recipe.data.dev
        return (
            []
            if dev is None
            else outputs_of(predictor, [*islice(self.test_set(predictor.recipe, dev, "data.dev").examples, count)])
        )

    def drawings(self, output: Output) -> dict[str, str]:
        """Text drawings of an output, by name."""
        return {}


def outputs_of(predictor: Any, examples: Sequence[Example]) -> list[Output]:
    """Outputs with their cross-attention, if the model has it. Examples without a source have no output."""
    capture = tuple(name for name in predictor.attention_names() if name.endswith(".cross"))
    shown = [example for example in examples if example.source.strip()]
    outputs = predictor.stream(shown, capture=capture, truncate=True, skip_broken=True)
    return [output for output in outputs if output.problem is None]


def given_pairs(source: Path, reference: Path) -> PairSource:
    """Open a source and a reference file as pairs. Raises UserError if a file is missing or empty."""
    return open_source({"source": source, "target": reference}, option("input"))
