"""Numbers of a run reach its loggers, and a resumed run goes on where they are."""

import json
import math

import pytest

from headway.core.errors import UserError
from headway.runs.training.loggers import LOGGERS, Logger, check_loggers
from tests.runs.training import toys

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


@pytest.mark.parametrize("kind", ["no_such", "no_such_module:Class", "json:JSONDecoder"])
def test_what_is_no_logger_is_told_before_anything_is_made(tmp_path, kind):
    with pytest.raises(UserError, match=r"training\.loggers"):
        toys.run(tmp_path, loggers=[kind])
    assert not (tmp_path / "run" / "vocabulary").exists()


def test_a_library_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
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
