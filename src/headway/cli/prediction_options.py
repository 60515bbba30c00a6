"""The options of `headway predict` and `headway score RUN`: of predictors, and of the written files."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from headway.core.config import WRITES_FIGURE, WRITES_FILE, Section
from headway.core.errors import UserError, check_companions, option
from headway.core.files import write_json
from headway.core.log import say
from headway.formats.terms import Glossary, TermCount
from headway.predictors.predict_options import SOURCES, WORDS, LabelOptions, PredictOptions, TreeOptions

if TYPE_CHECKING:
    from headway.predictors.sequence_predictor import SequencePredictor
    from headway.predictors.word_alignment import Aligner, WordAlignment


ATTENTION: dict[str, Any] = {"group": "Attention"}
TERMS: dict[str, Any] = {"group": "Terms"}
DOCUMENTS: dict[str, Any] = {"group": "Documents"}
ALIGNMENT: dict[str, Any] = {"group": "Alignments of words"}


class AlignmentOptions(Section):
    """Word alignments from attention."""

    alignments: Annotated[Path | None, WRITES_FILE] = Field(
        default=None,
        description="Write word alignments there: Pharaoh i-j links, or weights if the name ends in .jsonl.",
        json_schema_extra=ALIGNMENT,
    )
    alignment_layer: int | None = Field(
        default=None,
        description="The decoder layer to align by, from 1.",
        ge=1,
        le=1000,
        json_schema_extra={**ALIGNMENT, "default_text": "the last but one, or the only one"},
    )
    alignment_heads: str | None = Field(
        default=None,
        description="The heads to align by, from 1, as in 1,4.",
        json_schema_extra={**ALIGNMENT, "default_text": "all"},
    )
    alignment_gold: Path | None = Field(
        default=None,
        description="Gold alignments of the run's dev set: align by the layer with the least AER there.",
        json_schema_extra=ALIGNMENT,
    )
    alignment_figure: Annotated[Path | None, WRITES_FIGURE] = Field(
        default=None,
        description="Draw the alignments of the first sentences there (.png, .svg, .pdf).",
        json_schema_extra=ALIGNMENT,
    )

    @model_validator(mode="after")
    def _aligned(self) -> Self:
        names = ("alignment_layer", "alignment_heads", "alignment_gold")
        needs = dict.fromkeys(names, ("alignments", "alignment_figure"))
        check_companions([name for name in self.model_fields_set if getattr(self, name) is not None], needs)
        return self

    def aligner(self, predictor: "SequencePredictor") -> "Aligner | None":
        """The aligner, or None if no file of alignments is requested. Raises UserError."""
        if not (self.alignments or self.alignment_figure):
            return None
        from headway.predictors.word_alignment import choose_aligner

        heads = numbers(self.alignment_heads, option("alignment_heads"))
        return choose_aligner(predictor, self.alignment_layer, heads, self.alignment_gold)


class TermOptions(Section):
    """Terms that outputs should contain, and the report on them."""

    glossary: Path | None = Field(
        default=None,
        description="A glossary, SOURCE TAB TARGET a line: outputs that lack a translation are searched for again.",
        json_schema_extra={**TERMS, "flag": "terms"},
    )
    term_report: Annotated[Path | None, WRITES_FILE] = Field(
        default=None,
        description="Write there, as JSON, how many terms were asked for and kept.",
        json_schema_extra=TERMS,
    )

    @model_validator(mode="after")
    def _report_of_terms(self) -> Self:
        check_companions(["term_report"] if self.term_report and not self.glossary else [], {"term_report": ("terms",)})
        return self

    def terms(self) -> dict[str, str] | None:
        """The translations by term; None without a glossary. Raises UserError if the file is not a glossary."""
        return Glossary.read(self.glossary).terms if self.glossary else None

    def tell(self, count: TermCount) -> None:
        """Log the report on terms, and write it if requested."""
        if self.glossary:
            say(f"terms: {count.kept:,} of {count.asked:,} are in the outputs, {count.first:,} at first")
        if self.term_report:
            write_json(self.term_report, count.record())


class DocumentOptions(TermOptions):
    """How documents are read and written."""

    final: bool = Field(
        default=False,
        description="Do not mark translations as to be reviewed: fuzzy in PO, needs-review-translation in XLIFF.",
        json_schema_extra=DOCUMENTS,
    )
    encoding: str | None = Field(
        default=None,
        description="The encoding of documents that declare none, such as subtitles.",
        json_schema_extra={**DOCUMENTS, "default_text": "UTF-8"},
    )

    attributes: Literal["all", "none"] = Field(
        default="all",
        description="Texts in attributes of HTML that are translated, such as titles.",
        json_schema_extra=DOCUMENTS,
    )

    @property
    def of_documents(self) -> dict[str, Any]:
        """The keyword arguments of `translate_document`."""
        return {"final": self.final, "encoding": self.encoding, "attributes": self.attributes == "all"}

    @field_validator("encoding")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        from headway.markup.encodings import web_codec

        try:
            return value and web_codec(value)
        except LookupError as error:
            what, allowed = "this encoding is not known", "a name such as utf-8 or windows-1252"
            raise UserError(what, where=option("encoding"), received=value, allowed=allowed) from error


class WriterOptions(AlignmentOptions, TermOptions):
    """Files and scores that `headway predict` writes in addition to outputs, and a file of forced prefixes."""

    scores: bool = Field(default=False, description="Write SCORE TAB TEXT also for one output a line.")
    prefix: Path | None = Field(
        default=None,
        description="A file with the forced beginning of each output.",
        json_schema_extra=SOURCES,
    )
    attention: Annotated[Path | None, WRITES_FILE] = Field(
        default=None,
        description="Write the best outputs' attention there, a JSON object a line.",
        json_schema_extra=ATTENTION,
    )
    layers: str = Field(
        default="*.cross",
        description="Which attention: names with *, separated by commas.",
        json_schema_extra=ATTENTION,
    )

    @model_validator(mode="after")
    def _attention_of_layers(self) -> Self:
        given = [name for name in self.model_fields_set if getattr(self, name) is not None]
        check_companions(given, {"layers": ("attention",)})
        return self

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of names of the attention to write."""
        from headway.predictors.captured_attention import patterns_of

        return patterns_of(self.layers) if self.attention else ()


class TargetScoreOptions(AlignmentOptions):
    """Targets that a model scores, with their sources."""

    source: Path | None = Field(default=None, description="The sources; of speech, a manifest with transcripts.")
    target: Path | None = Field(default=None, description="The targets to score.")
    json_output: bool = Field(default=False, description="Write JSON.", json_schema_extra={"flag": "json"})


class LabelWriterOptions(Section):
    """The output format of labelled words."""

    format: Literal["tsv", "json", "marked"] | None = Field(
        default=None,
        description="Taggers: tsv, json or marked (default: marked in a terminal, else tsv).",
        json_schema_extra=WORDS,
    )


class LabelScoreOptions(Section):
    """Labelled words that a model scores."""

    source: Path | None = Field(default=None, description="Of taggers, words and their labels, a word a row.")
    json_output: bool = Field(default=False, description="Write JSON.", json_schema_extra={"flag": "json"})


def numbers(text: str | None, where: str) -> list[int] | None:
    """The integers of an option such as 1,2,3; None if `text` is None. Raises UserError."""
    try:
        return None if text is None else [int(number) for number in text.split(",")]
    except ValueError as error:
        raise UserError("these are no numbers, separated by commas", where=where, received=text) from error


# The models whose fields are the options of a command, for all tasks.
PREDICT_OPTIONS = (PredictOptions, TreeOptions, LabelOptions, WriterOptions, LabelWriterOptions, DocumentOptions)
SCORE_OPTIONS = (TargetScoreOptions, LabelScoreOptions)


def draw_alignments(shown: "Sequence[WordAlignment]", path: Path | None) -> None:
    """Draw alignments to a file, if `path` is not None."""
    if path is not None:
        from headway.pages.charts import alignment_page

        alignment_page(shown, path)
