"""The common parts of figures: their look, matrices of weights, and how a figure is written.

Shapes: T rows (what attends), S columns (what is attended to).
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from headway.errors import UserError
from headway.files import write_bytes
from headway.tables import display_width

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
    on it marks the uniform weight, 1 / S.
    """
    most = max(1e-9, float(weights.max())) if stretch else 1.0
    ink, ground = matplotlib.rcParams["text.color"], matplotlib.rcParams["axes.facecolor"]
    image = axes.imshow(weights, vmin=0, vmax=most, aspect="equal")
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
    scale.set_label("attention weight (line: uniform)", fontsize=7)
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
