"""The attention weights behind an output, with the tokens of their rows and columns, for notebooks and plots.

On the target side, a row is labelled with the token that is written there, and a column with the token that is read.
Row y1 of a decoder's self-attention is the step that writes y1; the token that it reads last is `<s>`.

Shapes: L layers, K heads, T rows (queries), S columns (keys).
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

BEGIN, END = "<s>", "</s>"  # labels of the beginning and end of a sentence
ALL = "all"

Floats = NDArray[np.float32]
CROSS = "decoder.cross"
BERTVIZ = {"encoder.self": "encoder_attention", "decoder.self": "decoder_attention", CROSS: "cross_attention"}
SHORTENED = 60  # characters of a text in a `repr`
if TYPE_CHECKING:
    from matplotlib.axes import Axes as Plot


def patterns_of(capture: Capture) -> tuple[str, ...]:
    """The name patterns in `capture`: a comma-separated text or several texts. `all` becomes `*`."""
    if capture == ALL:
        return ("*",)
    return tuple(capture.split(",")) if isinstance(capture, str) else tuple(capture)


def row_tokens(axes: Axes, source: Sequence[str], target: Sequence[str]) -> list[str]:
    """The tokens of the rows: the source with its end-of-sentence token, or the outputs with theirs, or both."""
    tokens = {"source": list(source), "target": [*target, END]}
    return tokens["source"] + tokens["target"] if axes.queries == "both" else tokens[axes.queries]


def column_tokens(axes: Axes, source: Sequence[str], target: Sequence[str], outputs: int = 0) -> list[str]:
    """The tokens of the columns: the source and its end, the decoder's inputs, or both; or `outputs` layer outputs."""
    tokens = {"source": list(source), "target": [BEGIN, *target]}
    tokens["outputs"] = ["embeddings", *(f"output {number}" for number in range(1, outputs))]
    return tokens["source"] + tokens["target"] if axes.keys == "both" else tokens[axes.keys]


@dataclass(frozen=True)
class AttentionName:
    """The name of one attention of a model, such as `encoder.1.self` or `decoder.3.cross`. Attention to layers is
    called `layers` or `encoder.layers`.

    Args:
        stack: `encoder` or `decoder`; `layers` for a tagger's attention to layers.
        layer: from 1; None for attention to layers.
        kind: `self`, `cross`, or another kind that the model captures; `layers` if the sublayers of a stack attend to
            earlier outputs, and empty for a tagger's attention to layers.
    """

    stack: str
    layer: int | None = None
    kind: str = ""

    @classmethod
    def parse(cls, text: str) -> AttentionName:
        """The inverse of `str`. Raises ValueError if the text is not a name."""
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
        """Whether the weights are over layers instead of tokens."""
        return LAYERS in (self.stack, self.kind)

    @property
    def group(self) -> str:
        """Stack and kind, such as `encoder.self`, shared by all layers of a stack."""
        return f"{self.stack}.{self.kind}" if self.kind else self.stack

    @property
    def group_title(self) -> str:
        """The group for display: `encoder, self`."""
        return f"{self.stack}, {self.kind}" if self.kind else self.stack

    @property
    def layer_title(self) -> str:
        """The layer for display, without its stack: `layer 1` is the lowest."""
        return "all layers" if self.layer is None else f"layer {self.layer}"

    @property
    def title(self) -> str:
        """The full name for display: `encoder layer 1, self`."""
        return self.group_title if self.layer is None else f"{self.stack} {self.layer_title}, {self.kind}"


def layer_titles(count: int) -> list[str]:
    """The titles of `count` layers. `layer 1` is the lowest."""
    return [f"layer {layer}" for layer in range(1, count + 1)]


def by_kind(names: Sequence[str]) -> dict[str, dict[int, str]]:
    """Group names such as `encoder.1.self` by stack and kind (`encoder.self`) and by layer, lowest layer first."""
    kinds: dict[str, dict[int, str]] = {}
    for text in names:
        name = AttentionName.parse(text)
        kinds.setdefault(name.group, {})[name.layer or 0] = text
    return {kind: dict(sorted(layers.items())) for kind, layers in kinds.items()}


def alignment_layer(names: Sequence[str]) -> str | None:
    """The cross-attention with the best alignments: that of the last layer but one, or of the only layer.

    In Transformers, this layer has the best alignments (Garg et al. 2019, table 2). `names` begin with the lowest
    layer. None if there is no cross-attention.
    """
    cross = [name for name in names if AttentionName.parse(name).kind == "cross"]
    return cross[max(0, len(cross) - 2)] if cross else None


def shortened(text: str) -> str:
    """A text in quotes, truncated to `SHORTENED` characters."""
    return repr(text if len(text) <= SHORTENED else f"{text[: SHORTENED - 1]}…")


def table_of(rows: Sequence[Sequence[object]], header: Sequence[str]) -> str:
    """An HTML table, with all cells escaped."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True)
class CapturedAttention:
    """The weights of one kind of attention, for all layers that return weights.

    Args:
        layers: the numbers of the layers from 1, lowest first, without layers whose mixer has no weights.
        weights: the weights (L, K, T, S).
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
    """The attention weights of a forward pass over a sentence, or over a window of its words, as a mapping by name.

    Args:
        weights: the weights (K, T, S) by name, such as `decoder.1.cross`. Those of `layers` have the shape (J, N, L).
        rows: the T tokens of the rows, by name.
        columns: the S tokens of the columns, by name.
        words: the indices of the rows that begin a word. None if the model does not label words.
        start: the number of words before the window.
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
        """All self-attention (L, K, P, P), lowest layer first, if all layers have the same number of heads.

        Raises:
            UserError: the model has no self-attention.
        """
        found = [self[name] for name in self if AttentionName.parse(name).kind == "self"]
        if not found:
            raise UserError("this model has no self-attention", where="model.encoder", allowed="with attention")
        return np.stack(found)

    def layer_weights(self) -> Floats | None:
        """The weights (N, J, L) of the layers for each word. None if the model does not attend to layers."""
        return self[LAYERS].transpose(1, 0, 2) if LAYERS in self else None

    @property
    def captured(self) -> dict[str, CapturedAttention]:
        """The attention stacked over all layers, by kind (`encoder.self`, `decoder.self`, `decoder.cross`).

        Raises:
            UserError: the layers have different numbers of heads.
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
        """The arguments of bertviz's `head_view` and `model_view`: tokens, and a tensor (1, K, T, S) for each layer.

        Raises:
            UserError: there is no attention, or layers have different numbers of heads.
        """
        if not self:
            raise UserError("there is no attention to show", where="to_bertviz", allowed='predict(text, capture="all")')
        captured = {kind: each for kind, each in self.captured.items() if kind in BERTVIZ}
        layers = {kind: [torch.from_numpy(layer)[None] for layer in each.weights] for kind, each in captured.items()}
        for kind, each in captured.items():  # a decoder-only model reads source and target together
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
        """Draw the attention as a heatmap; rows attend to columns. The colour scale (0 to 1) marks the uniform weight.

        Args:
            name: a kind such as `decoder.cross`, or a full name such as `decoder.1.cross`. The default is
                cross-attention, if the model has it. `layers` shows the weights of layers.
            layer: counted from 1; by default the last.
            head: counted from 1; by default the mean of all.
            ax: the matplotlib axes to draw on; new axes by default.
            stretch: end the colour scale at the largest weight instead of 1.

        Raises:
            UserError: the attention was not captured, or the head does not exist.
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
        """The full name of one captured attention. Raises UserError if no attention has this kind and layer."""
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
