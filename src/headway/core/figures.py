"""Common parts of figures: style and fonts, heatmaps of weights, and writing a figure to a file.

Shapes: T rows (queries), S columns (keys).
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
    """Draw the weights (T, S) as a heatmap, with the labels `source` above and `target` on the left.

    The colour scale is 0 to 1, so figures are comparable; with `stretch` it ends at the largest weight. A line marks
    the uniform weight, 1 / S. For signed weights, the scale is symmetric around zero and has no such line.
    """
    signed = bool((weights < 0).any())
    most = max(1e-9, float(np.abs(weights).max())) if stretch or signed else 1.0
    ink, ground = matplotlib.rcParams["text.color"], matplotlib.rcParams["axes.facecolor"]
    colours = "PuOr" if signed else None
    image = axes.imshow(weights, cmap=colours, vmin=-most if signed else 0, vmax=most, aspect="equal")
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(source)), source, color=ink)
    # Labels of words are rotated, and so is a long label among characters (the end-of-sentence token).
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
    """Write a figure to a file, atomically, in the format of its suffix. Raises UserError for an unknown format."""
    name, allowed = path.suffix.removeprefix("."), sorted(figure.canvas.get_supported_filetypes())
    if name not in allowed:
        raise UserError(
            "a figure's format is the suffix of its name", where=str(path), received=path.suffix, allowed=allowed
        )
    content = BytesIO()
    # Without a date, drawing an SVG again yields the same file.
    metadata = {"Date": None} if name == "svg" else None
    figure.savefig(content, format=name, dpi=200, bbox_inches="tight", pad_inches=0.08, metadata=metadata)
    write_bytes(path, content.getvalue())


def visible_token(token: str) -> str:
    """A token for display: blanks and SentencePiece's ▁ as ␣, and a combining character on a dotted circle."""
    if not token.strip():
        return "␣" * max(1, len(token))
    return "◌" + token if unicodedata.category(token[0]).startswith("M") else token.replace("▁", "␣")


def drawable(tokens: Sequence[str]) -> tuple[list[str], list[str], set[str]]:
    """The tokens for drawing, the font families to draw them with, and the characters that no font has."""
    shown = [visible_token(token) for token in tokens]
    families, missing = pick_fonts("".join(shown))
    return ["".join(MISSING if char in missing else char for char in token) for token in shown], families, missing


def pick_fonts(text: str) -> tuple[list[str], set[str]]:
    """Font families that together can draw `text`, in order of preference, and the characters that none of them has."""
    families, missing = ["DejaVu Sans"], {char for char in text if not char.isspace()}
    missing -= _characters("DejaVu Sans")
    installed = _installed_families()
    while missing and (family := next(installed, None)) is not None:
        if covered := missing & _characters(family):
            families.append(family)
            missing -= covered
    return families, missing


def _installed_families() -> Iterator[str]:
    """Yield the families in order of preference: those in matplotlib's list, then those installed later."""
    known = _known_families()
    yield from sorted(known, key=_preference)
    _add_new_fonts()
    yield from sorted(_known_families() - known, key=_preference)


def _known_families() -> set[str]:
    # The Last Resort font of matplotlib draws a box for every character.
    return {font.name for font in fontManager.ttflist if not font.name.startswith("Last Resort")}


@cache
def _add_new_fonts() -> None:
    """Add the fonts to matplotlib's list that were installed after it was created."""
    known = {font.fname for font in fontManager.ttflist}
    for path in findSystemFonts():
        if path not in known:
            with suppress(Exception):  # FreeType may raise anything for a broken file
                fontManager.addfont(path)


def _preference(family: str) -> tuple[bool, bool, str]:
    return "Sans" not in family, "Noto" not in family, family


@cache
def _characters(family: str) -> frozenset[str]:
    regular = [
        font for font in fontManager.ttflist if font.name == family and font.style == "normal" and font.weight == 400
    ]
    return frozenset(chr(code) for font in regular[:1] for code in FT2Font(font.fname).get_charmap())
