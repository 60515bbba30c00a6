"""Segmenters: white space between the tokens of a line, and the way back to text as people write it.

How characters travel through a segmenter is found by alignment, so that a new one is no more than its two methods.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BeforeValidator

from headway.languages import base_language
from headway.processing import SEGMENTERS


class Segmenter:
    """Leaves lines as they are; the base of all others.

    Args:
        language: the code of the text's language. A segmenter may have keyword-only options beside it.
    """

    def __init__(self, language: str) -> None:
        self.language = language

    def segment(self, line: str) -> str:
        """The line with one space between its tokens."""
        return line

    def detokenise(self, line: str) -> str:
        """The text that people write for a segmented line."""
        return line


class WhitespaceSegmenter(Segmenter):
    """Tokens are what any white space separates."""

    def segment(self, line: str) -> str:
        return " ".join(line.split())


class MosesSegmenter(Segmenter):
    """Moses' tokenizer. It knows the abbreviations of some forty languages and treats every other one like English."""

    def __init__(self, language: str) -> None:
        from sacremoses import MosesDetokenizer, MosesTokenizer  # half a second, which most commands do not need

        super().__init__(language)
        code = base_language(language)
        self._tokenizer, self._detokenizer = MosesTokenizer(code), MosesDetokenizer(code)

    def segment(self, line: str) -> str:
        return " ".join(self._tokenizer.tokenize(line, aggressive_dash_splits=True, escape=False))

    def detokenise(self, line: str) -> str:
        text: str = self._detokenizer.detokenize(line.split(), unescape=False)
        return text


def moses_has_rules(language: str) -> bool:
    """Whether Moses' tokenizer has abbreviations, or rules, of a language."""
    from sacremoses.corpus import NonbreakingPrefixes

    return base_language(language) in {*NonbreakingPrefixes().available_langs.values(), "ja", "ko"}


def _checked(value: Any) -> Any:
    if isinstance(value, str | Mapping):
        SEGMENTERS.section({"kind": value} if isinstance(value, str) else value)
    return value


# As a recipe names one: `moses`, or `{kind: my_package.module:Class, ...options}`.
AnySegmenter = Annotated[str | dict[str, Any], BeforeValidator(_checked)]


def segmenter(config: str | Mapping[str, Any], language: str) -> Segmenter:
    """The segmenter that a recipe names, for a language; made once. Raises UserError where it is unknown."""
    if isinstance(config, str):  # as of most lines of most recipes
        return _named(config, language)
    return _made(json.dumps(config, sort_keys=True, default=dict), language)


@lru_cache
def _named(name: str, language: str) -> Segmenter:
    return SEGMENTERS.build(name, language, where="text.segment")


@lru_cache
def _made(config: str, language: str) -> Segmenter:
    return SEGMENTERS.build(json.loads(config), language, where="text.segment")
