"""The tokenizers of a run beside its exported weights: headway's own files, and SentencePiece models for others."""

from __future__ import annotations

import shutil
from pathlib import Path

from headway.files import write_bytes
from headway.predictors.run import Run
from headway.processing.processor import Processor
from headway.processing.text.subwords import SubwordVocabulary
from headway.processing.text.text_processor import PreparationConfig, TextProcessor
from headway.runs.run_folder import RunFolder

PROCESSORS = "vocabulary"  # as in a run


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
    plain = PreparationConfig(language=processor.config.language)
    if processor.config == plain:
        return None
    return "the run normalises or segments text, which a SentencePiece model alone does not do"


def sentencepiece_of(processor: Processor) -> bytes:
    """The SentencePiece model of a processor that `sentencepiece_fault` has no fault with."""
    assert isinstance(processor, TextProcessor)
    assert isinstance(processor.vocabulary, SubwordVocabulary)
    return processor.vocabulary.serialised


def text_processors(run: Run) -> tuple[TextProcessor, TextProcessor]:
    """The processors of a run of text."""
    source, target = run.source, run.target
    assert isinstance(source, TextProcessor)
    assert isinstance(target, TextProcessor)
    return source, target


def tokens_of(processor: TextProcessor) -> list[str]:
    """The tokens of a vocabulary in the order of their ids."""
    return processor.tokens(range(processor.size))
