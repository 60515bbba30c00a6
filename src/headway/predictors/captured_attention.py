"""The attention behind an output, with the tokens that its rows and columns stand for, and as notebooks show it.

A row of the target is named by the token that is written there, a column by the token that is read there: row y1 of a
decoder's self-attention stands where y1 is written, and its column `<s>` is the one that is read at that moment.

Shapes: L layers, K heads, T rows (what attends), S columns (what is attended to).
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from headway.core.errors import UserError, option
from headway.models.model import Axes
from headway.models.tagger import LAYERS
from headway.predictors.predict_options import Capture

BEGIN, END = "<s>", "</s>"  # how the special tokens at both ends are written among tokens
ALL = "all"

Floats = NDArray[np.float32]
CROSS = "decoder.cross"
BERTVIZ = {"encoder.self": "encoder_attention", "decoder.self": "decoder_attention", CROSS: "cross_attention"}
SHORTENED = 60  # characters of a text in a `repr`
if TYPE_CHECKING:
    from matplotlib.axes import Axes as Plot


def patterns_of(capture: Capture) -> tuple[str, ...]:
    """Patterns of names: all of them for `all`, else as they are given, as one text separated by commas or several."""
    if capture == ALL:
        return ("*",)
    return tuple(capture.split(",")) if isinstance(capture, str) else tuple(capture)


def row_tokens(axes: Axes, source: Sequence[str], target: Sequence[str]) -> list[str]:
    """The tokens of the rows: those read at the source, end mark included, and those written at the target."""
    tokens = {"source": list(source), "target": [*target, END]}
    return tokens["source"] + tokens["target"] if axes.queries == "both" else tokens[axes.queries]


def column_tokens(axes: Axes, source: Sequence[str], target: Sequence[str], outputs: int = 0) -> list[str]:
    """The tokens of the columns: those that are read, at the source with the end mark; or so many `outputs`."""
    tokens = {"source": list(source), "target": [BEGIN, *target]}
    tokens["outputs"] = ["embeddings", *(f"output {number}" for number in range(1, outputs))]
    return tokens["source"] + tokens["target"] if axes.keys == "both" else tokens[axes.keys]


@dataclass(frozen=True)
class AttentionName:
    """The name of one attention of a model: `encoder.1.self`, `decoder.3.cross`, or of attention to layers, `layers`
    or `encoder.layers`.

    Args:
        stack: `encoder` or `decoder`; `layers` for a tagger's attention to layers.
        layer: from 1; None for attention to layers.
        kind: `self` or `cross`, or whatever else a model captures there; `layers` for the attention of a stack's
            sublayers to the outputs before them, empty for a tagger's.
    """

    stack: str
    layer: int | None = None
    kind: str = ""

    @classmethod
    def parse(cls, text: str) -> AttentionName:
        """The name that `str` gave. Raises ValueError for a text that is none."""
        stack, *rest = text.split(".")
        if (not rest and stack) or rest == [LAYERS]:
            return cls(stack, None, *rest)
        if len(rest) != 2 or not rest[0].isdecimal():
            raise ValueError(f"{text!r} is no name of attention such as encoder.1.self")
        return cls(stack, int(rest[0]), rest[1])

    def __str__(self) -> str:
        return self.group if self.layer is None else f"{self.stack}.{self.layer}.{self.kind}"

    @property
    def to_layers(self) -> bool:
        """Whether the weights are of layers, not of tokens."""
        return LAYERS in (self.stack, self.kind)

    @property
    def group(self) -> str:
        """Stack and kind, such as `encoder.self`: what all layers of a stack have in common."""
        return f"{self.stack}.{self.kind}" if self.kind else self.stack

    @property
    def group_title(self) -> str:
        """The group as people read it: `encoder, self`."""
        return f"{self.stack}, {self.kind}" if self.kind else self.stack

    @property
    def layer_title(self) -> str:
        """The layer as people read it, without its stack: `layer 1` is the lowest."""
        return "all layers" if self.layer is None else f"layer {self.layer}"

    @property
    def title(self) -> str:
        """The whole as people read it: `encoder layer 1, self`."""
        return self.group_title if self.layer is None else f"{self.stack} {self.layer_title}, {self.kind}"


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


def shortened(text: str) -> str:
    """A text in quotes, cut where it is long."""
    return repr(text if len(text) <= SHORTENED else f"{text[: SHORTENED - 1]}…")


def table_of(rows: Sequence[Sequence[object]], header: Sequence[str]) -> str:
    """A table in HTML, every cell escaped."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


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


@dataclass(frozen=True, eq=False)
class AttentionWeights(Mapping[str, Floats]):
    """The attention of a model in one pass over a sentence, or over a window of its words: a mapping of its weights.

    Args:
        weights: (K, T, S) by name, such as `decoder.1.cross`; the weights of layers, `layers`, are (J, N, L).
        rows: the T tokens of the rows, by name.
        columns: the S tokens of the columns, by name.
        words: the rows that begin a word, where the model says something of words.
        start: how many words there are before the window.
    """

    weights: Mapping[str, Floats] = field(default_factory=dict)
    rows: Mapping[str, list[str]] = field(default_factory=dict)
    columns: Mapping[str, list[str]] = field(default_factory=dict)
    words: tuple[int, ...] | None = None
    start: int = 0

    def __getitem__(self, name: str) -> Floats:
        return self.weights[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.weights)

    def __len__(self) -> int:
        return len(self.weights)

    def __repr__(self) -> str:
        return f"<AttentionWeights: {', '.join(self) or 'none'}>"

    def self_attention(self) -> Floats:
        """(L, K, P, P): all self-attention of a model whose layers have equally many heads, lowest layer first."""
        return np.stack([self[name] for name in self if AttentionName.parse(name).kind == "self"])

    def layer_weights(self) -> Floats | None:
        """(N, J, L): how much each word gets of each layer; None for a model that does not attend to layers."""
        return self[LAYERS].transpose(1, 0, 2) if LAYERS in self else None

    @property
    def captured(self) -> dict[str, CapturedAttention]:
        """The attention of all layers by kind (`encoder.self`, `decoder.self`, `decoder.cross`), with its tokens.

        Raises:
            UserError: layers with different numbers of heads.
        """
        stacked = {}
        for kind, names in by_kind(list(self)).items():
            heads = {name: len(self[name]) for name in names.values()}
            if len(set(heads.values())) > 1:
                what = "these layers have different numbers of heads, so that no array holds them all"
                raise UserError(what, where="attention", received=heads, allowed="one layer at a time: attention[name]")
            layers, first = np.stack([self[name] for name in names.values()]), next(iter(names.values()))
            stacked[kind] = CapturedAttention(tuple(names), layers, self.rows[first], self.columns[first])
        return stacked

    def to_bertviz(self) -> dict[str, Any]:
        """The arguments of bertviz's `head_view` and `model_view`: tensors (1, K, T, S) a layer, and the tokens read.

        Raises:
            UserError: there is no attention, or layers have different numbers of heads.
        """
        if not self:
            raise UserError("there is no attention to show", where="to_bertviz", allowed='predict(text, capture="all")')
        captured = {kind: each for kind, each in self.captured.items() if kind in BERTVIZ}
        layers = {kind: [torch.from_numpy(layer)[None] for layer in each.weights] for kind, each in captured.items()}
        for kind, each in captured.items():  # a model of one stack reads source and target in one
            if kind != CROSS and (len(captured) == 1 or (kind == "decoder.self" and each.columns[0] != BEGIN)):
                return {"attention": layers[kind], "tokens": each.columns}
        arguments: dict[str, Any] = {BERTVIZ[kind]: each for kind, each in layers.items()}
        for kind, each in captured.items():
            side = "decoder" if kind == "decoder.self" else "encoder"
            arguments[f"{side}_tokens"] = each.columns
            if kind == CROSS:
                arguments.setdefault("decoder_tokens", [BEGIN, *each.rows[:-1]])
        return arguments

    def plot(
        self, name: str | None = None, layer: int | None = None, head: int | None = None, ax: Plot | None = None,
        *, stretch: bool = False,
    ) -> Plot:  # fmt: skip
        """A picture of attention, rows attending to columns; its scale goes from 0 to 1 and marks the uniform weight.

        Args:
            name: `decoder.cross` and the like, or a whole name such as `decoder.1.cross`; by default the attention to
                the source, if there is any; `layers` for the weights of layers.
            layer: counted from 1; by default the last.
            head: counted from 1; by default the mean of all.
            ax: matplotlib's axes to draw on; new ones by default.
            stretch: let the scale end at the largest weight, not at 1.

        Raises:
            UserError: that attention was not captured, or there is no such head.
        """
        import matplotlib.pyplot

        from headway.core.figures import STYLE, draw_weights, drawable

        chosen = self._chosen(name, layer)
        parsed, weights, rows, columns = (
            AttentionName.parse(chosen),
            self[chosen],
            self.rows[chosen],
            self.columns[chosen],
        )
        if head is not None and not 1 <= head <= len(weights):
            raise UserError(
                "there is no such head", where=option("head"), received=head, allowed=f"1 to {len(weights)}"
            )
        shown = weights.mean(0) if head is None else weights[head - 1]
        drawn, families, _ = drawable([*columns, *rows])
        with matplotlib.rc_context(STYLE):
            if ax is None:
                size = (2 + 0.3 * len(columns), 1.5 + 0.3 * len(rows))
                ax = matplotlib.pyplot.subplots(figsize=size, layout="constrained")[1]
            draw_weights(ax, shown, drawn[: len(columns)], drawn[len(columns) :], stretch=stretch)
        for label in (*ax.get_xticklabels(), *ax.get_yticklabels()):
            label.set(fontfamily=families, parse_math=False)
        title = parsed.group if parsed.layer is None else f"{parsed.group}, layer {parsed.layer}"
        ax.set_title(f"{title}, {'mean of heads' if head is None else f'head {head}'}")
        return ax

    def _chosen(self, kind: str | None, layer: int | None) -> str:
        """The name of one attention of those that there are. Raises UserError where there is none."""
        if kind in self and layer is None:
            return str(kind)
        kinds = by_kind([name for name in self if name != LAYERS])
        kind = kind or (CROSS if CROSS in kinds else next(iter(kinds), ""))
        if kind not in kinds:
            allowed = ", ".join(kinds) or 'predict(..., capture="all") first'
            raise UserError("this attention was not captured", where=option("name"), received=kind, allowed=allowed)
        layers = kinds[kind]
        if layer is not None and layer not in layers:
            allowed = ", ".join(map(str, layers))
            raise UserError("this layer has no such attention", where=option("layer"), received=layer, allowed=allowed)
        return layers[max(layers) if layer is None else layer]
