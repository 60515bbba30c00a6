"""The options of prediction, each declared once.

Keywords in Python, flags of the command line with their help and bounds, and fields of JSON requests are generated from
these classes. An option that is None or missing keeps its default; that of a search option is the recipe's value.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, Field, field_validator, model_validator

from headway.core.config import Section, validated_options
from headway.core.errors import UserError, check_companions, nearest, option
from headway.search.decoding_options import MOST_HYPOTHESES, SearchOptions

if TYPE_CHECKING:
    from headway.search.sampling import Sampling

AnyOptions = TypeVar("AnyOptions", bound="PredictorOptions")
Capture = str | tuple[str, ...]
SAMPLING: dict[str, Any] = {"group": "Sampling"}
SOURCES: dict[str, Any] = {"group": "Sources"}
WORDS: dict[str, Any] = {"group": "Parsing and taggers"}


class PredictorOptions(Section):
    """The base class of all options. None means that an option is not set."""

    @model_validator(mode="before")
    @classmethod
    def _given(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            return {name: value for name, value in values.items() if value is not None}
        return values

    def given(self) -> dict[str, Any]:
        """The options that are set."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class CaptureOptions(PredictorOptions):
    """The options to capture attention, and to skip inputs that cannot be read."""

    capture: Capture = Field(
        default=(),
        description="Attention that comes with the best outputs: patterns of names, such as decoder.*.cross, or all.",
        json_schema_extra={"flag": None},
    )
    skip_broken: bool = Field(
        default=False, description="An empty line for an input that cannot be read.", json_schema_extra=SOURCES
    )


class SamplingOptions(PredictorOptions):
    """The options of sampling, which is used instead of search, or for minimum Bayes risk decoding."""

    sample: bool = Field(default=False, description="Draw outputs at random.", json_schema_extra=SAMPLING)
    temperature: float = Field(
        default=1.0, description="Flattens (> 1) or sharpens (< 1).", ge=0.01, le=1000, json_schema_extra=SAMPLING
    )
    top_k: int | None = Field(
        default=None,
        description="Only the k most probable tokens.",
        ge=1,
        le=10**9,
        json_schema_extra={**SAMPLING, "default_text": "all"},
    )
    top_p: float = Field(
        default=1.0, description="Only the nucleus of this mass.", ge=0.001, le=1, json_schema_extra=SAMPLING
    )
    seed: int = Field(default=1, description="The seed.", ge=0, lt=2**63, json_schema_extra=SAMPLING)

    @property
    def sampling(self) -> Sampling:
        """The parameters of sampling."""
        from headway.search.sampling import Sampling

        return Sampling(self.temperature, self.top_k, self.top_p, self.seed)


class PredictOptions(CaptureOptions, SamplingOptions, SearchOptions):
    """The options of predictors that decode token by token. Search options that are not set are the recipe's.

    `max_source_length` overrides the recipe's `data.truncate_source`. `truncate` cuts a source that has more tokens (or
    frames) than `max_source_length`, or than the model can read, instead of refusing it; so does a recipe that
    truncates sources. `capture` is a list of patterns of attention names, or `all`. `dictionary` has the translations
    of source words that replace unknown words.
    """

    max_source_length: int | None = Field(
        default=None,
        description="Longest source in tokens, or frames.",
        ge=1,
        le=10**9,
        json_schema_extra={**SOURCES, "default_text": "the recipe's, or what the model can read"},
    )
    truncate: bool = Field(
        default=False,
        description="Cut sources that are too long instead of stopping.",
        json_schema_extra=SOURCES,
    )
    nbest: int = Field(
        default=1,
        description="Outputs a line: SCORE TAB TEXT lines, N for each line, if above 1.",
        ge=1,
        le=MOST_HYPOTHESES,
    )
    dictionary: Path | None = Field(
        default=None,
        description="For unknown words that are copied: a file of what to write for them, SOURCE TAB TARGET a line.",
    )
    target_language: str | None = Field(
        default=None,
        description="The language to write, of an imported model that has several, by its code, such as de.",
        json_schema_extra={"default_text": "the one chosen at import"},
    )
    terms: dict[str, str] | None = Field(
        default=None,
        description="Translations by term, which outputs are to have.",
        json_schema_extra={"flag": None},
    )
    before: tuple[tuple[str, str], ...] = Field(
        default=(),
        description="The sentences before the first, and their outputs, where a model reads such.",
        json_schema_extra={"flag": None},
    )
    prefixes: tuple[str, ...] | None = Field(
        default=None, description="The forced beginning of each output, as text.", json_schema_extra={"flag": None}
    )

    @model_validator(mode="after")
    def _drawn_or_searched(self) -> PredictOptions:
        for name in ("beam", "kind"):
            if self.sample and name in self.model_fields_set:
                what = "outputs are drawn or searched for, not both"
                raise UserError(what, where=option(name), allowed=f"without {option('sample')}")
        return self

    def search(self, recipe: SearchOptions) -> SearchOptions:
        """The recipe's search options, with the options that are set here.

        A maximum length relative to the source replaces the `max_length` of a recipe.

        Raises:
            UserError: options contradict each other, or have no effect.
        """
        given = {name: value for name, value in self.given().items() if name in SearchOptions.model_fields}
        if given.keys() & {"max_length_ratio", "max_length_offset"}:
            given = {"max_length": None} | given
        merged = validated_options(SearchOptions, recipe.model_dump() | given)
        by_risk = merged.kind == "mbr" and not self.sample
        modes = {"sample": self.sample, "kind": by_risk}
        needs = {name: ["sample", "kind"] for name in ("temperature", "top_k", "top_p", "seed")}
        needs |= {name: ["kind"] for name in ("samples", "utility", "beam_candidates")}
        check_companions([*sorted(self.model_fields_set - modes.keys()), *filter(modes.get, modes)], needs)
        if self.dictionary is not None and merged.unknown_words == "keep":
            what = f"a dictionary is for {option('unknown_words')} copy"
            raise UserError(what, where=option("dictionary"), received=str(self.dictionary))
        most, held = (merged.samples, "there are samples") if by_risk else (merged.beam, "the beam has")
        if not self.sample and self.nbest > most:
            what = f"more outputs than {held}"
            raise UserError(what, where=option("nbest"), received=self.nbest, allowed=f"up to {most}")
        return merged


class TreeOptions(PredictOptions):
    """The options of parsing."""

    format: Literal["brackets", "linear", "drawing"] = Field(
        default="brackets",
        description="Parsing: brackets (default), linear (what the model writes, not repaired) or drawing.",
        json_schema_extra={**WORDS, "default_text": ""},
    )
    tagged: bool = Field(default=False, description="Parsing: words have tags, as in dog_NN.", json_schema_extra=WORDS)


class LabelOptions(CaptureOptions):
    """The options of taggers. The batch size is declared with the search options, as in the recipe."""

    batch_tokens: int = SearchOptions.model_fields["batch_tokens"]  # type: ignore[assignment]
    threshold: float | Literal["dev"] | None = Field(
        default=None,
        description="Error detection: from which probability on a word is wrong; dev: the best there.",
        json_schema_extra={**WORDS, "default_text": "the most probable label"},
    )
    raw: bool = Field(
        default=False,
        description="Taggers: cut text into words first, instead of at spaces.",
        json_schema_extra=WORDS,
    )

    @field_validator("threshold", mode="before")
    @classmethod
    def _probability(cls, value: Any) -> Any:
        if value == "dev":
            return value
        try:
            probability = float(value)
        except (ValueError, TypeError):
            probability = -1.0
        if not 0 <= probability <= 1:
            allowed = "a probability, or dev"
            raise UserError("this is no threshold", where=option("threshold"), received=value, allowed=allowed)
        return probability


def checked_options(kind: type[AnyOptions], options: BaseModel | None, keywords: Mapping[str, Any]) -> AnyOptions:
    """Validate the options of a predictor: an options object, keywords, or both. Keywords override the object.

    Raises:
        UserError: an option does not exist, or its value is not allowed.
    """
    for name in keywords:
        if name not in kind.model_fields:
            hint = nearest(name, kind.model_fields)
            raise UserError(f"unknown option of predict{hint}", where=name, allowed=kind.model_fields)
    if isinstance(options, kind) and not keywords:
        return options
    before = {} if options is None else {name: getattr(options, name) for name in options.model_fields_set}
    return validated_options(kind, before | dict(keywords))
