"""A grid in miniature: tuned, trained, decoded, gone on with after kills; nothing is done twice."""

import json
import logging
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from headway.comparison import executors
from headway.comparison.cells import CellOutput, CellResult, CurvePoint, EvaluationSet, read_result
from headway.comparison.executors import ProcessesOfTheirOwn, room_here
from headway.comparison.options import GridOptions
from headway.core.errors import UserError
from headway.core.storage import locked
from headway.grids import grid_run
from headway.grids.compare import check_sets, compare_grid, comparison_of, plan_of
from headway.grids.grid import CellJob, Grid, PlannedRun, TuneConfig, load_grid
from headway.grids.grid_run import (
    CellState,
    Choice,
    GridResult,
    GridRun,
    GroupState,
    are_told_apart,
    best_score,
    make_cell,
    progress_of,
    tuning_score,
)
from headway.grids.run import run_cell
from headway.metrics import Metric, build_metric
from headway.recipe import Recipe, parse_recipe
from headway.runs.load import load
from headway.runs.run import open_run
from headway.runs.run_folder import RunFolder
from headway.tensors.precision import Speed
from headway.training import arithmetic
from tests.command_server import commands
from tests.comparison.toys import cells_of
from tests.conftest import Command
from tests.grids.grids import write_grid
from tests.training.kills import ROOT, environment

TUNE = {
    "key": "optimizer.learning_rate",
    "values": [0.01, 0.02],
    "updates": 6,
    "on": {"tsv": "dev.tsv"},
    "by": "variant",
    "grow": 0,
}
SMALL = {"variants": {"attention": {}, "ngram": "ngram.yaml"}, "metrics": ["chrf"]}
PLANNED = PlannedRun("a-1", "a", 1, Recipe.model_construct())
RECIPE: dict[str, Any] = {"data": {"train": {"tsv": "train.tsv"}}, "training": {"updates": 10}}
SEGMENTS = 200


def test_a_result_is_of_what_the_dictionary_says(tmp_path: Path) -> None:
    (tmp_path / "words.tsv").write_text("Haus\thouse\n")
    job = CellJob(PLANNED, "cells", tmp_path, (), {"dictionary": str(tmp_path / "words.tsv")}, 1)
    before = job.stamp()
    assert job.stamp() == before
    (tmp_path / "words.tsv").write_text("Haus\thome\n")
    assert job.stamp() != before
    assert replace(job, predict={"dictionary": None}).stamp()["predict"] == {"dictionary": None}


def test_a_log_that_cannot_be_written_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = tmp_path / "logs" / "cells-a-1.txt"
    log.mkdir(parents=True)
    assert run_cell(CellJob(PLANNED, "cells", tmp_path, (), {}, 1)) == 1
    assert caplog.messages == [f"error: a, seed 1: {log} cannot be written (Is a directory)"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Grid, Path]:
    """A grid of two variants and two seeds, tuned, made by two processes."""
    folder = tmp_path_factory.mktemp("grid")
    grid = load_grid(write_grid(folder, tune=TUNE, **SMALL))
    assert GridRun(grid, folder / "out", threads=1).run(ProcessesOfTheirOwn(2, 1)).failed == ()
    return grid, folder / "out"


def cells(out: Path) -> dict[str, CellResult]:
    return {
        path.parent.name: found
        for path in sorted(out.glob("cells/*/cell.json"))
        if (found := read_result(path, json.loads(path.read_text())["of"])) is not None
    }


def test_a_cell_is_an_ordinary_run_with_its_result(made: tuple[Grid, Path]) -> None:
    _, out = made
    found = cells(out)
    assert list(found) == ["attention-1", "attention-2", "ngram-1", "ngram-2"]
    for name, cell in found.items():
        run = out / "cells" / name
        assert {"recipe.yaml", "model.safetensors", "manifest.json", "report.html"} <= {p.name for p in run.iterdir()}
        predictor = load(run, device="cpu")
        assert predictor.recipe.training.seed == cell.seed
        (output,) = cell.outputs
        rows = [line.split("\t") for line in (out.parent / "test.tsv").read_text().splitlines()]
        assert output.test.sources == tuple(source for source, _ in rows)
        assert output.test.references == (tuple(target for _, target in rows),)
        assert output.hypotheses == tuple(prediction.text for prediction in predictor.predict(output.test.sources))
        assert [point.update for point in cell.curve] == [3, 6]
    costs = found["ngram-1"].costs.known()
    assert set(costs) == {
        "parameters", "flops_per_token", "training_flops", "cpu_seconds", "training_tokens_per_second",
        "decoding_tokens_per_second", "peak_memory", "decoding_state", "learning_rate",
    }  # fmt: skip
    assert all(value > 0 for value in costs.values())
    assert costs["peak_memory"] > 50e6


def test_short_runs_are_the_same_for_all_and_on_their_own_split(made: tuple[Grid, Path]) -> None:
    _, out = made
    names = {path.name for path in (out / "tuning").iterdir() if path.is_dir()}
    assert names == {"attention-0.01-1", "attention-0.02-1", "ngram-0.01-1", "ngram-0.02-1"}
    sources, targets = zip(
        *(line.split("\t") for line in (out.parent / "dev.tsv").read_text().splitlines()), strict=True
    )
    scores = {}
    for name in names:
        content = json.loads((out / "tuning" / name / "cell.json").read_text())["result"]
        assert content["outputs"][0]["test"]["sources"] == list(sources)
        assert json.loads((out / "tuning" / name / "manifest.json").read_text())["updates"] == 6
        scores[name] = build_metric("chrf").score(content["outputs"][0]["hypotheses"], [targets]).value
    for variant in ("attention", "ngram"):
        best = max((0.01, 0.02), key=lambda rate: scores[f"{variant}-{rate}-1"])
        for seed in (1, 2):
            recipe = open_run(out / "cells" / f"{variant}-{seed}").recipe
            assert (recipe.optimizer.learning_rate, recipe.training.updates) == (best, 6)


def test_a_set_that_is_tuned_on_in_another_format_is_recognised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_grid(tmp_path, tune=TUNE, test={"t": {"source": "same.src", "target": "same.ref"}}, **SMALL)
    pairs = [line.split("\t") for line in (tmp_path / "dev.tsv").read_text().splitlines()]
    for name, column in (("same.src", 0), ("same.ref", 1)):
        (tmp_path / name).write_text("".join(f"{pair[column]}\n" for pair in pairs), encoding="utf-8")
    grid = load_grid(path)
    with pytest.raises(UserError, match=r"^tune\.on: the test set t reports these sources.*; received '(\d+) of \1'"):
        check_sets(grid)
    with (tmp_path / "same.src").open("a") as sources, (tmp_path / "same.ref").open("a") as references:
        sources.write("quite another\n")
        references.write("quite another\n")
    check_sets(grid)
    assert caplog.messages[-1] == f"test.t: {len(pairs)} of {len(pairs) + 1} sources are tuned on, too"


def test_a_choice_without_a_result_of_each_short_run_stands_and_is_told(
    made: tuple[Grid, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid, out = made
    copied = shutil.copytree(out, tmp_path / "out")
    assert GridRun(grid, copied, threads=1).is_done()
    assert "stands without" not in caplog.text
    (copied / "tuning" / "ngram-0.02-1" / "cell.json").unlink()
    assert GridRun(grid, copied, threads=1).is_done()
    (message,) = (message for message in caplog.messages if "stands without results of ngram-0.02-1" in message)
    assert "ngram.json they are tried again" in message


def test_runs_of_other_data_are_not_compared(made: tuple[Grid, Path], tmp_path: Path) -> None:
    grid, out = made
    copied = shutil.copytree(out, tmp_path / "out")
    GridRun(grid, copied, threads=1)
    manifest = copied / "cells" / "ngram-2" / "manifest.json"
    content = json.loads(manifest.read_text())
    content["data"]["train"] = "0" * 64
    manifest.write_text(json.dumps(content))
    with pytest.raises(
        UserError, match=r"ngram-2: this run was trained on other data than tuning/ngram-0\.01-1; allowed"
    ):
        GridRun(grid, copied, threads=1)


@pytest.mark.parametrize(
    ("accuracies", "chosen", "means"),
    [
        ([[40, 10], [30, 30]], 0.02, [25, 30]),  # the best single run is of the other value
        ([[40, 30], [30, 30]], 0.01, [35, 30]),
        ([[40, None], [10, 10]], 0.02, [None, 10]),  # training failed with one seed
        ([[40, None], [None, 40]], None, None),
    ],
)
def test_the_value_with_the_best_mean_over_seeds_is_chosen(
    tmp_path: Path, accuracies: list[list[int | None]], chosen: float | None, means: list[float | None] | None
) -> None:
    grid = load_grid(write_grid(tmp_path, tune=TUNE | {"seeds": [4, 5]}, metrics=["exact_match"]))
    run = GridRun(grid, tmp_path / "out", threads=1)
    state = run.groups[0]
    assert [short.job.planned.name for short in state.tuning] == [
        "attention-0.01-4", "attention-0.01-5", "attention-0.02-4", "attention-0.02-5",
    ]  # fmt: skip
    known = len(grid.variants) * (4 + len(grid.config.seeds))
    assert run.total == (known, known + len(grid.variants))
    (tmp_path / "out" / "tuning").mkdir(parents=True)
    references = tuple(f"w{index}" for index in range(100))
    for short, right in zip(state.tuning, [accuracy for value in accuracies for accuracy in value], strict=True):
        short.status, short.code = ("failed", 1) if right is None else ("finished", 0)
        if right is not None:
            said = (*references[:right], *["none"] * (100 - right))
            output = CellOutput(EvaluationSet("tuning", (references,)), said)
            short.result = CellResult("attention", short.job.planned.seed, (output,))
    run._choose(state)
    assert (state.value, state.chosen) == (chosen, chosen is not None)
    if means is None:
        assert state.failed == "attention: not tuned, since short runs failed with every value"
    else:
        assert json.loads((tmp_path / "out" / "tuning" / "attention.json").read_text())["exact_match"] == means
        assert GridRun(grid, tmp_path / "out", threads=1).groups[0].value == chosen


def test_of_values_with_one_score_the_one_with_the_lower_loss_on_dev_is_chosen(tmp_path: Path) -> None:
    grid = load_grid(write_grid(tmp_path, tune=TUNE | {"seeds": [4]}, metrics=["exact_match"]))
    run = GridRun(grid, tmp_path / "out", threads=1)
    (tmp_path / "out" / "tuning").mkdir(parents=True)
    output = CellOutput(EvaluationSet("tuning", (("a", "b"),)), ("c", "c"))
    for short, losses in zip(run.groups[0].tuning, ((3.0, 1.0), (2.0, 4.0)), strict=True):
        curve = tuple(CurvePoint(update, 1.0, {"loss": loss}) for update, loss in enumerate(losses))
        short.status, short.result = "finished", CellResult("attention", 4, (output,), curve=curve)
        short.job.run.mkdir()
        RunFolder(short.job.run).write_manifest({"averaged_updates": [0]})
    run._choose(run.groups[0])
    assert run.groups[0].value == 0.02


def test_another_metric_chooses_anew(tmp_path: Path) -> None:
    files = write_grid(tmp_path, tune=TUNE | {"seeds": [4]}, metrics=["exact_match", "ter"])
    run = GridRun(load_grid(files), tmp_path / "out", threads=1)
    (tmp_path / "out" / "tuning").mkdir(parents=True)
    references = ("a b c d e f", "g h")
    outputs = (("a b c d e f", "h h h h h h h h h"), ("a b c d e", "g i"))  # one of two right, and few edits
    for short, said in zip(run.groups[0].tuning, outputs, strict=True):
        short.status, short.code = "finished", 0
        output = CellOutput(EvaluationSet("tuning", (references,)), said)
        short.result = CellResult("attention", short.job.planned.seed, (output,))
    run._choose(run.groups[0])
    assert run.groups[0].value == 0.01
    assert GridRun(run.grid, tmp_path / "out", threads=1).groups[0].value == 0.01
    by_ter = load_grid(files, ["metrics=[ter]"])
    assert not GridRun(by_ter, tmp_path / "out", threads=1).groups[0].chosen
    run.grid = by_ter
    run._choose(run.groups[0])
    assert run.groups[0].value == 0.02


def test_a_second_call_changes_nothing(made: tuple[Grid, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    grid, out = made
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.name != ".lock"}
    workers = ProcessesOfTheirOwn(2, 1)
    monkeypatch.setattr(workers, "submit", lambda call, job: pytest.fail(f"{job.name} is made again"))
    result = GridRun(grid, out, threads=1).run(workers)
    assert [cell.name for cell in result.cells] == [cell.name for cell in cells(out).values()]
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.name != ".lock"}


def test_another_seed_is_made_beside_what_is_there(made: tuple[Grid, Path]) -> None:
    _, out = made
    grid = load_grid(out.parent / "grid.yaml", ["seeds=[1, 2, 3]"])
    run = GridRun(grid, out, threads=1)
    assert [state.job.planned.name for state in run.ready()] == ["attention-3", "ngram-3"]


def test_another_test_set_is_decoded_without_training_again(made: tuple[Grid, Path]) -> None:
    _, out = made
    grid = load_grid(out.parent / "grid.yaml", ["test={dev: {tsv: train.tsv}}"])
    run = GridRun(grid, out, threads=1)
    assert len(run.ready()) == 4
    assert all(state.job.is_trained() for state in run.ready())
    assert run.shown(1) == ("4 of 8 cells", []), "no training is left"


def test_cells_of_another_recipe_are_refused(made: tuple[Grid, Path]) -> None:
    _, out = made
    grid = load_grid(out.parent / "grid.yaml", ["model.dim=8"])
    with pytest.raises(UserError, match=r"made with another recipe \(model.dim: 16 -> 8\)"):
        GridRun(grid, out, threads=1)


class Watched(ProcessesOfTheirOwn):
    """An executor whose calls never end, and which notes what it was given."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
        assert function is make_cell
        self.jobs = [*getattr(self, "jobs", ()), *arguments]
        return Future()


def test_all_runs_have_one_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "measured_speed", lambda *given: Speed(1.9, 1.9))
    variants = {"attention": {}, "named": {"training.precision": "float32"}, "ngram": "ngram.yaml"}
    path = write_grid(tmp_path, variants=variants, overrides={"training.precision": "auto"}, seeds=[1, 2])
    run, workers = GridRun(load_grid(path), tmp_path / "out", threads=1), Watched(4, 1)
    run._begin(workers)
    assert [(job.name, job.planned.recipe.training.precision) for job in workers.jobs] == [
        ("attention, seed 1", "bf16"), ("named, seed 1", "float32"), ("ngram, seed 1", "bf16"),
        ("attention, seed 2", "bf16"),
    ]  # fmt: skip
    job = workers.jobs[0]
    job.run.mkdir(parents=True)
    RunFolder(job.run).write_recipe(job.planned.recipe)
    RunFolder(job.run).write_manifest({"precision": "bf16"})
    monkeypatch.setattr(arithmetic, "measured_speed", lambda *given: Speed(0.5, 0.5))
    again, workers = GridRun(load_grid(path), tmp_path / "out", threads=1), Watched(4, 1)
    again._begin(workers)
    assert [job.planned.recipe.training.precision for job in workers.jobs] == ["bf16", "float32", "bf16", "bf16"]


def test_runs_in_two_precisions_are_refused(tmp_path: Path) -> None:
    path = write_grid(tmp_path, **SMALL, overrides={"training.precision": "auto"})
    grid, out = load_grid(path), tmp_path / "out"
    for variant, precision in zip(grid.variants, ("bf16", "float32"), strict=True):
        (planned, _) = grid.cells(grid.groups_of(variant)[0])
        folder = RunFolder(out / "cells" / planned.name)
        folder.path.mkdir(parents=True)
        folder.write_recipe(planned.recipe)
        folder.write_manifest({"precision": precision})
    with pytest.raises(UserError, match=r"training\.precision: 'float32' -> 'bf16'") as caught:
        GridRun(grid, out, threads=1)
    assert "ngram-1" in str(caught.value)


def test_two_calls_do_not_work_in_one_folder(made: tuple[Grid, Path]) -> None:
    grid, out = made
    with locked(out / ".lock"), pytest.raises(UserError, match="another process is at work here"):
        GridRun(grid, out, threads=1).run(ProcessesOfTheirOwn(1, 1))


def test_a_failure_ends_no_other_cell(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    variants = {"diverging": {"optimizer.learning_rate": 1e30, "training.max_bad_updates": 1}, "sound": {}}
    path = write_grid(tmp_path, variants=variants, seeds=[1])
    with caplog.at_level(logging.WARNING, "headway"):
        result = GridRun(load_grid(path), tmp_path / "out", threads=1).run(ProcessesOfTheirOwn(1, 1))
    assert [cell.variant for cell in result.cells] == ["sound"]
    (failure,) = result.failed
    assert failure.startswith("diverging, seed 1: failed (exit code 1): ")
    assert "diverged" in failure
    assert failure in caplog.messages
    assert str(tmp_path / "out" / "logs") in failure


@pytest.mark.parametrize("code", [-15, 128 + 15])
def test_a_short_run_that_a_signal_ended_has_not_lost(made: tuple[Grid, Path], code: int) -> None:
    grid, out = made
    run = GridRun(grid, out, threads=1)
    state = run.groups[0]
    kept = (out / "tuning" / f"{state.group.variant.name}.json").read_bytes()
    state.tuning[0].status, state.tuning[0].code, state.tuning[0].result, state.chosen = "failed", code, None, False
    run._choose(state)
    assert not state.chosen
    assert state.failed == f"attention: not tuned, since {state.tuning[0].job.name} was killed"
    assert f"{state.tuning[0].job.name}: failed (killed by SIGTERM)" in run.result().failed[0]
    state.failed, state.chosen = "", True
    assert run.result().failed == (), "once a value is chosen, the others have only lost"
    assert (out / "tuning" / f"{state.group.variant.name}.json").read_bytes() == kept


def test_cells_share_an_accelerator_only_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "cores", lambda: 16)
    assert room_here(threads=2) == 8
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda check_available: "cuda")
    assert room_here(threads=2) == 1


@pytest.mark.slow
def test_kills_lose_no_cell_and_run_none_twice(made: tuple[Grid, Path]) -> None:
    _, alone = made
    killed = alone.with_name("killed")
    ended = subprocess.run(
        [commands() / "python", "tests/grids/grid_attempts.py", alone.parent / "grid.yaml", killed, "6", "3"],
        cwd=ROOT, env=environment(alone.parent / "cache"), capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert int(ended.stdout.splitlines()[-1]) == 6
    for path in sorted(alone.glob("*/*/model.safetensors")):
        assert (killed / path.relative_to(alone)).read_bytes() == path.read_bytes(), path
    outputs = [{name: cell.outputs for name, cell in cells(out).items()} for out in (alone, killed)]
    assert outputs[0] == outputs[1]
    for log in (killed / "logs").iterdir():
        # A kill may come between the result and the line that tells of it.
        assert sum(line.endswith(": finished") for line in log.read_text().splitlines()) <= 1
    assert any(log.read_text().count(": process ") > 1 for log in (killed / "logs").iterdir())


def test_a_cell_that_was_killed_before_its_report_still_gets_one(made: tuple[Grid, Path], tmp_path: Path) -> None:
    out = Path(shutil.copytree(made[1], tmp_path / "out"))
    job = GridRun(made[0], out, threads=1).groups[0].cells[0].job
    for name in ("report.html", "cell.json"):
        (job.run / name).unlink()
    assert GridRun(made[0], out, threads=1).run(ProcessesOfTheirOwn(1, 1)).failed == ()
    assert (job.run / "report.html").is_file()
    assert job.result() is not None


def test_the_comparison_of_a_grid(made: tuple[Grid, Path]) -> None:
    grid, out = made
    compared = compare_grid(grid, out, GridOptions())
    assert (compared.code, compared.result.failed) == (0, ())
    assert compared.comparison is not None
    for variant in compared.comparison.variants:
        assert variant.seeds == (1, 2)
        scores = [
            build_metric("chrf").score(cell.outputs[0].hypotheses, cell.outputs[0].test.references).value
            for cell in cells(out).values()
            if cell.variant == variant.name
        ]
        assert variant.scores["chrf"].scores == pytest.approx(scores)
    (pair,) = compared.comparison.pairs
    assert (pair.a, pair.b) == ("attention", "ngram")


def test_sets_have_metrics_of_their_own(made: tuple[Grid, Path], tmp_path: Path) -> None:
    folder, out = made[1].parent, tmp_path / "out"
    shutil.copytree(made[1], out)
    count = len((folder / "test.tsv").read_text().splitlines())
    (folder / "gold").write_text("0-0\n" * count)
    tree = yaml.safe_load((folder / "grid.yaml").read_text())
    tree["test"] = {
        "test": {"tsv": "test.tsv"},
        "exact": {"corpus": {"tsv": "test.tsv"}, "metrics": ["exact_match"]},
        "links": {"corpus": {"tsv": "test.tsv"}, "alignments": "gold"},
    }
    (folder / "three.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
    compared = compare_grid(load_grid(folder / "three.yaml", ["margin.aer=100"]), out, GridOptions()).comparison
    assert compared is not None
    assert list(compared.variants[0].scores) == ["chrf on test", "exact_match on exact", "aer on links"]
    (aer,) = [pair for pair in compared.pairs if pair.metric == "aer on links"]
    assert (aer.verdict, aer.difference) == ("rate?", pytest.approx(0, abs=100))  # even, but for rates at an edge
    with pytest.raises(UserError, match=r"test\.2: the outputs for a set are alignments, or evenness"):
        load_grid(folder / "three.yaml", ["test.links.evenness=true"])
    with pytest.raises(UserError, match=r"metrics: two metrics of one name; received 'chrF2, chrF2'"):
        load_grid(folder / "three.yaml", ["test.exact.metrics=[chrf, chrf]"])


def test_the_plan_estimates_what_is_missing(made: tuple[Grid, Path]) -> None:
    _, out = made
    grid = load_grid(out.parent / "grid.yaml", ["seeds=[1, 2, 3]", "variants.local.model.encoder.mixer=local"])
    before = sorted(out.rglob("*"))
    plan = plan_of(grid, out, GridOptions(workers=2))
    assert sorted(out.rglob("*")) == before
    rows = {row[0]: row for row in plan.cells()}
    assert len(rows) == 3 * (2 + 3)
    assert [rows[name][3] for name in ("attention-0.01-1", "attention-2", "attention-3", "local-1")] == [
        "finished"
    ] * 2 + ["", ""]
    assert all(":" in row[4] for row in rows.values())
    assert "with 2 workers of 1 threads" in plan.notes[0]


def test_a_variant_that_diverges_is_named_in_the_plan(
    made: tuple[Grid, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, out = made
    bad = ["variants.bad.optimizer.learning_rate=1e30", "variants.bad.training.clip_norm=null"]
    grid = load_grid(out.parent / "grid.yaml", ["tune=null", *bad])
    plan = plan_of(grid, tmp_path, GridOptions(workers=1))
    assert {"attention-1", "ngram-1", "bad-1"} <= {row[0] for row in plan.cells()}
    assert "bad fails in its first updates, and its time is that of the others: " in caplog.text


def test_cells_without_others_are_left_out(made: tuple[Grid, Path], caplog: pytest.LogCaptureFixture) -> None:
    grid, out = made
    result = GridRun(grid, out, 1).result()
    some = comparison_of(grid, replace(result, cells=result.cells[:3]))
    assert some is not None
    assert [variant.seeds for variant in some.variants] == [(1,), (1,)]
    assert "attention, seed 2 is left out" in caplog.text
    assert comparison_of(grid, replace(result, cells=result.cells[:2])) is None
    assert "fewer than two variants have cells: nothing is compared" in caplog.text
    apart = [cell for cell in result.cells if (cell.variant == "ngram") == (cell.seed == 1)]
    assert comparison_of(grid, replace(result, cells=apart)) is None
    assert "no seed has cells of all variants that have any: nothing is compared" in caplog.text


def test_seeds_without_their_failures_have_no_verdict(made: tuple[Grid, Path]) -> None:
    """Three seeds of five are a selection: those that failed may have been the worst."""
    grid = replace(made[0], config=made[0].config.model_copy(update={"seeds": (1, 2, 3), "tune": None}))
    every = GridResult(tuple(cells_of(attention=0.5, ngram=0.9)), ())

    def words(result: GridResult) -> str:
        compared = comparison_of(grid, result)
        assert compared is not None
        return compared.pairs[0].words

    assert words(every) == "better"
    some = replace(every, cells=every.cells[:-1])
    assert words(replace(some, failed=("ngram, seed 3: failed",))) == "no verdict: ngram failed with seed 3"
    assert words(replace(some, unfinished=("ngram, seed 3",))) == "no verdict: cells of this grid are not finished"


def test_what_failed_is_noted(made: tuple[Grid, Path], caplog: pytest.LogCaptureFixture) -> None:
    grid, out = made
    result = GridRun(grid, out, 1).result()
    lost = "ngram, seed 2: failed (exit code 1)"
    some = comparison_of(grid, replace(result, cells=result.cells[:3], failed=(lost,)))
    assert some is not None
    assert some.notes[:2] == (f"Failed: {lost}.", "Left out for want of these: attention, seed 2.")
    third = replace(grid.variants[1], name="third")
    wider = replace(grid, variants=(*grid.variants, third), config=grid.config.model_copy(update={"baseline": "third"}))
    every = comparison_of(wider, replace(result, failed=("third, seed 1: failed", "third, seed 2: failed")))
    assert every is not None
    assert every.baseline is None
    assert every.notes[1] == "The baseline third has no cells, so that every pair is compared."
    assert "third has no cells, and is left out of the comparison" in caplog.text


SCRIPT = """
import headway
print(headway.compare("grid.yaml", output="out", workers=2).seeds)
"""


@pytest.mark.slow
def test_a_script_without_a_guard_makes_a_grid(tmp_path: Path) -> None:
    path = write_grid(tmp_path, **SMALL, seeds=[1])
    (tmp_path / "script.py").write_text(SCRIPT.replace("grid.yaml", path.name))
    ended = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "1\n"), ended.stderr


def test_outputs_of_other_tokenisation_are_compared_by_leave_of_the_grid(made: tuple[Grid, Path]) -> None:
    grid, out = made
    result = GridRun(grid, out, 1).result()
    spaced = {"attention": "ok , no , ok", "ngram": "ok, no, ok"}
    cells = [
        replace(cell, outputs=tuple(
            replace(output, hypotheses=(spaced[cell.variant],) * len(output.hypotheses)) for output in cell.outputs
        ))
        for cell in result.cells
    ]  # fmt: skip
    with pytest.raises(UserError, match="these hypotheses are tokenised"):
        comparison_of(grid, replace(result, cells=cells))
    leave = replace(grid, config=grid.config.model_copy(update={"any_tokenization": True}))
    assert comparison_of(leave, replace(result, cells=cells)) is not None


def test_a_test_set_at_fault_is_named_before_any_work(tmp_path: Path) -> None:
    path = write_grid(tmp_path)
    (tmp_path / "test.tsv").write_text("a b\n")
    with pytest.raises(UserError, match=r"test\.tsv:1"):
        compare_grid(load_grid(path), tmp_path / "out", GridOptions())
    (tmp_path / "test.tsv").write_text("a b\tb a\n")
    with pytest.raises(UserError, match="an interval needs two segments or more; received 1"):
        compare_grid(load_grid(path), tmp_path / "out", GridOptions())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"data.train": {"tsv": "trian.tsv"}}, "variants.local: data.train.tsv: there is no such file"),
        (
            {"data.dev": [{"tsv": "dev.tsv"}, {"tsv": "empty.tsv"}]},
            "variants.local: data.dev.1.tsv: this file is empty",
        ),
    ],
)
def test_a_corpus_at_fault_is_named_before_any_work(tmp_path: Path, change: dict[str, object], where: str) -> None:
    (tmp_path / "empty.tsv").write_text("")
    grid = load_grid(write_grid(tmp_path, variants={"attention": {}, "local": change}))
    with pytest.raises(UserError, match=where):
        compare_grid(grid, tmp_path / "out", GridOptions())
    assert not (tmp_path / "out").exists()


def test_the_command_line(made: tuple[Grid, Path], run_headway: Command) -> None:
    _, out = made
    grid = out.parent / "grid.yaml"
    ended = run_headway("compare", grid, "--output", out, "--json")
    assert ended.code == 0, ended.err
    assert set(json.loads(ended.out)["variants"]) == {"attention", "ngram"}
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert {out / f"compare.{end}" for end in ("html", "md", "tex", "csv", "json")} <= before.keys()
    assert run_headway("compare", grid, "--output", out, "--json").out == ended.out
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    ended = run_headway("compare", grid, "seeds=[1]", "--output", out, "--dry-run")
    assert ended.code == 0, ended.err
    assert "0:00 of training are left" in ended.out
    for arguments, error in {
        (grid,): "--output: the runs of a grid need a folder",
        (grid, "--output", out, "--metric", "bleu"): "--metric: a grid says this itself",
        (out / "cells" / "ngram-1", "--workers", "2"): "--workers: this is about a grid of runs to be made",
        (grid, "sed=1", "--output", out): "sed=1: unknown key; did you mean 'seeds'",
    }.items():
        ended = run_headway("compare", *arguments)
        assert (ended.code, error in ended.err) == (2, True), ended.err


def test_finished_cells_alone_are_compared(made: tuple[Grid, Path], tmp_path: Path, run_headway: Command) -> None:
    _, out = made
    grid = out.parent / "grid.yaml"
    shutil.copytree(out, tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "cells" / "ngram-2")
    asked = ("compare", grid, "--output", tmp_path / "out", "--only-finished")
    ended = run_headway(*asked)
    assert ended.code == 0, ended.err
    assert "Not finished: ngram, seed 2." in ended.out
    assert "Left out for want of these: attention, seed 2." in ended.out
    assert "One seed says nothing of the method" in ended.out
    shutil.rmtree(tmp_path / "out" / "cells" / "ngram-1")
    ended = run_headway(*asked)
    assert (ended.code, ended.out) == (1, "")
    assert "fewer than two variants have cells: nothing is compared; not finished, or decoded" in ended.err
    assert not list((tmp_path / "out" / "cells").glob("ngram*"))
    (tmp_path / "out" / "tuning" / "ngram.json").unlink()
    shutil.rmtree(tmp_path / "out" / "tuning" / "ngram-0.01-1")
    assert run_headway(*asked).code == 1


def test_a_stop_says_how_many_cells_are_finished(
    made: tuple[Grid, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    grid, out = made
    shutil.copytree(out, tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "cells" / "ngram-2")
    monkeypatch.setattr(GridRun, "run", lambda run, workers: run.result(stopped=15))
    with caplog.at_level(logging.INFO, "headway"):
        stopped = compare_grid(grid, tmp_path / "out", GridOptions())
    assert (stopped.comparison, stopped.code) == (None, 128 + 15)
    assert "stopped by SIGTERM with 3 finished cells; the same command goes on" in caplog.messages


def chosen(values: dict[str, float], tried: tuple[float, ...], by_chance: Sequence[str] = ()) -> tuple[Choice, ...]:
    """Choices for both seeds of the variants."""
    return tuple(Choice(name, (1, 2), value, tried, name in by_chance) for name, value in values.items())


def test_a_best_value_at_the_edge_is_noted(made: tuple[Grid, Path]) -> None:
    grid, out = made
    result, two = GridRun(grid, out, threads=1).result(), {"attention": 0.02, "ngram": 0.01}
    compared = comparison_of(grid, replace(result, choices=chosen(two, (0.01, 0.02))))
    assert compared is not None
    key = "optimizer.learning_rate: the best for"
    assert compared.table().notes[-2:] == (
        f"{key} attention is the highest that was tried, 0.02", f"{key} ngram is the lowest that was tried, 0.01",
    )  # fmt: skip
    assert "Trained in float32." in compared.table().notes
    (pair,) = compared.pairs
    assert pair.doubts == (
        "tune attention with higher values of optimizer.learning_rate than 0.02, in another folder",
        "tune ngram with lower values of optimizer.learning_rate than 0.01, in another folder",
    )
    assert compared.to_json()["tuning"]["variants"]["ngram"] == [
        {"seeds": [1, 2], "value": 0.01, "tried": [0.01, 0.02], "edge": "lowest", "by_chance": False}
    ]
    apart = Choice("attention", (1,), 0.02, (0.01, 0.02)), Choice("attention", (2,), 0.01, (0.01, 0.02))
    both = comparison_of(grid, replace(result, choices=apart))
    assert both is not None
    assert re.search("lower values .* than 0.01 and .* higher values .* than 0.02, in another", both.pairs[0].doubts[0])
    tried = (0.01, 0.02, 0.005, 0.04)
    inside = comparison_of(grid, replace(result, choices=chosen(two, tried)))
    assert inside is not None
    grown = "beyond the values of the grid, was tried for attention, ngram"
    assert inside.notes == (
        "Transformers are post-norm.", *(f"optimizer.learning_rate: {value}, {grown}" for value in (0.005, 0.04)),
    )  # fmt: skip
    assert inside.pairs[0].doubts == ("", "")
    attention, ngram = grid.variants
    post = replace(
        ngram, recipe=ngram.recipe.model_copy(update={"model": ngram.recipe.model.model_copy(update={"norm": "pre"})})
    )
    differing = comparison_of(replace(grid, variants=(attention, post)), result)
    assert differing is not None
    assert differing.notes[0] == "Transformers: post-norm for attention; pre-norm for ngram."


def test_short_runs_of_less_than_half_of_the_training_are_noted(made: tuple[Grid, Path]) -> None:
    grid, out = made
    result = replace(GridRun(grid, out, threads=1).result(), choices=())
    (updates,) = {variant.recipe.training.updates for variant in grid.variants}

    def notes(short: int) -> tuple[str, ...]:
        tune = grid.config.tune.model_copy(update={"updates": short})
        compared = comparison_of(replace(grid, config=grid.config.model_copy(update={"tune": tune})), result)
        assert compared is not None
        return compared.notes[1:]

    assert notes(updates // 2) == ()
    early = f"optimizer.learning_rate: chosen after {updates // 2 - 1} of {updates} updates"
    assert notes(updates // 2 - 1) == (f"{early}; another value may be the best after all of them",)


def test_a_choice_by_chance_is_noted(
    made: tuple[Grid, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    grid, out = made

    def but_for_ngrams(values: Sequence[Sequence[CellOutput]], metric: Metric) -> bool:
        said = [json.loads((out / "tuning" / f"ngram-{rate}-1" / "cell.json").read_text()) for rate in (0.01, 0.02)]
        assert metric.label == "chrF2"
        return [[output.hypotheses for output in outputs] for outputs in values] != [
            [tuple(content["result"]["outputs"][0]["hypotheses"])] for content in said
        ]

    monkeypatch.setattr(grid_run, "are_told_apart", but_for_ngrams)
    run = GridRun(grid, out, threads=1)
    assert [choice.variant for choice in run.result().choices if choice.by_chance] == ["ngram"]
    assert not any(choice.by_chance for choice in run.result(stopped=2).choices)
    compared = comparison_of(grid, run.result())
    assert compared is not None
    apart = "do not tell its values apart (p > 0.05); the choice is by chance"
    assert compared.notes[-1] == f"optimizer.learning_rate: the short runs of ngram {apart}"
    (state,) = (state for state in run.groups if state.group.name == "ngram")
    kept = (out / "tuning" / "ngram.json").read_bytes()
    run._choose(state)
    assert "ngram: the short runs do not tell the values apart (chrF2 from " in caplog.text
    assert (out / "tuning" / "ngram.json").read_bytes() == kept


@pytest.mark.parametrize("last", ["", '{"update": 9', "null\n", "1\n", "[]\n", '"x"\n', "{}\n", '{"update": 9}\n'])
def test_lines_that_are_no_entries_are_passed_over(tmp_path: Path, last: str) -> None:
    entry = '{"update": 4, "epoch": 1, "seconds": 2.0, "loss": 3.5}\n'
    (tmp_path / "metrics.jsonl").write_text(entry + last, encoding="utf-8")
    progress = progress_of(tmp_path, parse_recipe(RECIPE))
    assert (progress.update, progress.share, progress.seconds, progress.loss) == (4, 0.4, 2.0, 3.5)
    assert progress.left == pytest.approx(3)


def output(right: int, first: int = 0) -> CellOutput:
    """An output with `right` of the segments right, from segment `first` on."""
    references = tuple(f"w{index}" for index in range(SEGMENTS))
    said = tuple(text if first <= index < first + right else "none" for index, text in enumerate(references))
    return CellOutput(EvaluationSet("dev", (references,)), said)


def test_the_best_is_chosen_and_of_equals_that_with_the_lowest_loss() -> None:
    accuracy, errors = build_metric("exact_match"), build_metric("wer")
    assert tuning_score([output(50)], accuracy) == pytest.approx(25)
    assert tuning_score([output(50), output(100)], accuracy) == pytest.approx(37.5)
    unknown = [None] * 4
    assert best_score([10.0, None, 30.0, 30.0], unknown, accuracy) == 2
    assert best_score([10.0, None, 30.0, 5.0], unknown, errors) == 3
    for metric in (accuracy, errors):
        assert best_score([0.0, None, 0.0, 0.0], [3.0, None, 1.0, 2.0], metric) == 2
        assert best_score([0.0, 0.0, 0.0, 0.0], [float("nan"), None, 2.0, float("inf")], metric) == 2


@pytest.mark.parametrize(
    ("outputs", "apart"),
    [
        ([output(20), output(22, first=40), output(18, first=80)], False),  # 10, 11 and 9 %, of other segments
        ([output(20), output(22, first=40), output(120)], True),
        ([output(20), output(120), output(22, first=40)], True),  # in any order
        ([output(0), output(8)], True),
        ([output(0), output(8), output(4)], False),  # the furthest apart of three pairs
        ([output(0), output(12), output(4)], True),
        ([output(0), output(5)], False),
        ([output(200), output(200)], False),
        ([output(20)], True),  # nothing to choose from
    ],
)
def test_values_are_told_apart(outputs: list[CellOutput], apart: bool) -> None:
    values = [[each] for each in outputs]
    assert are_told_apart(values, build_metric("exact_match")) == apart
    assert are_told_apart(values, build_metric("wer")) == apart


def test_the_segments_of_all_seeds_tell_values_apart() -> None:
    metric = build_metric("exact_match")
    once, again = [output(0), output(5)], [output(0), output(5, first=50)]
    assert not are_told_apart([once[:1], once[1:]], metric)
    assert are_told_apart([[once[0], again[0]], [once[1], again[1]]], metric)
    assert not are_told_apart([[once[0], again[1]], [once[1], again[0]]], metric)  # each is ahead with one seed


def test_seeds_that_get_the_same_segments_right_are_no_more_segments() -> None:
    same = [[output(0)] * 3, [output(4)] * 3]
    assert not are_told_apart(same, build_metric("exact_match"))  # 4 of 4 segments, not 12 of 12


BY_SEED = {"key": "optimizer.learning_rate", "values": [0.01, 0.02, 0.04], "on": {"tsv": "dev.tsv"}}
REFERENCES = tuple(f"w{index}" for index in range(100))


def right(short: CellState, share: int) -> None:
    """Let a short run be made, and get so many of 100 segments right."""
    said = (*REFERENCES[:share], *["none"] * (100 - share))
    output = CellOutput(EvaluationSet("tuning", (REFERENCES,)), said)
    short.status, short.result = "finished", CellResult(short.job.planned.variant, short.job.planned.seed, (output,))


def grown(run: GridRun, best: Callable[[int], float]) -> list[GroupState]:
    """Tune all groups of a run, whose short runs get the more right the nearer they are to the best value of a seed."""
    (run.output / "tuning").mkdir(parents=True, exist_ok=True)
    for _ in range(20):
        for short in (short for state in run.groups for short in state.tuning if short.status == "waiting"):
            planned = short.job.planned
            right(short, round(50 / (1 + abs(math.log2(planned.value / best(planned.seed))))))
        settled = [run._settle(state) for state in run.groups]
        if all(settled):
            return run.groups
    raise AssertionError("it grows without end")


def test_each_seed_chooses_its_own_value(tmp_path: Path) -> None:
    grid = load_grid(write_grid(tmp_path, tune=BY_SEED, metrics=["exact_match"]))
    run, best = GridRun(grid, tmp_path / "out", threads=1), {1: 0.02, 2: 0.04}
    assert [short.job.planned.name for short in run.ready()][:4] == [
        "attention-0.01-1", "attention-0.02-1", "attention-0.04-1", "local-0.01-1",
    ]  # fmt: skip
    assert {short.job.planned.recipe.training.updates for short in run.ready()} == {3}, "half of a cell's"
    assert run.total == (3 * 2 * (3 + 1), 3 * 2 * (3 + 3 + 1 + 1))
    for state in grown(run, best.__getitem__):
        (cell,) = state.cells
        assert (state.value, cell.job.planned.seed) == (best[state.group.seed or 0], state.group.seed)
        assert cell.job.planned.recipe.optimizer.learning_rate == state.value
    seed_first = [short.job.planned.name for short in run.ready()]
    assert seed_first == ["attention-1", "local-1", "ngram-1", "attention-2", "local-2", "ngram-2"]
    choices = {(choice.variant, choice.seeds): choice for choice in run.result().choices}
    assert not any(choice.by_chance or choice.edge for choice in choices.values())
    assert choices["ngram", (1,)].tried == (0.01, 0.02, 0.04)
    assert choices["ngram", (2,)].tried == (0.01, 0.02, 0.04, 0.08), "the highest of three was the best"
    assert run.total == (3 * 2 * (3 + 1) + 3, 3 * 2 * (3 + 1 + 1) + 3)
    again = GridRun(grid, tmp_path / "out", threads=1)
    assert [state.value for state in again.groups] == [0.02, 0.04] * 3
    assert [state.tried for state in again.groups] == [state.tried for state in run.groups]


@pytest.mark.parametrize(
    ("best", "grow", "tried", "edge"),
    [
        (0.32, 3, (0.08, 0.16, 0.32), "highest"),  # as far as it may
        (0.16, 3, (0.08, 0.16, 0.32), ""),
        (0.005, 3, (0.005, 0.0025), ""),
        (0.0025, 2, (0.005, 0.0025), "lowest"),
        (0.08, 0, (), "highest"),
    ],
)
def test_values_grow_at_an_edge_within_a_bound(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, best: float, grow: int, tried: tuple[float, ...], edge: str
) -> None:
    tune = BY_SEED | {"grow": grow}
    grid = load_grid(write_grid(tmp_path, tune=tune, metrics=["exact_match"], seeds=[1]))
    run = GridRun(grid, tmp_path / "out", threads=1)
    caplog.set_level(logging.INFO, "headway")
    for state in grown(run, lambda seed: best):
        assert state.tried == (0.01, 0.02, 0.04, *tried)
    assert [choice.edge for choice in run.result().choices] == [edge] * 3
    said = [message for message in caplog.messages if message.startswith("ngram, seed 1: ") and "is tried" in message]
    assert len(said) == len(tried)
    if tried:
        assert f"the {'highest' if best > 0.02 else 'lowest'}: {tried[0]:g} is tried" in said[0]


@pytest.mark.parametrize(
    ("values", "value", "further"),
    [
        ([2, 4, 8], 8, [16]),
        ([3, 5], 5, [8.33333, 8]),  # a key of whole numbers takes the second
        ([2, 4, 8], 2, [1]),
        ([1, 2], 1, [0.5]),
        ([0.1, 0.2], 0.2, [0.4]),
        ([0.0, 0.1, 0.2], 0.2, []),
        ([0.01, 0.02, 0.04], 0.02, []),
        (["a", "b"], "b", []),
        ([True, False], True, []),
    ],
)
def test_what_lies_beyond_an_edge(values: list[Any], value: Any, further: list[Any]) -> None:
    tune = TuneConfig.model_validate(BY_SEED | {"values": values})
    assert tune.beyond(values, value) == further


def test_what_no_recipe_may_have_does_not_grow(tmp_path: Path) -> None:
    tune = BY_SEED | {"key": "model.dropout", "values": [0.4, 0.8]}
    grid = load_grid(write_grid(tmp_path, tune=tune, metrics=["exact_match"], seeds=[1]))
    for state in grown(GridRun(grid, tmp_path / "out", threads=1), lambda seed: 1.6):
        assert (state.value, state.tried) == (0.8, (0.4, 0.8))


def test_a_folder_goes_on_as_it_was_begun(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was kept of a choice before seeds could choose, and before values grew, stands."""
    tune = BY_SEED | {"updates": 3}
    path = write_grid(tmp_path, tune=tune | {"by": "variant", "grow": 0}, metrics=["exact_match"])
    grown(GridRun(load_grid(path), tmp_path / "out", threads=1), lambda seed: 0.04)
    for kept in (tmp_path / "out" / "tuning").glob("*.json"):
        content = json.loads(kept.read_text())
        del content["grown"]
        kept.write_text(json.dumps(content))
    path.write_text(path.read_text().replace("  by: variant\n", "").replace("  grow: 0\n", ""))
    caplog.set_level(logging.INFO, "headway")
    again = GridRun(load_grid(path), tmp_path / "out", threads=1)
    assert [(state.group.seed, state.value, len(state.cells)) for state in again.groups] == [(None, 0.04, 2)] * 3
    assert f"{tmp_path / 'out'} was begun with one value of optimizer.learning_rate a variant" in caplog.text
    asked = GridRun(load_grid(path, ["tune.by=seed"]), tmp_path / "out", threads=1)
    assert not any(state.chosen for state in asked.groups)


@pytest.mark.slow
def test_a_grid_tuned_by_seed_is_made_planned_and_told(tmp_path: Path) -> None:
    path = write_grid(tmp_path, tune=BY_SEED | {"grow": 1}, **SMALL)
    grid, out = load_grid(path), tmp_path / "out"
    plan = plan_of(grid, out, GridOptions(workers=2))
    assert len(plan.rows) == 2 * 2 * (3 + 1)
    assert "up to 4 short runs more: up to " in plan.notes[1]
    compared = compare_grid(grid, out, GridOptions(workers=2))
    assert (compared.code, compared.comparison is None) == (0, False)
    assert compared.comparison is not None
    tuning = compared.comparison.to_json()["tuning"]
    for name, rows in tuning["variants"].items():
        assert [row["seeds"] for row in rows] == [[1], [2]]
        for row, seed in zip(rows, (1, 2), strict=True):
            assert open_run(out / "cells" / f"{name}-{seed}").recipe.optimizer.learning_rate == row["value"]
            scores = {
                value: build_metric("chrf").score(output["hypotheses"], output["test"]["references"]).value
                for value in row["tried"]
                for output in json.loads((out / "tuning" / f"{name}-{value}-{seed}" / "cell.json").read_text())
                ["result"]["outputs"]
            }  # fmt: skip
            assert scores[row["value"]] == max(scores.values())
    assert any(
        note.startswith("optimizer.learning_rate, a value a seed: attention ") for note in compared.comparison.notes
    )
    before = {file: file.stat().st_mtime_ns for file in (out / "tuning").rglob("*")}
    assert compare_grid(grid, out, GridOptions(only_finished=True)).comparison is not None
    assert {file: file.stat().st_mtime_ns for file in (out / "tuning").rglob("*")} == before
