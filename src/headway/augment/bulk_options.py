"""The options of decoding a whole corpus into a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from headway.core.config import WRITES_FOLDER, Section
from headway.predictors.predict_options import SamplingOptions
from headway.search.decoding_options import SearchOptions

Marks = Literal["apertium", "none"]
FILTERS: dict[str, Any] = {"group": "Filters"}


class DecodedOptions(Section):
    """The corpus that is made, and which of the new pairs are kept."""

    output: Annotated[Path | None, WRITES_FOLDER] = Field(default=None, description="The folder to make.")
    chunk: int = Field(default=1000, description="Lines that are decoded and kept at a time.", ge=1, le=10**7)
    min_score: float | None = Field(
        default=None,
        description="Leave out outputs whose mean log probability a token is lower.",
        ge=-1e6,
        le=0,
        json_schema_extra={**FILTERS, "default_text": "any"},
    )
    max_ratio: float | None = Field(
        default=None,
        description="Leave out pairs of which one side has more than so many times the tokens of the other.",
        ge=1,
        le=1e9,
        json_schema_extra={**FILTERS, "default_text": "any"},
    )
    marks: Marks | None = Field(
        default=None,
        description="Remove Apertium's marks of unknown words from outputs, and leave out outputs with two or more"
        " marked lower-case words.",
        json_schema_extra={**FILTERS, "default_text": "apertium if the teacher is apertium, else none"},
    )


class BulkOptions(DecodedOptions, SamplingOptions, SearchOptions):
    """The corpus that is made, and how its lines are decoded."""

    def decoding(self) -> dict[str, Any]:
        """The options of decoding that were given, by name."""
        names = {*SamplingOptions.model_fields, *SearchOptions.model_fields}
        return {name: value for name, value in self.given().items() if name in names}
