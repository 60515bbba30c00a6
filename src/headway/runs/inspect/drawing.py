"""Figures for papers and READMEs, as PNG, SVG or PDF by the name of the file: alignments, curves, lines, matrices.

Shapes: T rows (what attends), S columns (what is attended to).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import findSystemFonts, fontManager
from matplotlib.ft2font import FT2Font
from matplotlib.ticker import MaxNLocator, NullFormatter, ScalarFormatter

from headway.errors import UserError
from headway.files import write_bytes, write_text
from headway.predictors.word_alignment import WordAlignment
from headway.tables import Table, display_width
from headway.tasks.task import Example

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

NAMES_BESIDE_EACH_OTHER = 45  # characters of all names below an axis
COUNTS_BESIDE_EACH_OTHER = 20  # above an axis
PAGE_WORDS = 60  # source words beside each other on a page
MISSING = "\N{WHITE VERTICAL RECTANGLE}"

# Told apart without colour, too: by marker, by dashes, and by how dark they are.
LINES: tuple[dict[str, Any], ...] = (
    {"color": "#16202b", "marker": "o", "linestyle": "-"},
    {"color": "#d9591e", "marker": "s", "linestyle": "-", "markerfacecolor": "white"},
    {"color": "#5fb0e6", "marker": "^", "linestyle": "-"},
    {"color": "#5b3a8c", "marker": "D", "linestyle": "--", "markerfacecolor": "white"},
    {"color": "#1f8f5f", "marker": "v", "linestyle": "--"},
    {"color": "#e08fb0", "marker": "X", "linestyle": "--", "markerfacecolor": "white"},
    {"color": "#24509e", "marker": "P", "linestyle": ":"},
    {"color": "#b99700", "marker": ">", "linestyle": ":", "markerfacecolor": "white"},
)

BASELINE = {"color": MUTED, "linestyle": (0, (2, 2)), "zorder": 1}


class Panel(NamedTuple):
    """One of the charts beside each other in a figure.

    Attributes:
        title: of the chart.
        x: the name of the horizontal axis.
        y: the name of the vertical axis.
        lines: points (x, y) of each line by name, in ascending order of x.
        percent: y goes from 0 to 100.
        limits: of y, where they are given.
        logarithmic: both axes.
        shaded: a range of x to be shaded, and its name, such as the lengths in training.
        dots: points without a line.
        bars: for lines by name, the low and the high end of each point's error bar.
        counts: how many examples each of the values of x stands for.
        baseline: the name of a line that the others are compared with.
        names: texts at x = 0, 1, ... in the place of numbers.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    percent: bool = False
    limits: tuple[float | None, float | None] = (None, None)
    logarithmic: bool = False
    shaded: tuple[float, float, str] | None = None
    dots: Sequence[tuple[float, float]] = ()
    bars: Mapping[str, Sequence[tuple[float, float]]] = MappingProxyType({})
    counts: Sequence[tuple[float, int]] = ()
    baseline: str | None = None
    names: Sequence[str] = ()


@dataclass(frozen=True)
class Chart:
    """A result to be drawn, with its numbers.

    Args:
        name: of its files, without a suffix.
        panels: at least one.
        table: the numbers.
        ordered: its lines are in an order, such as layers, and so are their colours.
    """

    name: str
    panels: Sequence[Panel]
    table: Table
    ordered: bool = False

    def write(self, folder: Path, of: str = "") -> list[Path]:
        """Write the figure as PNG and SVG and the numbers as CSV into `folder`; the paths. Raises as `panel_chart`.

        `of` is what the figure is of, such as the name of a run, and stands above it.
        """
        paths = [folder / f"{self.name}.{suffix}" for suffix in ("png", "svg", "csv")]
        for path in paths[:2]:
            panel_chart(self.panels, path, ordered=self.ordered, of=of)
        write_text(paths[2], self.table.csv(digits=6))
        return paths


def line_chart(
    lines: Mapping[str, Sequence[tuple[float, float]]], path: Path, *, x: str, y: str, title: str = "", **changes: Any
) -> None:
    """Draw one chart with a line a name; `changes` are other fields of `Panel`. Raises as `panel_chart` does."""
    panel_chart([Panel(title, x, y, lines, **changes)], path)


def panel_chart(panels: Sequence[Panel], path: Path, *, ordered: bool = False, of: str = "") -> None:
    """Draw charts beside each other.

    Args:
        panels: at least one; a name is the same line in all of them.
        path: the figure; its suffix says the format.
        ordered: the lines are in an order, such as layers, and so are their colours.
        of: what the figure is of, such as the name of a run.

    Raises:
        UserError: there is nothing to draw, or a suffix that is no format of figures.
    """
    if not any(points for panel in panels for points in panel.lines.values()):
        raise UserError("there is nothing to draw", where=str(path))
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines if name != panel.baseline))
    styles = dict(zip(names, _styles(len(names), ordered), strict=True))
    text = "".join(
        [of, *names]
        + [str(panel.baseline or "") for panel in panels]
        + [word for panel in panels for word in (panel.title, panel.x, panel.y, *panel.names)]
    )
    with matplotlib.rc_context(STYLE | {"font.family": pick_fonts(text)[0]}):
        legend = any(names)  # one line may go without
        figure = Figure(
            figsize=((4.6 if len(panels) == 1 else 3.4 * len(panels)) + 1.2 * legend, 3.3), layout="constrained"
        )
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _draw_panel(axes, panel, styles)
        if legend:
            handles = {label: line for axes in figure.axes for line, label in zip(*axes.get_legend_handles_labels(),
                                                                                 strict=True)}  # fmt: skip
            figure.legend(handles.values(), list(handles), loc="outside right center", frameon=False, handlelength=3)
        if of:
            figure.suptitle(of, x=0.01, ha="left", fontsize=8, color=MUTED)
        save_figure(figure, path)


def _styles(count: int, ordered: bool) -> list[dict[str, Any]]:
    """The looks of so many lines."""
    styles = [LINES[index % len(LINES)] for index in range(count)]
    if ordered and count > 1:  # from dark to light, short of the yellow that white paper swallows
        colours = [matplotlib.colormaps["viridis"](0.8 * index / (count - 1)) for index in range(count)]
        styles = [style | {"color": colour, "linestyle": "-"} for style, colour in zip(styles, colours, strict=True)]
    return styles


def _draw_panel(axes: Axes, panel: Panel, styles: Mapping[str, dict[str, Any]]) -> None:
    axes.set_title(panel.title, loc="left", fontsize=10, pad=14)
    if all(len(points) == 1 for points in panel.lines.values()) and not panel.dots:
        _write_numbers(axes, panel)
        return
    for name, points in panel.lines.items():
        style: dict[str, Any] = {"label": name, "linewidth": 1.3, "markersize": 3.5}
        style |= BASELINE if name == panel.baseline else styles[name]
        x, y = zip(*points, strict=True)
        bars = np.abs(np.array(panel.bars[name]).T - np.array(y)) if name in panel.bars else None
        axes.errorbar(x, y, yerr=bars, capsize=2, elinewidth=0.7, **style)
    if panel.dots:
        x, y = zip(*panel.dots, strict=True)
        axes.scatter(x, y, s=12, color=MUTED, alpha=0.6, linewidths=0, zorder=3)
    axes.set(xlabel=panel.x, ylabel=panel.y)
    axes.set_ylim(*((-3, 103) if panel.percent else panel.limits))
    if panel.shaded is not None:
        _shade(axes, *panel.shaded)
    if panel.logarithmic:
        _make_logarithmic(axes)
    else:
        _begin_at_zero(axes, chosen=panel.limits[0] is not None)
    if panel.names:
        slanted = sum(map(len, panel.names)) > NAMES_BESIDE_EACH_OTHER
        axes.set_xticks(
            range(len(panel.names)), panel.names, rotation=30 * slanted, ha="right" if slanted else "center"
        )
    elif not panel.logarithmic:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _tell_counts(axes, panel)
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _write_numbers(axes: Axes, panel: Panel) -> None:
    """The values of lines of one point each: they have no course that could be drawn."""
    values = {name: points[0] for name, points in panel.lines.items()}
    bars = {name: " ({:.4g} to {:.4g})".format(*panel.bars[name][0]) for name in values if name in panel.bars}
    lines = [f"{name}  {y:.4g}{bars.get(name, '')}".strip() for name, (_, y) in values.items()]
    at = sorted({panel.names[int(x)] if panel.names else f"{x:g}" for x, _ in values.values()})
    axes.text(0, 0.6, "\n".join(lines), fontsize=13, va="center")
    axes.text(0, 0.15, f"{panel.y}, {panel.x} {', '.join(at)}", color=MUTED, va="center")
    axes.set_axis_off()


def _begin_at_zero(axes: Axes, *, chosen: bool) -> None:
    """Let the axis of values begin at zero, or say that it does not.

    It does not where another beginning was `chosen`, or where all values lie in its upper third.
    """
    low, high = axes.get_ylim()
    if 0 < low <= 2 / 3 * high and not chosen:
        axes.set_ylim(0, high)
    elif low > 0:
        axes.set_ylabel(f"{axes.get_ylabel()} (axis cut)".strip())
        around = {"facecolor": matplotlib.rcParams["axes.facecolor"], "edgecolor": "none", "pad": 0.5}
        axes.text(0, 0, "//", transform=axes.transAxes, ha="center", va="center", color=MUTED, fontsize=8, bbox=around)


def _tell_counts(axes: Axes, panel: Panel) -> None:
    """How many examples stand behind the points: for all at once, or above the axis at each of a few."""
    different = {count for _, count in panel.counts}
    if len(different) == 1:
        axes.set_xlabel(f"{panel.x} ({different.pop():,} examples each)")
    elif len(panel.counts) > COUNTS_BESIDE_EACH_OTHER:
        axes.set_xlabel(f"{panel.x} ({min(different):,} to {max(different):,} examples each)")
    elif different:
        axes.set_xlabel(f"{panel.x} (above it: examples)")
        for x, count in panel.counts:
            place = axes.get_xaxis_transform()
            axes.text(x, 0.02, f"{count:,}", transform=place, ha="center", va="bottom", fontsize=6, color=MUTED)


def _shade(axes: Axes, first: float, last: float, label: str) -> None:
    axes.axvspan(first, last, color=GRID, linewidth=0)
    transform = axes.get_xaxis_transform()
    axes.text((first + last) / 2, 1.01, label, transform=transform, ha="center", va="bottom", fontsize=7, color=MUTED)


def _make_logarithmic(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(ScalarFormatter())
        axis.set_minor_formatter(NullFormatter())


def alignment_figure(example: Example, path: Path, layer: str | None = None, *, dark: bool = False) -> None:
    """Draw how much each target token of an example attended to each source token, averaged over the heads.

    Characters that no installed font can draw are shown as rectangles, and a line below the figure names them.

    Args:
        path: the figure; its suffix says the format.
        layer: the name in `example.attention` that is drawn; the mean of all of them by default.
        dark: light on dark, for pages that are dark.

    Raises:
        UserError: there is no such layer, or the example has no attention.
    """
    weights = _mean_over_heads(example, layer)
    alignment = WordAlignment(tuple(example.source_tokens), tuple(example.target_tokens), weights)
    _draw_page([alignment], path, columns=1, style=STYLE | DARK if dark else STYLE)


def alignment_page(alignments: Sequence[WordAlignment], path: Path, columns: int = 3) -> None:
    """Draw alignments of words, source above and target to the left: one sentence, or a page of them.

    Args:
        alignments: one a sentence.
        path: the figure; its suffix says the format.
        columns: how many sentences stand beside each other; long ones that do not fit take a column less.

    Raises:
        UserError: there is nothing to draw.
    """
    if not alignments:
        raise UserError("there is no alignment to draw: every line is empty", where=str(path))
    widest = max(len(alignment.source) for alignment in alignments)
    fitting = max(1, int(PAGE_WORDS / widest))
    _draw_page(alignments, path, min(columns, fitting, len(alignments)))


def _draw_page(
    alignments: Sequence[WordAlignment], path: Path, columns: int, style: Mapping[Any, Any] = MappingProxyType(STYLE)
) -> None:
    tokens = [token for alignment in alignments for token in (*alignment.source, *alignment.target)]
    drawn, families, missing = drawable(tokens)
    shown = dict(zip(tokens, drawn, strict=True))
    rows = [alignments[start : start + columns] for start in range(0, len(alignments), columns)]
    widths = [max(len(row[column].source) for row in rows if column < len(row)) for column in range(columns)]
    heights = [max(len(alignment.target) for alignment in row) for row in rows]
    size = 1.2 * columns + 0.24 * sum(widths), 1.0 * len(rows) + 0.24 * sum(heights)
    with matplotlib.rc_context({**style, "font.family": families}):
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.add_gridspec(len(rows), columns, width_ratios=widths, height_ratios=heights)
        for index, alignment in enumerate(alignments):
            axes = figure.add_subplot(grid[divmod(index, columns)])
            source, target = ([shown[token] for token in words] for words in (alignment.source, alignment.target))
            draw_weights(axes, alignment.weights, source, target)
        if missing:
            figure.supxlabel(_missing_fonts(missing), fontsize=7)
        save_figure(figure, path)


def _missing_fonts(missing: set[str]) -> str:
    names = ", ".join(f"U+{ord(char):04X}" for char in sorted(missing)[:4]) + (" …" if len(missing) > 4 else "")
    return (
        f"No installed font has {names}\nNoto Sans has most scripts"
        " (fonts-noto; for Chinese, Japanese and Korean fonts-noto-cjk)"
    )


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


def _mean_over_heads(example: Example, layer: str | None) -> npt.NDArray[np.floating[Any]]:
    if layer is not None and layer not in example.attention:
        raise UserError("there is no attention of that name", where="layer", received=layer, allowed=example.attention)
    if not example.attention:
        raise UserError("the example has no attention; ask for it when decoding")
    chosen = [example.attention[layer]] if layer is not None else list(example.attention.values())
    mean: npt.NDArray[np.floating[Any]] = np.mean([weights.mean(axis=0) for weights in chosen], axis=0)
    return mean


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
