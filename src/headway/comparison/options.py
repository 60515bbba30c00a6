"""Options of `headway compare` and `headway reproduce`, from which Python's keywords and flags are made."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from headway.config import WRITES_FIGURE, WRITES_FOLDER, Section
from headway.errors import option
from headway.formats.lines import check_file
from headway.metrics.score_options import METRIC_NAMES, MetricOptions

Workers = Annotated[int, Field(gt=0, le=1024)]
GRID_FILES = (".yaml", ".yml")
USUAL_BUDGET: Final = "small"  # where none is named


def _existing(description: str, default: Any = None, **shown: str) -> Any:
    group = "Runs and outputs that exist already"
    return Field(default, description=description, json_schema_extra={"group": group, **shown})


def _grid(description: str, default: Any = None, **shown: str) -> Any:
    return Field(default, description=description, json_schema_extra={"group": "A grid of runs", **shown})


class ExistingOptions(MetricOptions):
    """Runs and outputs of other systems, and the test sets that they are compared on."""

    hypotheses: tuple[str, ...] = _existing(
        "Outputs of systems, a file each; NAME and SEED tell them apart.", (), metavar="[NAME[:SEED]=]FILE..."
    )
    references: tuple[Path, ...] = _existing(
        "One file a reference set.", (), metavar="FILE...", alias="test-references"
    )
    source: Path | None = _existing("The sources of the references.", metavar="FILE", alias="test-source")
    test: tuple[str, ...] = _existing(
        "Test sets for runs, each as a recipe names a corpus: '{tsv: test.tsv}'.",
        (),
        metavar="CORPUS...",
        default_text="dev of the runs",
    )
    by: Path | None = _existing(
        "A file with the group of each segment, such as its length: compare each group.", metavar="FILE"
    )
    alignments: Path | None = _existing(
        "True word alignments of the test set: compare the alignments of the runs by AER.", metavar="FILE"
    )
    metric: tuple[str, ...] = _existing(
        METRIC_NAMES, (), metavar="NAME...", default_text="those of the runs, else bleu and chrf"
    )
    margin: tuple[str, ...] = _existing(
        "The difference by a metric up to which systems are even.", (), metavar="METRIC=NUMBER..."
    )
    baseline: str | None = _existing(
        "The system that all others are compared with.", metavar="NAME", default_text="every pair is compared"
    )
    any_tokenization: bool = _existing("Compare outputs of which some look tokenised and others do not.", False)
    device: str = _existing("auto, cpu, cuda, ...", "auto")
    allow_code: bool = _existing("Import what runs name by import path; it is not a part of headway.", False)


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


def is_grid(name: str) -> bool:
    """Whether what is to be compared is the file of a grid; a run folder may have any name."""
    return name.endswith(GRID_FILES) and not Path(name).is_dir()


class GridOptions(Section):
    """The workers of a grid."""

    workers: Workers | None = _grid("Cells that are made at a time.", default_text="as many as there is room for")
    threads: Workers = _grid("Threads of each cell.", 1)
    ray: str | None = _grid("Send cells to the Ray cluster at this address; local starts one here.", metavar="ADDRESS")
    dry_run: bool = _grid("List the cells and their estimated time, and make none.", False)
    only_finished: bool = _grid("Compare the cells that are finished, and make none.", False)


class ReproduceOptions(GridOptions):
    """The budget, data and output of claims, and the workers."""

    budget: Literal["small", "full"] = Field(
        USUAL_BUDGET, description="For two processor cores, or that of the document."
    )
    output: Path | None = Field(
        None, description="The folder of data and runs.", json_schema_extra={"metavar": "DIR", "default_text": ""}
    )
    data: Path | None = Field(
        None,
        description="The folder of the corpora that the claims name.",
        json_schema_extra={"metavar": "FOLDER", "default_text": "none; some claims make their data"},
    )
    dry_run: bool = _grid(
        "List the cells and their estimated time, or the commands that prepare their data; run nothing.", False
    )
    yes: bool = Field(False, description="Run the commands of claim files that prepare data without being asked.")
    claims: Path | None = Field(
        None,
        description="The folder of the claim files.",
        json_schema_extra={"metavar": "FOLDER", "default_text": "claims, else those that come with headway"},
    )
