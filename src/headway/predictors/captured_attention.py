"""The attention behind an output, with the tokens that its rows and columns stand for.

A row of the target is named by the token that is written there, a column by the token that is read there: row y1 of a
decoder's self-attention stands where y1 is written, and its column `<s>` is the one that is read at that moment.

Shapes: L layers, K heads, T rows (what attends), S columns (what is attended to).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headway.errors import UserError
from headway.models.model import Axes
from headway.predictors.options import Capture

BEGIN, END = "<s>", "</s>"  # the special tokens at both ends, as they are shown
ALL = "all"

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Attention:
    """The weights of one kind of attention in all layers that have them.

    Args:
        layers: the numbers of the layers, lowest first; a layer whose mixer has no weights is not there.
        weights: (L, K, T, S).
        rows: the T tokens of the rows.
        columns: the S tokens of the columns.
    """

    layers: tuple[int, ...]
    weights: Floats
    rows: list[str]
    columns: list[str]


def patterns_of(capture: Capture) -> tuple[str, ...]:
    """Patterns of names: `*` for `all`, else those that are given, as one text separated by commas or several."""
    if capture == ALL:
        return ("*",)
    return tuple(capture.split(",")) if isinstance(capture, str) else tuple(capture)


def row_tokens(axes: Axes, source: Sequence[str], target: Sequence[str]) -> list[str]:
    """The tokens of the rows: those read at the source, end mark included, and those written at the target."""
    sides = {"source": list(source), "target": [*target, END]}
    return sides["source"] + sides["target"] if axes.queries == "both" else sides[axes.queries]


def column_tokens(axes: Axes, source: Sequence[str], target: Sequence[str]) -> list[str]:
    """The tokens of the columns: those that are read, at the source with the end mark."""
    sides = {"source": list(source), "target": [BEGIN, *target]}
    return sides["source"] + sides["target"] if axes.keys == "both" else sides[axes.keys]


def by_kind(names: Sequence[str]) -> dict[str, dict[int, str]]:
    """Names such as `encoder.0.self` by kind (`encoder.self`) and layer, lowest layer first."""
    kinds: dict[str, dict[int, str]] = {}
    for name in names:
        stack, layer, kind = name.split(".")
        kinds.setdefault(f"{stack}.{kind}", {})[int(layer)] = name
    return {kind: dict(sorted(layers.items())) for kind, layers in kinds.items()}


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
    within = kinds.get("decoder.self")
    if within is not None and axes[next(iter(within.values()))].keys == "both":
        return {"attention": tensors["decoder.self"], "tokens": read["source"] + read["target"]}
    arguments = {"encoder.self": "encoder_attention", "decoder.self": "decoder_attention"}
    arguments["decoder.cross"] = "cross_attention"
    shown: dict[str, Any] = {arguments[kind]: layers for kind, layers in tensors.items() if kind in arguments}
    return shown | {"encoder_tokens": read["source"], "decoder_tokens": read["target"]}
