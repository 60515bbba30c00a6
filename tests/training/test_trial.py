"""Made steps: they are those of the recipe's own model, whole, and leave it as it was."""

from pathlib import Path

import pytest
import torch

from headway.core.errors import RunError
from headway.recipe import Recipe, parse_recipe
from headway.tasks import build_task
from headway.tasks.translation import new_processors
from headway.tensors.looking import Recorder
from headway.tensors.precision import Speed
from headway.training import arithmetic, capture, trial
from headway.training.arithmetic import measured_speed
from headway.training.trial import Trial
from tests.models.encoders import write_encoder
from tests.training import toys

CPU = torch.device("cpu")
SMALL = {"dim": 8, "feed_forward": 8, "heads": 2, "encoder": {"layers": 1}, "decoder": {"layers": 1}}
MODELS = {
    "n-grams": SMALL | {"encoder": {"layers": 2, "mixer": {"kind": "ngram", "n": 3}}},
    "decoder_only": {"kind": "decoder_only", "dim": 8, "feed_forward": 8, "heads": 2, "decoder": {"layers": 2}},
    "recurrent": {"kind": "recurrent", "dim": 8},
    "short": SMALL | {"position": "learned", "max_position": 5},
    "speech": SMALL | {"front_end": {"channels": 8}},
}


def recipe(model: dict, **sections) -> Recipe:
    training = {"updates": 1, "batch_tokens": 64, "precision": "auto"} | sections.pop("training", {})
    tree = {"data": {"train": {"tsv": "-"}}, "vocabulary": {"size": 20}, "model": model, "training": training}
    return parse_recipe(tree | sections)


def tagger(folder: Path) -> Recipe:
    write_encoder(folder / "encoder")
    model = {"kind": "tagger", "encoder": str(folder / "encoder"), "heads": 3}
    return recipe(model, task="tagging")


def taken(monkeypatch: pytest.MonkeyPatch, of: Recipe, *steps: tuple[int, str]) -> tuple[torch.nn.Module, list]:
    """The model that took these steps, and the loss, the gradients' names and the batch of each."""
    seen: list = []
    gradients = trial.compute_gradients

    def noted(module, batches, *given):
        found = gradients(module, batches, *given)
        names = {name for name, weight in module.model.named_parameters() if weight.grad is not None}
        seen.append((float(found.sums.sum()) / found.tokens, names, batches[0], module.model))
        return found

    monkeypatch.setattr(trial, "compute_gradients", noted)
    torch.manual_seed(1)
    step = Trial(of, CPU).step("torch")
    for sentences, precision in steps:
        step(sentences, precision)
    return seen[0][-1], seen


@pytest.mark.parametrize("name", [*MODELS, "tagger"])
def test_every_kind_of_model_takes_whole_steps(monkeypatch, tmp_path: Path, name: str) -> None:
    of = tagger(tmp_path) if name == "tagger" else recipe(MODELS[name])
    made, optimizers = Trial(of, CPU), []
    monkeypatch.setattr(trial, "build_optimizer", lambda *given: optimizers.append(OPTIMIZER(*given)) or optimizers[0])
    model, seen = taken(monkeypatch, of, (3, "float32"), (3, "bf16"), (made.sentences, "float32"))
    learned = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert all(names == learned for _, names, _, _ in seen)
    assert [len(batch.indices) for _, _, batch, _ in seen] == [3, 3, made.sentences]
    assert all(batch.target_mask.all() for _, _, batch, _ in seen)
    assert len(optimizers[0].state) == len(learned)  # it made steps
    torch.manual_seed(1)  # steps of length 0 leave the weights that the model began with

    begun = Trial(of, CPU).model().state_dict()
    assert all(torch.equal(begun[name], value) for name, value in model.state_dict().items())


OPTIMIZER = trial.build_optimizer


def test_the_model_is_the_recipes(tmp_path: Path) -> None:
    of = toys.recipe(tmp_path)
    model = build_task(of.task).model(of, new_processors(of), initial=False)
    ours = Trial(of, CPU).model()

    def shapes(of: torch.nn.Module) -> dict:
        return {name: weight.shape for name, weight in of.named_parameters() if "tokens" not in name}

    kept = shapes(model)
    kept.pop("projection.weight", None)
    assert {name: shape for name, shape in shapes(ours).items() if name in kept} == kept


def test_a_batch_is_as_large_as_the_recipes() -> None:
    of = recipe(SMALL, training={"batch_tokens": 4096})
    assert (Trial(of, CPU).sentences, Trial(of, torch.device("cuda")).sentences) == (512, 128)
    assert Trial(recipe(SMALL, training={"batch_sentences": 7}), CPU).sentences == 7
    model = Trial(of, CPU).model()
    assert Trial(of, CPU).batch(model, 512).counts["target_tokens"] == 4096


def test_what_training_changes_in_a_model_is_changed_here() -> None:
    of = recipe(SMALL, training={"lora": {"rank": 2}})
    learned = [name for name, weight in Trial(of, CPU).model().named_parameters() if weight.requires_grad]
    assert learned
    assert len(learned) < len(list(Trial(recipe(SMALL), CPU).model().parameters()))


def test_each_process_is_measured_with_its_share(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path))
    rows: list[int] = []

    def measured(step, device, count, most) -> Speed:
        rows.append(count)
        return Speed(1.0, 1.0)

    monkeypatch.setattr("headway.training.arithmetic.bf16_speed", measured)
    of = recipe(SMALL, training={"batch_tokens": 4096})
    for processes in (1, 4, 1):
        measured_speed(of, CPU, "torch", processes)
    assert rows == [512, 128]


def test_steps_are_recorded_where_those_of_the_run_are(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    class Noted(Recorder):
        def warm(self, work) -> None:
            made.append("first")
            work()

        def record(self, work):
            return lambda: made.append("again") or work()

    monkeypatch.setattr(capture, "Recorder", Noted)
    of = recipe(SMALL, training={"shapes": "few", "capture": True})
    step = Trial(of, CPU).step("torch")
    for precision in ("float32", "bf16"):
        step(2, precision)
        assert made == ["first"] * 2 + ["again"] * 4  # batch and optimizer, three times
        made.clear()
        step(2, precision)
        assert made == ["again"] * 2
        made.clear()


def test_the_largest_batch_that_fits_is_tried_where_training_will_find_it(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path))
    monkeypatch.setattr(arithmetic, "is_sought", lambda recipe, device: recipe.training.batch_tokens == "auto")
    rows: list[int] = []

    def measured(step, device, count, most) -> Speed:
        rows.append(count)
        if count > 1024:
            raise RunError("memory ran out")
        return Speed(1.0, 1.0)

    monkeypatch.setattr("headway.training.arithmetic.bf16_speed", measured)
    assert measured_speed(recipe(SMALL, training={"batch_tokens": "auto"}), CPU, "torch", 2) == (1, 1)
    assert rows == [65536 // 8, 32768 // 8, 16384 // 8, 8192 // 8]
    measured_speed(recipe(SMALL, training={"batch_tokens": 4096}), CPU, "torch")
    assert rows[4:] == [4096 // 8]


def test_memory_that_runs_out_in_the_optimizer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given):
        raise torch.OutOfMemoryError("none left")

    monkeypatch.setattr(trial, "make_update", full)
    with pytest.raises(RunError, match="memory ran out in a batch of 2 examples"):
        Trial(recipe(SMALL), CPU).step("torch")(2, "float32")


def test_a_step_that_does_not_fit_is_no_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path))
    monkeypatch.setattr(
        "headway.training.arithmetic.bf16_speed",
        lambda step, *given: step(2, "float32"),
    )

    def full(*given, **keywords):
        raise MemoryError

    monkeypatch.setattr("headway.models.transformer.Transformer.forward", full)
    assert measured_speed(recipe(SMALL), CPU, "torch") == (0, 0)
    assert "bf16 is not compared with float32, as memory ran out in a batch of 2 examples" in caplog.text
