"""The beginning of a source as a summary: the baseline that every summary is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import model_validator

from headway.config import Count, Section
from headway.formats.lines import read_lines
from headway.processing.text.sentences import sentences
from headway.processing.text.truncation import first_words


class LeadConfig(Section):
    """The first so many words (as white space separates them), sentences or characters of a source.

    Short: a number of words, or a number and a unit, as in `3-sentences`.
    """

    count: Count
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


def leads_of_file(path: Path, leads: Sequence[LeadConfig]) -> dict[str, list[str]]:
    """The beginnings of each line of a file, by the lead's name. Raises UserError where the file cannot be read."""
    lines = list(read_lines(path))
    return {config.name: [lead(line, config) for line in lines] for config in leads}


def lead(source: str, config: LeadConfig, language: str = "en") -> str:
    """The first words, sentences (see `sentences`) or characters of a raw source; all of a shorter one."""
    text = source.strip()
    if config.unit == "characters":
        return text[: config.count].rstrip()
    if config.unit == "sentences":
        return " ".join(sentences(text, language)[: config.count])
    return first_words(text, config.count)
