"""The options of `headway score`, `compare` and `reproduce`, as Python keywords and command-line flags."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from headway.core.config import WRITES_FIGURE, WRITES_FILE, WRITES_FOLDER, Count, Section
from headway.core.errors import option
from headway.formats.alignments import LinksFrom
from headway.formats.lines import check_file
from headway.inspect.inspect_options import DeviceOptions, OutputOptions

Workers = Annotated[int, Field(gt=0, le=1024)]
GRID_FILES = (".yaml", ".yml")
USUAL_BUDGET: Final = "small"  # the default budget
LOGPROB: Final = "logprob"  # a metric that needs a model, not only outputs
METRIC_NAMES = (
    "bleu, chrf, ter, comet, wer, cer, rouge-1, rouge-2, rouge-l, rouge-lsum, exact_match, aer, uas, deviation, "
    "precision, recall, f0.5, accuracy; of trees: bracket-f1, bracket-precision, bracket-recall, complete-match, "
    "tagging-accuracy, crossing-brackets, well-formed; or my_package.module:Class."
)
METRIC_OPTIONS = (
    "A metric's options stand behind it: bleu:tokenize=none,lowercase=true, wer:punctuation=false, chrf:word_order=2, "
    "rouge-1:stem=true, f0.5:label=i, rouge-lsum:language=de, comet:model=FOLDER."
)


class DocumentColumn(Section):
    """The documents of a table: `column` is the number or the name of the column, or the field of JSON lines."""

    column: Count | str


Documents = Literal["blank"] | Path | DocumentColumn  # see `headway.comparison.cells.documents_of`


def _option(description: str, default: Any = None, /, **shown: Any) -> Any:
    """A field with its help text; `shown` is further information for the command line."""
    return Field(default, description=description, json_schema_extra=shown)


def _checked_numbers(given: tuple[str, ...]) -> tuple[str, ...]:
    names = [text.rpartition("=")[0] for text in given]
    for name, text in zip(names, given, strict=True):
        try:
            valid = name and 0 <= float(text.rpartition("=")[2]) < float("inf")
        except ValueError:
            valid = False
        if not valid or names.count(name) > 1:
            raise ValueError("a margin is METRIC=NUMBER, one of a metric, and not below 0")
    return given


MetricNumbers = Annotated[tuple[str, ...], AfterValidator(_checked_numbers)]  # METRIC=NUMBER each


def numbers_by_metric(given: tuple[str, ...]) -> dict[str, float]:
    """The numbers of `MetricNumbers` by metric, whose name may have `=` in its options."""
    return {name: float(number) for name, _, number in (text.rpartition("=") for text in given)}


EXISTING = "Runs and outputs that exist already"
_existing = partial(_option, group=EXISTING)
_grid = partial(_option, group="A grid of runs")


class ScoreOptions(Section):
    """Outputs of systems, what they are scored by, and how they are compared."""

    hypotheses: tuple[str, ...] = _existing("Outputs of systems, [NAME[:SEED]=]FILE each.", ())
    references: tuple[Path, ...] = _existing("One file a reference set.", (), alias="test-references")
    source: Path | None = _existing("The sources of the references.", alias="test-source")
    lead: tuple[str, ...] = _existing(
        "Score the beginning of the sources too: 8, 3-sentences, 3-sentences-de, 20-characters.", ()
    )
    by: Path | None = _existing("A file with the group of each segment, such as its length: score each group.")
    unit: Literal["segment", "group", "document"] = _existing(
        "What is independent in the test set: segments; groups, each a document; or documents, which end at "
        "blank lines.",
        "segment",
    )
    metric: tuple[str, ...] = _existing(
        f"{METRIC_NAMES} {METRIC_OPTIONS}", (), default_text="those of the runs, else bleu and chrf"
    )
    links_from: LinksFrom = None
    margin: MetricNumbers = _existing("METRIC=NUMBER: the difference up to which systems are even.", ())
    baseline: str | None = _existing(
        "The system that all others are compared with.", default_text="every pair is compared"
    )
    any_tokenization: bool = _existing("Compare outputs of which some look tokenised and others do not.", False)
    by_length: Annotated[Path | None, WRITES_FIGURE] = _option(
        "Draw the scores by length there, a line a system: of groups whose names are numbers, else of bins of lengths "
        "of the sources."
    )
    length_bins: str | None = _option(
        "The longest lengths of bins, as in 10,20,30.", default_text="six bins of equal size"
    )
    json_output: bool = _option("Write JSON.", False, flag="json")

    @field_validator("length_bins")
    @classmethod
    def _ends(cls, given: str | None) -> str | None:
        if given is not None and not all(end.strip().isdecimal() for end in given.split(",")):
            raise ValueError("ends of bins are whole numbers with commas between them, as in 10,20,30")
        return given

    @model_validator(mode="after")
    def _groups_are_there(self) -> Self:
        if self.unit == "group" and self.by is None:
            raise ValueError(f"{option('unit')} group needs {option('by')} FILE, with the group of each segment")
        return self

    @property
    def documents(self) -> Documents | None:
        """The documents of the test set; see `documents_of`."""
        if self.unit == "group" and self.by is not None:
            return self.by.absolute()
        return "blank" if self.unit == "document" else None

    @property
    def margins(self) -> dict[str, float]:
        return numbers_by_metric(self.margin)


class GridOptions(Section):
    """The workers of a grid."""

    workers: Workers | None = _grid("Cells that are made at a time.", default_text="as many as there is room for")
    threads: Workers = _grid("Threads of each cell.", 1)
    ray: str | None = _grid("Send cells to the Ray cluster at this address; local starts one here.")
    dry_run: bool = _grid("List the cells and their estimated time, and make none.", False)
    only_finished: bool = _grid("Compare the cells that are finished, and make none.", False)


class CompareOptions(GridOptions, ScoreOptions):
    """All that a comparison asks for."""

    test: tuple[str, ...] = _existing(
        "Test sets for runs, each as a recipe names a corpus: '{tsv: test.tsv}'.", (), default_text="dev of the runs"
    )
    alignments: Path | None = _existing(
        "True word alignments of the test set: compare the alignments of the runs by AER."
    )
    pooled_variance: bool = _existing("Pool the seeds' variance over all systems: narrower intervals.", False)
    device: str = _existing("auto, cpu, cuda, ...", "auto")
    allow_code: bool = _existing("Import what runs name by import path; it is not a part of headway.", False)
    output: Annotated[Path | None, WRITES_FOLDER] = _option(
        "The folder for the report, and for what need not be done twice.",
        default_text="tables on standard output alone",
    )
    html: Annotated[Path | None, WRITES_FILE] = _option(
        "Write ranks, with what is not told apart, and each system's worst sentences as a page there."
    )
    columns: tuple[str, ...] = _option(
        "The columns of the LaTeX table behind the variants' names, by their headings.", (), default_text="all"
    )
    figure: Annotated[Path | None, WRITES_FIGURE] = _option(
        "Draw the differences there (.png, .svg, .pdf); of systems named by numbers, the scores."
    )
    training: Path | None = _option(
        "Target texts of training, for scores of words by how often they were seen.", default_text="those of the runs"
    )

    @field_validator("training")
    @classmethod
    def _is_there(cls, path: Path | None) -> Path | None:
        if path is not None:
            check_file(path, option("training"))
        return path


# The options that a grid file sets itself.
OF_EXISTING = frozenset(
    name
    for name, field in CompareOptions.model_fields.items()
    if isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("group") == EXISTING
)


def is_grid(name: str) -> bool:
    """Whether `name` is a grid file rather than a run folder."""
    return name.endswith(GRID_FILES) and not Path(name).is_dir()


class ReproduceOptions(GridOptions):
    """The budget, data and output of claims, and the workers."""

    budget: Literal["small", "full"] = _option("For two processor cores, or that of the document.", USUAL_BUDGET)
    output: Path | None = _option("The folder of data and runs.")
    data: Path | None = _option(
        "The folder of the corpora that the claims name.", default_text="none; some claims make their data"
    )
    dry_run: bool = _grid(
        "List the cells and their estimated time, or the commands that prepare their data; run nothing.", False
    )
    yes: bool = _option("Run the commands of claim files that prepare data without being asked.", False)
    retrain: bool = _option("Of a packed paper, train all runs anew, instead of deciding from its outputs.", False)
    claims: Path | None = _option(
        "The folder of the claim files.", default_text="claims, else those that come with headway"
    )


How = Literal["zero", "mean", "resample"]


def _listed(value: Any) -> Any:
    """Split comma-separated words into names."""
    return [name for word in value for name in word.split(",")] if isinstance(value, list | tuple) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1)]


class AblateOptions(DeviceOptions, OutputOptions):
    """The parts that are cut, and the sentences on which that is seen."""

    what: Names = _option(
        "Parts by name or pattern: 'decoder.*.cross:heads', 'encoder.*.self:offsets', layers, ...",
        ("heads",),
        default_text="heads",
    )
    together: bool = _option("Cut all parts that a pattern names at once, not one by one.", False)
    how: Annotated[tuple[How, ...], BeforeValidator(_listed), Field(min_length=1)] = _option(
        "What a part's values become: zero, their mean, those of other sentences (resample).",
        ("zero",),
        default_text="zero",
    )
    metric: Names = _option(
        "logprob, of the references, in nats a token; and those of `headway score`.", (LOGPROB,), default_text="logprob"
    )
    input: Path | None = _option("A file with a sentence a line.", default_text="dev")
    reference: Path | None = _option("Their targets.")
    sentences: int = Field(200, ge=2, le=10**6, description="Most sentences that are read.")
    margin: float = Field(
        0.0, ge=0, description="A loss up to which a part makes no difference, in each metric's unit."
    )
    prune: Annotated[float, Field(gt=0)] | None = _option(
        "Cut one part after the other, the least needed first, until the first metric has lost so much.",
        default_text="no",
    )
    seed: int = Field(1, ge=0, le=2**31, description="Of the draw of other sentences.")
    figure: Annotated[Path | None, WRITES_FIGURE] = _option("Draw the losses there (.png, .svg, .pdf).")
