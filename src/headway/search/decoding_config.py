"""The `decoding` section of a recipe."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveInt

from headway.config import Section


class DecodingConfig(Section):
    """Search. Scores are log probabilities over ((5 + length) / 6) ** length_penalty (Wu et al. 2016, equation 14).

    The longest output is `max_length` pieces where given, else `max_length_ratio` * source + `max_length_offset`. No
    sequence of `no_repeat_ngram` pieces comes twice in an output; 0 allows all.
    """

    beam: PositiveInt = 4
    length_penalty: Annotated[float, Field(ge=0)] = 0.6
    min_length: Annotated[int, Field(ge=0)] = 0
    max_length: PositiveInt | None = None
    max_length_ratio: Annotated[float, Field(ge=0)] = 1.0
    max_length_offset: Annotated[int, Field(ge=0)] = 50
    no_repeat_ngram: Annotated[int, Field(ge=0)] = 0
    batch_tokens: PositiveInt = 4096
