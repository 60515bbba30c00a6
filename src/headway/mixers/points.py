"""Intervention points: values of a model that can be replaced while it runs. A `Place` is a function that installs an
edit, and returns a function that removes it. Without edits there is no overhead.

Shapes: B rows, L positions, C channels, K heads, P spans, d head.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Edit = Callable[[Tensor], Tensor]  # (B, L, C) to (B, L, C)
Place = Callable[[Edit], Callable[[], None]]
Points = dict[str, Place]  # by suffix of the module's name: `` for its output, `:head=2`, `:offset=-1`


def input_of(module: nn.Module) -> Place:
    def put(edit: Edit) -> Callable[[], None]:
        return module.register_forward_pre_hook(lambda _, given: (edit(given[0]), *given[1:])).remove

    return put


def output_of(module: nn.Module) -> Place:
    return lambda edit: module.register_forward_hook(lambda _, given, values: edit(values)).remove


def channels(whole: Place, begin: int, size: int) -> Place:
    """Only the channels `begin` to `begin` + `size` of a point."""

    def put(edit: Edit) -> Callable[[], None]:
        def edited(values: Tensor) -> Tensor:
            before, part, after = torch.split(values, [begin, size, values.shape[-1] - begin - size], -1)
            return torch.cat([before, edit(part), after], -1)

        return whole(edited)

    return put


def heads_of(projection: Any, heads: int) -> Points:
    """The values of each head, if a linear map reads their concatenation."""
    size, joined = projection.in_features // heads, input_of(projection)
    return {f":head={head + 1}": channels(joined, head * size, size) for head in range(heads)}


def head_points(module: Any) -> Points:
    """The heads of a module with `heads` (1 by default) and an `out_projection`; empty without `out_projection`."""
    projection = getattr(module, "out_projection", None)
    return {} if projection is None else heads_of(projection, getattr(module, "heads", 1))
