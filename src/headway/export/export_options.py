"""The options of exports: those of all formats, and those of each."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from headway.config import Section


class ExportOptions(Section):
    """The options of every export."""

    output: Path | None = Field(default=None, description="The folder to make.", json_schema_extra={"metavar": "DIR"})
    input: Path | None = Field(
        default=None,
        description="Lines that run and export decode, to be compared.",
        json_schema_extra={"default_text": "dev"},
    )
    sentences: int = Field(default=300, description="At most so many of them.", ge=1)
    licence: str | None = Field(
        default=None,
        description="The licence of the weights, for the card, such as cc-by-4.0.",
        json_schema_extra={"default_text": "to be filled in"},
    )


# The options of single formats.
FORMAT_OPTIONS: tuple[type[Section], ...] = ()
