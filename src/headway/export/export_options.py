"""The options of exports: of all formats, and of each format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from headway.core.config import WRITES_FOLDER, Section
from headway.formats.alignments import LinksFrom


class ExportOptions(Section):
    """The options of every export."""

    output: Annotated[Path | None, WRITES_FOLDER] = Field(default=None, description="The folder to make.")
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


class QuantizedOptions(Section):
    """The options of formats that store weights in fewer bits."""

    quantization: Literal["float32", "bf16", "int8"] = Field(
        default="float32", description="ctranslate2, argos: the type that weights are stored in."
    )


class CTranslate2Options(QuantizedOptions):
    """The options of CTranslate2."""

    vocabulary_map: int | None = Field(
        default=None,
        description="ctranslate2: so many target tokens for each source token, by the attention to training pairs; "
        "the engine then looks at no others.",
        ge=1,
        le=10**6,
        json_schema_extra={"default_text": "none: it looks at all"},
    )


class ArgosOptions(QuantizedOptions):
    """The options of packages for Argos Translate."""

    package_version: str = Field(
        default="1.0", description="argos: the version of the package.", pattern=r"^[0-9]+(\.[0-9]+)*$"
    )
    sentence_model: Path | None = Field(
        default=None,
        description="argos: a MiniSBD model that splits text into sentences, for the package; without one Argos "
        "Translate fetches its own.",
    )


class FirefoxOptions(Section):
    """The options of the engines of browsers."""

    calibration: Path | None = Field(
        default=None,
        description="firefox: source lines that the range of activations is measured on.",
        json_schema_extra={"default_text": "train's, or dev's"},
    )
    calibration_lines: int = Field(default=300, description="firefox: at most so many of them.", ge=1, le=10**5)
    activations: Literal["largest", "deviation"] = Field(
        default="largest",
        description="firefox: the range of activations, the largest of all, or the mean of those of each position "
        "plus 1.1 deviations, as Marian has it.",
    )
    links: Path | None = Field(
        default=None,
        description="firefox: links of the words of the training pairs, a line each: a shortlist is made of them.",
        json_schema_extra={"default_text": "those of data.links, if there are"},
    )
    links_from: LinksFrom = None
    shortlist_first: int = Field(default=50, description="firefox: frequent tokens of every list.", ge=1, le=10**6)
    shortlist_best: int = Field(default=50, description="firefox: so many more of a source token.", ge=1, le=10**6)
    records: Literal[1, 3] = Field(
        default=3, description="firefox: the version of the records: 3, which a Firefox of today takes, or 1."
    )


class PageOptions(FirefoxOptions):
    """The options of a page that translates."""

    back: Path | None = Field(
        default=None,
        description="page: the run of the other direction, which the page holds too.",
        json_schema_extra={"default_text": "one direction"},
    )


# The options of single formats.
FORMAT_OPTIONS: tuple[type[Section], ...] = (CTranslate2Options, ArgosOptions, PageOptions)
