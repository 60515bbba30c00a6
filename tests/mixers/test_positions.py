"""Absolute positions: contiguous or not they are the same vectors, beyond the table too."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from headway.core.errors import UserError
from headway.mixers.positions import Learned, NoPosition, Sinusoidal, build_absolute, sinusoids
from tests import reference
from tests.rounding import rounding


@pytest.mark.parametrize("dim", [6, 7])
def test_sinusoids_equal_the_oracle(dim):
    expected = torch.stack([reference.sinusoid(position, dim) for position in range(30)]).float()
    assert torch.allclose(sinusoids(30, dim), expected, atol=rounding(steps=10))


@pytest.mark.parametrize("dim", [6, 7, 2])
def test_halves_equal_the_oracle(dim):
    half = (dim + 1) // 2
    angles = [
        [t * 1e-4 ** ((c % half) / max(half - 1, 1)) + (c // half) * math.pi / 2 for c in range(dim)] for t in range(30)
    ]
    position = Sinusoidal(dim, 8, arrangement="halves")
    expected = torch.tensor(angles, dtype=torch.float64).sin().float()
    assert torch.allclose(position.between(0, 30), expected, atol=rounding(steps=10))
    assert torch.equal(position(torch.arange(30)), position.between(0, 30))


@pytest.mark.parametrize("arrangement", ["interleaved", "halves"])
def test_the_first_position_can_have_another_number(arrangement):
    later = Sinusoidal(6, 8, arrangement=arrangement, first=2)
    usual = Sinusoidal(6, 40, arrangement=arrangement)
    assert later.table.shape == (8, 6)
    assert torch.equal(later.between(0, 30), usual.between(2, 32))
    assert torch.equal(later(torch.tensor([[0, 20], [7, 8]])), usual(torch.tensor([[2, 22], [9, 10]])))


@pytest.mark.parametrize(("start", "stop"), [(0, 5), (3, 8), (6, 20), (12, 20)])
def test_a_table_that_is_too_short_changes_nothing(start, stop):
    short, long = Sinusoidal(6, 8), Sinusoidal(6, 100)
    assert torch.equal(short.between(start, stop), long.between(start, stop))
    positions = torch.tensor([[start, stop - 1], [stop - 1, 0]])
    assert torch.equal(short(positions), long(positions))
    assert torch.equal(short(positions)[0, 0], long.between(start, start + 1)[0])
    assert short.table.shape == (8, 6)


def test_positions_compile_beyond_the_table():
    position = Sinusoidal(6, 8)
    compiled = torch.compile(position, fullgraph=True, backend="aot_eager")
    positions = torch.tensor([[3], [7], [8], [19]])
    assert torch.equal(compiled(positions), Sinusoidal(6, 100)(positions))


def test_threads_read_one_module():
    position, expected = Sinusoidal(6, 4), Sinusoidal(6, 500)
    with ThreadPoolExecutor(8) as threads:
        lengths = [1 + (37 * index) % 499 for index in range(200)]
        read = list(threads.map(lambda length: position.between(0, length), lengths))
    assert all(torch.equal(vectors, expected.between(0, length)) for vectors, length in zip(read, lengths, strict=True))


def test_learned_positions_end():
    position = Learned(4, 5)
    assert torch.equal(position(torch.tensor([[4, 0]]))[0], position.table[[4, 0]])
    for read in (lambda: position.between(0, 6), lambda: position(torch.tensor([[5]]))):
        with pytest.raises(UserError, match="longer than the learned positions; received 6; allowed: at most 5"):
            read()


def test_nothing_is_added():
    position = NoPosition(4, 5)
    assert (torch.ones(2, 3, 4) + position(torch.tensor([[900], [1]])) == 1).all()
    assert math.prod(position.between(0, 900).shape) == 4


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"kind": "sinusoid"}, "model.position.kind: unknown position; did you mean 'sinusoidal'"),
        ({"kind": "learned", "size": 3}, "model.position.size: unknown key"),
        ({"kind": "headway.mixers.local:LocalAttention"}, "not a subclass of headway.mixers.positions.Position"),
    ],
)
def test_refusals(config, message):
    with pytest.raises(UserError, match=message):
        build_absolute(config, 4, 5)


@pytest.mark.parametrize(
    ("config", "kind"),
    [("none", NoPosition), ("rotary", NoPosition), ("headway.mixers.positions:Learned", Learned)],
)
def test_positions_are_built_by_name(config, kind):
    assert type(build_absolute({"kind": config}, 4, 5)) is kind
