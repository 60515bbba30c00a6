"""Extension of vocabularies: tokens of new text get new ids after the old ones, which stay the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from headway.core.errors import UserError
from headway.processing.processor import Truncation
from headway.processing.text.document_vocabulary import DocumentVocabulary
from headway.processing.text.text_processor import SAMPLE, Pairs, TextProcessor, prepare, sampled
from headway.processing.text.vocabulary import TaggedVocabulary, Vocabulary

Both = tuple[TextProcessor, TextProcessor]
WHERE = "training.extend_vocabulary"


def extended_processors(processors: Both, count: int, pairs: Pairs) -> Both:
    """Add up to `count` tokens of new text to the vocabularies of both processors.

    Args:
        processors: the processors of source and target; a shared vocabulary stays shared.
        count: the maximum number of new tokens; new characters come first.
        pairs: returns a fresh iterator over the raw pairs of the new text.

    Raises:
        UserError: the kind of vocabulary cannot be extended.
    """
    source, target = processors
    if source.vocabulary is target.vocabulary:
        lines = (
            prepare(line, processor.config)
            for pair in pairs()
            for line, processor in zip(pair, processors, strict=True)
        )
        both = _extended(source.vocabulary, lines, count, "text of both sides")
        vocabularies = [both, both]
    else:
        vocabularies = [
            _extended(
                processor.vocabulary, (prepare(pair[side], processor.config) for pair in pairs()), count, f"{name} text"
            )
            for side, (name, processor) in enumerate(zip(("source", "target"), processors, strict=True))
        ]
    first, second = vocabularies
    return replace(source, vocabulary=first), replace(target, vocabulary=second)


def check_extensible(processors: Both) -> None:
    """Raise UserError if a vocabulary is of a kind that cannot be extended."""
    for processor in processors:
        vocabulary = processor.vocabulary
        if not vocabulary.extensible:
            raise UserError(
                "a vocabulary of this kind cannot have further tokens", where=WHERE, received=vocabulary.family,
                allowed="bpe, unigram, char, word or whitespace",
            )  # fmt: skip


def _extended(vocabulary: Vocabulary, lines: Iterable[str], count: int, side: str) -> Vocabulary:
    return vocabulary.extended(sampled(lines, SAMPLE), count, WHERE, side)


def tagged(processors: Both, tags: Sequence[str]) -> Both:
    """Add tags to the source vocabulary; a shared vocabulary stays shared."""
    if not tags:
        return processors
    source, target = processors
    shared = source.vocabulary is target.vocabulary
    vocabulary = TaggedVocabulary(source.vocabulary, tags)
    return replace(source, vocabulary=vocabulary), replace(target, vocabulary=vocabulary) if shared else target


def marked(processors: Both, needed: tuple[bool, bool], limit: Truncation) -> Both:
    """Add the separator of sentences to the vocabularies that need it; a shared vocabulary stays shared."""
    source, target = processors
    shared = source.vocabulary is target.vocabulary
    if shared and any(needed):
        vocabulary = DocumentVocabulary(source.vocabulary, limit)
        return replace(source, vocabulary=vocabulary), replace(target, vocabulary=vocabulary)
    first, second = (
        replace(processor, vocabulary=DocumentVocabulary(processor.vocabulary, limit)) if wanted else processor
        for processor, wanted in zip(processors, needed, strict=True)
    )
    return first, second


def old_parts(older: Vocabulary, newer: Vocabulary) -> list[list[int]]:
    """For each token that `newer` adds to `older`, the known ids of `older` that its text is encoded into."""
    texts = [newer.decode([id]) for id in range(len(older), len(newer))]
    return [[id for id in ids if id not in older.no_text] for ids in older.encode_lines(texts)]
