"""The lead baseline of summarisation: the beginning of a source as its summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import model_validator

from headway.core.config import Count, Section
from headway.core.languages import look_unspaced
from headway.core.log import warn
from headway.processing.processor import first_words
from headway.processing.text.sentences import language_of_rules, languages_of_rules, sentences


class LeadConfig(Section):
    """The first `count` words (separated by white space), sentences or characters of a source.

    In text without spaces, a character is a word. Short forms: a number of words, or a number and a unit, as in
    `3-sentences`, and a language, as in `3-sentences-de`.

    `count`, `unit`: the length of the beginning. `language`: the language of sentence segmentation, by default that of
    the source if it is known, or English.
    """

    count: Count
    unit: Literal["words", "sentences", "characters"] = "words"
    language: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, int | str):
            return dict(zip(("count", "unit", "language"), str(value).split("-", 2), strict=False))
        return value

    @model_validator(mode="after")
    def _has_rules(self) -> Self:
        if self.language is None:
            return self
        if self.unit != "sentences":
            raise ValueError(f"language says where sentences end, and the unit is {self.unit}")
        if language_of_rules(self.language) is None:
            known = ", ".join(languages_of_rules())
            raise ValueError(
                f"there are no rules for the sentences of the language {self.language!r}, only for {known}"
            )
        return self

    @property
    def name(self) -> str:
        """The name in tables of scores, such as `lead-8-words`."""
        return "-".join(filter(None, ("lead", str(self.count), self.unit, self.language)))


def leads_of(sources: Sequence[str], leads: Sequence[LeadConfig], language: str = "en") -> dict[str, list[str]]:
    """The beginnings of sources, by the name of the lead. Warns if characters are counted instead of words."""
    if any(config.unit == "words" for config in leads) and look_unspaced(sources):
        warn("the sources have no spaces between words: for the lead a character is a word")
    return {config.name: [lead(source, config, language) for source in sources] for config in leads}


def lead(source: str, config: LeadConfig, language: str = "en") -> str:
    """The first words, sentences (see `sentences`) or characters of a raw source, or all of a shorter source.

    Args:
        source: running text.
        config: the length of the beginning.
        language: the language of the source, for sentences, unless `config` names one.
    """
    text = source.strip()
    if config.unit == "characters" or (config.unit == "words" and look_unspaced([text])):
        return text[: config.count].rstrip()
    if config.unit == "sentences":
        end = 0
        for sentence in sentences(text, config.language or language)[: config.count]:
            end = text.index(sentence, end) + len(sentence)
        return text[:end]
    return first_words(text, config.count)
