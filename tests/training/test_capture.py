"""Recorded steps: what replays them, in place of a device, makes the same updates as running them does."""

import itertools
from contextlib import nullcontext

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from headway.core.errors import RunError, UserError
from headway.losses import Objective, ObjectiveConfig
from headway.models.components import model_section
from headway.optimizers.optimizers import OptimizerConfig, build_optimizer
from headway.recipe import TrainingConfig
from headway.tensors import looking
from headway.tensors.batch import collate, of_one_update
from headway.tensors.looking import Recorder
from headway.training import capture
from headway.training.capture import CapturedUpdate, check_capture
from headway.training.parallel import Parallel
from headway.training.updates import TrainingStep, compute_gradients, make_update
from tests.losses import toys as labelled
from tests.models import toys as models
from tests.models.recurrent import toys as recurrent_toys
from tests.tiers import thinned
from tests.training import toys
from tests.training.kills import assert_same


class Tape(TorchDispatchMode):
    """The operations of some work with their own tensors, as a graph of a device has addresses; it cannot wait."""

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        given = tree_flatten((args, kwargs))[0]
        if name in ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal"):
            raise RuntimeError(f"{name} waits for the device")
        if name in ("index", "index_put_") and any(
            isinstance(each, torch.Tensor) and each.dtype == torch.bool for each in tree_flatten(args[1])[0]
        ):
            raise RuntimeError(f"{name} with a mask waits for the device")
        result = function(*args, **kwargs)
        places = {id(each) for each in given}
        fresh = [each for each in tree_flatten(result)[0] if isinstance(each, torch.Tensor) and id(each) not in places]
        self.operations.append((torch.is_grad_enabled(), function, args, kwargs, result, fresh))
        return result

    def replay(self):
        for grad, function, args, kwargs, result, fresh in self.operations:
            with torch.set_grad_enabled(grad), torch._C._AutoDispatchBelowAutograd():
                again = function(*args, **kwargs)
                if fresh:
                    for before, now in zip(tree_flatten(result)[0], tree_flatten(again)[0], strict=True):
                        if isinstance(before, torch.Tensor) and before.data_ptr() != now.data_ptr():
                            before.copy_(now)


class TapeRecorder(Recorder):
    """Records operations, undoing what they did meanwhile, as recording on a device does nothing."""

    def __init__(self, *kept):
        self.kept, self.replays, self.recorded = kept, 0, 0

    def record(self, work):
        before = [each.clone() for tensors in self.kept for each in tensors()]
        state = torch.get_rng_state()
        with Tape() as tape:
            work()
        torch.set_rng_state(state)
        with torch.no_grad():
            for each, value in zip((each for tensors in self.kept for each in tensors()), before, strict=True):
                each.copy_(value)

        self.recorded += 1

        def replay():
            self.replays += 1
            tape.replay()

        return replay


RATES = [2**-7, 2**-6, 2**-8, 2**-7, 2**-6, 2**-7, 2**-7]  # which single precision holds exactly


def updates_of(labels=False):
    """Updates of several shapes, some with two batches of which each has its own."""
    small, large = (2, 4, 3), (5, 3, 6, 2)

    def batch(lengths, seed):
        torch.manual_seed(seed)
        sources = [torch.randint(4, models.SOURCE_SIZE, (length,)).numpy() for length in lengths]
        targets = [torch.randint(4, models.TARGET_SIZE, (length,)).numpy() for length in reversed(lengths)]
        return collate(sources, targets, labels=models.heads(sources, targets) if labels else ())

    plans = [(small,), (small, large), (large,), (small, small), (large, small), (small,), (large, large)]
    return [
        of_one_update([batch(lengths, 10 * number + place) for place, lengths in enumerate(plan)])
        for number, plan in enumerate(plans)
    ]


def trained(make, updates, settings, recorder=None, objective=None, spoilt=None, autocast="float32"):
    """The weights after updates, and what each gave, recorded or not; within `recorded` either way."""
    model = make().float().train()
    step = TrainingStep(model, Objective(ObjectiveConfig.model_validate(objective or {})))
    optimizer = build_optimizer(OptimizerConfig.model_validate(settings), step, model.blocks())
    config = TrainingConfig(updates=1, clip_norm=0.5)
    parallel = Parallel(0, 1, torch.device("cpu"), config, precision=autocast)
    tape = None
    if recorder:

        def held():
            gradients = [each.grad for each in model.parameters() if each.grad is not None]
            states = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
            return [*model.state_dict().values(), *gradients, *states, captured._sums, captured._norm]

        tape = recorder(held)
        captured = CapturedUpdate(step, optimizer, parallel, tape)
    found = []
    for number, (batches, rate) in enumerate(zip(updates, RATES, strict=True)):
        torch.manual_seed(number)
        if spoilt == number:
            weights = {name: each.clone() for name, each in model.state_dict().items()}
            with torch.no_grad():
                next(model.parameters()).fill_(float("inf"))
        if recorder:
            gradients = captured(batches, None, rate)
        else:
            with looking.recorded():
                gradients = compute_gradients(step, batches, parallel, 0.5, None)
            make_update(optimizer, gradients, rate)
        assert bool(gradients.finite) == (spoilt != number)
        if spoilt == number:
            model.load_state_dict(weights)
        found.append([*gradients.sums.tolist(), float(gradients.unsmoothed), float(gradients.norm)])
    return dict(model.state_dict()), found, tape


MODELS = {
    "attention": lambda: models.model(dropout=0.2),
    "ngram": lambda: models.model(
        dropout=0.2,
        encoder={"layers": 2, "mixer": {"kind": "ngram", "n": 2, "global_context": True}},
        decoder={"layers": 2, "mixer": {"kind": "ngram", "n": 2, "global_context": "prefix"}},
    ),
    "lightconv": lambda: models.model(encoder={"mixer": "lightconv"}, decoder={"mixer": "lightconv"}),
    "linear": lambda: models.model(encoder={"mixer": "linear"}, decoder={"mixer": {"kind": "linear"}}),
    "delta": lambda: models.model(decoder={"mixer": "delta"}),
    "ssru": lambda: models.model(decoder={"mixer": "ssru"}),
    "local": lambda: models.model(decoder={"mixer": {"kind": "local", "n": 2}}),
    "nplm": lambda: models.model(decoder={"mixer": {"kind": "nplm", "n": 2, "blocks": 2, "block_size": 2}}),
    "decoder-only": lambda: models.decoder_only(dropout=0.2),
    "lstm": lambda: recurrent_toys.model(dropout=0.2, **recurrent_toys.ODD),
}


@pytest.mark.parametrize("name", thinned(MODELS, 5, 4))
def test_replayed_updates_are_those_that_are_run(name):
    settings = {"kind": "adam"}
    weights, numbers, _ = trained(MODELS[name], updates_of(), settings)
    replayed, again, tape = trained(MODELS[name], updates_of(), settings, TapeRecorder)
    assert tape.replays > 8  # of two shapes, and of the optimizer's step
    for found, expected in zip(again, numbers, strict=True):
        assert found == pytest.approx(expected, rel=1e-5)
    for key, value in weights.items():
        torch.testing.assert_close(replayed[key], value, rtol=1e-5, atol=1e-6)


def test_grus_are_called_again():
    """Their kernel for processors turns tensors around in place, which a tape does not see."""

    def make():
        return recurrent_toys.model(cell="gru", **recurrent_toys.ODD)

    weights, *_ = trained(make, updates_of(), {})
    called, *_ = trained(make, updates_of(), {}, lambda held: Recorder())
    for key, value in weights.items():
        torch.testing.assert_close(called[key], value, rtol=1e-5, atol=1e-6)


SETTINGS = [{"kind": "adam"}, {"kind": "adamw", "weight_decay": 0.1}, {"kind": "sgd"}, {"kind": "sgd", "momentum": 0.9}]


@pytest.mark.parametrize(
    ("recorder", "settings"),
    thinned(itertools.product([Recorder, TapeRecorder], SETTINGS), 3, 1),
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_loss_that_is_not_finite_is_left_out(recorder, settings):
    for spoilt in (0, 4):
        weights, *_ = trained(MODELS["attention"], updates_of(), settings, spoilt=spoilt)
        made = recorder if recorder is TapeRecorder else lambda held: Recorder()
        replayed, *_ = trained(MODELS["attention"], updates_of(), settings, made, spoilt=spoilt)
        for key, value in weights.items():
            torch.testing.assert_close(replayed[key], value, rtol=1e-5, atol=1e-6)


def test_counts_of_labels_are_those_of_each_batch():
    objective = {"dependency": {}, "synchronous": {"cross_layer": 2}}
    settings = {"kind": "sgd"}  # Adam makes steps of the rounding of gradients that are zero, as those of key biases
    weights, numbers, _ = trained(labelled.model, updates_of(labels=True), settings, objective=objective)
    replayed, again, _ = trained(labelled.model, updates_of(labels=True), settings, TapeRecorder, objective)
    for found, expected in zip(again, numbers, strict=True):
        assert found == pytest.approx(expected, rel=1e-5)
    for key, value in weights.items():
        torch.testing.assert_close(replayed[key], value, rtol=1e-5, atol=1e-6)


def test_bf16_is_recorded():
    weights, *_ = trained(MODELS["attention"], updates_of(), {}, autocast="bf16")
    replayed, *_ = trained(MODELS["attention"], updates_of(), {}, TapeRecorder, autocast="bf16")
    for key, value in weights.items():
        torch.testing.assert_close(replayed[key], value, rtol=1e-2, atol=1e-3)


def test_what_waits_for_the_device_is_named(monkeypatch):
    monkeypatch.setattr(capture, "recorded", nullcontext)
    with pytest.raises(RunError, match=r"_local_scalar_dense waits.*training\.capture to false"):
        trained(MODELS["ngram"], updates_of(), {}, TapeRecorder)


class Ending:
    """Fails as the end of a recording on a device does, after what failed within it."""

    def __enter__(self):
        pass

    def __exit__(self, *given):
        raise RuntimeError("the recording was invalidated")


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (RuntimeError("it waits for the device"), r"cannot be recorded \(it waits for the device\)"),
        (torch.OutOfMemoryError("none left"), "memory ran out in a batch of 3 examples"),
    ],
)
def test_what_failed_first_is_named(failure, message):
    class FailingRecorder(Recorder):
        def record(self, work):
            with Ending():
                raise failure

    with pytest.raises(RunError, match=message):
        trained(MODELS["attention"], updates_of(), {}, lambda held: FailingRecorder())


def test_no_more_shapes_are_recorded_than_corpora_get(monkeypatch):
    monkeypatch.setattr(capture, "MOST", 0)
    *_, tape = trained(MODELS["attention"], updates_of(), {}, TapeRecorder)
    assert tape.recorded == 2  # a shape, and the optimizer's step


class OnDevice(TorchDispatchMode):
    """Refuses tensors on another device than `meta`: to copy them to a GPU would wait for it."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for each in tree_flatten(result)[0]:
            assert not isinstance(each, torch.Tensor) or each.is_meta, f"{function} on {each.device}"
        return result


@pytest.mark.parametrize("name", thinned([*MODELS, "beyond the table"], 5))
def test_all_of_a_step_is_on_the_device(name):
    make = MODELS.get(name, lambda: models.model(max_position=2))
    step = TrainingStep(make().float().train(), Objective(ObjectiveConfig())).to("meta")
    batch = updates_of()[0][0].to("meta")
    with looking.recorded(), OnDevice():
        step(batch).total.backward()


SETTINGS = {
    "shapes": "few", "capture": True, "accumulate": 2, "model": {"dropout": 0.2}, "average": {"kind": "ema"},
    "optimizer": {"schedule": "constant", "learning_rate": 2**-8, "warmup": 0},
}  # fmt: skip


def test_a_run_is_as_without_and_goes_on_exactly(tmp_path, monkeypatch):
    alone = toys.run(tmp_path, "alone", **SETTINGS)
    toys.run(tmp_path, updates=4, **SETTINGS)
    assert_same(alone, toys.run(tmp_path, resume=True, **SETTINGS))
    monkeypatch.setattr("headway.tensors.masks.may_look", lambda mask: False)
    plain = toys.run(tmp_path, "plain", **SETTINGS | {"capture": False})
    assert (plain / "model.safetensors").read_bytes() == (alone / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": {"kind": "muon"}}, r"optimizer\.kind: .*received 'muon'; allowed: adam, adamw or sgd"),
        ({"model": {"kind": "decoder_only", "position": "learned"}}, r"model\.position: .*received 'learned'"),
        (
            {"model": {"kind": "recurrent", "cell": "cho_gru"}},
            r"model\.cell: .*received 'cho_gru'; allowed: lstm",
        ),
        ({"model": {"kind": "recurrent", "attention": "hard"}}, r"model\.attention: .*received 'hard'"),
    ],
)
def test_what_cannot_be_recorded_is_refused_by_name(tmp_path, changes, message):
    base = {key: SETTINGS[key] for key in ("shapes", "capture")}
    recipe = toys.recipe(tmp_path, **base, optimizer=changes.get("optimizer"))
    if "model" in changes:
        recipe = recipe.model_copy(update={"model": model_section(changes["model"])})
    with pytest.raises(UserError, match=message):
        check_capture(recipe, 1)


def test_one_process_and_few_shapes_are_needed(tmp_path):
    with pytest.raises(UserError, match=r"received 2; allowed: one process"):
        check_capture(toys.recipe(tmp_path, shapes="few", capture=True), 2)
    for wrong, message in ({}, "capture needs shapes: few"), ({"shapes": "few", "compile": True}, "give capture, or"):
        with pytest.raises(UserError, match=message):
            toys.recipe(tmp_path, capture=True, **wrong)
