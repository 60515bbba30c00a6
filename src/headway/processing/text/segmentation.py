"""Segmenters, which insert white space between the tokens of a line, and detokenise segmented text.

Character spans are computed by alignment, so that a new segmenter only needs its two methods.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from headway.core.errors import UserError, not_installed
from headway.core.files import exists
from headway.core.languages import base_language
from headway.processing import SEGMENTERS


class Segmenter:
    """Leaves lines unchanged; the base class of all segmenters.

    Args:
        language: the code of the text's language. Segmenters may have further keyword-only options.
    """

    def __init__(self, language: str) -> None:
        self.language = language

    def segment(self, line: str) -> str:
        """The line with one space between its tokens."""
        return line

    def detokenise(self, line: str) -> str:
        """The natural text of a segmented line."""
        return line


class WhitespaceSegmenter(Segmenter):
    """Tokens are separated by any white space."""

    def segment(self, line: str) -> str:
        return " ".join(line.split())


class MosesSegmenter(Segmenter):
    """Moses' tokenizer. It knows the abbreviations of about forty languages and treats all others like English."""

    def __init__(self, language: str) -> None:
        from sacremoses import MosesDetokenizer, MosesTokenizer  # imported late: it takes half a second

        super().__init__(language)
        code = base_language(language)
        self._tokenizer, self._detokenizer = MosesTokenizer(code), MosesDetokenizer(code)

    def segment(self, line: str) -> str:
        return " ".join(self._tokenizer.tokenize(line, aggressive_dash_splits=True, escape=False))

    def detokenise(self, line: str) -> str:
        text: str = self._detokenizer.detokenize(line.split(), unescape=False)
        return text


# A space that is not written in Japanese: it is not between two half-width letters or digits.
NOT_WRITTEN = re.compile(r"(?<![!-~]) | (?![!-~])")


class JapaneseSegmenter(Segmenter):
    """The base class of Japanese segmenters. Japanese has no spaces except between words in Latin letters."""

    def detokenise(self, line: str) -> str:
        return NOT_WRITTEN.sub("", line)


class SudachiSegmenter(JapaneseSegmenter):
    """Sudachi (Takaoka et al. 2018), which includes its dictionary.

    Args:
        language: not used.
        mode: the splitting mode: A has the shortest tokens, C the longest.
        dictionary: small, core or full; the package of the same name has to be installed.

    Raises:
        UserError: Sudachi or the dictionary is not installed.
    """

    def __init__(
        self,
        language: str,
        *,
        mode: Literal["A", "B", "C"] = "C",
        dictionary: Literal["small", "core", "full"] = "core",
    ) -> None:
        super().__init__(language)
        sudachi = _module("sudachipy", "sudachi")
        _module(f"sudachidict_{dictionary}", "sudachi")
        chosen = sudachi.Dictionary(dict=dictionary)
        self._tokenizer, self._lock = chosen.create(mode=getattr(sudachi.SplitMode, mode)), Lock()

    def segment(self, line: str) -> str:
        """The line with one space between its tokens. Raises UserError if it is too long for Sudachi."""
        with self._lock:  # a tokenizer handles one line at a time
            try:
                tokens = [token.surface() for token in self._tokenizer.tokenize(line)]
            except Exception as error:  # Sudachi's exception class is not public
                received = f"{len(line.encode())} bytes"
                raise UserError(f"Sudachi: {error}", where="text.segment", received=received) from error
        return " ".join(" ".join(tokens).split())


class KyteaSegmenter(JapaneseSegmenter):
    """KyTea (Neubig et al. 2011), with a model in its format.

    Args:
        language: not used.
        model: the file of the model; http://www.phontron.com/kytea/ has some.

    Raises:
        UserError: KyTea is not installed, or there is no such model.
    """

    def __init__(self, language: str, *, model: str) -> None:
        super().__init__(language)
        where, path = "text.segment.model", Path(model).absolute()
        if not exists(path, "file") or " " in str(path):
            raise UserError("there is no such model of KyTea, or its path has a space", where=where, received=str(path))
        kytea = _module("Mykytea", "kytea")
        try:
            self._tagger, self._lock = kytea.Mykytea(f"-model {path} -notags"), Lock()
        except RuntimeError as error:
            raise UserError(f"KyTea: {error}", where=where, received=model) from error

    def segment(self, line: str) -> str:
        with self._lock:
            tokens = [token for part in line.split() for token in self._tagger.getWS(part)]
        return " ".join(" ".join(tokens).split())


def _module(name: str, kind: str) -> Any:
    """Import a module of the extra [japanese]. Raises UserError, naming the extra, if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise not_installed(f"the segmenter {kind}", [name], "japanese", "text.segment") from error


def moses_has_rules(language: str) -> bool:
    """Whether Moses' tokenizer has abbreviations or rules for a language."""
    from sacremoses.corpus import NonbreakingPrefixes

    return base_language(language) in {*NonbreakingPrefixes().available_langs.values(), "ja", "ko"}


def _checked(value: Any) -> Any:
    if isinstance(value, str | Mapping):
        SEGMENTERS.section({"kind": value} if isinstance(value, str) else value)
    return value


# A segmenter in a recipe: `moses`, or `{kind: my_package.module:Class, ...options}`.
AnySegmenter = Annotated[str | dict[str, Any], BeforeValidator(_checked)]


def segmenter(config: str | Mapping[str, Any], language: str) -> Segmenter:
    """The segmenter that a recipe names, for a language. It is created once. Raises UserError if it is unknown."""
    name = config if isinstance(config, str) else json.dumps(config, sort_keys=True, default=dict)
    return _made(name, isinstance(config, str), language)


@lru_cache
def _made(config: str, named: bool, language: str) -> Segmenter:
    return SEGMENTERS.build(config if named else json.loads(config), language, where="text.segment")
