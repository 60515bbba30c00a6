"""Going on: what a changed recipe, a damaged record or another machine means for it."""

import json
import shutil
import signal

import pytest
import torch
import yaml

from headway.core.errors import UserError
from headway.runs.run_folder import list_checkpoints
from headway.training import loop, session
from headway.training.checkpoints import save_checkpoint as write
from headway.training.loop import train
from headway.training.session import Evaluation
from tests.tiers import thinned
from tests.training import toys
from tests.training.kills import assert_same, metrics

LINEAR = {"optimizer": {"schedule": "linear", "warmup": 2}}


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """A run of six updates, and its folder, which tests copy."""
    folder = tmp_path_factory.mktemp("once")
    toys.run(folder, log_every=1)
    return folder


@pytest.fixture
def run(once, request):
    """A copy of that run, beside its data."""
    return shutil.copytree(once / "run", once / request.node.name)


def resume(run, **settings):
    return train(toys.recipe(run.parent, log_every=1, **settings), run, resume=True)


def test_another_end_of_a_schedule_that_depends_on_it_is_refused(tmp_path):
    toys.run(tmp_path, **LINEAR)
    with pytest.raises(UserError, match=r"training\.updates: .*other learning rates.*received 9; allowed: 6"):
        train(toys.recipe(tmp_path, updates=9, **LINEAR), tmp_path / "run", resume=True)
    assert yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())["training"]["updates"] == 6
    toys.run(tmp_path, keep_last=5, resume=True, **LINEAR)  # the same end, and another key


@pytest.mark.parametrize("schedule", ["constant", "inverse_sqrt"])
def test_another_end_of_a_schedule_without_one_changes_nothing(tmp_path, schedule):
    settings = {"optimizer": {"schedule": schedule, "warmup": 2}, "average": {"of": "last"}}
    toys.run(tmp_path, **settings)
    longer = toys.run(tmp_path, updates=8, resume=True, **settings)
    alone = toys.run(tmp_path, "alone", updates=8, **settings)
    assert (longer / "model.safetensors").read_bytes() == (alone / "model.safetensors").read_bytes()


def test_an_end_between_two_evaluations_is_forgotten_by_a_run_that_goes_on(tmp_path, monkeypatch):
    """It is evaluated, and may be the best there. Learning rates, patience and the best are of those that are due."""
    losses = iter([3.0, 2.0, 1.0, 2.5, 2.4, 2.3, 3.0, 2.0, 2.5, 2.4, 2.3])
    monkeypatch.setattr(session, "evaluate", lambda *_: Evaluation(next(losses), {}))
    settings = {
        "optimizer": {"schedule": {"kind": "plateau", "patience": 2}, "warmup": 0}, "best_by": "loss", "patience": 3,
        "average": {"of": "best"}, "keep_last": 1, "log_every": 1,
    }  # fmt: skip
    ended = toys.run(tmp_path, updates=5, **settings)
    assert json.loads((ended / "manifest.json").read_text())["averaged_updates"] == [5]
    longer = toys.run(tmp_path, updates=12, resume=True, **settings)
    alone = toys.run(tmp_path, "alone", updates=12, **settings)
    assert next(losses, None) is None, "three evaluations after the second are none better"
    rates = [[line["learning_rate"] for line in metrics(run) if "loss" in line] for run in (longer, alone)]
    assert rates[0] == rates[1]
    assert len(set(rates[0])) > 1
    for run in (longer, alone):
        assert json.loads((run / "manifest.json").read_text())["averaged_updates"] == [4]
    assert (longer / "model.safetensors").read_bytes() == (alone / "model.safetensors").read_bytes()


def test_the_last_checkpoint_is_not_written_twice(tmp_path, monkeypatch):
    """It would be gone for a moment, and with it, in a run that keeps one, all of the work."""
    saved = []
    monkeypatch.setattr(session, "save_checkpoint", lambda *given: saved.append(given[1].update) or write(*given))
    toys.run(tmp_path, updates=4, checkpoint_every=2, evaluate_every=50, keep_last=1)
    assert saved == [2, 4]
    state = json.loads((tmp_path / "run" / "checkpoints" / "update-00000004" / "state.json").read_text())["state"]
    assert state["stopped"] == "4 updates"


@pytest.mark.parametrize(
    "damage", [b"null", b"1", b"[]", b"{}", b'{"update": "x"}', b'{"update": 2\xff}', b"[" * 50_000]
)
def test_damaged_lines_of_metrics_are_told_and_left_out(run, damage, caplog):
    file = run / "metrics.jsonl"
    content = file.read_bytes().splitlines()
    file.write_bytes(b"\n".join([content[0], damage, *content[1:]]) + b"\n")
    resume(run, updates=7)
    assert f"{file}: 1 damaged lines were left out (lines 2)" in caplog.text
    assert [line["update"] for line in metrics(run) if "loss" in line] == [1, 2, 3, 4, 5, 6, 7]


def test_a_last_line_that_a_kill_cut_off_needs_no_word(run, caplog):
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'{"update": 6, "lo')
    resume(run, updates=7)
    assert "damaged" not in caplog.text


@pytest.mark.parametrize("content", ["[]", "null", '{"format": "x"}', "[" * 50_000], ids=range(4))
def test_a_damaged_manifest_is_refused(run, content):
    (run / "manifest.json").write_text(content)
    with pytest.raises(UserError, match=r"manifest\.json.*: the manifest is damaged"):
        resume(run)


def test_an_edited_recipe_is_refused(run):
    file = run / "recipe.yaml"
    tree = yaml.safe_load(file.read_text())
    tree["model"]["heads"] = 4
    file.write_text(yaml.safe_dump(tree))
    with pytest.raises(UserError, match=r"model\.heads: this recipe was edited after training"):
        resume(run)


def test_another_number_of_threads_is_told(run, caplog, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # threads that are asked for are not those of the run's beginning
    resume(run)
    assert "the machine has changed" not in caplog.text
    torch.set_num_threads(2)
    try:
        resume(run)
    finally:
        torch.set_num_threads(1)
    assert "the machine has changed (threads: 1 -> 2): weights may differ" in caplog.text


@pytest.mark.parametrize("updates", [6, 7])
def test_a_kill_before_pruning_leaves_no_checkpoint_too_many(tmp_path, monkeypatch, updates):
    settings = {"keep_last": 1, "updates": updates, "average": {"of": "last"}}
    alone = toys.run(tmp_path, "alone", **settings)

    class Killed(BaseException):
        pass

    def die(checkpoints, keep):
        if max(keep) == updates:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(session, "prune", die)
        with pytest.raises(Killed):
            toys.run(tmp_path, **settings)
    assert len(list_checkpoints(tmp_path / "run" / "checkpoints")) > 1
    resumed = toys.run(tmp_path, resume=True, **settings)
    names = [[path.name for path in list_checkpoints(run / "checkpoints")] for run in (alone, resumed)]
    assert names == [[f"update-{update:08d}" for update in sorted({6, updates})]] * 2, "6 is the best that was due"


@pytest.mark.parametrize("update", thinned([1, 3, 5, 8], 2, 1))
def test_a_signal_leaves_the_lines_of_metrics_as_they_would_be(tmp_path, monkeypatch, update):
    settings = {"updates": 9, "log_every": 4, "checkpoint_every": 8, "dev_metrics": []}
    alone = toys.run(tmp_path, "alone", **settings)
    whole, calls = loop.make_update, []

    def signalled(*arguments):
        calls.append(1)
        if len(calls) == update:
            signal.raise_signal(signal.SIGTERM)
        whole(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "make_update", signalled)
        assert train(toys.recipe(tmp_path, **settings), tmp_path / "run") == 128 + signal.SIGTERM
    resumed = toys.run(tmp_path, resume=True, **settings)
    assert [line["update"] for line in metrics(alone) if "loss" in line] == [4, 8, 9]
    assert metrics(resumed) == metrics(alone)
    assert_same_models(resumed, alone)


WAYS = {
    "plateau": {"kind": "sgd", "momentum": 0.9, "schedule": {"kind": "plateau", "patience": 1}},
    "step": {"kind": "adadelta", "schedule": {"kind": "step", "after": 0.1, "every": 0.1}},
    "constant": {"kind": "sgd", "schedule": "constant"},
    "muon": {"kind": "muon", "schedule": "constant"},
}


PLATEAU = [1, 1, 1, 1, 1 / 2, 1 / 2, 1 / 4, 1 / 4]


@pytest.mark.parametrize(
    ("way", "rates"), thinned([("plateau", PLATEAU), ("step", None), ("constant", [1] * 8), ("muon", [1] * 8)], 2)
)
def test_optimizers_and_schedules_go_on_as_they_would(tmp_path, monkeypatch, way, rates):
    """A signal comes amid the first update after a decay."""
    optimizer = WAYS[way] | {"learning_rate": 0.01, "warmup": 0}
    settings = {"optimizer": optimizer, "updates": 8, "log_every": 1, "mean_over": "sentences", "best_by": "loss"}
    monkeypatch.setattr(session, "evaluate", lambda *given: Evaluation(1.0, {}))  # none is better than the first
    alone = toys.run(tmp_path, "alone", **settings)
    shown = [line["learning_rate"] / 0.01 for line in metrics(alone) if "loss" in line]
    assert len(set(shown)) > 2 if rates is None else shown == pytest.approx(rates)
    whole = loop.make_update

    def signalled(optimizer, gradients, rate):
        whole(optimizer, gradients, rate)
        signals.append(rate)
        if len(signals) == 5:
            signal.raise_signal(signal.SIGTERM)

    signals = []
    with monkeypatch.context() as patch:
        patch.setattr(loop, "make_update", signalled)
        assert train(toys.recipe(tmp_path, **settings), tmp_path / "run") == 128 + signal.SIGTERM
    resumed = toys.run(tmp_path, resume=True, **settings)
    assert metrics(resumed) == metrics(alone)
    assert_same_models(resumed, alone)


def assert_same_models(one, other):
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


def test_a_clock_that_is_set_back_changes_nothing(tmp_path, monkeypatch):
    alone = toys.run(tmp_path, "alone")
    import time

    clock = iter(range(10**9, 0, -1000))
    monkeypatch.setattr(time, "time", lambda: float(next(clock)))
    run = toys.run(tmp_path)
    assert_same(alone, run)
    assert all(line["seconds"] >= 0 for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()))


@pytest.mark.parametrize(("known", "tokenizer"), [(True, "tok:char"), (False, "tok:13a")])
def test_a_run_goes_on_with_the_scores_of_its_beginning(tmp_path, known, tokenizer):
    """Dev scores of a run that knew of no language stay what they were, and its card says so."""
    recipe = toys.recipe(tmp_path, dev_metrics=["bleu"])
    japanese = recipe.text.target.model_copy(update={"language": "ja"})
    recipe = recipe.model_copy(update={"text": recipe.text.model_copy(update={"target": japanese})})
    run = tmp_path / "run"
    train(recipe, run)
    file = run / "manifest.json"
    manifest = json.loads(file.read_text())
    assert manifest["dev_language"] == "ja"
    if not known:
        del manifest["dev_language"]
        file.write_text(json.dumps(manifest))
    (run / "README.md").unlink()
    longer = recipe.training.model_copy(update={"updates": 8})
    train(recipe.model_copy(update={"training": longer}), run, resume=True)
    assert tokenizer in (run / "README.md").read_text()
    assert ("dev_language" in json.loads(file.read_text())) == known
