"""The interface of exporters: a format for trained runs that other engines and libraries read.

Exports include the run's tokenizers: headway's own files, and SentencePiece models for other libraries.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from headway.core.config import Section
from headway.core.files import write_bytes
from headway.core.languages import base_language
from headway.predictors.output import Example
from headway.predictors.predictor import Run
from headway.processing.processor import Processor
from headway.processing.text.normalisation import clean_rules
from headway.processing.text.subwords import SubwordVocabulary
from headway.processing.text.text_processor import PreparationConfig, TextProcessor
from headway.processing.text.vocabulary import Vocabulary
from headway.runs.run_folder import RunFolder

PROCESSORS = "vocabulary"  # the name of the folder in a run


class Answer(NamedTuple):
    """An output of a model or an engine.

    Attributes:
        tokens: the output's tokens, without the end mark.
        score: their log probability, including the end mark; for labels, summed over all words.
        text: the detokenized text, by the format's own tokenizer.
        ids: of the tokens (whose names need not be unique); empty for labels.
    """

    tokens: tuple[str, ...]
    score: float
    text: str
    ids: tuple[int, ...] = ()


class Search(NamedTuple):
    """A search that every engine supports: `beam` hypotheses, ranked by their log probability, and all returned.

    An output has at most `longest` tokens, and `ratio` more for each source token.
    """

    beam: int
    longest: int
    ratio: float = 0.0


# The answers for each line, best first.
Answering = Callable[[Sequence[str], Search], list[list[Answer]]]


class Exporter(ABC):
    """A format. A subclass takes its `Config`, or keyword-only options.

    Attributes:
        Config: the options of the format.
        name: its name in `EXPORTERS`.
        extra: the extra of headway that installs its packages.
        packages: the packages, by import name.
        library: the library that loads such a folder, and how, for the model card.
        integers: whether it stores the integers of a run with `int8_rounding: fixed`, rather than its floats.
    """

    Config: ClassVar[type[Section]] = Section
    name: ClassVar[str]
    extra: ClassVar[str] = "export"
    packages: ClassVar[tuple[str, ...]] = ()
    integers: ClassVar[bool] = False

    def __init__(self, config: Any = None) -> None:
        self.config = self.Config() if config is None else config

    @abstractmethod
    def refusal(self, run: Run) -> str | None:
        """The reason why this format does not support a model, or None if it does."""

    def form(self, run: Run) -> str:
        """The form of a run in this format, in a few words."""
        return ""

    @abstractmethod
    def write(self, run: Run, folder: Path) -> None:
        """Write weights, configuration and tokenizer into the new folder `folder`.

        Raises:
            UserError: the options do not match the run.
        """

    @abstractmethod
    def open(self, folder: Path, run: Run) -> Answering:
        """Load the output of `write` for a run with the library that the format is for."""

    @abstractmethod
    def usage(self, run: Run) -> str:
        """How to use the folder, as Markdown for the model card."""

    @property
    def exact(self) -> bool:
        """Whether outputs must equal the run's. Quantized weights sometimes lead to other outputs."""
        return True

    def search(self, run: Run, beam: int | None, longest: int) -> Search:
        """The search for comparing run and export. Raises UserError if the format does not support the beam.

        Args:
            run: the run.
            beam: the requested beam, or None.
            longest: more tokens than any sound output of the lines has.
        """
        return Search(beam or run.recipe.decoding.beam, longest)

    def examined(self, run: Run, folder: Path, report: Any, examples: Sequence[Example]) -> Any:
        """The `ParityReport` of a written folder, with additions of the format computed on the examples."""
        return report

    def finish(self, run: Run, folder: Path, card: str) -> None:  # noqa: B027 - most formats have nothing to add
        """Add the model card inside the format's own files, if it has a place there."""

    def card(self, run: Run) -> Mapping[str, Any]:
        """Additional metadata keys of the model card."""
        return {}


def write_tokenizers(run: Run, folder: Path) -> None:
    """Write the run's `vocabulary/`, and `source.spm` and `target.spm` if these alone tokenize and detokenize text."""
    assert run.path is not None
    shutil.copytree(RunFolder(run.path).vocabulary, folder / PROCESSORS)
    for processor, name in ((run.source, "source"), (run.target, "target")):
        if sentencepiece_fault(processor) is None:
            write_bytes(folder / f"{name}.spm", sentencepiece_of(processor))


def sentencepiece_fault(processor: Processor) -> str | None:
    """The reason why a SentencePiece model alone is not equivalent to a processor; None if it is."""
    if not isinstance(processor, TextProcessor) or not isinstance(processor.vocabulary, SubwordVocabulary):
        return "a vocabulary that is no SentencePiece model; those of kind bpe, unigram and char are"
    if is_plain(processor.config):
        return None
    return "the run normalises or segments text, which a SentencePiece model alone does not do"


def sentencepiece_of(processor: Processor) -> bytes:
    """The SentencePiece model of a processor without `sentencepiece_fault`; it also cleans text."""
    assert isinstance(processor, TextProcessor)
    vocabulary = cleaning(processor)
    assert isinstance(vocabulary, SubwordVocabulary)
    return vocabulary.serialised


def cleaning(processor: TextProcessor) -> Vocabulary:
    """The vocabulary of a processor. If the processor cleans text, a SentencePiece model does so too."""
    vocabulary = processor.vocabulary
    if processor.config.clean and isinstance(vocabulary, SubwordVocabulary):
        return vocabulary.with_rules(clean_rules())
    return vocabulary


def is_plain(config: PreparationConfig) -> bool:
    """Whether a SentencePiece model can do the whole preparation of text."""
    return config == PreparationConfig(language=config.language, clean=config.clean)


def text_processors(run: Run) -> tuple[TextProcessor, TextProcessor]:
    source, target = run.source, run.target
    assert isinstance(source, TextProcessor)
    assert isinstance(target, TextProcessor)
    return source, target


def tokens_of(processor: TextProcessor) -> list[str]:
    return processor.tokens(range(processor.size))


def language_codes(run: Run) -> tuple[str, str]:
    """The base language codes of both sides, as package indices name them."""
    text = run.recipe.text
    return base_language(text.source.language), base_language(text.target.language)
