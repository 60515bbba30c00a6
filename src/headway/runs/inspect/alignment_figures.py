"""Figures of alignments, of one sentence or of a page of them, as PNG, SVG or PDF by the name of the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from headway.errors import UserError
from headway.figures.drawing import DARK, STYLE, draw_weights, save_figure
from headway.figures.fonts import drawable
from headway.predictors.captured_attention import END
from headway.predictors.output import Output
from headway.predictors.word_alignment import WordAlignment

PAGE_WORDS = 60  # source words beside each other on a page


def alignment_figure(output: Output, path: Path, *, dark: bool = False) -> None:
    """Draw how much each target token of an output attended to each source token, the mean of all layers and heads.

    Characters that no installed font can draw are shown as rectangles, and a line below the figure names them. The
    suffix of the path says the format; with `dark` the figure is light on dark.
    """
    weights = np.mean([of_layer.mean(axis=0) for of_layer in output.attention.values()], axis=0)
    alignment = WordAlignment(tuple(output.attended), (*output.tokens, END), weights)
    _draw_page([alignment], path, columns=1, style=STYLE | DARK if dark else STYLE)


def alignment_page(alignments: Sequence[WordAlignment], path: Path, columns: int = 3) -> None:
    """Draw alignments of words, source above and target to the left; those without words on a side are left out.

    At most `columns` sentences stand beside each other, long ones fewer. Raises UserError where nothing can be drawn.
    """
    drawn = [alignment for alignment in alignments if alignment.source and alignment.target]
    if not drawn:
        raise UserError("there is no alignment to draw: every line or its output is empty", where=str(path))
    widest = max(len(alignment.source) for alignment in drawn)
    _draw_page(drawn, path, min(columns, max(1, PAGE_WORDS // widest), len(drawn)))


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
