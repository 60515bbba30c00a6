"""A dry run leaves nothing behind, and its estimate is that of the whole training."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from headway.core.errors import UserError
from headway.recipe import Recipe
from headway.runs.run_folder import RunFolder
from headway.tasks.task import DevSet
from headway.training import trained as room
from headway.training.trained import UPDATES, dry_run
from tests.conftest import Command
from tests.training.toys import recipe as toy


@pytest.fixture
def written(tmp_path: Path) -> Recipe:
    return toy(tmp_path, updates=1000, checkpoint_every=100, keep_last=2, batch_tokens=128)


def test_the_estimate_counts_all_of_training(written: Recipe, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    estimate = dry_run(written)
    assert sorted(tmp_path.rglob("*")) == before, "nothing is left behind"
    assert (estimate.updates, estimate.evaluations) == (1000, 10)
    assert estimate.update_seconds > 0
    expected = 1000 * estimate.update_seconds + 10 * estimate.evaluation_seconds
    assert estimate.seconds == pytest.approx(expected)
    assert estimate.memory > 10_000_000
    assert estimate.disk > 3 * 4 * estimate.parameters, "two checkpoints with their optimizer, and the weights"


@pytest.mark.parametrize(("updates", "told"), [(1000, False), (50, True)])
def test_the_warm_up_is_that_of_the_whole_training(
    written: Recipe, caplog: pytest.LogCaptureFixture, updates: int, told: bool
) -> None:
    changes = {
        "training": written.training.model_copy(update={"updates": updates}),
        "optimizer": written.optimizer.model_copy(update={"warmup": 50}),
    }
    dry_run(written.model_copy(update=changes))
    warned = [message for message in caplog.messages if "within optimizer.warmup" in message]
    assert [f"training.updates {updates} are" in message for message in warned] == ([True] if told else [])


def test_one_process_makes_it(written: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="dry_run: a dry run is made by one process; received '2 processes'"):
        dry_run(written)


@pytest.mark.parametrize(
    ("training", "updates"),
    [
        ({"updates": None, "epochs": 3}, lambda estimate: 3 * estimate.updates_per_epoch),
        ({"updates": 7, "epochs": 3}, lambda estimate: 7),
        ({"updates": None, "minutes": 1e-9}, lambda estimate: None),
    ],
)
def test_the_end_that_comes_first_counts(
    written: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, training: dict, updates
) -> None:
    lines = [{"update": n, "loss": 1.0, "seconds": 0.5 * n} for n in range(1, UPDATES + 1)]
    monkeypatch.setattr(room, "read_metrics", lambda path: [*lines, {"update": UPDATES, "evaluation_seconds": 2.0}])
    run = RunFolder(tmp_path / "made")
    run.path.mkdir()
    run.write_manifest({"parameters": 5})
    run.weights.write_bytes(b"weights")
    changed = written.training.model_copy(update=training)
    estimate = room._estimate(changed, run, 11, 1.5, disk=100)
    assert estimate.evaluation_seconds == 3.5
    assert estimate.updates == updates(estimate)
    assert estimate.update_seconds == 0.5
    assert estimate.disk == 100 * (2 + 1 + 1) + 7, "the last two, the best, and one that is being written"
    for average, most in (({"of": "last", "count": 8}, 8 + 1 + 1), ({"of": "best", "count": 3}, 2 + 3 + 1)):
        averaged = changed.model_copy(update={"average": changed.average.model_copy(update=average)})
        assert room._estimate(averaged, run, 11, 1.5, disk=100).disk == 100 * most + 7


def test_a_few_examples_are_decoded_in_place_of_all(
    written: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parser that has learned nothing needs minutes for a real dev set: each output is as long as it may be."""
    (tmp_path / "dev.tsv").write_text("".join(f"{n:03}\t{n:03}\n" for n in range(150)), encoding="utf-8")
    decoded: list[str] = []
    clock = iter(range(0, 10**6, 2))

    def outputs(dev: DevSet, model: object, device: object) -> list[str]:
        decoded.extend(example.source for example in dev.examples)
        return ["1"] * len(dev.examples)

    monkeypatch.setattr(DevSet, "outputs", outputs)
    monkeypatch.setattr(room, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    exact = {"dev_metrics": ({"name": "exact_match"},), "best_by": "exact_match"}
    estimate = dry_run(written.model_copy(update={"training": written.training.model_copy(update=exact)}))
    assert decoded == [f"{n:03}" for n in range(0, 150, 3)]
    assert estimate.evaluation_seconds > 2 * 150 / 50


def test_the_command(run_headway: Command, tmp_path: Path) -> None:
    toy(tmp_path)
    (tmp_path / "recipe.yaml").write_text(
        f"data: {{train: {{tsv: {tmp_path}/train.tsv}}}}\n"
        "vocabulary: {kind: char}\nmodel: {preset: transformer-tiny, dim: 16, heads: 2, feed_forward: 16}\n"
        "training: {epochs: 2, batch_tokens: 128}\n",
        encoding="utf-8",
    )
    ended = run_headway("train", tmp_path / "recipe.yaml", "--dry-run", "--output", tmp_path / "run")
    assert ended.code == 0, ended.err
    assert "time of all" in ended.out
    assert not (tmp_path / "run").exists()
