"""Figures of dependency heads and of the synchronous constraint (figures 2 and 3 of Deguchi et al.).

Shapes: L pieces of a sentence, S source and T target positions with the end mark.
"""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc

from headway.runs.inspect.dependency_analysis import Analysed, Synchronised
from headway.runs.inspect.figures import DEV, GRID, INK, MUTED, STYLE, TRAINING, draw_weights, drawable, save_figure

CELL = 0.28  # inches


def dependency_figure(sentence: Analysed, path: Path, causal: bool = False) -> None:
    """Draw A_dep beside the parse: above, the parse as arcs and the model's heads below the line; then the matrix.

    Row t of the matrix is the piece t, its columns are where its head may stand; a ring marks the parser's head. Where
    `causal`, heads that stand to the right are not marked: the decoder cannot see them.

    Raises:
        UserError: an unknown format.
    """
    pieces, families, _ = drawable(sentence.pieces)
    projection = sentence.projection.left_only() if causal else sentence.projection
    size = CELL * len(pieces)
    with matplotlib.rc_context(STYLE | {"font.family": families}):
        figure = Figure(figsize=(2.2 + size, 3.2 + 1.4 * size), layout="constrained")
        arcs, matrix = figure.subplots(2, 1, height_ratios=[0.6, 1])
        _draw_arcs(arcs, pieces, projection.heads.tolist(), sentence.weights.argmax(1).tolist())
        draw_weights(matrix, sentence.weights, pieces, pieces)
        edges = [(head, place) for place, head in enumerate(projection.heads.tolist()) if head >= 0]
        if edges:
            columns, rows = zip(*edges, strict=True)
            matrix.scatter(columns, rows, s=46, facecolors="none", edgecolors=DEV, linewidths=1.2)
        save_figure(figure, path)


def _draw_arcs(axes: Axes, pieces: list[str], parser: list[int], model: list[int]) -> None:
    """Arcs from heads to dependents, the parser's above the pieces and the model's below; roots as short lines."""
    for sign, heads, colour in ((1, parser, DEV), (-1, model, TRAINING)):
        for place, head in enumerate(heads):
            if head == place:
                axes.plot([place, place], [sign * 0.45, sign * 1.1], color=colour, linewidth=1)
            elif head >= 0:
                width = abs(head - place)
                angles = (0, 180) if sign > 0 else (180, 360)
                middle = ((head + place) / 2, sign * 0.45)
                axes.add_patch(Arc(middle, width, width, theta1=angles[0], theta2=angles[1], color=colour, linewidth=1))
                axes.plot(place, sign * 0.45, marker="v" if sign > 0 else "^", color=colour, markersize=3)
    longest = max(
        [abs(head - place) for heads in (parser, model) for place, head in enumerate(heads) if head >= 0] + [2]
    )
    for place, piece in enumerate(pieces):
        axes.text(
            place, 0, piece, ha="center", va="center", color=INK, fontsize=8, rotation=30 if len(piece) > 4 else 0
        )
    axes.text(-1.2, 0.9, "parser", color=DEV, ha="right", fontsize=8)
    axes.text(-1.2, -0.9, "model", color=TRAINING, ha="right", va="top", fontsize=8)
    axes.set_xlim(-2, len(pieces))
    axes.set_ylim(-longest / 2 - 0.8, longest / 2 + 0.8)
    axes.set_aspect("equal")
    axes.axis("off")


def synchronous_figure(pair: Synchronised, source: list[str], target: list[str], path: Path) -> None:
    """Draw how E becomes D' by way of C, beside D: four matrices and the squared distance between the last two.

    Args:
        pair: the weights.
        source: the S source pieces, with the end mark.
        target: the T target pieces, with the end mark; row t says the piece t.
        path: the figure; its suffix says the format.

    Raises:
        UserError: an unknown format.
    """
    shown, families, _ = drawable([*source, *target])
    sources, targets = shown[: len(source)], shown[len(source) :]
    distance = float(np.square(pair.projected - pair.decoder).sum())
    panels = (
        ("E, encoder", pair.encoder, sources, sources), ("C, cross-attention", pair.cross, sources, targets),
        ("D', E carried over", pair.projected, targets, targets), ("D, decoder", pair.decoder, targets, targets),
    )  # fmt: skip
    with matplotlib.rc_context(STYLE | {"font.family": families}):
        widths = [len(columns) for _, _, columns, _ in panels]
        height = max(len(source), len(target))
        figure = Figure(figsize=(7 + CELL * sum(widths), 2 + CELL * height), layout="constrained")
        for axes, (title, weights, columns, rows) in zip(
            figure.subplots(1, 4, width_ratios=widths), panels, strict=True
        ):
            draw_weights(axes, weights, columns, rows)
            axes.set_title(title, color=INK, fontsize=10)
        figure.supxlabel(f"squared distance of D' and D: {distance:.3f}", color=MUTED, fontsize=8)
        figure.patch.set_edgecolor(GRID)
        save_figure(figure, path)
