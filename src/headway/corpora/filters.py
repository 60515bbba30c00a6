"""Filters: which pairs of a corpus are kept, and how long their sources may be."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from headway.core.config import Count, Section
from headway.formats.corpus_format import Broken
from headway.processing.processor import Truncation


class Filters(Section):
    """The conditions for keeping a pair of a corpus.

    `broken`: unreadable rows are an `error`, or are counted and left out with `skip`. `count`: the unit of
    lengths, `pieces`, the tokens of the vocabulary without the end-of-sentence token, or `words` of the segmented text.
    `max_length`: the maximum length of both sides of a training pair. `max_ratio`: the maximum ratio of their lengths.
    `truncate_source`: the maximum length of sources in training, dev and prediction; longer sources are truncated.
    `drop_duplicates`: whether training keeps one of equal pairs.
    """

    broken: Broken = "error"
    count: Literal["pieces", "words"] = "pieces"
    max_length: Count = 100
    max_ratio: Annotated[float, Field(gt=1, le=1e9)] | None = None
    truncate_source: Count | None = None
    drop_duplicates: bool = False

    @model_validator(mode="after")
    def _room_for_what_is_cut(self) -> Self:
        if self.truncate_source is not None and self.truncate_source > self.max_length:
            raise ValueError(
                f"max_length ({self.max_length}) is below truncate_source ({self.truncate_source}): all sources that"
                " are cut would be dropped"
            )
        return self

    def truncation(self) -> Truncation | None:
        """The maximum length of sources, or None if they are not truncated."""
        return None if self.truncate_source is None else Truncation(self.truncate_source, self.count)

    def of_pairs(self) -> dict[str, Any]:
        """The settings that determine which pairs are kept, by name."""
        return {name: getattr(self, name) for name in ("count", "max_length", "max_ratio", "drop_duplicates")}
