"""Translate the sentences of documents with a predictor, and return the translations with their word alignments."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from headway.core.errors import UserError, shortened
from headway.core.log import silenced
from headway.formats.corpus_config import parts
from headway.formats.pairs import open_source
from headway.formats.terms import BEGIN, END, MEANS, TermCount
from headway.markup.documents import Languages
from headway.markup.inline import Aligned, Span
from headway.predictors.output import Output
from headway.predictors.predict_options import checked_options
from headway.predictors.predictor import Predictor
from headway.predictors.sequence_predictor import SequencePredictor
from headway.predictors.word_alignment import Aligner, build_aligner
from headway.processing.processor import Truncation
from headway.processing.text.sentences import has_several_sentences
from headway.recipe import Recipe

LEAST = 1e-6  # the lower bound of a source word's total attention
SEEN, MOST = 1000, 0.2  # training sources to check, and the largest share with several sentences


class SentenceTranslator:
    """A predictor with its options, as `translate_document` calls it.

    Raises:
        UserError: the model reads earlier sentences as context.

    Attributes:
        languages: the languages of the run.
        aligner: aligns the outputs; None if the model has no suitable attention.
        terms: the term counts of all outputs. A sentence that is decoded again without placeholders counts twice.
    """

    def __init__(self, predictor: SequencePredictor, options: Any = None, **keywords: Any) -> None:
        self.predictor, self.options = predictor, checked_options(predictor.Options, options, keywords)
        check_alone(predictor)
        text = predictor.recipe.text
        self.languages = Languages(text.source.language, text.target.language)
        self.aligner, self.terms = usual_aligner(predictor), TermCount()

    def fits(self, text: str) -> bool:
        return fits(self.predictor, text)

    def __call__(self, sentences: Sequence[str]) -> list[Aligned]:
        """The translations of the sentences. With `skip_broken`, a sentence that cannot be read is returned unchanged.

        Raises:
            UserError: a sentence cannot be read, or options contradict each other.
        """
        options = self.options.model_copy(update={"capture": (self.aligner.layer,) if self.aligner else ()})
        outputs = self.predictor.stream(sentences, options)
        return [self._aligned(sentence, output) for sentence, output in zip(sentences, outputs, strict=False)]

    def _aligned(self, sentence: str, output: Output) -> Aligned:
        self.terms += output.terms
        if output.problem is None:
            return aligned(output, self.aligner)
        problem = output.problem
        if not self.options.skip_broken:
            raise UserError(problem.what, where=shortened(sentence), received=problem.received, allowed=problem.allowed)
        return Aligned(sentence)


def learned_single_sentences(recipe: Recipe) -> bool | None:
    """Whether most of the first training sources are single sentences. None if the data are not files."""
    if not all(any(isinstance(value, Path) for _, value in part) for _, part in parts(recipe.data.train, "data.train")):
        return None
    try:
        with silenced():
            pairs = islice(open_source(recipe.data.train, "data.train", "skip"), SEEN)
            several = [has_several_sentences(pair.source) for pair in pairs]
    except (UserError, OSError):
        return None
    return sum(several) <= MOST * len(several)


def fits(predictor: SequencePredictor, text: str) -> bool:
    """Whether a text is no longer than the sources that the run was trained on."""
    data = predictor.recipe.data
    return not predictor.source.encode(text, Truncation(data.max_length, data.count)).truncated


def check_alone(predictor: Predictor[Any, Any]) -> None:
    """Raise UserError if the model reads earlier sentences as context, which the caller cannot provide."""
    if predictor.recipe.data.context.most:
        what = "this run reads the sentences before each, and here sentences are translated by themselves"
        raise UserError(what, where="data.context", allowed="a run without context, or lines for headway predict")


def usual_aligner(predictor: SequencePredictor) -> Aligner | None:
    """The default aligner of a model. None for an ensemble, an engine, or a model without cross-attention."""
    if len(predictor.models) > 1 or "capture" in predictor.backend.lacks:
        return None
    try:
        return build_aligner(predictor)
    except UserError:
        return None


def aligned(output: Output, aligner: Aligner | None) -> Aligned:
    """An output with the spans of source and target characters that are aligned.

    A target word is aligned to the source word of whose total attention it gets the largest share. The most attended
    word would be worse: an article also attends to its noun, but the noun's translation attends to it more.
    """
    if aligner is None:
        return Aligned(output.text)
    words = aligner(output, split=True)
    words = replace(words, weights=words.weights / np.maximum(words.weights.sum(axis=0), LEAST))
    sides = [list(_spans(texts, text)) for texts, text in ((words.source, output.source), (words.target, output.text))]
    links = ((sides[0][source], sides[1][target]) for source, target in words.links())
    return Aligned(output.text, [(one, other) for one, other in links if one and other])


def _spans(words: Sequence[str], text: str) -> Iterator[Span | None]:
    """The span of each word in a text, or that of the term for an annotated translation. None for other words."""
    at, term, begun = 0, 0, False
    for word in (word.replace("▁", " ").strip() for word in words):
        begun = word == MEANS or (begun and word != END)
        begin = -1 if begun or not word else text.find(word, at)
        term = at if word == BEGIN else term
        at = max(at, begin + len(word) * (begin >= 0))
        yield (begin, at) if begin >= 0 else (term, at) if begun and word != MEANS else None
