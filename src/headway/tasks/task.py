"""The contract of a task: all that training, reports and shells know of what is learned.

A task says what its examples are, which model reads them, what is compared on dev and what predicts with a trained
model. The loop, resumption, the run folder, scores and reports are the same for all. A task reads no standard input,
prints nothing and knows no flags.
"""

from __future__ import annotations

import math
import sys
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
from headway.core.processes import batched
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
    """Encoded examples: how they are put into batches.

    Attributes:
        lines: (N,) where each example begins in its origin, counted from 1, for messages.
        fingerprint: a hash of all that decides the content.
    """

    lines: npt.NDArray[np.int64]
    fingerprint: str

    def __len__(self) -> int:
        """N."""

    def widths(self) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]:
        """(N,) twice: what the source and the target of each example take of a row of a batch."""

    def plan(self, seed: int, epoch: int, **sizes: Any) -> list[Indices]:
        """The batches of one epoch, as positions; each example is in exactly one, unless
        corpora are sampled by weight. A pure function.

        `sizes` are `batch_tokens`, `batch_sentences` and `shapes`, as `plan_epoch` takes them.
        """

    def collate(
        self, indices: Indices, generator: torch.Generator | None = None, epoch: int | None = None
    ) -> TargetBatch:
        """The batch of the examples at `indices`, on the CPU; random numbers, if it needs any, are the generator's.

        With an epoch, which training gives, an example may be cut into other pieces in each.
        """


class DevSet(NamedTuple):
    """Examples that are not learned from.

    Attributes:
        corpus: the examples, encoded.
        examples: the same as text.
        predictor: what predicts with a model, in evaluation mode on a device; draws no randomness.
        together: how many examples are in memory at once.
    """

    corpus: TrainingCorpus
    examples: Sequence[Example]
    predictor: Callable[[Model[Any], torch.device], Predictor[Any, Any]]
    together: int = sys.maxsize

    @property
    def references(self) -> list[list[str]]:
        """Sets of wanted outputs."""
        return [list(texts) for texts in zip(*(example.references for example in self.examples), strict=True)]

    def outputs(self, model: Model[Any], device: torch.device) -> list[str]:
        """The text that a model writes for each example, before a task makes anything else of it."""
        predictor, texts = self.predictor(model, device), list[str]()
        cut: dict[str, Any] = {"truncate": True} if "truncate" in predictor.Options.model_fields else {}
        shown = progress("decoding dev", len(self.examples), "examples")
        with accounted(InputAccount()), shown as line:  # the account of the data has told what there is to tell
            predictor.answered = lambda count: line.update(line.done + count)
            for some in batched(self.examples, self.together):
                texts += [output.written for output in predictor.predict(some, **cut)]
        return texts

    def sample(self, most: int) -> DevSet:
        """The same with at most so many examples, evenly spread; the encoded ones are all there still."""
        return self._replace(examples=self.examples[:: max(1, math.ceil(len(self.examples) / most))])


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
            return dev and dev._replace(examples=[example.as_written(config) for example in dev.examples])

        baselines = {name: as_written(texts, config) for name, texts in self.baselines.items()}
        dev, general, steps = changed(self.dev), changed(self.general), ", ".join(config.normalise)
        return replace(self, dev=dev, general=general, baselines=baselines, references=steps)

    def held_out(self) -> list[DevSet]:
        """Dev and general, where they are."""
        return [dev for dev in (self.dev, self.general) if dev is not None]


class Task(ABC):
    """A kind of work: its examples, its model and its metrics.

    Attributes:
        name: the name in the recipe's `task`.
        metrics: what dev is scored by unless the recipe says otherwise.
        writes: what its outputs are, which says by what they can be scored.
        reads_text: whether its sources are texts.
        mixes_corpora: whether it reads `data.general`, and weights and tags of corpora.
    """

    mixes_corpora: ClassVar[bool] = False
    name: ClassVar[str]
    metrics: ClassVar[tuple[dict[str, Any], ...]]
    writes: ClassVar[Kind] = "text"
    reads_text: ClassVar[bool] = True

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
    def check_data(self, recipe: Recipe) -> DataCheck:
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
    def test_set(self, recipe: Recipe, corpus: AnyCorpus, where: str) -> TestSet:
        """The examples of a corpus that the key `where` names, read as the recipe says.

        Raises:
            UserError: files that are missing or at fault.
        """

    @abstractmethod
    def test_set_of_files(self, recipe: Recipe, sources: Sequence[Path], reference: Path | None) -> TestSet:
        """The examples of files: of one source, `reference` has the targets where these are not in the same file.

        Raises:
            UserError: as `test_set`.
        """

    def given_test_set(self, recipe: Recipe, sources: Sequence[Path] = (), reference: Path | None = None) -> TestSet:
        """The examples of files, or of the recipe's dev, as a model of this task can be given them.

        Raises:
            UserError: as `test_set`; no dev.
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
        """The first `count` dev examples with what the task's predictor makes of them; none without dev."""
        dev = predictor.recipe.data.dev
        return (
            []
            if dev is None
            else outputs_of(predictor, [*islice(self.test_set(predictor.recipe, dev, "data.dev").examples, count)])
        )

    def drawings(self, output: Output) -> dict[str, str]:
        """Pictures of an output made of characters, by name."""
        return {}


def outputs_of(predictor: Any, examples: Sequence[Example]) -> list[Output]:
    """Outputs with their cross-attention, where the model has it; of examples without a source there are none."""
    capture = tuple(name for name in predictor.attention_names() if name.endswith(".cross"))
    shown = [example for example in examples if example.source.strip()]
    outputs = predictor.predict(shown, capture=capture, truncate=True, skip_broken=True)
    return [output for output in outputs if output.problem is None]


def given_pairs(source: Path, reference: Path) -> PairSource:
    """The lines of two files. Raises UserError where one is missing or empty."""
    return open_source({"source": source, "target": reference}, option("input"))
