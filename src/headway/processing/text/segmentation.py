"""Segmenters: white space between the tokens of a line, and the way back to text as people write it.

A new one is a pair of functions and an entry in SEGMENTERS; how characters travel through it is found by alignment.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from sacremoses import MosesDetokenizer, MosesTokenizer


@dataclass(frozen=True)
class Segmenter:
    """`segment(line, language)` separates tokens by one space; `detokenise(line, language)` undoes it."""

    segment: Callable[[str, str], str]
    detokenise: Callable[[str, str], str]


@lru_cache
def _tokenizer(language: str) -> MosesTokenizer:
    return MosesTokenizer(language)


@lru_cache
def _detokenizer(language: str) -> MosesDetokenizer:
    return MosesDetokenizer(language)


def _moses(line: str, language: str) -> str:
    return " ".join(_tokenizer(language).tokenize(line, aggressive_dash_splits=True, escape=False))


def _undo_moses(line: str, language: str) -> str:
    text: str = _detokenizer(language).detokenize(line.split(), unescape=False)
    return text


def _unchanged(line: str, language: str) -> str:
    return line


def _whitespace(line: str, language: str) -> str:
    return " ".join(line.split())


# Moses knows the abbreviations of some forty languages and treats every other one like English.
SEGMENTERS: dict[str, Segmenter] = {
    "none": Segmenter(_unchanged, _unchanged),
    "whitespace": Segmenter(_whitespace, _unchanged),
    "moses": Segmenter(_moses, _undo_moses),
}
