"""Adapters that make mixers of layers with the interface of flash-linear-attention."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headway.core.registry import Registry
from headway.mixers.mixer import Mixed, Mixer, MixerState, State
from headway.tensors.masks import padding_is_last, zero_padding

PARTS = ("recurrent_state", "conv_state")
LAYERS: Registry[nn.Module] = Registry("layer", "torch.nn:Module", {})


@dataclass(frozen=True)
class LayerState(MixerState):
    """The state of a layer: of its recurrence and short convolutions, each a tensor, a tuple of tensors, or None."""

    recurrent_state: Any
    conv_state: Any


class _Cache:
    """A state as a cache for the layer, which may modify it, in the form of the cache of a model with one layer."""

    def __init__(self, state: LayerState | None) -> None:
        self.layers = 0 if state is None else 1
        self.parts = {name: _each(torch.clone, getattr(state, name, None)) for name in PARTS} | {"attn_state": None}

    def __len__(self) -> int:
        return self.layers

    def __getitem__(self, layer: int) -> dict[str, Any]:
        return self.parts

    def update(self, **kept: Any) -> dict[str, Any]:
        """Store the layer's new state."""
        if kept.get("attn_state") is not None:
            raise ValueError("a layer that keeps all keys and values has no state of constant size")
        self.parts |= {name: kept[name] for name in PARTS if kept.get(name) is not None}
        return self.parts


class FlashLinearAttention(Mixer):
    """A causal layer with `forward(hidden_states, attention_mask, past_key_values, use_cache, ...)`, output first.

    Its initial state is zero. It receives a mask only if padding precedes real positions.

    Args:
        dim: D, its `hidden_size`.
        causal: must be True.
        layer: its import path, such as `fla.layers:GatedLinearAttention`.
        options: its keyword arguments.

    Raises:
        ValueError: `causal` is False, or the layer refuses its options.
    """

    def __init__(self, dim: int, causal: bool, *, layer: str, options: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        if not causal:
            raise ValueError("layers of this kind look backwards alone: an encoder needs another mixer")
        self.causal, self.dim = causal, dim
        try:
            self.layer = LAYERS.get(layer, "layer")(hidden_size=dim, layer_idx=0, **(options or {}))
        except AssertionError as error:
            raise ValueError(f"{layer} refuses its options ({error})") from error

    def forward(self, x: Tensor, mask: Tensor | None, *, need_weights: bool = False) -> Mixed:
        output = self.layer(x, attention_mask=None if mask is None or padding_is_last(mask) else mask)
        return Mixed(zero_padding(output[0] if isinstance(output, tuple) else output, mask), None)

    def initial_state(self, rows: int, capacity: int) -> LayerState:
        weight = next(self.parameters())
        with torch.no_grad():
            lengths = torch.zeros(rows, dtype=torch.int64, device=weight.device)
            _, after = self._extended(
                weight.new_zeros(rows, 1, self.dim), LayerState(lengths, None, None), _Cache(None)
            )
        if after.recurrent_state is None and after.conv_state is None:
            raise ValueError(f"{type(self.layer).__name__} keeps nothing in its cache, so that it cannot decode")
        return LayerState(
            lengths, *(_each(torch.zeros_like, part) for part in (after.recurrent_state, after.conv_state))
        )

    def extend(self, x: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, LayerState]:
        assert isinstance(state, LayerState)
        if lengths is None:
            return self._extended(x, state, _Cache(state))
        # The layer would read padding as real positions, so rows are grouped by length.
        groups = [(count, (lengths == count).nonzero().flatten()) for count in sorted(set(lengths.tolist()))]
        order, parts = torch.cat([rows for _, rows in groups]).argsort(), list[LayerState]()
        values = torch.zeros_like(x)
        for count, rows in groups:
            part = state.select(rows)
            if count:
                values[rows, :count], part = self._extended(x[rows, :count], part, _Cache(part))
            parts.append(part)
        joined = [_joined([getattr(part, name) for part in parts]) for name in PARTS]
        return values, LayerState(torch.cat([part.lengths for part in parts]), *joined).select(order)

    def _extended(self, x: Tensor, state: LayerState, cache: _Cache) -> tuple[Tensor, LayerState]:
        values = self.layer(x, past_key_values=cache, use_cache=True)[0]
        parts = (_each(lambda part: part, cache.parts[name]) for name in PARTS)
        return values, LayerState(state.lengths_after(x.shape[1], None), *parts)


def _each(change: Callable[[Tensor], Tensor], part: Any) -> Any:
    """Apply `change` to every tensor of a part of a state."""
    if isinstance(part, tuple | list):
        return tuple(_each(change, each) for each in part)
    if part is not None and not isinstance(part, Tensor):
        raise ValueError(f"a layer's cache holds tensors; received {type(part).__name__}")
    return None if part is None else change(part)


def _joined(parts: list[Any]) -> Any:
    """Concatenate parts of states along rows."""
    if isinstance(parts[0], tuple):
        return tuple(_joined(list(each)) for each in zip(*parts, strict=True))
    return None if parts[0] is None else torch.cat(parts)
