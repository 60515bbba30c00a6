"""A run killed at any moment ends with the same weights as one that was left alone, bit for bit."""

import signal

import pytest

from tests.training.kills import assert_same, attempts, start, write_recipe


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"average": {"of": "last", "count": 2}},
        {"average": {"kind": "ema", "decay": 0.9}},
        {"int8_rounding": "fixed"},
    ],
    ids=["last", "ema", "fixed"],
)
def test_kills_at_random_moments_change_nothing(tmp_path, settings):
    recipe = write_recipe(tmp_path, updates=126, **settings)
    assert attempts(recipe, tmp_path / "alone", cache="other") == 0
    process = start(recipe, tmp_path / "killed")
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert attempts(recipe, tmp_path / "killed", kills=8) >= 7
    assert_same(tmp_path / "alone", tmp_path / "killed")
