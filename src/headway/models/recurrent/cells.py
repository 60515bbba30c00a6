"""Recurrent layers, computed by fused kernels where torch has them.

Shapes: B batch, L length, I input, H hidden.
"""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from headway.tensors.dropout import Dropout, dropout
from headway.tensors.linear import Linear
from headway.tensors.looking import is_recorded

SHUT = 1e4  # sigmoid(SHUT) is 1 and sigmoid(-SHUT) is 0 in every floating type

# The state of all layers: hidden vectors (layers, B, H) and, for an LSTM, memory cells of the same shape.
States = tuple[Tensor, ...]


class ChoGru(nn.Module):
    """GRU layers of Cho et al. (2014, section 2.3), whose reset gate is applied before the product.

    h' = z h + (1 - z) tanh(W x + U (r h)). `torch.nn.GRU` computes r (U h) instead, for which there is a fused kernel.
    Here each position is a step in Python.

    Args:
        inputs: I.
        hidden: H.
        layers: the number of layers.
        batch_first: as for `torch.nn.GRU`; must be True.
        dropout: between layers.
    """

    def __init__(self, inputs: int, hidden: int, layers: int, *, batch_first: bool, dropout: float) -> None:
        super().__init__()
        assert batch_first
        self.hidden_size, self.dropout = hidden, Dropout(dropout)
        sizes = [inputs, *[hidden] * (layers - 1)]
        self.inputs = nn.ModuleList(Linear(size, 3 * hidden) for size in sizes)  # r, z, and the new content
        self.gates = nn.ModuleList(Linear(hidden, 2 * hidden, bias=False) for _ in sizes)
        self.contents = nn.ModuleList(Linear(hidden, hidden, bias=False) for _ in sizes)
        for parameter in self.parameters():  # as those of torch.nn.GRU
            nn.init.uniform_(parameter, -(hidden**-0.5), hidden**-0.5)

    def forward(self, x: Tensor, states: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The outputs (B, L, H) of the top layer for x (B, L, I), and the final states (layers, B, H)."""
        if states is None:
            states = x.new_zeros(len(self.inputs), len(x), self.hidden_size)
        after = []
        for number, h in enumerate(states):
            x = x if number == 0 else self.dropout(x)
            gates, contents, outputs = self.gates[number], self.contents[number], []
            for of_gates, of_content in zip(*self._projected(number, x), strict=True):
                reset, update = torch.sigmoid(of_gates + gates(h)).chunk(2, -1)
                new = torch.tanh(of_content + contents(reset * h))
                h = new + update * (h - new)
                outputs.append(h)
            x = torch.stack(outputs, 1)
            after.append(h)
        return x, torch.stack(after)

    def _projected(self, number: int, x: Tensor) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """Project the inputs (B, L, I) for the gates (B, 2H) and the candidate (B, H): one tensor per position."""
        projected = self.inputs[number](x)
        of_gates, of_content = projected[..., : 2 * self.hidden_size], projected[..., 2 * self.hidden_size :]
        return of_gates.unbind(1), of_content.unbind(1)


CELLS: dict[str, type[nn.GRU] | type[nn.LSTM] | type[ChoGru]] = {"gru": nn.GRU, "lstm": nn.LSTM, "cho_gru": ChoGru}
Cells = nn.RNNBase | ChoGru


def build_cells(cell: str, inputs: int, hidden: int, layers: int = 1, dropout: float = 0.0) -> Cells:
    return CELLS[cell](inputs, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)


def run(cells: Cells, x: Tensor, states: States | None) -> tuple[Tensor, States]:
    """The outputs (B, L, H) of the top layer for x (B, L, I), and the final states, for any kind of cell."""
    if leaves_autocast(cells, x.device.type):
        with torch.autocast(x.device.type, enabled=False):
            return run(cells, x.float(), None if states is None else tuple(state.float() for state in states))
    if is_recorded() and isinstance(cells, nn.RNNBase) and cells.training and cells.dropout:
        return run_in_layers(cells, x, states)
    output, after = cells(x, states[0] if states is not None and len(states) == 1 else states)
    return output, _as_states(after)


def run_in_layers(cells: nn.RNNBase, x: Tensor, states: States | None) -> tuple[Tensor, States]:
    """As `run`, layer by layer with separate dropout: a CUDA graph cannot record the random state of cuDNN."""
    states = states or (x.new_zeros(cells.num_layers, len(x), cells.hidden_size),) * 2  # GRUs use only the first
    ended = []
    for number, weights in enumerate(cells.all_weights):
        x = dropout(x, cells.dropout) if number else x
        x, after = _layer(cells, x, tuple(state[number : number + 1] for state in states), weights)
        ended.append(after)
    return x, tuple(map(torch.cat, zip(*ended, strict=True)))


def _layer(cells: nn.RNNBase, x: Tensor, before: States, weights: Sequence[Tensor]) -> tuple[Tensor, States]:
    """Run one layer of `cells` with these weights: outputs (B, L, H) for x (B, L, I), and states (1, B, H)."""
    kernel, given = (torch.lstm, before) if cells.mode == "LSTM" else (torch.gru, before[0])
    output, *after = kernel(x, given, weights, True, 1, 0.0, cells.training, False, True)  # type: ignore[call-overload]
    return output, tuple(after)


def leaves_autocast(cells: Cells, device: str) -> bool:
    """Whether layers are computed in float32 although autocast is set to bf16.

    Some processors have no kernel for bf16. cuDNN computes in float16 under any autocast, in which small gradients
    underflow without loss scaling.
    """
    if device not in ("cpu", "cuda") or not torch.is_autocast_enabled(device):
        return False
    if device == "cpu":
        return not bf16_is_supported()
    return isinstance(cells, nn.RNNBase) and torch.get_autocast_dtype(device) is torch.bfloat16


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
@cache
def bf16_is_supported() -> bool:
    """Whether this processor has bf16 kernels for recurrent layers; tries one, without drawing random numbers."""
    try:
        with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", torch.bfloat16):
            nn.LSTM(1, 1, device="meta").to_empty(device="cpu")(torch.zeros(1, 1, 1))
    except RuntimeError:  # oneDNN: could not create a primitive descriptor
        return False
    return True


def _as_states(after: Tensor | States) -> States:
    return after if isinstance(after, tuple) else (after,)


def read(cells: Cells, x: Tensor, lengths: Tensor) -> tuple[Tensor, States]:
    """As `run`, for padded rows x (B, L, I) with `lengths` (B,) of 1 or more.

    Outputs are zero at padding, and the states are those after the last real position of each row.
    """
    if x.is_meta:  # lengths have no values, so all rows are read to the end
        return run(cells, x, None)
    gated = torch.compiler.is_exporting() or is_recorded()
    if isinstance(cells, nn.RNNBase) and (gated or x.device.type != "cpu"):
        way = read_gated if gated else read_packed
        if leaves_autocast(cells, x.device.type):
            with torch.autocast(x.device.type, enabled=False):
                return way(cells, x.float(), lengths)
        return way(cells, x, lengths)
    return read_in_turns(cells, x, lengths)


def read_gated(cells: nn.RNNBase, x: Tensor, lengths: Tensor) -> tuple[Tensor, States]:
    """`read` of one layer as a single call for all lengths, which can be exported to the graphs of other engines.

    One more input marks padding. It closes the gates that add to the state, and opens those that keep it: the logistic
    function of `SHUT` is one in every floating type, that of `-SHUT` zero.
    """
    padding = torch.arange(x.shape[1], device=x.device) >= lengths[:, None]
    gates = {"LSTM": (-SHUT, SHUT, 0.0, 0.0), "GRU": (0.0, SHUT, 0.0)}[cells.mode]
    inner, *others = (parameter for parameter in cells.parameters())
    column = torch.cat([inner.new_full((cells.hidden_size, 1), gate) for gate in gates])
    weights = [torch.cat([inner, column], 1), *others]
    inputs = torch.cat([x, padding[..., None].to(x.dtype)], 2)
    zeros = x.new_zeros(1, x.shape[0], cells.hidden_size)
    output, (_, *memory) = _layer(cells, inputs, (zeros, zeros), weights)
    last = output.gather(1, (lengths - 1)[:, None, None].expand(-1, 1, cells.hidden_size)).transpose(0, 1)
    return output.masked_fill(padding[..., None], 0), (last, *memory)


def read_packed(cells: nn.RNNBase, x: Tensor, lengths: Tensor) -> tuple[Tensor, States]:
    """`read` with packed sequences, for which accelerators have a kernel."""
    packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
    output, after = cells(packed)
    assert isinstance(output, PackedSequence)
    values, _ = pad_packed_sequence(output, batch_first=True, total_length=x.shape[1])
    return values, _as_states(after)


def read_in_turns(cells: Cells, x: Tensor, lengths: Tensor) -> tuple[Tensor, States]:
    """`read` without padding: run all rows up to the shortest length, the remaining rows up to the next, and so on.

    On a CPU packed sequences have no fused kernel and take more than twice as long. `ChoGru` does not support them.
    """
    longest_first = lengths.argsort(descending=True, stable=True)
    rows, x = len(lengths), x.index_select(0, longest_first)
    outputs: list[Tensor] = []
    ended: list[States] = []
    states: States | None = None
    begin = 0
    known = lengths.tolist()
    for end in sorted(set(known)):
        going = sum(length >= end for length in known)
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
