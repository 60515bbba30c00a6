"""A run killed between changes to files, in evaluations or by signals loses nothing."""

import signal
import subprocess

import pytest

from tests.command_server import commands
from tests.training import toys
from tests.training.kills import assert_same, attempts, environment, start, write_recipe


def test_kills_between_changes_to_files_change_nothing(tmp_path):
    # The last update is not one that is evaluated anyway: its checkpoint is written a second time.
    recipe = write_recipe(tmp_path, updates=21, checkpoint_every=3, evaluate_every=6)
    assert attempts(recipe, tmp_path / "alone", cache="other") == 0
    assert attempts(recipe, tmp_path / "killed", kills=6, what="files") >= 4
    assert_same(tmp_path / "alone", tmp_path / "killed")


@pytest.mark.slow
def test_kills_in_evaluations_change_nothing_and_lose_nothing(tmp_path):
    recipe = write_recipe(
        tmp_path, updates=14, checkpoint_every=3, evaluate_every=3, average={"of": "best", "count": 2}
    )
    assert attempts(recipe, tmp_path / "alone", cache="other") == 0
    process = start(recipe, tmp_path / "killed")
    process.kill()
    process.communicate()
    assert attempts(recipe, tmp_path / "killed", kills=4, what="evaluations") == 4
    assert_same(tmp_path / "alone", tmp_path / "killed")


def test_signals_save_and_say_so(tmp_path):
    recipe, run = write_recipe(tmp_path, updates=100, checkpoint_every=10_000, evaluate_every=None), tmp_path / "run"
    for number, given in ((signal.SIGTERM, recipe), (signal.SIGINT, run)):
        process = start(given, run, "training.log_every=2")
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 128 + number, said
        assert f"stopped by {number.name} after update" in said
        assert f"the run can be resumed\nto go on: headway train --resume {run}\n" in said
        (stopped,) = (run / "checkpoints").glob("update-*")
        assert 0 < int(stopped.name.removeprefix("update-")) < 100
        assert not (run / "model.safetensors").exists()
    command = [commands() / "headway", "train", "--resume", run]
    again = subprocess.run(command, check=True, capture_output=True, env=environment(tmp_path / "cache"))
    assert b"the recipe has changed" not in again.stderr
    assert attempts(recipe, tmp_path / "alone") == 0
    assert (run / "model.safetensors").read_bytes() == (tmp_path / "alone" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("left", [".update-00000006.tmp", ".update-00000003.old.tmp"])
def test_leftovers_of_a_kill_are_cleared_away(tmp_path, left):
    run = toys.run(tmp_path)
    (run / "checkpoints" / left).mkdir()
    (run / "checkpoints" / left / "model.safetensors").write_bytes(b"half")
    (run / ".model.safetensors.123.tmp").write_bytes(b"half")
    toys.run(tmp_path, updates=7, resume=True)
    assert not [path for path in run.rglob("*") if path.name.endswith(".tmp")]
