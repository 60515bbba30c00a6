"""Recurrent layers, by the framework's fused kernels.

Shapes: B batch, L length, I input, H hidden.
"""

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

SHUT = 1e4
CELLS: dict[str, type[nn.GRU] | type[nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}

# The state of all layers: hidden vectors (layers, B, H) and, of an LSTM, memory cells likewise.
States = tuple[Tensor, ...]


def build_cells(cell: str, inputs: int, hidden: int, layers: int = 1, dropout: float = 0.0) -> nn.RNNBase:
    """`layers` layers of GRU or LSTM in one direction, with dropout between them."""
    return CELLS[cell](inputs, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)


def run(cells: nn.RNNBase, x: Tensor, states: States | None) -> tuple[Tensor, States]:
    """The top layer's outputs for x (B, L, I), and the states afterwards; GRU and LSTM alike.

    Under autocast they are computed in float32 on a processor that has no such kernel for bf16.
    """
    if x.device.type == "cpu" and torch.is_autocast_enabled("cpu") and not bf16_is_supported():
        with torch.autocast("cpu", enabled=False):
            return run(cells, x.float(), None if states is None else tuple(state.float() for state in states))
    output, after = cells(x, states[0] if states is not None and len(states) == 1 else states)
    return output, _as_states(after)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
@cache
def bf16_is_supported() -> bool:
    """Whether this processor has a kernel for recurrent layers under autocast: one is tried, without random numbers."""
    try:
        with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", torch.bfloat16):
            nn.LSTM(1, 1, device="meta").to_empty(device="cpu")(torch.zeros(1, 1, 1))
    except RuntimeError:  # oneDNN: could not create a primitive descriptor
        return False
    return True


class RecurrentTrial(nn.Module):
    """A recurrent layer and a product, as a model of them has: x (B, L, I) to (B, L, H), to try precisions on."""

    def __init__(self, cell: str, inputs: int, hidden: int) -> None:
        super().__init__()
        self.cells, self.output = build_cells(cell, inputs, hidden), nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """x through both."""
        return self.output(run(self.cells, x, None)[0])  # type: ignore[no-any-return]


def _as_states(after: Tensor | States) -> States:
    return after if isinstance(after, tuple) else (after,)


def read(cells: nn.RNNBase, x: Tensor, lengths: Tensor) -> tuple[Tensor, States]:
    """As `run`, for rows x (B, L, I) of which the first `lengths` (B,) positions are real, 1 or more.

    Outputs are zero at padding, and states are those after each row's last position.
    """
    if x.is_meta:  # nothing is computed, so that no length can be looked at: all rows go as far as the longest
        return run(cells, x, None)
    if torch.compiler.is_exporting():
        return read_gated(cells, x, lengths)
    if x.device.type != "cpu":
        return read_packed(cells, x, lengths)
    return read_in_turns(cells, x, lengths)


def read_gated(cells: nn.RNNBase, x: Tensor, lengths: Tensor) -> tuple[Tensor, States]:
    """`read` as one call for all lengths, which graphs for other engines can hold, of one layer.

    One more input says that a position is padding. It closes the gates that let something new into the state, and opens
    those that keep the old: a logistic function of `SHUT` is zero or one in every floating type.
    """
    padding = torch.arange(x.shape[1], device=x.device) >= lengths[:, None]
    gates = {"LSTM": (-SHUT, SHUT, 0.0, 0.0), "GRU": (0.0, SHUT, 0.0)}[cells.mode]
    inner, *others = (parameter for parameter in cells.parameters())
    column = inner.new_tensor(gates).repeat_interleave(cells.hidden_size)[:, None]
    weights = [torch.cat([inner, column], 1), *others]
    inputs = torch.cat([x, padding[..., None].to(x.dtype)], 2)
    zeros = x.new_zeros(1, x.shape[0], cells.hidden_size)
    last = (lengths - 1)[:, None, None].expand(-1, 1, cells.hidden_size)
    if cells.mode == "LSTM":
        output, _, memory = torch.lstm(inputs, (zeros, zeros), weights, True, 1, 0.0, False, False, True)
        states: States = (output.gather(1, last).transpose(0, 1), memory)
    else:
        output, _ = torch.gru(inputs, zeros, weights, True, 1, 0.0, False, False, True)
        states = (output.gather(1, last).transpose(0, 1),)
    return output.masked_fill(padding[..., None], 0), states


def read_packed(cells: nn.RNNBase, x: Tensor, lengths: Tensor) -> tuple[Tensor, States]:
    """`read` by the framework's packed rows, for which accelerators have a kernel."""
    packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
    output, after = cells(packed)
    assert isinstance(output, PackedSequence)
    values, _ = pad_packed_sequence(output, batch_first=True, total_length=x.shape[1])
    return values, _as_states(after)


def read_in_turns(cells: nn.RNNBase, x: Tensor, lengths: Tensor) -> tuple[Tensor, States]:
    """`read` without padding: all rows as far as the shortest goes, the others as far as the next, and so on.

    On a CPU packed rows have no fused kernel and take more than twice as long.
    """
    longest_first = lengths.argsort(descending=True, stable=True)
    rows, x = len(lengths), x.index_select(0, longest_first)
    outputs: list[Tensor] = []
    ended: list[States] = []
    states: States | None = None
    begin = 0
    for end in sorted(set(lengths.tolist())):
        going = int((lengths >= end).sum())
        if states is not None:
            ended.append(tuple(state[:, going:] for state in states))
            states = tuple(state[:, :going].contiguous() for state in states)
        output, states = run(cells, x[:going, begin:end], states)
        outputs.append(F.pad(output, (0, 0, 0, 0, 0, rows - going)))
        begin = end
    assert states is not None
    values = F.pad(torch.cat(outputs, 1), (0, 0, 0, x.shape[1] - begin))
    parts = zip(states, *reversed(ended), strict=True)
    back = longest_first.argsort()
    return values.index_select(0, back), tuple(torch.cat(part, 1).index_select(1, back) for part in parts)
