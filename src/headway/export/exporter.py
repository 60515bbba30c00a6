"""The contract of an exporter: a format that a trained run is written in, for engines and libraries of other people.

Beside weights stand the tokenizers of a run: headway's own files, and SentencePiece models for others.
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

PROCESSORS = "vocabulary"  # as in a run


class Answer(NamedTuple):
    """One output of a model or an engine.

    Attributes:
        tokens: the tokens that were written, without the end mark.
        score: their log probability, the end mark included; of labels, the sum of those of all words.
        text: what the format's own tokenizer makes of the tokens.
        ids: of the tokens, which may share a name; none for labels.
    """

    tokens: tuple[str, ...]
    score: float
    text: str
    ids: tuple[int, ...] = ()


class Search(NamedTuple):
    """A search that every engine has: so many hypotheses, ranked by their log probability, all of them returned.

    The longest output has `longest` tokens, and `ratio` more for each of the source.
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
        extra: the extra of headway whose packages it needs.
        packages: these packages, as they are imported.
        library: what loads such a folder, and how, for the model card.
    """

    Config: ClassVar[type[Section]] = Section
    name: ClassVar[str]
    extra: ClassVar[str] = "export"
    packages: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: Any = None) -> None:
        self.config = self.Config() if config is None else config

    @abstractmethod
    def refusal(self, run: Run) -> str | None:
        """The reason why this format cannot express a model, None where it can."""

    def form(self, run: Run) -> str:
        """The thing that a run becomes in this format, in a few words."""
        return ""

    @abstractmethod
    def write(self, run: Run, folder: Path) -> None:
        """Write weights, configuration and tokenizer into `folder`, which does not exist yet.

        Raises:
            UserError: options that do not fit the run.
        """

    @abstractmethod
    def open(self, folder: Path, run: Run) -> Answering:
        """The content of a folder that `write` wrote of a run, loaded by the library that it is for."""

    @abstractmethod
    def usage(self, run: Run) -> str:
        """The way to use the folder, as Markdown for the model card."""

    @property
    def exact(self) -> bool:
        """Whether outputs have to be those of the run; weights of fewer bits give others now and then."""
        return True

    def search(self, run: Run, beam: int | None, longest: int) -> Search:
        """The search that run and export are compared by. Raises UserError for a beam that the format does not have.

        Args:
            run: what is exported.
            beam: as it was asked for.
            longest: more tokens than any sound output of the lines has.
        """
        return Search(beam or run.recipe.decoding.beam, longest)

    def examined(self, run: Run, folder: Path, report: Any, examples: Sequence[Example]) -> Any:
        """The `ParityReport` on a written folder, with what the format has to add on the examples of both."""
        return report

    def finish(self, run: Run, folder: Path, card: str) -> None:  # noqa: B027 - most formats have nothing to add
        """Put the model card where the format itself has a place for it."""

    def card(self, run: Run) -> Mapping[str, Any]:
        """Further keys of the head of the model card."""
        return {}


def write_tokenizers(run: Run, folder: Path) -> None:
    """Write `vocabulary/` as the run has it, and `source.spm` and `target.spm` where these alone cut and join text."""
    assert run.path is not None
    shutil.copytree(RunFolder(run.path).vocabulary, folder / PROCESSORS)
    for processor, name in ((run.source, "source"), (run.target, "target")):
        if sentencepiece_fault(processor) is None:
            write_bytes(folder / f"{name}.spm", sentencepiece_of(processor))


def sentencepiece_fault(processor: Processor) -> str | None:
    """The reason why a SentencePiece model alone does not do what a processor does; None where it does."""
    if not isinstance(processor, TextProcessor) or not isinstance(processor.vocabulary, SubwordVocabulary):
        return "a vocabulary that is no SentencePiece model; those of kind bpe, unigram and char are"
    if is_plain(processor.config):
        return None
    return "the run normalises or segments text, which a SentencePiece model alone does not do"


def sentencepiece_of(processor: Processor) -> bytes:
    """The SentencePiece model of a processor that `sentencepiece_fault` has no fault with; it cleans text, too."""
    assert isinstance(processor, TextProcessor)
    vocabulary = cleaning(processor)
    assert isinstance(vocabulary, SubwordVocabulary)
    return vocabulary.serialised


def cleaning(processor: TextProcessor) -> Vocabulary:
    """The vocabulary of a processor; a SentencePiece model cleans text by itself if the processor does."""
    vocabulary = processor.vocabulary
    if processor.config.clean and isinstance(vocabulary, SubwordVocabulary):
        return vocabulary.with_rules(clean_rules())
    return vocabulary


def is_plain(config: PreparationConfig) -> bool:
    """Whether a SentencePiece model can do all that prepares text."""
    return config == PreparationConfig(language=config.language, clean=config.clean)


def text_processors(run: Run) -> tuple[TextProcessor, TextProcessor]:
    """The processors of a run of text."""
    source, target = run.source, run.target
    assert isinstance(source, TextProcessor)
    assert isinstance(target, TextProcessor)
    return source, target


def tokens_of(processor: TextProcessor) -> list[str]:
    """The tokens of a vocabulary in the order of their ids."""
    return processor.tokens(range(processor.size))


def language_codes(run: Run) -> tuple[str, str]:
    """The languages of both sides, as indices of packages name them."""
    text = run.recipe.text
    return base_language(text.source.language), base_language(text.target.language)
