"""Options of `headway compare`: Python's keywords and the command line's flags are made from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from headway.config import WRITES_FIGURE, WRITES_FOLDER
from headway.errors import option
from headway.formats.lines import check_file
from headway.metrics.score_options import METRIC_NAMES, MetricOptions

EXISTING: dict[str, Any] = {"group": "Runs and outputs that exist already"}


class ExistingOptions(MetricOptions):
    """Runs and outputs of other systems, and the test sets that they are compared on."""

    hypotheses: tuple[str, ...] = Field(
        default=(),
        description="Outputs of systems, a file each; NAME and SEED tell them apart.",
        json_schema_extra={**EXISTING, "metavar": "[NAME[:SEED]=]FILE..."},
    )
    references: tuple[Path, ...] = Field(
        default=(),
        description="One file a reference set.",
        json_schema_extra={**EXISTING, "metavar": "FILE...", "alias": "test-references"},
    )
    source: Path | None = Field(
        default=None,
        description="The sources of the references.",
        json_schema_extra={**EXISTING, "metavar": "FILE", "alias": "test-source"},
    )
    test: tuple[str, ...] = Field(
        default=(),
        description="Test sets for runs, each as a recipe names a corpus: '{tsv: test.tsv}'.",
        json_schema_extra={**EXISTING, "metavar": "CORPUS...", "default_text": "dev of the runs"},
    )
    by: Path | None = Field(
        default=None,
        description="A file with the group of each segment, such as its length: compare each group.",
        json_schema_extra={**EXISTING, "metavar": "FILE"},
    )
    alignments: Path | None = Field(
        default=None,
        description="True word alignments of the test set: compare the alignments of the runs by AER.",
        json_schema_extra={**EXISTING, "metavar": "FILE"},
    )
    metric: tuple[str, ...] = Field(
        default=(),
        description=METRIC_NAMES,
        json_schema_extra={**EXISTING, "metavar": "NAME...", "default_text": "those of the runs, else bleu and chrf"},
    )
    margin: tuple[str, ...] = Field(
        default=(),
        description="The difference by a metric up to which systems are even.",
        json_schema_extra={**EXISTING, "metavar": "METRIC=NUMBER..."},
    )
    baseline: str | None = Field(
        default=None,
        description="The system that all others are compared with.",
        json_schema_extra={**EXISTING, "metavar": "NAME", "default_text": "every pair is compared"},
    )
    any_tokenization: bool = Field(
        default=False,
        description="Compare outputs of which some look tokenised and others do not.",
        json_schema_extra=EXISTING,
    )
    device: str = Field(default="auto", description="auto, cpu, cuda, ...", json_schema_extra=EXISTING)
    allow_code: bool = Field(
        default=False,
        description="Import what runs name by import path; it is not a part of headway.",
        json_schema_extra=EXISTING,
    )


class CompareOptions(ExistingOptions):
    """The report of a comparison."""

    output: Annotated[Path | None, WRITES_FOLDER] = Field(
        default=None,
        description="The folder for the report, and for what need not be done twice.",
        json_schema_extra={"metavar": "DIR", "default_text": "tables on standard output alone"},
    )
    figure: Annotated[Path | None, WRITES_FIGURE] = Field(
        default=None,
        description="Draw the scores of all systems, in their order, there (.png, .svg, .pdf).",
        json_schema_extra={"metavar": "FILE", "default_text": "none"},
    )
    by_length: Annotated[Path | None, WRITES_FIGURE] = Field(
        default=None,
        description="Draw the scores by length there, a line a system: of groups whose names are numbers, else of bins "
        "of lengths.",
        json_schema_extra={"metavar": "FILE", "default_text": "none"},
    )
    training: Path | None = Field(
        default=None,
        description="Target texts of training, for scores of words by how often they were seen.",
        json_schema_extra={"metavar": "FILE", "default_text": "those of the runs"},
    )
    json_output: bool = Field(default=False, description="Write JSON.", json_schema_extra={"flag": "json"})

    @model_validator(mode="after")
    def _texts_are_there(self) -> Self:
        if self.training is not None:
            check_file(self.training, option("training"))
        return self
