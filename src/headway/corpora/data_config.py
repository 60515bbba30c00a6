"""The `data` section of a recipe: the corpora and which of their examples are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, model_validator

from headway.config import Section
from headway.formats.corpus_config import CorpusConfig
from headway.parses.parses_config import ParsesConfig
from headway.processing.audio.features import AudioConfig
from headway.processing.text.truncation import Truncation


class LeadConfig(Section):
    """The first so many words (as white space separates them), sentences or characters of a source.

    Short: a number of words, or a number and a unit, as in `3-sentences`.
    """

    count: PositiveInt
    unit: Literal["words", "sentences", "characters"] = "words"

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, int | str):
            count, _, unit = str(value).partition("-")
            return {"count": count} | ({"unit": unit} if unit else {})
        return value

    @property
    def name(self) -> str:
        """As scores are listed: `lead-8-words`."""
        return f"lead-{self.count}-{self.unit}"


class DataConfig(Section):
    """The corpora and which of their pairs are kept.

    `count`: whether `max_length`, `max_ratio` and `truncate_source` are about vocabulary `pieces`, without the end
    mark, or about the `words` of the segmented text, before the vocabulary cuts them. `truncate_source`: of a longer
    source the first so many are read, in training, dev and prediction alike. `lead`: beginnings of the dev sources that
    are scored as if they were outputs, beside the model's.
    """

    train: CorpusConfig
    dev: CorpusConfig | None = None
    folder: Path | None = None
    count: Literal["pieces", "words"] = "pieces"
    max_length: PositiveInt = 100
    max_ratio: Annotated[float, Field(gt=1)] | None = None
    truncate_source: PositiveInt | None = None
    drop_duplicates: bool = False
    lead: tuple[LeadConfig, ...] = ()
    parses: ParsesConfig = ParsesConfig()
    audio: AudioConfig = AudioConfig()

    @model_validator(mode="after")
    def _room_for_what_is_cut(self) -> DataConfig:
        if self.truncate_source is not None and self.truncate_source > self.max_length:
            raise ValueError(
                f"max_length ({self.max_length}) is below truncate_source ({self.truncate_source}): all sources that"
                " are cut would be dropped"
            )
        return self


def source_truncation(data: DataConfig) -> Truncation | None:
    """What the recipe says of long sources; None where all of them is read."""
    return None if data.truncate_source is None else Truncation(data.truncate_source, data.count)
