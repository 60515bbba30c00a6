"""The `data.parses` section of a recipe: which parser annotates which side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from headway.config import Section

PARSERS = ("spacy", "stanza", "conllu")


class ParserConfig(Section):
    """A dependency parser; `KIND:MODEL` for short, or just the name of a spaCy pipeline.

    `model`: a spaCy pipeline by name or folder, a language (`en`) or folder of Stanza models with the language as its
    name, or a CoNLL-U file, or folder of such, made elsewhere. `whitespace` says what white space is in the corpus:
    part of the `text` as people write it, what separates the `tokens` that the parser has to take as they are, or
    `none` of the text's, so that the parser reads lines without it (segmented Japanese).
    """

    kind: Literal["spacy", "stanza", "conllu"] = "spacy"
    model: str
    whitespace: Literal["text", "tokens", "none"] = "text"


def _short(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    kind, colon, model = value.partition(":")
    return {"kind": kind, "model": model} if colon and kind in PARSERS else {"model": value}


AnyParser = Annotated[ParserConfig, BeforeValidator(_short)]


class ParsesConfig(Section):
    """The parsers of both sides. Parses are kept beside the corpus, or in `folder` where it is given."""

    source: AnyParser | None = None
    target: AnyParser | None = None
    folder: Path | None = None
