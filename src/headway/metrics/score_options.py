"""The options of scoring, of which keywords and flags are made."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from headway.config import WRITES_FIGURE, Section, Seed
from headway.formats import LabelColumn
from headway.languages import LanguageCode

Significance = Literal["bootstrap", "randomisation"]
LengthUnit = Literal["words", "characters"]
METRIC_NAMES = (
    "bleu, chrf, ter, wer, cer, rouge-1, rouge-2, rouge-l, rouge-lsum, exact_match, aer, uas, deviation, "
    "precision, recall, f0.5, accuracy; of trees: bracket-f1, bracket-precision, bracket-recall, complete-match, "
    "tagging-accuracy, crossing-brackets, well-formed; or my_package.module:Class."
)
SIGNIFICANCE: dict[str, Any] = {"group": "Intervals and significance"}
METRIC: dict[str, Any] = {"group": "Options of metrics"}
LENGTH: dict[str, Any] = {"group": "Quality by length"}


class ScoreOptions(Section):
    """Resampling, and groups of segments."""

    significance: Significance | None = Field(
        None, description="Compare the systems by this test.", json_schema_extra=SIGNIFICANCE
    )
    samples: Annotated[int, Field(gt=0, le=10**6)] | None = Field(
        None,
        description="Resamples or trials of the significance test.",
        json_schema_extra={**SIGNIFICANCE, "default_text": "1000 or 10000"},
    )
    seed: Seed = Field(
        12345, description="The seed of the significance test and of intervals.", json_schema_extra=SIGNIFICANCE
    )
    by: Path | None = Field(
        None, description="A file with the group of each segment, such as its length: score each group."
    )


class MetricOptions(Section):
    """Options of metrics; those that are not given are the metric's own."""

    lowercase: bool = Field(default=False, description="bleu, chrf, wer, cer: ignore case.", json_schema_extra=METRIC)
    punctuation: bool = Field(
        default=True,
        description="wer, cer: count punctuation.",
        json_schema_extra=METRIC,
    )
    tokenize: str | None = Field(
        default=None,
        description="bleu: sacrebleu's tokenizer (13a, intl, zh, ja-mecab, char, none); rouge: ascii, words, "
        "characters.",
        json_schema_extra={**METRIC, "default_text": "by the language: 13a, zh, char; ascii, characters"},
    )
    stem: bool = Field(
        default=False, description="rouge: compare Porter's stems of English words.", json_schema_extra=METRIC
    )
    jackknife: bool = Field(
        default=False,
        description="rouge, several references: jackknifing instead of the best.",
        json_schema_extra=METRIC,
    )
    language: LanguageCode | None = Field(
        default=None,
        description="bleu, ter, wer, rouge: the language of the references, which are compared by characters where it "
        "has no spaces; rouge-lsum: whose rules say where sentences end.",
        json_schema_extra={**METRIC, "default_text": "that of the runs, if any"},
    )
    label: str = Field(
        default="i", description="precision, recall, f0.5: the label that is looked for.", json_schema_extra=METRIC
    )
    conllu_label: LabelColumn = Field(
        default="upos",
        description="accuracy, precision, recall, f0.5: the column of CoNLL-U files that holds the labels.",
        json_schema_extra=METRIC,
    )

    def given(self) -> dict[str, object]:
        """The options that were given, by the names of the metrics' arguments."""
        return {name: getattr(self, name) for name in MetricOptions.model_fields if name in self.model_fields_set}


class SystemFiles(Section):
    """The files that are scored, and the metrics."""

    metric: tuple[str, ...] = Field(
        ("bleu",),
        description=METRIC_NAMES,
        json_schema_extra={"metavar": "NAME...", "default_text": "bleu"},
    )
    hypotheses: tuple[Path, ...] = Field(description="One file a system; the first is the baseline.")
    references: tuple[Path, ...] = Field(description="One file a reference set.")


class LengthBins(Section):
    """Lengths of sources, and the bins they fall into."""

    length_bins: str | None = Field(
        None,
        description="The ends of bins of lengths, as in 10,20,30.",
        json_schema_extra={**LENGTH, "default_text": "six of equal size"},
    )
    length_unit: LengthUnit = Field("words", description="The unit of lengths.", json_schema_extra=LENGTH)


class FileScoreOptions(LengthBins, MetricOptions, ScoreOptions, SystemFiles):
    """`headway score`."""

    lead: tuple[str, ...] = Field(
        (),
        description="Score the beginning of the sources too: 8, 3-sentences, 3-sentences-de, 20-characters.",
        json_schema_extra={"metavar": "N-UNIT..."},
    )
    source: Path | None = Field(None, description="The sources, for leads and for quality by length.")
    by_length: Annotated[Path | None, WRITES_FIGURE] = Field(
        None,
        description="Draw the first metric by length of the sources there, a line a system.",
        json_schema_extra=LENGTH,
    )
    json_output: bool = Field(False, description="Write JSON.", json_schema_extra={"flag": "json"})
