"""The common parts of figures: their look and fonts, matrices of weights, and how a figure is written.

Shapes: T rows (what attends), S columns (what is attended to).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import findSystemFonts, fontManager
from matplotlib.ft2font import FT2Font
from matplotlib.ticker import MaxNLocator

from headway.core.errors import UserError
from headway.core.files import write_bytes
from headway.core.tables import display_width

MISSING = "\N{WHITE VERTICAL RECTANGLE}"  # of characters that no font can draw
INK, MUTED, GRID = "#1f2933", "#66737f", "#e3e8ec"
BLUE, ORANGE = "#2a78d6", "#d9591e"
STYLE: dict[Any, Any] = {
    "font.size": 9, "text.color": INK, "axes.labelcolor": MUTED, "axes.edgecolor": GRID, "xtick.color": MUTED,
    "ytick.color": MUTED, "figure.facecolor": "white", "axes.facecolor": "white", "svg.hashsalt": "headway",
    "text.parse_math": False, "image.cmap": "Blues",
}  # fmt: skip
# Colour maps are known to settings by name only.
matplotlib.colormaps.register(
    LinearSegmentedColormap.from_list("headway-dark", ("#151b23", "#14507f", "#2f8fdc", "#c9ecff")), force=True
)
DARK: dict[Any, Any] = {
    "text.color": "#e6eaee", "axes.labelcolor": "#9aa7b3", "axes.edgecolor": "#323b45", "xtick.color": "#9aa7b3",
    "ytick.color": "#9aa7b3", "figure.facecolor": "#0d1117", "axes.facecolor": "#0d1117",
    "image.cmap": "headway-dark",
}  # fmt: skip


def draw_weights(
    axes: Axes, weights: npt.NDArray[np.floating[Any]], source: list[str], target: list[str], *, stretch: bool = False
) -> None:
    """Weights (T, S) as a matrix, `source` above it and `target` beside it.

    The scale goes from 0 to 1, so that pictures can be compared; with `stretch` it ends at the largest weight. A line
    on it marks the uniform weight, 1 / S. Weights below zero are shares of no whole: the scale goes from the largest
    below zero to the same above it, with no line.
    """
    signed = bool((weights < 0).any())
    most = max(1e-9, float(np.abs(weights).max())) if stretch or signed else 1.0
    ink, ground = matplotlib.rcParams["text.color"], matplotlib.rcParams["axes.facecolor"]
    colours = "PuOr" if signed else None
    image = axes.imshow(weights, cmap=colours, vmin=-most if signed else 0, vmax=most, aspect="equal")
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(source)), source, color=ink)
    # Words lean, and so does a long token among characters (an end mark).
    leaning = 0 if np.median([display_width(token) for token in source]) > 2 else 2
    for label, token in zip(axes.get_xticklabels(), source, strict=True):
        if display_width(token) > leaning:
            label.set(rotation=60, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(len(target)), target, color=ink)
    axes.set_xticks(np.arange(0.5, len(source) - 1), minor=True)
    axes.set_yticks(np.arange(0.5, len(target) - 1), minor=True)
    axes.grid(which="minor", color=ground, linewidth=1)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    scale = axes.figure.colorbar(image, ax=axes, shrink=0.7, aspect=16, pad=0.02, ticks=MaxNLocator(4))
    scale.outline.set_visible(False)
    scale.ax.tick_params(length=0, labelsize=7)
    scale.set_label("signed weight" if signed else "attention weight (line: uniform)", fontsize=7)
    if not signed:
        scale.ax.axhline(min(most, 1 / len(source)), color=ORANGE, linewidth=1)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure whole, in the format of its suffix. Raises UserError where there is no such format."""
    name, allowed = path.suffix.removeprefix("."), sorted(figure.canvas.get_supported_filetypes())
    if name not in allowed:
        raise UserError(
            "a figure's format is the suffix of its name", where=str(path), received=path.suffix, allowed=allowed
        )
    content = BytesIO()
    # An SVG without its date is the same file when it is drawn again.
    metadata = {"Date": None} if name == "svg" else None
    figure.savefig(content, format=name, dpi=200, bbox_inches="tight", pad_inches=0.08, metadata=metadata)
    write_bytes(path, content.getvalue())


def visible_token(token: str) -> str:
    """A token as it can be seen alone: blanks and SentencePiece's ▁ as ␣, a combining character on a dotted circle."""
    if not token.strip():
        return "␣" * max(1, len(token))
    return "◌" + token if unicodedata.category(token[0]).startswith("M") else token.replace("▁", "␣")


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
