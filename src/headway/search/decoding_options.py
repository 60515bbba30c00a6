"""The options of search: the `decoding` section of a recipe, also among the options of every prediction command."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError, model_validator

from headway.core.config import Section, mistake

if TYPE_CHECKING:  # the command line shows its options without importing torch
    from torch import Tensor

MOST_HYPOTHESES = 10_000  # of a sentence
LONGEST = 100_000  # tokens of an output


@dataclass(frozen=True)
class Ranking:
    """The length penalty that divides log probabilities, and the stopping rule of search (see `SearchOptions`)."""

    exponent: float = 0.0
    kind: Literal["wu", "power"] = "wu"
    stop: Literal["best", "worst", "full"] = "best"

    def penalty(self, length: int) -> float:
        """((5 + length) / 6) ** exponent, Wu et al. (2016), equation 14, or a power; `length` counts the end token."""
        return float((length if self.kind == "power" else (5 + length) / 6) ** self.exponent)

    def ends(self, finished: Tensor, best: Tensor, length: int) -> Tensor:
        """The mask (N,) of the sentences whose search may end after `length` tokens.

        Args:
            finished: (N, W) scores of the best finished hypotheses, best first; minus infinity for missing ones.
            best: (N,) the highest log probability of the unfinished hypotheses of each sentence.
        """
        full = finished[:, -1] > -math.inf
        if self.stop == "full":
            return full
        return full & (best / self.penalty(length) <= finished[:, 0 if self.stop == "best" else -1])


UNPENALIZED = Ranking()


def _of_recipe(default: Any, description: str, **bounds: Any) -> Any:
    """A field whose default, in prediction, is the recipe's value."""
    return Field(
        default=default,
        description=description,
        json_schema_extra={"default_text": "the recipe's", "group": "Search"},
        **bounds,
    )


class SearchOptions(Section):
    """Search. Scores are log probabilities over ((5 + length) / 6) ** length_penalty (Wu et al. 2016, equation 14), or
    over length ** length_penalty if `length_penalty_kind` is `power`.

    The search of a sentence ends once `beam` hypotheses are finished and no unfinished one is above the best of them.
    With `stop: worst` it continues while one is above the worst, as in transformers. With `full` it ends once
    `beam` are finished.

    The longest output is `max_length` tokens if set, else `max_length_ratio` * source + `max_length_offset`. No n-gram
    of `no_repeat_ngram` tokens occurs twice in an output; 0 allows all. `unknown_words`: `copy` replaces each word that
    is not in the target vocabulary by the source word that it attends to most (Luong et al. 2015).

    `kind: mbr` draws `samples`, and returns the one, or with `beam_candidates` the hypothesis of the beam, with the
    highest mean `utility`, a metric, with all samples as references (minimum Bayes risk, Eikema and Aziz 2020).
    """

    beam: int = _of_recipe(4, "Hypotheses kept; 1 is greedy.", gt=0, le=MOST_HYPOTHESES)
    length_penalty: float = _of_recipe(0.6, "Exponent of the length penalty.", ge=-10, le=10)
    length_penalty_kind: Literal["wu", "power"] = _of_recipe("wu", "((5 + length) / 6), or length, to the exponent.")
    stop: Literal["best", "worst", "full"] = _of_recipe(
        "best", "End of search: the beam is full of finished hypotheses, and none alive is above their best or worst."
    )
    min_length: int = _of_recipe(0, "Shortest output in tokens.", ge=0, le=LONGEST)
    max_length: int | None = _of_recipe(None, "Longest output in tokens.", gt=0, le=LONGEST)
    max_length_ratio: float = _of_recipe(1.0, "Else so many tokens for each of the source, and ...", ge=0, le=1000)
    max_length_offset: int = _of_recipe(50, "... so many more.", ge=0, le=LONGEST)
    no_repeat_ngram: int = _of_recipe(0, "No N tokens in a row come twice in an output; 0 allows it.", ge=0, le=LONGEST)
    unknown_words: Literal["keep", "copy"] = _of_recipe(
        "keep", "Words that are not in the vocabulary: keep <unk>, or copy the source word that they attend to."
    )
    batch_tokens: int = _of_recipe(4096, "Source tokens (or frames) decoded at once.", gt=0, le=10**9)
    cuda_graphs: bool = _of_recipe(False, "CUDA: record a step for each of a few shapes, and replay it.")
    kind: Literal["beam", "mbr"] = _of_recipe("beam", "Beam search, or mbr: the sample that agrees most with others.")
    samples: int = _of_recipe(32, "Outputs drawn for mbr.", ge=2, le=MOST_HYPOTHESES)
    utility: str = _of_recipe("chrf", "The metric by which mbr compares outputs, with its options behind it.")
    beam_candidates: bool = _of_recipe(False, "Let mbr choose among the hypotheses of the beam, too.")

    @property
    def ranking(self) -> Ranking:
        return Ranking(self.length_penalty, self.length_penalty_kind, self.stop)

    def longest(self, source_length: int) -> int:
        """The length limit for a source of `source_length` tokens. In floating point 1.15 * 100 is less than 115."""
        return int(self.max_length_ratio * source_length + 1e-9) + self.max_length_offset

    @model_validator(mode="after")
    def _lengths(self) -> SearchOptions:
        if self.max_length is not None and self.min_length > self.max_length:
            what = "the shortest output is longer than the longest"
            what += f"; received {self.min_length}; allowed: up to {self.max_length}"
            raise ValidationError.from_exception_data("decoding", [mistake(what, "min_length")])
        return self
