"""A predictor as what documents are translated with: sentences in, translations with their alignment out."""

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
from headway.processing.text.sentences import has_several_sentences
from headway.recipe import Recipe

LEAST = 1e-6  # attention that a source word got in all
SEEN, MOST = 1000, 0.2  # sources of training that are looked at, and the share of them that may have several sentences


class SentenceTranslator:
    """A predictor with its options, as `translate_document` calls it.

    Raises:
        UserError: a model that reads the sentences before each.

    Attributes:
        languages: those of the run.
        aligner: what its outputs are aligned by; None where there is no attention to align by.
        terms: the account of all outputs so far; a sentence that is decoded again without its placeholders has two.
    """

    def __init__(self, predictor: SequencePredictor, options: Any = None, **keywords: Any) -> None:
        self.predictor, self.options = predictor, checked_options(predictor.Options, options, keywords)
        check_alone(predictor)
        text = predictor.recipe.text
        self.languages = Languages(text.source.language, text.target.language)
        self.aligner, self.terms = usual_aligner(predictor), TermCount()

    def __call__(self, sentences: Sequence[str]) -> list[Aligned]:
        """The translations of sentences; one that cannot be read stays as it is where `skip_broken` says so.

        Raises:
            UserError: a sentence that cannot be read, or options that do not go together.
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
    """Whether the first sources that a run was trained on are mostly single sentences. None if no files hold them."""
    if not all(any(isinstance(value, Path) for _, value in part) for _, part in parts(recipe.data.train, "data.train")):
        return None
    try:
        with silenced():
            pairs = islice(open_source(recipe.data.train, "data.train", "skip"), SEEN)
            several = [has_several_sentences(pair.source) for pair in pairs]
    except (UserError, OSError):
        return None
    return sum(several) <= MOST * len(several)


def check_alone(predictor: Predictor[Any, Any]) -> None:
    """Raise UserError for a model that reads the sentences before each: whoever asks here has them in no such order."""
    if predictor.recipe.data.context.most:
        what = "this run reads the sentences before each, and here sentences are translated by themselves"
        raise UserError(what, where="data.context", allowed="a run without context, or lines for headway predict")


def usual_aligner(predictor: SequencePredictor) -> Aligner | None:
    """The aligner of a model; None for an ensemble, an engine or a model without attention to its source."""
    if len(predictor.models) > 1 or "capture" in predictor.backend.lacks:
        return None
    try:
        return build_aligner(predictor)
    except UserError:
        return None


def aligned(output: Output, aligner: Aligner | None) -> Aligned:
    """An output with the characters of source and target that belong together.

    A target word belongs to the source word of whose attention it has the largest share, not to the one that it looks
    at most: an article looks at its noun, too, whose translation looks there more.
    """
    if aligner is None:
        return Aligned(output.text)
    words = aligner(output, split=True)
    words = replace(words, weights=words.weights / np.maximum(words.weights.sum(axis=0), LEAST))
    sides = [list(_spans(texts, text)) for texts, text in ((words.source, output.source), (words.target, output.text))]
    links = ((sides[0][source], sides[1][target]) for source, target in words.links())
    return Aligned(output.text, [(one, other) for one, other in links if one and other])


def _spans(words: Sequence[str], text: str) -> Iterator[Span | None]:
    """Where each word stands in a text, and an annotated translation where its term does; None for any other."""
    at, term, begun = 0, 0, False
    for word in (word.replace("▁", " ").strip() for word in words):
        begun = word == MEANS or (begun and word != END)
        begin = -1 if begun or not word else text.find(word, at)
        term = at if word == BEGIN else term
        at = max(at, begin + len(word) * (begin >= 0))
        yield (begin, at) if begin >= 0 else (term, at) if begun and word != MEANS else None
