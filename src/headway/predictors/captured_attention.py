"""The attention behind an output, with the tokens that its rows and columns stand for, and as notebooks show it.

A row of the target is named by the token that is written there, a column by the token that is read there: row y1 of a
decoder's self-attention stands where y1 is written, and its column `<s>` is the one that is read at that moment.

Shapes: L layers, K heads, T rows (what attends), S columns (what is attended to).
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from headway.errors import UserError, option
from headway.models.model import Axes
from headway.models.tagger import LAYERS
from headway.predictors.predict_options import Capture

BEGIN, END = "<s>", "</s>"  # how the special tokens at both ends are written among tokens
ALL = "all"

Floats = NDArray[np.float32]
CROSS = "decoder.cross"
SHORTENED = 60  # characters of a text in a `repr`
if TYPE_CHECKING:
    from matplotlib.axes import Axes as Plot


@dataclass(frozen=True)
class CapturedAttention:
    """The weights of one kind of attention in all layers that have them.

    Args:
        layers: the numbers of the layers from 1, lowest first; a layer whose mixer has no weights is not there.
        weights: (L, K, T, S).
        rows: the T tokens of the rows.
        columns: the S tokens of the columns.
    """

    layers: tuple[int, ...]
    weights: Floats
    rows: list[str]
    columns: list[str]

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.weights.shape))
        return f"<CapturedAttention: layers {', '.join(map(str, self.layers))}; weights {shape}>"


def patterns_of(capture: Capture) -> tuple[str, ...]:
    """Patterns of names: all of them for `all`, else as they are given, as one text separated by commas or several."""
    if capture == ALL:
        return ("*",)
    return tuple(capture.split(",")) if isinstance(capture, str) else tuple(capture)


def row_tokens(axes: Axes, source: Sequence[str], target: Sequence[str]) -> list[str]:
    """The tokens of the rows: those read at the source, end mark included, and those written at the target."""
    tokens = {"source": list(source), "target": [*target, END]}
    return tokens["source"] + tokens["target"] if axes.queries == "both" else tokens[axes.queries]


def column_tokens(axes: Axes, source: Sequence[str], target: Sequence[str]) -> list[str]:
    """The tokens of the columns: those that are read, at the source with the end mark."""
    tokens = {"source": list(source), "target": [BEGIN, *target]}
    return tokens["source"] + tokens["target"] if axes.keys == "both" else tokens[axes.keys]


@dataclass(frozen=True)
class AttentionName:
    """The name of one attention of a model: `encoder.1.self`, `decoder.3.cross`, or `layers` for attention to layers.

    Args:
        stack: `encoder` or `decoder`; `layers` for attention to layers.
        layer: from 1; None for attention to layers.
        kind: `self` or `cross`, or whatever else a model captures there; empty for attention to layers.
    """

    stack: str
    layer: int | None = None
    kind: str = ""

    @classmethod
    def parse(cls, text: str) -> AttentionName:
        """The name that `str` gave. Raises ValueError for a text that is none."""
        stack, *rest = text.split(".")
        if not rest and stack:
            return cls(stack)
        if len(rest) != 2 or not rest[0].isdecimal():
            raise ValueError(f"{text!r} is no name of attention such as encoder.1.self")
        return cls(stack, int(rest[0]), rest[1])

    def __str__(self) -> str:
        return self.stack if self.layer is None else f"{self.stack}.{self.layer}.{self.kind}"

    @property
    def group(self) -> str:
        """Stack and kind, such as `encoder.self`: what all layers of a stack have in common."""
        return self.stack if self.layer is None else f"{self.stack}.{self.kind}"

    @property
    def group_title(self) -> str:
        """The group as people read it: `encoder, self`."""
        return self.stack if self.layer is None else f"{self.stack}, {self.kind}"

    @property
    def layer_title(self) -> str:
        """The layer as people read it, without its stack: `layer 1` is the lowest."""
        return "all layers" if self.layer is None else f"layer {self.layer}"

    @property
    def title(self) -> str:
        """The whole as people read it: `encoder layer 1, self`."""
        return LAYERS if self.layer is None else f"{self.stack} {self.layer_title}, {self.kind}"


def layer_titles(count: int) -> list[str]:
    """So many layers as people read them, `layer 1` being the lowest."""
    return [f"layer {layer}" for layer in range(1, count + 1)]


def by_kind(names: Sequence[str]) -> dict[str, dict[int, str]]:
    """Names such as `encoder.1.self` by stack and kind (`encoder.self`) and layer, lowest layer first."""
    kinds: dict[str, dict[int, str]] = {}
    for text in names:
        name = AttentionName.parse(text)
        kinds.setdefault(name.group, {})[name.layer or 0] = text
    return {kind: dict(sorted(layers.items())) for kind, layers in kinds.items()}


def alignment_layer(names: Sequence[str]) -> str | None:
    """The attention to the source that aligns best: that of the last layer but one, or of the only one.

    In this layer alignments of Transformers are best (Garg et al. 2019, table 2). None where none of `names`, lowest
    layer first, is attention to the source.
    """
    cross = [name for name in names if AttentionName.parse(name).kind == "cross"]
    return cross[max(0, len(cross) - 2)] if cross else None


def stack_layers(weights: Mapping[str, Floats], names: Mapping[int, str]) -> Floats:
    """(L, K, T, S) from the layers of one kind. Raises UserError where they have different numbers of heads."""
    layers = [weights[name] for name in names.values()]
    heads = {name: len(layer) for name, layer in zip(names.values(), layers, strict=True)}
    if len(set(heads.values())) > 1:
        raise UserError(
            "these layers have different numbers of heads, so that no array holds them all",
            where="attention",
            received=heads,
            allowed="one layer at a time: prediction.attention[name]",
        )
    return np.stack(layers)


def to_bertviz(
    attention: Mapping[str, Floats], axes: Mapping[str, Axes], source: Sequence[str], target: Sequence[str]
) -> dict[str, Any]:
    """The arguments of bertviz's `head_view` and `model_view`: tensors (1, K, T, S) a layer, and the tokens read.

    `source` are those of the source with the end mark, `target` those of the output without it.

    Raises:
        UserError: there is no attention, or layers have different numbers of heads.
    """
    if not attention:
        raise UserError("there is no attention to show", where="to_bertviz", allowed='predict(text, capture="all")')
    kinds = by_kind(list(attention))
    tensors = {
        kind: [torch.from_numpy(layer)[None] for layer in stack_layers(attention, names)]
        for kind, names in kinds.items()
    }
    read = {"source": list(source), "target": [BEGIN, *target]}
    decoder = kinds.get("decoder.self")
    if decoder is not None and axes[next(iter(decoder.values()))].keys == "both":
        return {"attention": tensors["decoder.self"], "tokens": read["source"] + read["target"]}
    arguments = {"encoder.self": "encoder_attention", "decoder.self": "decoder_attention"}
    arguments["decoder.cross"] = "cross_attention"
    shown: dict[str, Any] = {arguments[kind]: layers for kind, layers in tensors.items() if kind in arguments}
    return shown | {"encoder_tokens": read["source"], "decoder_tokens": read["target"]}


def shortened(text: str) -> str:
    """A text in quotes, cut where it is long."""
    return repr(text if len(text) <= SHORTENED else f"{text[: SHORTENED - 1]}…")


def table_of(rows: Sequence[Sequence[object]], header: Sequence[str]) -> str:
    """A table in HTML, every cell escaped."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def chosen_layer(attention: Mapping[str, Any], kind: str | None, layer: int | None) -> str:
    """The name of one attention of those that there are. Raises UserError where there is none.

    `kind` is `decoder.cross` and the like, or a whole name; by default the attention to the source, if there is any.
    `layer` counts from 1; by default it is the last.
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

    from headway.figures import STYLE, draw_weights, drawable

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
