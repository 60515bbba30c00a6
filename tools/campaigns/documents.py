"""Documents that others wrote: what a translator copies stays the same, byte for byte, and tags stay where they are.

They are in the folder that HEADWAY_DOCUMENTS names, which `python -m tools.real_documents FOLDER` fills, and in
`tests/markup/documents`.
"""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis.strategies import SearchStrategy

from tools.campaigns.campaign import Campaign, Limits

SMALL = Path(__file__).parents[2] / "tests" / "markup" / "documents"
SIGN = "¤"  # in no document


@dataclass(frozen=True)
class DocumentCase:
    """A document, and whether the translator adds a sign to each sentence, or copies it."""

    path: str
    signs: bool


def documents() -> list[Path]:
    """The documents that can be tried, in order."""
    folders = [SMALL, *(Path(name) for name in [os.environ.get("HEADWAY_DOCUMENTS", "")] if name)]
    return [path for folder in folders for path in sorted(folder.iterdir())]


def copy(sentences: Sequence[str]) -> list[Any]:
    """A translator that copies."""
    from headway.markup.inline import Aligned

    return [Aligned(sentence) for sentence in sentences]


def sign(sentences: Sequence[str]) -> list[Any]:
    """A translator that adds a sign to each sentence, with the right links. White space is a single space."""
    from headway.markup.inline import UNIT, Aligned

    translations = []
    for sentence in sentences:
        text, links, last = "", [], 0
        for match in UNIT.finditer(sentence):
            text += " " if text and sentence[last : match.start()] else ""
            links.append((match.span(), (len(text), len(text) + len(match[0]))))
            text, last = text + match[0], match.end()
        translations.append(Aligned(text + SIGN, links))
    return translations


def check(case: DocumentCase) -> None:
    """Raise AssertionError if the translator's document has other tags, spaces or signs, or has them elsewhere."""
    from headway.markup.documents import kind_of, translate_document
    from headway.markup.encodings import decoded_document

    path = Path(case.path)
    before = path.read_bytes()
    after = translate_document(before, path.name, sign if case.signs else copy)
    if not case.signs:
        assert after == before
        return
    texts = [decoded_document(content, path.name, kind_of(path.name))[0] for content in (before, after)]
    if path.suffix in (".html", ".htm", ".xhtml"):  # an encoding may lack the sign
        texts = [html.unescape(text) for text in texts]
    assert texts[1].replace(SIGN, "") == texts[0]


class DocumentsCampaign(Campaign[DocumentCase]):
    """Documents that others wrote, and translators that change nothing, or add a sign."""

    name = "documents"
    about = "documents of Debian packages, with translators that copy, or add a sign"
    limits = Limits(seconds=60)
    quick = 24
    together = 10

    def prepare(self, folder: Path) -> None:
        import headway.markup.hypertext
        import headway.markup.marked  # noqa: F401

        check(DocumentCase(str(documents()[0]), signs=False))

    def cases(self) -> SearchStrategy[DocumentCase]:
        return st.builds(DocumentCase, st.sampled_from([str(path) for path in documents()]), st.booleans())

    def check(self, case: DocumentCase, folder: Path) -> None:
        check(case)
