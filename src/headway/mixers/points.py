"""Places in a model whose values can be replaced while it runs. A place is a function that puts an edit in, and gives
the function that takes it out again: without an edit nothing of it is there.

Shapes: B rows, L positions, C channels, K heads, P spans, d head.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Edit = Callable[[Tensor], Tensor]  # (B, L, C) to the same
Place = Callable[[Edit], Callable[[], None]]
Points = dict[str, Place]  # by what follows the name of the module: `` for its output, `:head=2`, `:offset=-1`


def input_of(module: nn.Module) -> Place:
    """The first argument of a module's call."""

    def put(edit: Edit) -> Callable[[], None]:
        return module.register_forward_pre_hook(lambda _, given: (edit(given[0]), *given[1:])).remove

    return put


def output_of(module: nn.Module) -> Place:
    """The tensor that a module's call gives."""
    return lambda edit: module.register_forward_hook(lambda _, given, values: edit(values)).remove


def channels(whole: Place, begin: int, size: int) -> Place:
    """Those channels alone of the values at a place."""

    def put(edit: Edit) -> Callable[[], None]:
        def edited(values: Tensor) -> Tensor:
            before, part, after = torch.split(values, [begin, size, values.shape[-1] - begin - size], -1)
            return torch.cat([before, edit(part), after], -1)

        return whole(edited)

    return put


def heads_of(projection: Any, heads: int) -> Points:
    """The values of each head, where a linear map reads them side by side."""
    size, joined = projection.in_features // heads, input_of(projection)
    return {f":head={head + 1}": channels(joined, head * size, size) for head in range(heads)}


def head_points(module: Any) -> Points:
    """The heads of a module with an `out_projection` of so many `heads`, one where it does not say; else none."""
    projection = getattr(module, "out_projection", None)
    return {} if projection is None else heads_of(projection, getattr(module, "heads", 1))
