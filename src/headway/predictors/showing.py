"""Results as notebooks show them: tables in HTML, and attention as a picture."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import UserError, option
from headway.predictors.captured_attention import by_kind

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Plot

CROSS = "decoder.cross"
SHORTENED = 60  # characters of a text in a `repr`


def shortened(text: str) -> str:
    """A text in quotes, cut where it is long."""
    return repr(text if len(text) <= SHORTENED else f"{text[: SHORTENED - 1]}…")


def table_of(rows: Sequence[Sequence[object]], header: Sequence[str]) -> str:
    """A table in HTML, every cell escaped."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def chosen_layer(attention: Mapping[str, Any], kind: str | None, layer: int | None) -> str:
    """The name of one attention.

    Args:
        attention: the attention that there is, by name.
        kind: `decoder.cross` and the like, or a whole name; by default the attention to the source, if there is any.
        layer: counted from 1; by default the last.

    Raises:
        UserError: there is no such attention.
    """
    kinds = by_kind([name for name in attention if name.count(".") == 2])
    if kind in attention and layer is None:
        return str(kind)
    kind = kind or (CROSS if CROSS in kinds else next(iter(kinds), ""))
    if kind not in kinds:
        allowed = ", ".join(kinds) or 'predict(..., capture="all") first'
        raise UserError("this attention was not captured", where=option("name"), received=kind, allowed=allowed)
    layers = kinds[kind]
    if layer is not None and layer not in layers:
        allowed = ", ".join(map(str, layers))
        raise UserError("this layer has no such attention", where=option("layer"), received=layer, allowed=allowed)
    return layers[max(layers) if layer is None else layer]


def plot_weights(
    weights: NDArray[np.floating[Any]], rows: Sequence[str], columns: Sequence[str], head: int | None, title: str,
    ax: Plot | None, *, stretch: bool = False,
) -> Plot:  # fmt: skip
    """A picture of weights (K, T, S): those of one head, counted from 1, or the mean of all.

    The scale beside it goes from 0 to 1, or with `stretch` to the largest weight, and marks the uniform weight.

    Raises:
        UserError: there is no such head.
    """
    import matplotlib.pyplot

    from headway.figures.drawing import STYLE, draw_weights
    from headway.figures.fonts import drawable

    if head is not None and not 1 <= head <= len(weights):
        raise UserError("there is no such head", where=option("head"), received=head, allowed=f"1 to {len(weights)}")
    shown = weights.mean(0) if head is None else weights[head - 1]
    drawn, families, _ = drawable([*columns, *rows])
    with matplotlib.rc_context(STYLE):
        if ax is None:
            size = (2 + 0.3 * len(columns), 1.5 + 0.3 * len(rows))
            ax = matplotlib.pyplot.subplots(figsize=size, layout="constrained")[1]
        draw_weights(ax, shown, drawn[: len(columns)], drawn[len(columns) :], stretch=stretch)
    for label in (*ax.get_xticklabels(), *ax.get_yticklabels()):
        label.set(fontfamily=families, parse_math=False)
    ax.set_title(f"{title}, {'mean of heads' if head is None else f'head {head}'}")
    return ax
