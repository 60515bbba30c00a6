"""Dependency parses of a corpus: made once by a parser, kept by sentence, carried over to tokens of a vocabulary."""

from typing import TYPE_CHECKING

from headway.core.registry import Registry

if TYPE_CHECKING:
    from headway.parses.parsers import Parser

PARSERS: "Registry[Parser]" = Registry(
    "parser",
    "headway.parses.parsers:Parser",
    {
        "spacy": "headway.parses.parsers:SpacyParser",
        "stanza": "headway.parses.parsers:StanzaParser",
        "conllu": "headway.parses.parsers:ConlluParser",
    },
)
