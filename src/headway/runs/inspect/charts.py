"""Charts with a line for each of several things."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, ScalarFormatter

from headway.errors import UserError
from headway.runs.inspect.figures import GRID, MUTED, STYLE, pick_fonts, save_figure

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
        x: what the horizontal axis is.
        y: what the vertical axis is.
        lines: points (x, y) of each line by name, in ascending order of x.
        percent: y goes from 0 to 100.
        limits: of y, where they are given.
        logarithmic: both axes.
        shaded: a range of x to be shaded, and what it is, such as the lengths in training.
        dots: points without a line.
        bars: for lines by name, how far an error bar reaches to each side of each point.
        baseline: the name of a line that the others are compared with.
        names: what stands at x = 0, 1, ... instead of numbers.
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
    bars: Mapping[str, Sequence[float]] = MappingProxyType({})
    baseline: str | None = None
    names: Sequence[str] = ()


def line_chart(
    lines: Mapping[str, Sequence[tuple[float, float]]], path: Path, *, x: str, y: str, title: str = "", **changes: Any
) -> None:
    """Draw one chart with a line a name; `changes` are other fields of `Panel`. Raises as `panel_chart` does."""
    panel_chart([Panel(title, x, y, lines, **changes)], path)


def panel_chart(panels: Sequence[Panel], path: Path, *, ordered: bool = False) -> None:
    """Draw charts beside each other.

    Args:
        panels: at least one; a name is the same line in all of them.
        path: the figure; its suffix says the format.
        ordered: the lines are in an order, such as layers, and so are their colours.

    Raises:
        UserError: there is nothing to draw, or a suffix that is no format of figures.
    """
    if not any(points for panel in panels for points in panel.lines.values()):
        raise UserError("there is nothing to draw", where=str(path))
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines if name != panel.baseline))
    styles = dict(zip(names, _styles(len(names), ordered), strict=True))
    text = "".join(
        names
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
            figure.legend(handles.values(), handles, loc="outside right center", frameon=False, handlelength=3)
        save_figure(figure, path)


def _styles(count: int, ordered: bool) -> list[dict[str, Any]]:
    """How each of so many lines looks."""
    styles = [LINES[number % len(LINES)] for number in range(count)]
    if ordered and count > 1:  # from dark to light, short of the yellow that white paper swallows
        colours = [matplotlib.colormaps["viridis"](0.8 * number / (count - 1)) for number in range(count)]
        styles = [style | {"color": colour, "linestyle": "-"} for style, colour in zip(styles, colours, strict=True)]
    return styles


def _draw_panel(axes: Axes, panel: Panel, styles: Mapping[str, dict[str, Any]]) -> None:
    for name, points in panel.lines.items():
        look: dict[str, Any] = {"label": name, "linewidth": 1.3, "markersize": 3.5}
        look |= BASELINE if name == panel.baseline else styles[name]
        x, y = zip(*points, strict=True)
        axes.errorbar(x, y, yerr=panel.bars.get(name), capsize=2, elinewidth=0.7, **look)
    if panel.dots:
        x, y = zip(*panel.dots, strict=True)
        axes.scatter(x, y, s=12, color=MUTED, alpha=0.6, linewidths=0, zorder=3)
    axes.set(xlabel=panel.x, ylabel=panel.y)
    axes.set_title(panel.title, loc="left", fontsize=10, pad=14)
    axes.set_ylim(*((-3, 103) if panel.percent else panel.limits))
    if panel.shaded is not None:
        _shade(axes, *panel.shaded)
    if panel.logarithmic:
        _make_logarithmic(axes)
    elif panel.names:
        axes.set_xticks(range(len(panel.names)), panel.names)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _shade(axes: Axes, first: float, last: float, label: str) -> None:
    axes.axvspan(first, last, color=GRID, linewidth=0)
    place = axes.get_xaxis_transform()
    axes.text((first + last) / 2, 1.01, label, transform=place, ha="center", va="bottom", fontsize=7, color=MUTED)


def _make_logarithmic(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(ScalarFormatter())
        axis.set_minor_formatter(NullFormatter())
