"""Figures for papers and READMEs, as PNG, SVG or PDF by the name of the file: alignments, learning curves."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.ft2font import FT2Font
from matplotlib.ticker import MaxNLocator

from headway.errors import UserError
from headway.files import write_bytes
from headway.predictors.word_alignment import WordAlignment
from headway.runs.inspect.report_page import curves, read_metrics
from headway.tasks.task import Example

INK, MUTED, GRID = "#1f2933", "#66737f", "#e3e8ec"
TRAINING, DEV = "#2a78d6", "#d9591e"
STYLE: dict[Any, Any] = {
    "font.size": 9, "text.color": INK, "axes.labelcolor": MUTED, "axes.edgecolor": GRID, "xtick.color": MUTED,
    "ytick.color": MUTED, "figure.facecolor": "white", "axes.facecolor": "white", "svg.hashsalt": "headway",
    "text.parse_math": False,
}  # fmt: skip

PAGE_WORDS = 60  # source words beside each other on a page
MISSING = "\N{WHITE VERTICAL RECTANGLE}"


def alignment_figure(example: Example, path: Path, layer: str | None = None) -> None:
    """Draw how much each target token of an example attended to each source token, averaged over the heads.

    Characters that no installed font can draw are shown as rectangles, and a line below the figure names them.

    Args:
        path: the figure; its suffix says the format.
        layer: which of `example.attention` is drawn; the mean of all of them by default.

    Raises:
        UserError: there is no such layer, or the example has no attention.
    """
    weights = _mean_over_heads(example, layer)
    _draw_page([WordAlignment(tuple(example.source_tokens), tuple(example.target_tokens), weights)], path, columns=1)


def alignment_page(alignments: Sequence[WordAlignment], path: Path, columns: int = 3) -> None:
    """Draw alignments of words, source above and target to the left: one sentence, or a page of them.

    Args:
        alignments: what aligners made.
        path: the figure; its suffix says the format.
        columns: how many sentences stand beside each other; long ones that do not fit take a column less.

    Raises:
        UserError: there is nothing to draw.
    """
    if not alignments:
        raise UserError("there is no alignment to draw: every line is empty", where=str(path))
    widest = max(len(each.source) for each in alignments)
    fitting = max(1, int(PAGE_WORDS / widest))
    _draw_page(alignments, path, min(columns, fitting, len(alignments)))


def _draw_page(alignments: Sequence[WordAlignment], path: Path, columns: int) -> None:
    tokens = [token for each in alignments for token in (*each.source, *each.target)]
    drawn, families, missing = drawable(tokens)
    shown = dict(zip(tokens, drawn, strict=True))
    rows = [alignments[start : start + columns] for start in range(0, len(alignments), columns)]
    widths = [max(len(row[place].source) for row in rows if place < len(row)) for place in range(columns)]
    heights = [max(len(each.target) for each in row) for row in rows]
    size = 1.2 * columns + 0.24 * sum(widths), 1.0 * len(rows) + 0.24 * sum(heights)
    with matplotlib.rc_context(STYLE | {"font.family": families}):
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.add_gridspec(len(rows), columns, width_ratios=widths, height_ratios=heights)
        for number, each in enumerate(alignments):
            axes = figure.add_subplot(grid[divmod(number, columns)])
            source, target = ([shown[token] for token in side] for side in (each.source, each.target))
            draw_weights(axes, each.weights, source, target)
        if missing:
            figure.supxlabel(_missing_fonts(missing), fontsize=7)
        save_figure(figure, path)


def _missing_fonts(missing: set[str]) -> str:
    names = ", ".join(f"U+{ord(char):04X}" for char in sorted(missing)[:4]) + (" …" if len(missing) > 4 else "")
    return (
        f"No installed font has {names}\nNoto Sans has most scripts"
        " (fonts-noto; for Chinese, Japanese and Korean fonts-noto-cjk)"
    )


def learning_curve(metrics: Path, path: Path) -> None:
    """Draw the loss, in training and on dev, and each metric on dev over the updates of a `metrics.jsonl`.

    Raises:
        UserError: the metrics cannot be read, or hold no loss yet.
    """
    points = curves(read_metrics(metrics))
    if "loss" not in points:
        raise UserError("holds no training loss to draw", where=str(metrics))
    names = [name for name in points if name.startswith("dev.")]
    with matplotlib.rc_context(STYLE | {"font.family": pick_fonts("".join(names))[0]}):
        figure = Figure(figsize=(4.2 * (1 + len(names)), 2.8), layout="constrained")
        panels = figure.subplots(1, 1 + len(names), squeeze=False)[0]
        losses = {"training": points["loss"], "dev": points.get("dev_loss", [])}
        _draw_curves(panels[0], "loss", {label: line for label, line in losses.items() if line})
        for axes, name in zip(panels[1:], names, strict=True):
            _draw_curves(axes, name.removeprefix("dev.").replace("_", " "), {"dev": points[name]})
        save_figure(figure, path)


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
    # The Last Resort font, which comes with matplotlib, has a box for everything and a letter for nothing.
    installed = {font.name for font in fontManager.ttflist if not font.name.startswith("Last Resort")}
    for family in sorted(installed, key=_preference):
        if not missing:
            break
        if found := missing & _characters(family):
            families.append(family)
            missing -= found
    return families, missing


def _preference(family: str) -> tuple[bool, bool, str]:
    return "Sans" not in family, "Noto" not in family, family


@cache
def _characters(family: str) -> frozenset[str]:
    regular = [
        font for font in fontManager.ttflist if font.name == family and font.style == "normal" and font.weight == 400
    ]
    return frozenset(chr(code) for font in regular[:1] for code in FT2Font(font.fname).get_charmap())


def _mean_over_heads(example: Example, layer: str | None) -> npt.NDArray[np.floating[Any]]:
    if layer is not None and layer not in example.attention:
        raise UserError("there is no attention of that name", where="layer", received=layer, allowed=example.attention)
    if not example.attention:
        raise UserError("the example has no attention; ask for it when decoding")
    chosen = [example.attention[layer]] if layer is not None else list(example.attention.values())
    mean: npt.NDArray[np.floating[Any]] = np.mean([weights.mean(axis=0) for weights in chosen], axis=0)
    return mean


def draw_weights(axes: Axes, weights: npt.NDArray[np.floating[Any]], source: list[str], target: list[str]) -> None:
    """Weights (T, S) as a matrix, `source` above it and `target` beside it."""
    image = axes.imshow(weights, cmap="Blues", vmin=0, vmax=max(1e-9, float(weights.max())), aspect="equal")
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(source)), source, color=INK)
    # Words lean, and so does a long token among characters (an end mark).
    leaning = 0 if np.median([_width(token) for token in source]) > 2 else 2
    for label, token in zip(axes.get_xticklabels(), source, strict=True):
        if _width(token) > leaning:
            label.set(rotation=60, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(len(target)), target, color=INK)
    axes.set_xticks(np.arange(0.5, len(source) - 1), minor=True)
    axes.set_yticks(np.arange(0.5, len(target) - 1), minor=True)
    axes.grid(which="minor", color="white", linewidth=1)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    scale = axes.figure.colorbar(image, ax=axes, shrink=0.7, aspect=16, pad=0.02, ticks=MaxNLocator(4))
    scale.outline.set_visible(False)
    scale.ax.tick_params(length=0, labelsize=7)
    scale.set_label("attention weight", fontsize=7)


def _width(token: str) -> int:
    """How many Latin letters it is about as wide as: a Chinese or Japanese character takes the room of two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in token)


def _draw_curves(axes: Axes, title: str, lines: dict[str, Iterable[tuple[int, float]]]) -> None:
    for label, points in lines.items():
        updates, values = zip(*points, strict=True)
        axes.plot(updates, values, label=label, color=TRAINING if label == "training" else DEV, linewidth=1.6)
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel("update")
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    if len(lines) > 1:
        axes.legend(frameon=False)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure whole; its format is the suffix of its name. Raises UserError for an unknown one."""
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
