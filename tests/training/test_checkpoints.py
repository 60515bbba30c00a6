"""Checkpoints are whole or recognised as damaged; the one before is used; a full disk leaves it in place."""

import errno
import json
import shutil
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from headway.core.errors import RunError, UserError
from headway.optimizers import OPTIMIZERS
from headway.optimizers.optimizers import OptimizerConfig, build_optimizer
from headway.runs.run_folder import damage, folder_of, hash_of, list_checkpoints, update_of
from headway.training import checkpoints
from headway.training.checkpoints import (
    Ranked,
    TrainingState,
    UpdateWindow,
    load_latest,
    optimizer_tensors,
    restore_optimizer,
    save_checkpoint,
)
from tests.training import toys


def save(folder, update):
    weights = {"weight": torch.full((3, 2), float(update))}
    state = TrainingState(update=update, best=[Ranked(1.5, update, 2.5)])
    return save_checkpoint(folder, state, weights, {"weight/step": torch.tensor(float(update))})


@pytest.fixture
def folder(tmp_path):
    for update in (1, 2):
        save(tmp_path, update)
    return tmp_path


def test_the_newest_is_read_back(folder):
    checkpoint = load_latest(folder, pytest.fail)
    assert checkpoint.state == TrainingState(update=2, best=[Ranked(1.5, 2, 2.5)])
    assert checkpoint.weights["weight"].unique().tolist() == [2.0]
    assert checkpoint.optimizer["weight/step"] == 2


def test_a_checkpoint_whose_hashes_fit_its_damage_is_refused(folder):
    newest = folder_of(folder, 2)
    (newest / "model.safetensors").write_bytes((newest / "model.safetensors").read_bytes()[1:])
    state = checkpoints.read_state(newest)
    content = {"state": state["state"], "sha256": checkpoints.hashes_of(newest)}
    (newest / "state.json").write_text(json.dumps(content | {"own_sha256": hash_of(content)}))
    with pytest.raises(UserError, match=r"model\.safetensors: these weights cannot be read"):
        load_latest(folder, pytest.fail)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("harm", ["truncated", "one bit", "missing", "empty"])
def test_a_damaged_one_is_named_and_the_one_before_is_used(folder, name, harm):
    file = folder_of(folder, 2) / name
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
    file = folder_of(folder, 2) / "state.json"
    content = json.loads(file.read_text())
    content["state"]["update"] = 1000
    file.write_text(json.dumps(content))
    assert "was changed" in damage(file.parent)


def test_nothing_whole_means_from_the_start(folder):
    for each in folder.iterdir():
        (each / "model.safetensors").write_bytes(b"")
    said = []
    assert load_latest(folder, said.append) is None
    assert len(said) == 2


def test_what_a_killed_save_left_is_not_a_checkpoint(folder):
    shutil.copytree(folder_of(folder, 2), folder / ".update-00000003.tmp")
    assert load_latest(folder, pytest.fail).state.update == 2
    save(folder, 3)
    assert load_latest(folder, pytest.fail).state.update == 3


def stepped(kind):
    """A small model with an optimizer that has made an update, and one that has not."""
    model = nn.Linear(3, 2)
    config = OptimizerConfig(kind=kind, **({"momentum": 0.9} if kind == "sgd" else {}))
    optimizer = build_optimizer(config, model, [model])
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return model, optimizer, build_optimizer(config, model, [model])


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_the_state_of_an_optimizer_comes_back(kind):
    model, optimizer, fresh = stepped(kind)
    tensors = optimizer_tensors(model, optimizer)
    assert tensors
    restore_optimizer(model, fresh, tensors, "here")
    assert optimizer_tensors(model, fresh).keys() == tensors.keys()
    assert all(torch.equal(value, tensors[name]) for name, value in optimizer_tensors(model, fresh).items())


class Numbers(torch.optim.SGD):
    """An optimizer that keeps numbers in its state, as some do."""

    kept: Any = 0.1

    def step(self, closure: Any = None) -> None:
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            state |= {"step": state.get("step", 0) + 1, "warm": True, "rms": self.kept, "mean": parameter.detach() * 2}


def test_numbers_in_the_state_of_an_optimizer_come_back_as_they_are(tmp_path):
    model = nn.Linear(3, 2)
    optimizer, fresh = (Numbers(model.parameters(), lr=0.1) for _ in range(2))
    optimizer.step()
    optimizer.step()
    save_file(optimizer_tensors(model, optimizer), tmp_path / "state.safetensors")
    restore_optimizer(model, fresh, load_file(tmp_path / "state.safetensors"), "here")
    for parameter in model.parameters():
        found, wanted = fresh.state[parameter], optimizer.state[parameter]
        assert torch.equal(found.pop("mean"), wanted.pop("mean"))
        assert found == wanted == {"step": 2, "warm": True, "rms": 0.1}
        assert {name: type(value) for name, value in found.items()} == {"step": int, "warm": bool, "rms": float}
    optimizer.kept = "text"
    optimizer.step()
    message = r"optimizer\.kind: the state of this optimizer cannot be stored; received 'weight/rms: str'"
    with pytest.raises(UserError, match=message):
        optimizer_tensors(model, optimizer)


class GroupCounter(torch.optim.Optimizer):
    """An optimizer that counts its steps for all parameters, as some without schedules do."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 1e-2, "k": 0, "warm": False})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group |= {"k": group["k"] + 1, "warm": True}
            for parameter in group["params"]:
                parameter.sub_(group["lr"] / group["k"])


def test_numbers_that_an_optimizer_keeps_for_a_group_come_back(tmp_path):
    model = nn.Linear(3, 2)
    optimizer, fresh = (GroupCounter(model.parameters()) for _ in range(2))
    for _ in range(3):
        optimizer.step()
    save_file(optimizer_tensors(model, optimizer), tmp_path / "state.safetensors")
    fresh.param_groups[0]["lr"] = 0.5  # which the schedule sets
    restore_optimizer(model, fresh, load_file(tmp_path / "state.safetensors"), "here")
    kept = {name: value for name, value in fresh.param_groups[0].items() if name != "params"}
    assert kept == {"lr": 0.5, "k": 3, "warm": True}
    with pytest.raises(UserError, match=r"first difference: param_groups\.1"):
        restore_optimizer(model, fresh, {"param_groups.1/k#number": torch.tensor(1)}, "here")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight/exp_avg": torch.zeros(2, 3, dtype=torch.float16)}, r"weight/exp_avg, \(2, 3\) torch.float16"),
        ({"weight/exp_avg": torch.zeros(6)}, r"weight/exp_avg, \(6,\) torch.float32"),
        ({"bias/step": torch.zeros(2)}, r"bias/step, \(2,\) torch.float32"),
        ({"bias/exp_avg": None}, "bias/exp_avg"),
        ({"other\x1b/exp_avg": torch.zeros(6)}, r"other\\x1b"),
    ],
)
def test_the_state_of_another_optimizer_is_refused(change, message):
    model, optimizer, fresh = stepped("adam")
    tensors = {key: value for key, value in (optimizer_tensors(model, optimizer) | change).items() if value is not None}
    with pytest.raises(UserError, match=rf"here: .* no state of this optimizer \(first difference: {message}\)"):
        restore_optimizer(model, fresh, tensors, "here")
    assert not fresh.state


def test_a_full_disk_keeps_the_last_good_checkpoint(folder, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_bytes", full)
    with pytest.raises(RunError, match=r"No space left.*last good checkpoint is update-00000002"):
        save(folder, 3)
    assert sorted(path.name for path in folder.iterdir()) == ["update-00000001", "update-00000002"]
    assert load_latest(folder, pytest.fail).state.update == 2


def weights(run, update):
    return load_file(folder_of(run / "checkpoints", update) / "model.safetensors")


def test_the_final_model_is_the_mean_of_the_last_checkpoints(tmp_path):
    run = toys.run(tmp_path, updates=8, keep_last=2, average={"of": "last", "count": 3})
    kept = [update_of(each) for each in list_checkpoints(run / "checkpoints")]
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


def test_only_names_of_headway_are_touched(tmp_path):
    run = toys.run(tmp_path, updates=6, keep_last=2)
    kept = run / "checkpoints"
    (kept / "update-notes").mkdir()
    (kept / "update-notes" / "notes").write_text("mine")
    for name in ("update-notes.txt", "update-123", "update-000000006", ".notes.tmp", "update-00000006.bak"):
        (kept / name).write_text("mine")
    for name in ("update-00000006-backup", "update-best"):
        shutil.copytree(kept / "update-00000006", kept / name)
    (kept / ".mine.tmp").mkdir()
    (run / ".mine.tmp").mkdir()
    (run / ".notes.tmp").write_text("mine")
    regular = {f"update-{update:08d}" for update in range(10)}
    mine = {path.relative_to(run) for path in (*run.iterdir(), *kept.iterdir()) if path.name not in regular}
    toys.run(tmp_path, updates=9, keep_last=2, resume=True)
    assert {path for path in mine if not (run / path).exists()} == set()
    assert [folder.name for folder in list_checkpoints(kept)][-1] == "update-00000009"
    assert (kept / "update-notes" / "notes").read_text() == "mine"


def test_a_folder_that_was_no_run_keeps_its_files(tmp_path):
    run = tmp_path / "run"
    (run / ".mine.tmp").mkdir(parents=True)
    (run / ".notes.tmp").write_text("mine")
    toys.run(tmp_path)
    assert (run / ".mine.tmp").is_dir()
    assert (run / ".notes.tmp").is_file()


@pytest.mark.parametrize("name", ["checkpoints", "checkpoints/update-00000004", "tensorboard"])
def test_nothing_is_written_or_removed_where_a_link_leads(tmp_path, name):
    run, elsewhere = toys.run(tmp_path, updates=4), tmp_path / "elsewhere"
    (run / "tensorboard").mkdir()
    (run / name).rename(elsewhere)
    (elsewhere / ".model.safetensors.tmp").write_text("mine")
    before = sorted(elsewhere.rglob("*"))
    (run / name).symlink_to(elsewhere)
    with pytest.raises(UserError, match=f"{name}: training would write to the place that this link names"):
        toys.run(tmp_path, updates=8, resume=True)
    assert sorted(elsewhere.rglob("*")) == before


def rewritten(folder, change):
    """Change the state of a checkpoint as another version of headway might have written it, its hash included."""
    file = folder_of(folder, 2) / "state.json"
    content = json.loads(file.read_text())
    content.pop("own_sha256")
    change(content)
    file.write_text(json.dumps(content | {"own_sha256": hash_of(content)}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content["state"].update(more=1), r"state.json: another version of headway .*\(more: "),
        (lambda content: content["state"].update(epoch="x"), r"\(epoch: "),
        (lambda content: content["state"].update(window={"more": 1}), r"\(window.more: "),
        (lambda content: content.update(state=[]), r"\(state: "),
        (lambda content: content["state"].update(update=7), "has the name of another one; received 7"),
    ],
)
def test_the_state_of_another_version_is_refused_and_kept(folder, change, message):
    rewritten(folder, change)
    with pytest.raises(UserError, match=message):
        load_latest(folder, pytest.fail)
    assert len(list_checkpoints(folder)) == 2


def test_the_state_of_an_older_version_is_read(folder):
    rewritten(folder, lambda content: content["state"].pop("window"))
    assert load_latest(folder, pytest.fail).state.window == UpdateWindow()


@pytest.mark.parametrize(
    "content", ["[]", "null", "1", "[" * 100_000, '{"own_sha256": []}', '{"sha256": 1}'], ids=range(6)
)
def test_a_state_of_the_wrong_type_is_damage(folder, content):
    (folder_of(folder, 2) / "state.json").write_text(content)
    messages = []
    assert load_latest(folder, messages.append).state.update == 1
    assert len(messages) == 1


def test_a_file_that_cannot_be_read_for_the_moment_is_not_damage(folder, monkeypatch):
    def broken(path):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("headway.runs.run_folder.sha256", broken)
    with pytest.raises(OSError, match="Input/output error"):
        load_latest(folder, pytest.fail)
    assert len(list_checkpoints(folder)) == 2
