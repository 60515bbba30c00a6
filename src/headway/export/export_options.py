"""The options of exports: those of all formats, and those of each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from headway.config import WRITES_FOLDER, Section


class ExportOptions(Section):
    """The options of every export."""

    output: Annotated[Path | None, WRITES_FOLDER] = Field(
        default=None, description="The folder to make.", json_schema_extra={"metavar": "DIR"}
    )
    input: Path | None = Field(
        default=None,
        description="Lines that run and export decode, to be compared.",
        json_schema_extra={"default_text": "dev"},
    )
    sentences: int = Field(default=300, description="At most so many of them.", ge=1, le=10**6)
    beam: int | None = Field(
        default=None,
        description="Hypotheses that both keep; 1 is greedy.",
        ge=1,
        le=10_000,
        json_schema_extra={"default_text": "the recipe's"},
    )
    licence: str | None = Field(
        default=None,
        description="The licence of the weights, for the card, such as cc-by-4.0.",
        json_schema_extra={"default_text": "to be filled in"},
    )


class CTranslate2Options(Section):
    """The options of CTranslate2."""

    quantization: Literal["float32", "bf16", "int8"] = Field(
        default="float32", description="The type that weights are stored in, where the format has several."
    )
    vocabulary_map: int | None = Field(
        default=None,
        description="CTranslate2: so many target tokens for each source token, by the attention to training pairs; "
        "the engine then looks at no others.",
        ge=1,
        le=10**6,
    )


# The options of single formats.
FORMAT_OPTIONS: tuple[type[Section], ...] = (CTranslate2Options,)
