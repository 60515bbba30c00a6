"""Precision and threads of a run: the choice, its record, and that a run goes on as it began."""

import json
import re
from pathlib import Path

import pytest
import torch

import headway
from headway.core.device import Threads
from headway.core.errors import UserError
from headway.models.recurrent.cells import bf16_is_supported
from headway.recipe import Recipe, dump_recipe
from headway.runs import load
from headway.runs.run import open_run
from headway.runs.run_folder import RunFolder
from headway.tensors.precision import Speed, bf16_speed
from headway.training import arithmetic, start
from headway.training.arithmetic import SharedPrecision, choose_arithmetic, measured_speed
from headway.training.loop import train
from tests.models.recurrent import toys as recurrent
from tests.tiers import thinned
from tests.training import toys

CPU = torch.device("cpu")


@pytest.fixture
def speed(monkeypatch: pytest.MonkeyPatch):
    """Sets the speed of bf16 that is measured."""

    def measured(value: float) -> None:
        monkeypatch.setattr(arithmetic, "measured_speed", lambda *given: Speed(value, value))

    return measured


def test_auto_takes_what_is_quicker_and_writes_it_down(tmp_path: Path, speed, caplog) -> None:
    caplog.set_level("INFO")
    speed(1.9)
    quick = open_run(toys.run(tmp_path, "quick", optimizer={"warmup": 2})).manifest
    speed(0.5)
    slow = open_run(toys.run(tmp_path, "slow", optimizer={"warmup": 2})).manifest
    assert (quick["precision"], quick["bf16_speed"]) == ("bf16", 1.9)
    assert (slow["precision"], slow["bf16_speed"]) == ("float32", 0.5)
    assert slow["machine"]["threads"] == torch.get_num_threads()
    assert slow["machine"]["instruction_set"] == torch.backends.cpu.get_cpu_capability()
    assert "bf16 (bf16 is 1.9 times as fast as float32" in caplog.text
    assert re.search(r"float32( by oneDNN)? \(bf16 takes 2\.0 times as long as float32", caplog.text)
    assert "WARNING" not in caplog.text


def test_auto_trains_in_the_chosen_precision(tmp_path: Path, speed) -> None:
    speed(1.9)
    auto = toys.run(tmp_path, "auto")
    speed(0.5)
    named = toys.run(tmp_path, "named", precision="bf16")
    other = toys.run(tmp_path, "other")
    weights = [(run / "model.safetensors").read_bytes() for run in (auto, named, other)]
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]


def test_resuming_keeps_the_first_choice(tmp_path: Path, speed) -> None:
    speed(1.9)
    whole = toys.run(tmp_path, "whole")
    cut = toys.run(tmp_path, "cut", updates=4)
    speed(0.5)
    toys.run(tmp_path, "cut", resume=True)
    assert open_run(cut).manifest["precision"] == "bf16"
    assert (whole / "model.safetensors").read_bytes() == (cut / "model.safetensors").read_bytes()


@pytest.mark.parametrize("named", thinned(["bf16", "auto"], 2))
def test_a_run_may_be_resumed_with_the_precision_that_it_chose(tmp_path: Path, speed, named: str) -> None:
    speed(1.9)
    run = toys.run(tmp_path)
    assert train(toys.recipe(tmp_path, updates=8, precision=named), run, resume=True) == 0
    assert open_run(run).recipe.training.precision == "auto"
    with pytest.raises(UserError, match=r"training\.precision: 'bf16' -> 'float32'"):
        train(toys.recipe(tmp_path, updates=9, precision="float32"), run, resume=True)


def test_a_run_that_has_chosen_no_precision_yet_can_be_given_one(tmp_path: Path, speed) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.write_recipe(toys.recipe(tmp_path))  # it was killed before it began
    speed(1.9)
    assert train(toys.recipe(tmp_path, precision="float32"), folder.path, resume=True) == 0
    assert folder.read_manifest()["precision"] == folder.read_recipe().training.precision == "float32"


def test_runs_from_before_there_was_a_choice_go_on_as_they_were(tmp_path: Path, speed) -> None:
    run = toys.run(tmp_path, precision="float32")
    folder = RunFolder(run)
    manifest = {key: value for key, value in folder.read_manifest().items() if not key.endswith(("precision", "speed"))}
    folder.manifest_file.write_text(json.dumps(manifest))
    speed(1.9)
    assert train(toys.recipe(tmp_path, updates=8), run, resume=True) == 0
    assert folder.read_recipe().training.precision == "float32"
    assert folder.read_manifest()["precision"] == "float32"


def test_bf16_on_a_processor_without_it_warns_with_the_factor(tmp_path: Path, speed, caplog) -> None:
    speed(1 / 31)
    toys.run(tmp_path, precision="bf16", optimizer={"warmup": 2})
    (warning,) = (record.message for record in caplog.records if record.levelname == "WARNING")
    assert warning.startswith("training.precision: bf16 takes 31.0 times as long as float32 on this processor")
    assert torch.backends.cpu.get_cpu_capability() in warning


def test_bf16_that_is_refused_is_an_error_before_any_work(tmp_path: Path, speed) -> None:
    speed(0.0)
    with pytest.raises(UserError, match=r"training\.precision: bf16 cannot be computed on this cpu"):
        train(toys.recipe(tmp_path, precision="bf16"), tmp_path / "run")
    assert not RunFolder(tmp_path / "run").recipe_file.exists()
    assert choose_arithmetic(toys.recipe(tmp_path), {}, CPU).precision == "float32"


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """The numbers of threads with which speeds were measured, each time another speed; in a cache of its own."""
    seen: list[int] = []
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))

    def measured(*given: object) -> Speed:
        seen.append(torch.get_num_threads())
        return Speed(1.0 + len(seen), 1.0 + len(seen))

    monkeypatch.setattr(arithmetic, "bf16_speed", measured)
    return seen


def test_a_machine_is_measured_once(tmp_path: Path, passes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = toys.recipe(tmp_path)
    wider = toys.recipe(tmp_path, model={"dim": 512})
    first = [measured_speed(each, CPU, backend) for each in (recipe, wider) for backend in ("torch", "onednn")]
    assert first == [(2, 2), (3, 3), (4, 4), (5, 5)]
    again = [measured_speed(each, CPU, backend) for each in (recipe, wider) for backend in ("torch", "onednn")]
    assert again == first
    assert measured_speed(toys.recipe(tmp_path, updates=9, batch_tokens=130), CPU, "torch") == (2, 2)  # of this size
    assert passes == [1, 1, 1, 1]
    for name in ("processor", "instruction_set"):
        monkeypatch.setattr(arithmetic, name, lambda: "another")
        measured_speed(recipe, CPU, "torch")
    monkeypatch.setattr(torch, "__version__", "9.9")
    measured_speed(recipe, CPU, "torch")
    assert len(passes) == 7


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"speed": "quick"}', '{"speed": [1]}'])
def test_a_damaged_record_is_made_anew(tmp_path: Path, passes: list[int], content: str) -> None:
    recipe = toys.recipe(tmp_path)
    measured_speed(recipe, CPU, "torch")
    (record,) = (tmp_path / "cache" / "precision").glob("*.json")
    record.write_text(content)
    assert [measured_speed(recipe, CPU, "torch") for _ in range(2)] == [(3, 3), (3, 3)]


def test_without_a_cache_every_run_measures(tmp_path: Path, passes: list[int], monkeypatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "file"))
    assert [measured_speed(toys.recipe(tmp_path), CPU, "torch").median for _ in range(2)] == [2, 3]


def test_measuring_draws_no_random_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = toys.recipe(tmp_path)
    monkeypatch.setattr(arithmetic, "bf16_speed", bf16_speed)
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    bf16_is_supported.cache_clear()
    for each in (recipe, recipe.model_copy(update={"model": recurrent.config()})):
        before = torch.get_rng_state()
        assert measured_speed(each, CPU, "torch").median > 0
        assert torch.equal(torch.get_rng_state(), before)


def choose(recipe: Recipe, manifest: dict) -> Threads:
    return choose_arithmetic(recipe, manifest, CPU).threads


def test_a_run_keeps_its_threads_on_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, here = toys.recipe(tmp_path), {"processor": "P", "cores": 8}
    monkeypatch.setattr(arithmetic, "machine", lambda: here)
    monkeypatch.setattr(arithmetic, "choose_threads", lambda: Threads(5, "5 of 8 cores are free"))
    assert choose(recipe, {}) == (5, "5 of 8 cores are free", False)
    assert choose(recipe, {"machine": here | {"threads": 3}}).number == 3
    assert choose(recipe, {"machine": here | {"threads": 3, "cores": 4}}).number == 5
    monkeypatch.setattr(arithmetic, "choose_threads", lambda: Threads(2, "set by OMP_NUM_THREADS", fixed=True))
    assert choose(recipe, {"machine": here | {"threads": 3}}).number == 2


def test_layers_that_are_computed_again_give_the_same_run(tmp_path: Path) -> None:
    runs = [toys.run(tmp_path, str(again), activation_checkpointing=again) for again in (False, True)]
    one, other = ((run / "model.safetensors").read_bytes() for run in runs)
    assert one == other
    assert "activation_checkpointing: true" in dump_recipe(open_run(runs[1]).recipe)


def test_models_without_blocks_cannot_be_computed_again(tmp_path: Path) -> None:
    recipe = toys.recipe(tmp_path, activation_checkpointing=True)
    data = recipe.data.model_copy(update={"max_length": 8})
    recipe = recipe.model_copy(update={"model": recurrent.config(), "data": data})
    with pytest.raises(UserError, match=r"training\.activation_checkpointing: .* no blocks to compute again"):
        train(recipe, tmp_path / "run")


def test_a_run_keeps_the_library_that_multiplies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "suited_backend", lambda device, processor: "onednn")
    monkeypatch.setattr(arithmetic, "has_onednn", lambda: True)
    whole = toys.run(tmp_path, "whole")
    cut = toys.run(tmp_path, "cut", updates=4)
    assert open_run(cut).manifest["backend"] == "onednn"
    monkeypatch.setattr(arithmetic, "suited_backend", lambda device, processor: "torch")
    toys.run(tmp_path, "cut", resume=True)
    assert open_run(cut).manifest["backend"] == "onednn"
    assert (whole / "model.safetensors").read_bytes() == (cut / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("manifest", "here", "device", "chosen"),
    [
        ({}, True, "cpu", "onednn"),
        ({"machine": {}}, True, "cpu", "torch"),  # from before there was a choice
        ({"vocabulary": {}}, True, "cpu", "onednn"),  # killed before anything was computed
        ({"machine": {}, "backend": "onednn"}, True, "cpu", "onednn"),
        ({"machine": {}, "backend": "onednn"}, False, "cpu", "torch"),
        ({"machine": {}, "backend": "onednn"}, True, "meta", "torch"),
        ({"machine": {}, "backend": "torch"}, True, "cpu", "torch"),
    ],
)
def test_the_library_is_chosen_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manifest: dict, here: bool, device: str, chosen: str
) -> None:
    monkeypatch.setattr(arithmetic, "suited_backend", lambda device, processor: "onednn")
    monkeypatch.setattr(arithmetic, "has_onednn", lambda: here)
    recipe = toys.recipe(tmp_path, precision="float32")
    assert choose_arithmetic(recipe, manifest, torch.device(device)).backend == chosen


def written(folder: Path, precision: str) -> None:
    folder.mkdir()
    RunFolder(folder).write_manifest({"precision": precision})


def test_runs_that_are_there_have_chosen_for_those_that_leave_it_open(tmp_path: Path) -> None:
    auto, named = (toys.recipe(tmp_path, precision=precision) for precision in ("auto", "float32"))
    runs: list[tuple[Recipe, Path]] = [(named, tmp_path / "a"), (auto, tmp_path / "b"), (auto, tmp_path / "c")]
    written(tmp_path / "a", "bf16")  # a precision that a recipe names is no choice for others
    assert SharedPrecision(runs).given(auto).training.precision == "float32"
    written(tmp_path / "c", "bf16")
    shared = SharedPrecision(runs)
    assert shared.given(auto).training.precision == "bf16"
    assert shared.given(named) == named


@pytest.mark.parametrize(("speeds", "chosen"), [((1.9, 1.9), "bf16"), ((1.9, 1.1), "float32")])
def test_bf16_has_to_suit_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, speeds, chosen: str) -> None:
    by_width, seen = dict(zip((32, 64), speeds, strict=True)), []

    def measured(recipe: Recipe, *given: object) -> Speed:
        seen.append((width := recipe.model.width(), recipe.training.capture))
        return Speed(by_width[width], by_width[width])

    monkeypatch.setattr(arithmetic, "measured_speed", measured)
    recipes = [toys.recipe(tmp_path, model={"dim": dim}, seed=seed) for dim in (32, 64) for seed in (1, 2)]
    recipes.append(toys.recipe(tmp_path, model={"dim": 64}, shapes="few", capture=True))  # whose steps are others
    shared = SharedPrecision([(recipe, tmp_path / str(index)) for index, recipe in enumerate(recipes)])
    assert {shared.given(recipe).training.precision for recipe in recipes} == {chosen}
    assert seen == [(32, False), (64, False), (64, True)]


@pytest.fixture
def tf32(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lets the processor pass for a device with TF32; what it is told to multiply as."""
    told: list[str] = []
    monkeypatch.setattr(arithmetic, "has_tf32", lambda device: True)
    for module in (arithmetic, start, load):
        monkeypatch.setattr(module, "use_float32", lambda kind, device: told.append(kind))
    return told


def test_tf32_is_taken_where_it_is_there_and_said(tmp_path: Path, tf32: list[str], caplog) -> None:
    caplog.set_level("INFO")
    run = toys.run(tmp_path, precision="float32")
    assert open_run(run).manifest["float32"] == "tf32"
    assert ", float32 as TF32, 1 thread" in caplog.text
    assert "1 thread, float32 as TF32)" in (run / "README.md").read_text(encoding="utf-8")
    headway.load(run)
    assert tf32 == ["tf32", "tf32"]  # training, prediction
    toys.run(tmp_path, "bf16", precision="bf16")
    assert ", bf16, the rest as TF32" in caplog.text
    toys.run(tmp_path, "exact", precision="float32", float32="exact")
    assert open_run(tmp_path / "exact").manifest["float32"] == tf32[-1] == "exact"
    assert re.search(r"parameters, float32( by oneDNN)?, 1 thread", caplog.text)
    headway.load(run, tmp_path / "exact")
    assert tf32[-1] == "exact"  # of two runs that differ


def test_where_there_is_none_float32_is_exact(tmp_path: Path) -> None:
    run = toys.run(tmp_path, float32="tf32", precision="float32")
    assert open_run(run).manifest["float32"] == "exact"
    assert toys.run(tmp_path, float32="tf32", precision="float32", updates=8, resume=True)
    assert open_run(run).recipe.training.float32 == "tf32"


@pytest.mark.parametrize("asked", thinned(["auto", "exact"], 2))
def test_a_run_goes_on_as_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tf32: list[str], asked) -> None:
    monkeypatch.setattr(arithmetic, "has_tf32", lambda device: False)
    run = toys.run(tmp_path)
    monkeypatch.setattr(arithmetic, "has_tf32", lambda device: True)
    toys.run(tmp_path, updates=8, resume=True, float32=asked)
    assert (open_run(run).manifest["float32"], open_run(run).recipe.training.float32) == ("exact", "auto")
    with pytest.raises(UserError, match=r"training\.float32: 'exact' -> 'tf32'"):
        toys.run(tmp_path, updates=9, resume=True, float32="tf32")
    assert set(tf32) == {"exact"}


@pytest.mark.parametrize(("accelerator", "kept"), [("cuda (NVIDIA H200)", "cudnn"), (None, "exact")])
def test_runs_from_before_leave_float32_as_it_was(tmp_path: Path, tf32: list[str], accelerator, kept: str) -> None:
    run = toys.run(tmp_path)
    folder = RunFolder(run)
    manifest = {key: value for key, value in folder.read_manifest().items() if key != "float32"}
    manifest["machine"]["accelerator"] = accelerator
    folder.manifest_file.write_text(json.dumps(manifest))
    tf32.clear()  # a first training of the process measures, too
    headway.load(run)
    toys.run(tmp_path, updates=8, resume=True)
    assert tf32 == [kept, kept]
    assert folder.read_manifest()["float32"] == kept


def test_runs_that_are_compared_share_their_float32(tmp_path: Path, tf32: list[str]) -> None:
    auto, named = (toys.recipe(tmp_path, precision="float32", float32=kind) for kind in ("auto", "exact"))
    runs: list[tuple[Recipe, Path]] = [(named, tmp_path / "a"), (auto, tmp_path / "b"), (auto, tmp_path / "c")]
    assert [SharedPrecision(runs).given(each).training.float32 for each in (auto, named)] == ["tf32", "exact"]
    (tmp_path / "c").mkdir()
    RunFolder(tmp_path / "c").write_manifest({"machine": {"accelerator": "cuda (NVIDIA V100)"}})
    assert SharedPrecision(runs).given(auto).training.float32 == "cudnn"


def test_bf16_is_compared_with_the_runs_own_float32(tmp_path: Path, tf32: list[str], passes: list[int]) -> None:
    for kind in ("auto", "exact", "tf32"):
        choose_arithmetic(toys.recipe(tmp_path, float32=kind), {}, CPU)
    assert tf32 == ["tf32", "exact"]  # measured once each


def test_on_a_gpu_whoever_asks_for_bf16_waits_for_no_measurement(tmp_path: Path, passes: list[int]) -> None:
    recipe = toys.recipe(tmp_path, precision="bf16")
    assert choose_arithmetic(recipe, {}, torch.device("meta")).precision == "bf16"
    assert passes == []
    choose_arithmetic(recipe, {}, CPU)
    assert passes == [1]
