"""A run killed at any moment ends with the same weights as one that was left alone, bit for bit."""

import signal

import pytest

from tests.training.kills import assert_same, attempts, start, write_recipe


@pytest.mark.slow
@pytest.mark.parametrize("average", [{"of": "last", "count": 2}, {"kind": "ema", "decay": 0.9}])
def test_kills_at_random_moments_change_nothing(tmp_path, average):
    recipe = write_recipe(tmp_path, updates=126, average=average)
    assert attempts(recipe, tmp_path / "alone", cache="other") == 0
    process = start(recipe, tmp_path / "killed")
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert attempts(recipe, tmp_path / "killed", kills=8) >= 7
    assert_same(tmp_path / "alone", tmp_path / "killed")
