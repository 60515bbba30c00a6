"""Annotations of a corpus: dependency parses, and word alignments of pairs.

They are made once by a parser or an aligner, stored by sentence or pair, and projected to tokens of a vocabulary.
"""

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
