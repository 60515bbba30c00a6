"""Checkpoints are whole or recognised as damaged; the one before is used; a full disk leaves it in place."""

import errno
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from headway.errors import RunError
from headway.runs.training import checkpoints
from headway.runs.training.checkpoints import TrainingState, load_latest, save_checkpoint
from tests.runs.training import toys


def save(folder, update):
    weights = {"weight": torch.full((3, 2), float(update))}
    state = TrainingState(update=update, best=[(1.5, update)])
    return save_checkpoint(folder, state, weights, {"weight/step": torch.tensor(float(update))})


@pytest.fixture
def folder(tmp_path):
    for update in (1, 2):
        save(tmp_path, update)
    return tmp_path


def test_the_newest_is_read_back(folder):
    checkpoint = load_latest(folder, pytest.fail)
    assert checkpoint.state == TrainingState(update=2, best=[(1.5, 2)])
    assert checkpoint.weights["weight"].unique().tolist() == [2.0]
    assert checkpoint.optimizer["weight/step"] == 2


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("harm", ["truncated", "one bit", "missing", "empty"])
def test_a_damaged_one_is_named_and_the_one_before_is_used(folder, name, harm):
    file = checkpoints.folder_of(folder, 2) / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    harmed = {"truncated": file.read_bytes()[:-5], "one bit": bytes(content), "empty": b""}
    file.unlink()
    if harm != "missing":
        file.write_bytes(harmed[harm])
    said = []
    assert load_latest(folder, said.append).state.update == 1
    assert len(said) == 1
    assert "update-00000002 is damaged" in said[0]


def test_an_edited_state_is_damage_too(folder):
    file = checkpoints.folder_of(folder, 2) / "state.json"
    content = json.loads(file.read_text())
    content["state"]["update"] = 1000
    file.write_text(json.dumps(content))
    assert "was changed" in checkpoints.damage(file.parent)


def test_nothing_whole_means_from_the_start(folder):
    for each in folder.iterdir():
        (each / "model.safetensors").write_bytes(b"")
    said = []
    assert load_latest(folder, said.append) is None
    assert len(said) == 2


def test_what_a_killed_save_left_is_not_a_checkpoint(folder):
    shutil.copytree(checkpoints.folder_of(folder, 2), folder / ".update-00000003.tmp")
    assert load_latest(folder, pytest.fail).state.update == 2
    save(folder, 3)
    assert load_latest(folder, pytest.fail).state.update == 3


def test_a_full_disk_keeps_the_last_good_checkpoint(folder, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_bytes", full)
    with pytest.raises(RunError, match=r"No space left.*last good checkpoint is update-00000002"):
        save(folder, 3)
    assert sorted(path.name for path in folder.iterdir()) == ["update-00000001", "update-00000002"]
    assert load_latest(folder, pytest.fail).state.update == 2


def weights(run, update):
    return load_file(checkpoints.folder_of(run / "checkpoints", update) / "model.safetensors")


def test_the_final_model_is_the_mean_of_the_last_checkpoints(tmp_path):
    run = toys.run(tmp_path, updates=8, keep_last=2, average={"of": "last", "count": 3})
    kept = [checkpoints.update_of(each) for each in checkpoints.list_checkpoints(run / "checkpoints")]
    assert kept == [4, 6, 8]
    parts, final = [weights(run, update) for update in kept], load_file(run / "model.safetensors")
    for name, tensor in final.items():
        expected = sum(part[name].double() for part in parts) / 3
        assert torch.equal(tensor, expected.float()), name
    assert json.loads((run / "manifest.json").read_text())["averaged_updates"] == [4, 6, 8]


def test_the_best_checkpoint_is_kept_and_exported(tmp_path):
    run = toys.run(tmp_path, updates=10, keep_last=1, best_by="loss")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = {line["update"]: line["dev_loss"] for line in lines if "dev_loss" in line}
    best = min(losses, key=losses.get)
    assert sorted(losses) == [2, 4, 6, 8, 10]
    assert json.loads((run / "manifest.json").read_text())["averaged_updates"] == [best]
    for name, tensor in load_file(run / "model.safetensors").items():
        assert torch.equal(tensor, weights(run, best)[name])
