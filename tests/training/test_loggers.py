"""Numbers of a run reach its loggers, and a resumed run goes on where they are."""

import json
import math

import pytest

from headway.core.errors import UserError
from headway.runs.run_folder import RunFolder
from headway.training.loggers import LOGGERS, Logger, check_loggers, identity
from headway.training.records import Records
from tests.training import toys

KEPT = []


class Kept(Logger):
    """Keeps what it gets."""

    def __init__(self, folder, *, prefix=""):
        self.prefix = prefix
        KEPT.append((folder.name, self.prefix))

    def write(self, update, numbers):
        KEPT.append((update, {f"{self.prefix}{name}": value for name, value in numbers.items()}))

    def close(self):
        KEPT.append("closed")


def lines(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_logger_of_ones_own_gets_all_numbers(tmp_path):
    KEPT.clear()
    run = toys.run(tmp_path, loggers=[{"kind": f"{__name__}:Kept", "prefix": "a."}])
    first, *entries, last = KEPT
    assert (first, last) == (("run", "a."), "closed")
    assert [update for update, _ in entries] == [line["update"] for line in lines(run)]
    for (_, numbers), line in zip(entries, lines(run), strict=True):
        wanted = {key: value for key, value in line.items() if isinstance(value, int | float)} | line.get("dev", {})
        assert numbers == {f"a.{name}": value for name, value in wanted.items()}


class Failing(Logger):
    """Cannot be made, cannot write its second line, or cannot end."""

    def __init__(self, folder, *, at="write"):
        self.at, self.written = at, 0
        self.fail("made")

    def fail(self, at):
        if self.at == at:
            raise ConnectionError("nobody answers\nat all")

    def write(self, update, numbers):
        self.written += 1
        if self.written > 1:
            self.fail("write")

    def close(self):
        self.fail("close")


@pytest.mark.parametrize("at", ["made", "write", "close"])
def test_no_training_ends_with_a_logger_that_fails(tmp_path, caplog, at):
    KEPT.clear()
    run = toys.run(tmp_path, loggers=[{"kind": f"{__name__}:Failing", "at": at}, f"{__name__}:Kept"])
    (warning,) = [record.message for record in caplog.records if "training.loggers" in record.message]
    assert "Failing failed" in warning
    assert "(ConnectionError: nobody answers)" in warning
    assert [update for update, _ in KEPT[1:-1]] == [line["update"] for line in lines(run)]
    assert KEPT[-1] == "closed"


def test_all_scores_of_a_line_are_numbers_of_loggers(tmp_path):
    KEPT.clear()
    records = Records(RunFolder(tmp_path), write=True, loggers=[{"kind": f"{__name__}:Kept"}])
    general, leads = {"loss": 2.0, "chrf": 3.0}, {"3-words": {"chrf": 4.0}}
    records.write({"update": 5, "dev_loss": None, "dev": {"chrf": 1.0}, "general": general, "baselines": leads})
    wanted = {"update": 5, "chrf": 1.0, "general.loss": 2.0, "general.chrf": 3.0, "baselines.3-words.chrf": 4.0}
    assert KEPT[1] == (5, wanted)


def test_a_run_is_known_by_its_own_name_wherever_it_is(tmp_path):
    first, moved = tmp_path / "first", tmp_path / "moved"
    first.mkdir()
    name = identity(first)
    first.rename(moved)
    assert identity(moved) == identity(moved) == name
    first.mkdir()
    assert identity(first) != name


@pytest.mark.parametrize(
    "kind", ["no_such", "no_such_module:Class", "json:JSONDecoder", {"kind": f"{__name__}:Kept", "prefixes": "a"}]
)
def test_what_is_no_logger_is_told_before_anything_is_made(tmp_path, kind):
    with pytest.raises(UserError, match=r"training\.loggers"):
        toys.run(tmp_path, loggers=[kind])
    assert not (tmp_path / "run" / "vocabulary").exists()


def test_a_library_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr("headway.core.errors.find_spec", lambda name: None)
    for name in LOGGERS:
        with pytest.raises(UserError, match=rf"needs {name}.*headway\[{name}\]"):
            check_loggers([{"kind": name}])


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = toys.run(tmp_path, loggers=["tensorboard"])
    events = accumulator.EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    wanted = [(line["update"], line["loss"]) for line in lines(run) if "loss" in line]
    assert [(event.step, pytest.approx(event.value)) for event in events.Scalars("loss")] == wanted


def test_wandb(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = toys.run(tmp_path, loggers=[{"kind": "wandb", "project": "p"}])
    toys.run(tmp_path, updates=7, resume=True, loggers=[{"kind": "wandb", "project": "p"}])
    first, second = sorted((run / "wandb").glob("offline-run-*"))
    assert first.name.rpartition("-")[2] == second.name.rpartition("-")[2]  # one run
    assert wandb.run is None


def test_mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    run = toys.run(tmp_path, loggers=["mlflow"])
    toys.run(tmp_path, updates=7, resume=True, loggers=["mlflow"])
    client = mlflow.MlflowClient()
    (one,) = client.search_runs([client.get_experiment_by_name("headway").experiment_id])
    history = [(each.step, each.value) for each in client.get_metric_history(one.info.run_id, "loss")]
    assert set(history) >= {(line["update"], line["loss"]) for line in lines(run) if "loss" in line}
    assert one.info.status == "FINISHED"
    assert all(math.isfinite(value) for _, value in history)
