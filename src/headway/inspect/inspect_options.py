"""The options of the inspections, from which Python keywords and the flags of `headway inspect` are made."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from headway.core.config import WRITES_FIGURE, WRITES_FILE, WRITES_FOLDER, Section
from headway.core.registry import foreign_code
from headway.formats.alignments import LinksFrom

SPAN = 20  # greater offsets are counted together


def _path(description: str, *, default_text: str = "", required: bool = False) -> Any:
    default: Any = ... if required else None
    return Field(default, description=description, json_schema_extra={"default_text": default_text})


class CodeOptions(Section):
    """The option that permits foreign code."""

    allow_code: bool = Field(
        False, description="Import what the run names by import path; it is not a part of headway."
    )

    def leave(self) -> AbstractContextManager[None]:
        """The context in which runs are opened. It permits importing foreign code if `allow_code` is set."""
        return foreign_code(self.allow_code or None)


class DeviceOptions(CodeOptions):
    """The option `device`."""

    device: str = Field("auto", description="auto, cpu, cuda, ...")


class OutputOptions(Section):
    """The output format."""

    json_output: bool = Field(False, description="Write JSON.", json_schema_extra={"flag": "json"})


class AgainstOptions(DeviceOptions):
    """The word that attributions are contrasted with."""

    against: str | None = Field(
        None,
        min_length=1,
        description="Ask why a token is more probable than this word's.",
    )


METHODS = "gradient_input, integrated_gradients, occlusion, value_zeroing, or module:Class"


class AttributionOptions(AgainstOptions, OutputOptions):
    """The outputs to attribute, and the method."""

    text: tuple[str, ...] = Field(
        ..., min_length=1, description="A sentence; can be given several times.", json_schema_extra={"metavar": "TEXT"}
    )
    reference: Path | None = _path("The outputs that the model is given, a line each; without them its own.")
    attribution: str = Field("gradient_input", description=f"{METHODS}.")
    words: bool = Field(False, description="Rows and columns are words, not tokens.")


class PageOptions(AgainstOptions):
    """The sentences of a page, and what it shows of them."""

    output: Annotated[Path | None, WRITES_FILE] = _path("The page.", default_text="RUN/inside.html")
    input: tuple[Path, ...] = Field(
        (),
        description="A file with a sentence a line; can be given several times.",
        json_schema_extra={"metavar": "FILE", "default_text": "dev"},
    )
    text: tuple[str, ...] = Field(
        (), description="A sentence; can be given several times, as files can.", json_schema_extra={"metavar": "TEXT"}
    )
    reference: Path | None = _path("The texts that the sentences should become, a line each.")
    gold: Path | None = _path("Alignments of the sentences and their references, for AER.")
    links_from: LinksFrom = None
    sentences: int = Field(100, ge=1, le=100_000, description="Most sentences that are shown.")
    nbest: int = Field(4, ge=1, le=1000, description="Outputs of a sentence.")
    switches: bool = Field(True, description="Let the page carry a small model, whose parts it can switch off.")
    attribution: str | None = Field(None, description=f"What counted for each token: {METHODS}.")


class HeatMapOptions(DeviceOptions):
    """A sentence, and the weights to draw."""

    output: Annotated[Path, WRITES_FIGURE] = _path(
        "The picture; its suffix says the format (pdf, png, svg).", required=True
    )
    text: str = Field(..., min_length=1, description="The sentence.")
    layer: str | None = Field(
        None,
        description="Stack, layer from 1 and kind, such as decoder.1.cross.",
        json_schema_extra={"default_text": "the last that reads the source"},
    )
    head: int | None = Field(
        None, ge=1, le=65_536, description="A head, from 1.", json_schema_extra={"default_text": "the mean of all"}
    )
    stretch: bool = Field(False, description="End the scale at the largest weight instead of at 1.")


class FigureOptions(DeviceOptions, OutputOptions):
    """A corpus, and how to read and draw it."""

    output: Annotated[Path, WRITES_FOLDER] = _path("The folder for figures and their numbers.", required=True)
    input: Path | None = _path("A file with a sentence a line.", default_text="dev")
    reference: Path | None = _path("The outputs that the model is given; without them it reads its own.")
    within: int = Field(5, ge=1, le=SPAN + 1, description="n of the window whose share of the weight is shown.")
    quality: bool = Field(True, description="Decode, and score by length, where there are references.")


class ParameterOptions(CodeOptions, OutputOptions):
    """Sizes that are not in a recipe."""

    vocabulary: int | None = Field(
        None,
        ge=5,
        le=10**7,
        description="Size of the vocabularies.",
        json_schema_extra={"default_text": "the run's or recipe's"},
    )
    length: int = Field(32, ge=2, le=10**6, description="Tokens of a source and of a target, for the FLOPs.")


class LayerOptions(CodeOptions, OutputOptions):
    """The words to read, and the sentence to draw."""

    data: Path = _path("A word a row with its label, separated by a tab.", required=True)
    beside: Path | None = _path("The run whose last layer is compared.")
    figure: Annotated[Path | None, WRITES_FIGURE] = _path("Draw the self-attention of a sentence there.")
    sentence: int = Field(1, ge=1, le=10**9, description="The sentence of the file that is drawn.")


class DependencyOptions(DeviceOptions, OutputOptions):
    """The sentences to measure, and those to draw."""

    source: Path | None = _path("Sentences, as text or .conllu.", default_text="dev")
    target: Path | None = _path("Their targets; the encoder alone without.")
    figures: Annotated[Path | None, WRITES_FOLDER] = _path("A folder for figures of the first sentences.")
    sentences: int = Field(3, ge=1, le=1000, description="Sentences that are drawn.")
    heads: Annotated[Path | None, WRITES_FOLDER] = _path(
        "A folder for the heads of all words, by the model and by the parser."
    )
