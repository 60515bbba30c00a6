"""Inputs on their way through a predictor that writes token by token."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.predictors.formatter import Formatter
from headway.predictors.predict_options import PredictOptions
from headway.predictors.prediction import TextHypothesis
from headway.predictors.unknown_words import UnknownWords
from headway.processing.processor import Encoded
from headway.search.decoding_options import SearchOptions


@dataclass(frozen=True)
class PredictionRequest:
    """Some inputs on their way through a predictor.

    Attributes:
        raw: the inputs as they were given.
        sources: the same, encoded; one that is skipped has no values.
        problems: by row, why an input is skipped.
        prefixes: the ids that each output begins with.
        options: how they are decoded.
        search: the options of search, those of the recipe included.
        formatter: the way from inputs to the model's text and back.
        first_line: the number of the first input.
        unknown: what replaces unknown words; None where they are kept.
    """

    raw: Sequence[Any]
    sources: Sequence[Encoded]
    problems: Mapping[int, str]
    prefixes: Sequence[Sequence[int]]
    options: PredictOptions
    search: SearchOptions
    formatter: Formatter
    first_line: int
    unknown: UnknownWords | None

    def texts(self) -> list[Any]:
        """The inputs as the model reads them."""
        return list(map(self.formatter.source, self.raw))

    def empty(self, row: int) -> list[TextHypothesis]:
        """The outputs of an input without values. The score is 0 where it is blank, and -inf where it is skipped."""
        score = -math.inf if row in self.problems else 0.0
        return [TextHypothesis("", score, [], [])] * self.options.nbest
