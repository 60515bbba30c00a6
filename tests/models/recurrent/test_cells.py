"""Rows of different lengths are read right, in turns and packed alike."""

import itertools

import pytest
import torch

from headway.models.recurrent import cells as recurrent_cells
from headway.models.recurrent.cells import (
    bf16_is_supported,
    build_cells,
    leaves_autocast,
    read,
    read_gated,
    read_in_turns,
    read_packed,
    run,
)
from headway.tensors.looking import recorded

LENGTHS = [[4, 7, 1, 7, 2], [3, 3, 3], [1], [1, 2, 3, 4, 5, 6]]


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize(
    ("cell", "read"),
    [*itertools.product(["gru", "lstm"], [read_in_turns, read_packed]), ("cho_gru", read_in_turns), ("cho_gru", read)],
)
def test_every_row_is_read_as_if_alone(cell, read, lengths):
    torch.manual_seed(1)
    cells = build_cells(cell, 3, 5, layers=2).double()
    x = torch.randn(len(lengths), max(lengths) + 2, 3, dtype=torch.float64, requires_grad=True)
    values, states = read(cells, x, torch.tensor(lengths))
    assert values.shape == (len(lengths), max(lengths) + 2, 5)
    alone = [run(cells, x[row : row + 1, :length], None) for row, length in enumerate(lengths)]
    ours = theirs = torch.zeros(())
    for row, (length, (expected, ends)) in enumerate(zip(lengths, alone, strict=True)):
        assert torch.allclose(values[row, :length], expected[0], atol=1e-12)
        assert (values[row, length:] == 0).all()
        for state, end in zip(states, ends, strict=True):
            assert torch.allclose(state[:, row], end[:, 0], atol=1e-12)
            ours, theirs = ours + state[:, row].square().sum(), theirs + end.square().sum()
        ours, theirs = ours + values[row].cos().sum() - (values.shape[1] - length) * 5, theirs + expected.cos().sum()
    parameters = [x, *cells.parameters()]
    for one, other in zip(*(torch.autograd.grad(each, parameters) for each in (ours, theirs)), strict=True):
        assert torch.allclose(one, other, atol=1e-12)


def test_the_trial_of_bf16_leaves_random_numbers_alone_wherever_it_is_asked_for():
    answers = set()
    for context in (torch.inference_mode(), torch.no_grad(), torch.enable_grad()):
        bf16_is_supported.cache_clear()
        before = torch.get_rng_state()
        with context:
            answers.add(bf16_is_supported())
        assert torch.equal(torch.get_rng_state(), before)
    assert len(answers) == 1


@pytest.mark.parametrize("cell", ["gru", "lstm", "cho_gru"])
@pytest.mark.parametrize("supported", [True, False])
def test_cells_without_a_kernel_for_bf16_compute_in_float32(cell, supported, monkeypatch):
    if supported and not bf16_is_supported():
        pytest.skip("this processor has no such kernel")
    monkeypatch.setattr(recurrent_cells, "bf16_is_supported", lambda: supported)
    cells, x = build_cells(cell, 3, 5, layers=2), torch.randn(2, 4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        first, states = run(cells, x.bfloat16(), None)
        second, _ = run(cells, x.bfloat16(), states)
    assert first.dtype == second.dtype == (torch.bfloat16 if supported else torch.float32)
    (first + second).float().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in cells.parameters())


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_rows_of_any_length_in_one_call_are_the_same(cell: str) -> None:
    torch.manual_seed(1)
    cells, x = build_cells(cell, 5, 7).double(), torch.randn(4, 6, 5, dtype=torch.float64)
    lengths = torch.tensor([6, 1, 3, 5])
    turns, gated = read_in_turns(cells, x, lengths), read_gated(cells, x, lengths)
    torch.testing.assert_close(gated[0], turns[0])
    torch.testing.assert_close(gated[1], turns[1])


@pytest.mark.parametrize(
    ("cell", "dtype", "left"),
    [("lstm", torch.bfloat16, True), ("gru", torch.bfloat16, True), ("gru", torch.float16, False),
     ("cho_gru", torch.bfloat16, False)],
)  # fmt: skip
def test_kernels_that_compute_in_float16_are_left_to_float16(cell, dtype, left, monkeypatch):
    """Of cuDNN, as an accelerator reports its autocast; without autocast nothing changes."""
    cells = build_cells(cell, 3, 5)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: True)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: dtype)
    assert leaves_autocast(cells, "cuda") == left
    assert not leaves_autocast(cells, "meta")
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)
    assert not leaves_autocast(cells, "cuda")


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("begun", [False, True])
def test_in_recorded_steps_dropout_is_torchs_between_layers(cell: str, begun: bool, monkeypatch) -> None:
    torch.manual_seed(1)
    cells, x = build_cells(cell, 3, 5, layers=3, dropout=0.5).double(), torch.randn(2, 4, 3, dtype=torch.float64)
    state = tuple(torch.randn(3, 2, 5, dtype=torch.float64) for _ in range(2 if cell == "lstm" else 1))
    states, dropped = state if begun else None, []
    with monkeypatch.context() as patch, recorded():
        patch.setattr(recurrent_cells, "dropout", lambda x, share: dropped.append(share) or x)
        found, after = run(cells, x, states)
    assert dropped == [0.5, 0.5]
    expected, ended = run(cells.eval(), x, states)
    torch.testing.assert_close((found, after), (expected, ended))
