"""Charts of lines and points, and alignments, side by side. The suffix of the file determines the format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from headway.core.errors import UserError
from headway.core.figures import DARK, GRID, MUTED, STYLE, draw_weights, drawable, pick_fonts, save_figure
from headway.core.files import write_text
from headway.core.tables import Table
from headway.predictors.captured_attention import END
from headway.predictors.output import Output
from headway.predictors.word_alignment import WordAlignment

NAMES_BESIDE_EACH_OTHER = 45  # the most characters of names below an axis
COUNTS_BESIDE_EACH_OTHER = 20  # the most counts above an axis
WORDS_BESIDE_EACH_OTHER = 60  # the most source words of alignments

# Lines also differ without colour: by marker, dashes and lightness.
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
    """One of the charts in a figure."""

    title: str
    x: str  # the label of the x axis
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]  # points by name, in ascending order of x
    percent: bool = False  # the y axis is from 0 to 100
    limits: tuple[float | None, float | None] = (None, None)  # of the y axis
    logarithmic: Literal["", "x", "xy"] = ""  # the logarithmic axes
    shaded: tuple[float, float, str] | None = None  # a range of x and its name, such as the lengths in training
    dots: Sequence[tuple[float, float]] = ()  # points without a line
    bars: Mapping[str, Sequence[tuple[float, float]]] = MappingProxyType({})  # low and high end at each point of a line
    counts: Sequence[tuple[float, int]] = ()  # (x, number of examples)
    baseline: str | None = None  # the name of a line that the others are compared with
    names: Sequence[str] = ()  # texts at x = 0, 1, ... instead of numbers


@dataclass(frozen=True)
class Chart:
    """A result to draw, with its numbers. `name` is the name of its files, without a suffix."""

    name: str
    panels: Sequence[Panel]
    table: Table
    ordered: bool = False  # lines have an order, such as layers, and get ordered colours

    def write(self, folder: Path, of: str = "") -> list[Path]:
        """Write the figure as PNG and SVG and the numbers as CSV. Returns the paths. Raises as `panel_chart`.

        `of` is shown above the figure, such as the name of a run.
        """
        paths = [folder / f"{self.name}.{suffix}" for suffix in ("png", "svg", "csv")]
        for path in paths[:2]:
            panel_chart(self.panels, path, ordered=self.ordered, of=of)
        write_text(paths[2], self.table.csv(digits=6))
        return paths


def panel_chart(panels: Sequence[Panel], path: Path, *, ordered: bool = False, of: str = "") -> None:
    """Draw charts side by side. Lines with the same name have the same style in all of them.

    Args:
        panels: at least one.
        path: the figure; its suffix determines the format.
        ordered: the lines have an order, such as layers, and get ordered colours.
        of: a title above the figure, such as the name of a run.

    Raises:
        UserError: there is nothing to draw, or the format is unknown.
    """
    if not any(points for panel in panels for points in panel.lines.values()):
        raise UserError("there is nothing to draw", where=str(path))
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines if name != panel.baseline))
    styles = {name: LINES[index % len(LINES)] for index, name in enumerate(names)}
    if ordered and len(names) > 1:  # from dark to light, without yellow, which is hard to see on white
        colour = matplotlib.colormaps["viridis"]
        for index, name in enumerate(names):
            styles[name] = styles[name] | {"color": colour(0.8 * index / (len(names) - 1)), "linestyle": "-"}
    text = "".join(
        [of, *names]
        + [str(panel.baseline or "") for panel in panels]
        + [word for panel in panels for word in (panel.title, panel.x, panel.y, *panel.names)]
    )
    with matplotlib.rc_context(STYLE | {"font.family": pick_fonts(text)[0]}):
        legend = any(names)  # a single line may have no name
        width = (4.6 if len(panels) == 1 else 3.4 * len(panels)) + 1.2 * legend
        figure = Figure(figsize=(width, 3.3), layout="constrained")
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _draw_panel(axes, panel, styles)
        if legend:
            labelled = (axes.get_legend_handles_labels() for axes in figure.axes)
            handles = {label: line for lines, labels in labelled for line, label in zip(lines, labels, strict=True)}
            figure.legend(handles.values(), list(handles), loc="outside right center", frameon=False, handlelength=3)
        if of:
            figure.suptitle(of, x=0.01, ha="left", fontsize=8, color=MUTED)
        save_figure(figure, path)


def _draw_panel(axes: Axes, panel: Panel, styles: Mapping[str, dict[str, Any]]) -> None:
    axes.set_title(panel.title, loc="left", fontsize=10, pad=14)
    look: dict[str, Any]
    if all(len(points) == 1 for points in panel.lines.values()) and not panel.dots:
        # If every line has a single point, write the values as text.
        values = {name: points[0] for name, points in panel.lines.items()}
        ends = {name: " ({:.4g} to {:.4g})".format(*bars[0]) for name, bars in panel.bars.items()}
        lines = [f"{name}  {y:.4g}{ends.get(name, '')}".strip() for name, (_, y) in values.items()]
        at = sorted({panel.names[int(x)] if panel.names else f"{x:g}" for x, _ in values.values()})
        axes.text(0, 0.6, "\n".join(lines), fontsize=13, va="center")
        axes.text(0, 0.15, f"{panel.y}, {panel.x} {', '.join(at)}", color=MUTED, va="center")
        axes.set_axis_off()
        return
    for name in panel.logarithmic:  # before drawing lines, whose limits depend on the scale
        along = [point["xy".index(name)] for points in panel.lines.values() for point in points]
        scale, axis = (axes.set_xscale, axes.xaxis) if name == "x" else (axes.set_yscale, axes.yaxis)
        scale("log", base=2 if name == "x" and max(along) < 100 * min(along) else 10)
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
        axis.set_minor_formatter(NullFormatter())
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
        first, last, label = panel.shaded
        axes.axvspan(first, last, color=GRID, linewidth=0)
        look = {"ha": "center", "va": "bottom", "fontsize": 7, "color": MUTED}
        axes.text((first + last) / 2, 1.01, label, transform=axes.get_xaxis_transform(), **look)
    if panel.logarithmic != "xy":
        # The y axis begins at zero, unless a limit is set, or all values are in its upper third.
        low, high = axes.get_ylim()
        if 0 < low <= 2 / 3 * high and panel.limits[0] is None:
            axes.set_ylim(0, high)
        elif low > 0:
            axes.set_ylabel(f"{axes.get_ylabel()} (axis cut)".strip())
            ground = {"facecolor": matplotlib.rcParams["axes.facecolor"], "edgecolor": "none", "pad": 0.5}
            look = {"ha": "center", "va": "center", "color": MUTED, "fontsize": 8, "bbox": ground}
            axes.text(0, 0, "//", transform=axes.transAxes, **look)
    if panel.names:
        slanted = sum(map(len, panel.names)) > NAMES_BESIDE_EACH_OTHER
        axes.set_xticks(
            range(len(panel.names)), panel.names, rotation=30 * slanted, ha="right" if slanted else "center"
        )
    elif not panel.logarithmic:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    different = {count for _, count in panel.counts}
    if len(different) == 1:
        axes.set_xlabel(f"{panel.x} ({different.pop():,} examples each)")
    elif len(panel.counts) > COUNTS_BESIDE_EACH_OTHER:
        axes.set_xlabel(f"{panel.x} ({min(different):,} to {max(different):,} examples each)")
    elif different:
        axes.set_xlabel(f"{panel.x} (above it: examples)")
        look = {"ha": "center", "va": "bottom", "fontsize": 6, "color": MUTED}
        for place, count in panel.counts:
            axes.text(place, 0.02, f"{count:,}", transform=axes.get_xaxis_transform(), **look)
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def alignment_figure(output: Output, path: Path, *, dark: bool = False) -> None:
    """Draw the attention from target to source tokens of an output, averaged over all layers and heads.

    Characters that no installed font can draw are shown as rectangles, and named in a line below the figure. The suffix
    of the path determines the format; `dark` draws light on dark.
    """
    weights = np.mean([of_layer.mean(axis=0) for of_layer in output.attention.values()], axis=0)
    alignment = WordAlignment(tuple(output.attended), (*output.tokens, END), weights)
    _draw_page([alignment], path, columns=1, style=STYLE | DARK if dark else STYLE)


def alignment_page(alignments: Sequence[WordAlignment], path: Path, columns: int = 3) -> None:
    """Draw word alignments, source above and target to the left. Alignments with an empty side are left out.

    At most `columns` sentences are side by side, fewer if they are long. Raises UserError if nothing can be drawn.
    """
    drawn = [alignment for alignment in alignments if alignment.source and alignment.target]
    if not drawn:
        raise UserError("there is no alignment to draw: every line or its output is empty", where=str(path))
    widest = max(len(alignment.source) for alignment in drawn)
    _draw_page(drawn, path, min(columns, max(1, WORDS_BESIDE_EACH_OTHER // widest), len(drawn)))


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
            names = ", ".join(f"U+{ord(char):04X}" for char in sorted(missing)[:4]) + (" …" if len(missing) > 4 else "")
            packages = "fonts-noto; for Chinese, Japanese and Korean fonts-noto-cjk"
            text = f"No installed font has {names}\nNoto Sans has most scripts ({packages})"
            figure.supxlabel(text, fontsize=7)
        save_figure(figure, path)
