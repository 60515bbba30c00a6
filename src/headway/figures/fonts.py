"""Fonts that can draw a text, and what stands for characters that none of them has."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache

from matplotlib.font_manager import findSystemFonts, fontManager
from matplotlib.ft2font import FT2Font

MISSING = "\N{WHITE VERTICAL RECTANGLE}"


def visible_token(token: str) -> str:
    """A token as it can be seen on its own: blanks as ␣, a combining character on a dotted circle."""
    if not token.strip():
        return "␣" * max(1, len(token))
    return "◌" + token if unicodedata.category(token[0]).startswith("M") else token


def drawable(tokens: Sequence[str]) -> tuple[list[str], list[str], set[str]]:
    """Tokens as they can be drawn, the font families to draw them with, and the characters that no font has."""
    shown = [visible_token(token) for token in tokens]
    families, missing = pick_fonts("".join(shown))
    return ["".join(MISSING if char in missing else char for char in token) for token in shown], families, missing


def pick_fonts(text: str) -> tuple[list[str], set[str]]:
    """Families that together can draw `text`, in the order to try them, and the characters that none of them has."""
    families, missing = ["DejaVu Sans"], {char for char in text if not char.isspace()}
    missing -= _characters("DejaVu Sans")
    installed = _installed_families()
    while missing and (family := next(installed, None)) is not None:
        if covered := missing & _characters(family):
            families.append(family)
            missing -= covered
    return families, missing


def _installed_families() -> Iterator[str]:
    """The families to try, in their order: those that matplotlib knows, then those that are newer than its list."""
    known = _known_families()
    yield from sorted(known, key=_preference)
    _add_new_fonts()
    yield from sorted(_known_families() - known, key=_preference)


def _known_families() -> set[str]:
    # The Last Resort font, which comes with matplotlib, has a box for everything and a letter for nothing.
    return {font.name for font in fontManager.ttflist if not font.name.startswith("Last Resort")}


@cache
def _add_new_fonts() -> None:
    """Add the fonts to matplotlib's list that were installed after it was made."""
    known = {font.fname for font in fontManager.ttflist}
    for path in findSystemFonts():
        if path not in known:
            with suppress(Exception):  # whatever FreeType makes of a broken file, the other fonts are there
                fontManager.addfont(path)


def _preference(family: str) -> tuple[bool, bool, str]:
    return "Sans" not in family, "Noto" not in family, family


@cache
def _characters(family: str) -> frozenset[str]:
    regular = [
        font for font in fontManager.ttflist if font.name == family and font.style == "normal" and font.weight == 400
    ]
    return frozenset(chr(code) for font in regular[:1] for code in FT2Font(font.fname).get_charmap())
