"""The loop: resumption rules, bad updates, its ends, and what it leaves."""

import json
import math
import shutil
import time

import pytest
import torch

from headway.core.errors import RunError, UserError
from headway.corpora.plan import EncodedPairs
from headway.formats.corpus_config import parse_corpus
from headway.losses import Loss, Objective, ObjectiveConfig
from headway.optimizers.optimizers import OptimizerConfig, build_optimizer
from headway.runs.run import open_run
from headway.runs.run_folder import STATE, RunFolder, hash_of, list_checkpoints, read_state, update_of
from headway.tensors.batch import collate
from headway.training import session, start, updates
from headway.training.loop import train
from headway.training.parallel import Parallel
from headway.training.records import Records
from headway.training.report import summary_of
from headway.training.session import Evaluation
from headway.training.updates import PlannedUpdate, TrainingStep, compute_gradients, prepare_update, step_if
from tests.models import toys as models
from tests.rounding import rounding
from tests.training import toys


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", ["dev", "general"])
def test_a_set_without_one_usable_pair_is_found_before_the_work(tmp_path, name):
    recipe = toys.recipe(tmp_path)
    (tmp_path / "blank.tsv").write_text("abc\t\nabd\t \n")
    blank = parse_corpus({"tsv": str(tmp_path / "blank.tsv")}, "data")
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={name: blank})})
    with pytest.raises(UserError, match=rf"data\.{name}: no example is left to evaluate on"):
        train(recipe, tmp_path / "run")
    assert not list_checkpoints(tmp_path / "run" / "checkpoints")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_metrics_have_the_keys_that_others_rely_on(tmp_path):
    lines = metrics(toys.run(tmp_path, log_every=3))
    keys = {
        "update", "loss", "unsmoothed_loss", "target_tokens", "target_tokens_per_second", "learning_rate",
        "gradient_norm", "seconds", "cpu_seconds",
    }  # fmt: skip
    training = [line for line in lines if "loss" in line]
    assert all(keys <= line.keys() for line in training)
    assert [line["update"] for line in training] == [2, 3, 4, 6]
    assert {"dev_loss", "dev"} <= next(line for line in lines if "dev_loss" in line).keys()


def test_a_fused_step_may_be_left_out_where_momentum_has_begun():
    layer = torch.nn.Linear(2, 2)
    plain, moving = (build_optimizer(OptimizerConfig(kind="sgd", momentum=share), layer) for share in (0.0, 0.9))
    assert (updates.decides_itself(plain), updates.decides_itself(moving)) == (True, False)
    layer(torch.ones(1, 2)).sum().backward()
    moving.step()
    assert updates.decides_itself(moving)


def test_the_seconds_of_training_are_those_of_updates(tmp_path, monkeypatch):
    whole = session.evaluate

    def slow(*given):
        time.sleep(0.5)
        return whole(*given)

    monkeypatch.setattr(session, "evaluate", slow)
    lines = metrics(toys.run(tmp_path, updates=8, checkpoint_every=2, log_every=1))
    evaluations = [line["evaluation_seconds"] for line in lines if "dev" in line]
    assert len(evaluations) == 4
    assert min(evaluations) >= 0.5
    speeds = [line["target_tokens"] / line["target_tokens_per_second"] for line in lines if "loss" in line]
    manifest = open_run(tmp_path / "run").manifest
    assert max(speeds[1:]) < 0.5
    assert speeds[0] == pytest.approx(lines[0]["seconds"])
    assert manifest["seconds"] == lines[-1]["seconds"] < 1.5
    assert manifest["evaluation_seconds"] == sum(evaluations)


def test_training_loss_without_smoothing_is_the_quantity_of_the_dev_loss(tmp_path):
    recipe = toys.recipe(tmp_path, optimizer={"learning_rate": 1e-12}, epochs=1, updates=50, checkpoint_every=50)
    same = recipe.data.model_copy(update={"dev": recipe.data.train})
    smoothed = recipe.objective.model_copy(update={"label_smoothing": 0.3})
    train(recipe.model_copy(update={"data": same, "objective": smoothed}), tmp_path / "run")
    *windows, evaluation = metrics(tmp_path / "run")
    tokens = [line["target_tokens"] for line in windows]
    means = {
        name: sum(line[name] * count for line, count in zip(windows, tokens, strict=True)) / sum(tokens)
        for name in ("loss", "unsmoothed_loss")
    }
    assert means["unsmoothed_loss"] == pytest.approx(evaluation["dev_loss"], rel=1e-4)
    assert means["loss"] != pytest.approx(evaluation["dev_loss"], rel=1e-2)


def test_a_run_is_not_overwritten(tmp_path):
    toys.run(tmp_path)
    with pytest.raises(UserError, match="there is a run here already"):
        train(toys.recipe(tmp_path), tmp_path / "run")


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_whose_data_could_not_be_prepared_takes_the_mended_recipe(tmp_path, resume):
    recipe = toys.recipe(tmp_path, seed=2)
    missing = parse_corpus({"tsv": str(tmp_path / "missing.tsv")}, "data.dev")
    data = recipe.data.model_copy(update={"dev": missing})
    with pytest.raises(UserError, match=r"missing\.tsv"):
        train(recipe.model_copy(update={"data": data}), tmp_path / "run")
    RunFolder(tmp_path / "run").vocabulary.mkdir()  # made before the attempt ended: not of the mended recipe
    train(recipe, tmp_path / "run", resume=resume)
    train(recipe, tmp_path / "at once")
    for name in ("model.safetensors", "recipe.yaml"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "at once" / name).read_bytes()


def test_an_attempt_that_ended_before_training_leaves_no_vocabulary_of_older_data(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    recipe = toys.recipe(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(start, "_session", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(recipe, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert folder.vocabulary.is_dir()
    assert not folder.has_begun()
    for file in folder.vocabulary.rglob("*"):  # as if other data had been there
        if file.is_file():
            file.write_bytes(b"")
    train(recipe, tmp_path / "run")
    train(recipe, tmp_path / "at once")
    assert folder.weights.read_bytes() == RunFolder(tmp_path / "at once").weights.read_bytes()


@pytest.mark.parametrize(
    ("model", "learned"),
    [
        ({"position": "learned"}, True), ({"position": "rotary"}, False),
        ({"decoder": {"layers": 1, "cross": "location"}}, True),
    ],
)  # fmt: skip
def test_a_dev_set_longer_than_learned_positions_is_found_before_the_work(tmp_path, model, learned):
    recipe = toys.recipe(tmp_path, model | {"max_position": 12})
    (tmp_path / "longer.tsv").write_text(f"{'abc ' * 12}\tcba\n")
    longer = parse_corpus({"tsv": str(tmp_path / "longer.tsv")}, "data.dev")
    data = recipe.data.model_copy(update={"dev": longer, "max_length": 8})
    recipe = recipe.model_copy(update={"data": data})
    if learned:
        with pytest.raises(UserError, match=r"data\.dev: a pair of \d+ and 4 tokens is longer .* allowed: up to 11"):
            train(recipe, tmp_path / "run")
    else:  # which reads on
        assert train(recipe, tmp_path / "run") == 0


def test_resuming_with_another_recipe_names_the_keys(tmp_path):
    toys.run(tmp_path)
    with pytest.raises(UserError, match=r"training\.seed: 1 -> 2"):
        train(toys.recipe(tmp_path, seed=2), tmp_path / "run", resume=True)


def test_a_model_without_checkpoints_is_not_trained_over(tmp_path):
    run = toys.run(tmp_path)
    shutil.rmtree(run / "checkpoints")
    before = (run / "model.safetensors").stat()
    with pytest.raises(UserError, match="this run has a model, and no checkpoint to go on from"):
        toys.run(tmp_path, updates=9, resume=True)
    assert (run / "model.safetensors").stat() == before


def test_more_updates_may_be_asked_for(tmp_path, caplog):
    toys.run(tmp_path)
    toys.run(tmp_path, updates=9, resume=True)
    assert metrics(tmp_path / "run")[-1]["update"] == 9
    assert "training.updates: 6 -> 9" in caplog.text
    with pytest.raises(UserError, match=r"training\.updates: this run has made more updates already; received 8"):
        toys.run(tmp_path, updates=8, resume=True)


def test_another_number_of_processes_is_told(tmp_path, caplog):
    run = toys.run(tmp_path)
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["processes"] == 1
    (run / "manifest.json").write_text(json.dumps(manifest | {"processes": 2}))
    toys.run(tmp_path, updates=7, resume=True)
    assert "there were 2 processes, and now 1: random draws, as in dropout, are other ones" in caplog.text


@pytest.mark.parametrize(("warmup", "told"), [(5, False), (6, True)])
def test_training_that_ends_within_the_warm_up_is_told(tmp_path, caplog, warmup, told):
    toys.run(tmp_path, optimizer={"warmup": warmup})
    message = "training.updates 6 are within optimizer.warmup 6: the learning rate rises to the end"
    assert (message in caplog.text) == told


def test_changed_data_is_noticed(tmp_path):
    toys.run(tmp_path)
    with (tmp_path / "train.tsv").open("a") as file:
        file.write("dd\tdd\n")
    with pytest.raises(UserError, match=r"the data has changed since this run began: data\.train; allowed"):
        train(toys.recipe(tmp_path, updates=9), tmp_path / "run", resume=True)


def spoil(monkeypatch, updates):
    """Make the loss NaN in these updates (one batch an update)."""
    calls, whole = [], Objective.__call__

    def spoiled(self, output, batch):
        calls.append(1)
        loss = whole(self, output, batch)
        factor = float("nan") if len(calls) in updates else 1.0
        return Loss(loss.total * factor, {name: part * factor for name, part in loss.parts.items()}, loss.unsmoothed)

    monkeypatch.setattr(Objective, "__call__", spoiled)


def test_a_bad_update_is_named_and_skipped(tmp_path, monkeypatch, caplog):
    spoil(monkeypatch, {3})
    run = toys.run(tmp_path, log_every=1)
    said = caplog.text
    assert "update 3: the loss is not finite; its batch holds lines" in said
    assert [line["skipped"] for line in metrics(run) if "skipped" in line] == [0, 0, 1, 0, 0, 0]


def test_bad_updates_in_a_row_end_the_run(tmp_path, monkeypatch):
    spoil(monkeypatch, {3, 4, 5})
    with pytest.raises(RunError, match=r"update 5: .*\n3 such updates in a row"):
        train(toys.recipe(tmp_path), tmp_path / "run")
    assert [update_of(folder) for folder in list_checkpoints(tmp_path / "run/checkpoints")] == [2, 4]


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_a_fused_optimizer_leaves_out_a_bad_update_by_itself(kind):
    layers = [torch.nn.Linear(3, 2) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    plain, deciding = (build_optimizer(OptimizerConfig(kind=kind), layer) for layer in layers)
    for update, finite in enumerate([True, False, True]):
        for layer, optimizer in zip(layers, (plain, deciding), strict=True):
            optimizer.param_groups[0]["lr"] = 0.1
            for parameter in layer.parameters():
                parameter.grad = torch.full_like(parameter, update + 1.0 if finite else float("nan"))
        if finite:
            plain.step()
        step_if(torch.tensor(finite), deciding)
    for one, other in zip(layers[0].parameters(), layers[1].parameters(), strict=True):
        assert torch.equal(one, other)
        assert deciding.state[other]["step"] == 2


def test_epochs_and_patience_end_training(tmp_path, caplog):
    caplog.set_level("INFO")
    run = toys.run(
        tmp_path, "epochs", optimizer={"schedule": "constant"}, updates=None, epochs=1, checkpoint_every=1000
    )
    assert metrics(run)[-1]["epoch"] == 1
    assert "epoch 1 ·" in caplog.text
    assert "epoch 2" not in caplog.text
    run = toys.run(tmp_path, "patience", updates=1000, patience=2, best_by="exact_match", dev_metrics=["exact_match"],
                   checkpoint_every=1)  # fmt: skip
    assert metrics(run)[-1]["update"] < 50


def test_of_equal_scores_the_lower_loss_is_better(tmp_path, monkeypatch, caplog):
    """For the weights, patience and a plateau alike, also where the run was resumed between."""
    caplog.set_level("INFO")
    losses = iter([3.0, 2.0, 1.0, 1.5, 1.0, 1.2])
    monkeypatch.setattr(session, "evaluate", lambda *_: Evaluation(next(losses), {"exact_match": 0.0}))
    settings = {
        "optimizer": {"schedule": {"kind": "plateau", "patience": 1}, "warmup": 0}, "dev_metrics": ["exact_match"],
        "patience": 3, "log_every": 2,
    }  # fmt: skip
    toys.run(tmp_path, updates=4, **settings)
    run = toys.run(tmp_path, updates=20, resume=True, **settings)
    assert next(losses, None) is None, "three evaluations after the third have no lower loss"
    rates = [line["learning_rate"] for line in metrics(run) if "loss" in line]
    assert [rate / rates[0] for rate in rates] == [1, 1, 1, 1, 1 / 2, 1 / 4]
    assert open_run(run).manifest["averaged_updates"] == [6]
    chosen = "those after update 6: best on dev by exact_match, of 6 evaluations with 0.00 the lowest loss"
    assert f"model.safetensors; the weights are {chosen}" in caplog.text
    assert summary_of(open_run(run))["weights"] == chosen


@pytest.mark.parametrize("count", [1, 2])
def test_the_best_checkpoints_are_those_of_the_best_scores_and_then_losses(tmp_path, monkeypatch, count):
    """A score counts before any loss, and what is not finite before nothing."""
    evaluations = iter(
        Evaluation(loss, {"exact_match": score})
        for loss, score in ((0.1, 1.0), (2.0, 5.0), (1.0, 5.0), (1.0, 5.0), (0.5, math.nan), (0.2, -math.inf))
    )
    monkeypatch.setattr(session, "evaluate", lambda *_: next(evaluations))
    run = toys.run(tmp_path, updates=12, average={"of": "best", "count": count}, dev_metrics=["exact_match"])
    assert open_run(run).manifest["averaged_updates"] == [6, 8][:count]


def test_a_checkpoint_from_before_losses_were_kept_is_gone_on_with(tmp_path, monkeypatch):
    losses = iter([3.0, 2.0, 4.0])
    monkeypatch.setattr(session, "evaluate", lambda *_: Evaluation(next(losses), {"exact_match": 0.0}))
    run = toys.run(tmp_path, updates=4, dev_metrics=["exact_match"])
    folder = list_checkpoints(run / "checkpoints")[-1]
    content = read_state(folder)
    content["state"]["best"] = [[-0.0, 2]]
    (folder / STATE).write_text(json.dumps(content | {"own_sha256": hash_of(content)}))
    toys.run(tmp_path, updates=6, dev_metrics=["exact_match"], resume=True)
    assert open_run(run).manifest["averaged_updates"] == [6]


def test_the_best_score_is_shown_as_it_is(tmp_path, monkeypatch):
    """A metric may have scores below 0."""
    monkeypatch.setattr("headway.metrics.metric.ExactMatch.aggregate", lambda metric, totals: -11.25)
    shown, text = [], session.Session.progress_text
    monkeypatch.setattr(session.Session, "progress_text", lambda *given: (shown.append(text(*given)), shown[-1])[1])
    toys.run(tmp_path, best_by="exact_match", dev_metrics=["exact_match"])
    assert any("best exact_match -11.25" in text for text in shown)


def test_bf16_trains_and_decodes(tmp_path, monkeypatch):
    seen, whole = [], session.dev_loss
    monkeypatch.setattr(
        session, "dev_loss", lambda *given: (seen.append(torch.is_autocast_enabled("cpu")), whole(*given))[1]
    )
    settings = {"updates": 40, "checkpoint_every": 20, "log_every": 4, "dev_metrics": ["exact_match"]}
    lines = metrics(toys.run(tmp_path, precision="bf16", **settings))
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < 0.8 * losses[0]
    assert seen == [True, True]
    assert [line["update"] for line in lines if "dev" in line] == [20, 40]


def test_recipes_that_cannot_work_are_refused_first(tmp_path):
    for changes, message in (
        ({"best_by": "bleu"}, r"training\.best_by"),
        ({"model": {"encoder": {"layers": 1, "mixer": "atention"}}}, r"model\.encoder\.mixer\[0\]\.kind.*'attention'"),
    ):
        with pytest.raises(UserError, match=message):
            train(toys.recipe(tmp_path, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Pairs(EncodedPairs):
    """A corpus in memory."""

    def __init__(self):
        batch = models.batch()
        self.sources = [row[real][:-1].numpy() for row, real in zip(batch.source, batch.source_mask, strict=True)]
        self.targets = [
            row[real][:-1].numpy() for row, real in zip(batch.target_output, batch.target_mask, strict=True)
        ]
        self.target_lengths = torch.tensor([len(each) for each in self.targets]).numpy()
        self._labels = models.heads(self.sources, self.targets)

    def source(self, index):
        return self.sources[index]

    def target(self, index):
        return self.targets[index]

    def labels(self, index):
        return self._labels[index]


@pytest.mark.parametrize("objective", [{}, {"dependency": {}, "synchronous": {"cross_layer": 2}}])
def test_accumulated_gradients_are_those_of_the_mean_loss_a_token(tmp_path, objective):
    corpus, config = Pairs(), toys.recipe(tmp_path)
    model = models.model()
    step = TrainingStep(model, Objective(ObjectiveConfig.model_validate(objective)))
    indices = [torch.tensor([0, 2]).numpy(), torch.tensor([1]).numpy()]
    parallel = Parallel(0, 1, torch.device("cpu"), config.training)
    batches = prepare_update(corpus, PlannedUpdate(1, 0, indices, ends_epoch=False), parallel).batches
    records = Records(RunFolder(tmp_path), write=False)
    records.add(PlannedUpdate(1, 0, indices, ends_epoch=False), compute_gradients(step, batches, parallel, None, None))
    (found,) = records.read()
    accumulated = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    batch = collate(corpus.sources, corpus.targets, labels=[corpus.labels(place) for place in range(3)])
    loss = step(batch)
    (loss.total / found.tokens).backward()
    assert found.tokens == int(batch.target_mask.sum())
    assert found.loss == pytest.approx(loss.total.item(), rel=rounding())
    assert found.parts == pytest.approx({name: part.item() for name, part in loss.parts.items()}, rel=rounding())
    for one, parameter in zip(accumulated, model.parameters(), strict=True):
        assert torch.allclose(one, parameter.grad, rtol=rounding(), atol=rounding(steps=1))
    norm = torch.cat([grad.flatten() for grad in accumulated]).norm()
    assert found.norm == pytest.approx(norm.item(), rel=rounding())
    clipped = compute_gradients(step.zero_grad() or step, batches, parallel, 0.01, None)
    assert float(clipped.norm) == pytest.approx(found.norm)
    total = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm()
    assert total.item() == pytest.approx(0.01, rel=1e-3)
    by_sentence = compute_gradients(step.zero_grad() or step, batches, parallel, None, 3)
    assert float(by_sentence.norm) == pytest.approx(found.norm * found.tokens / 3)
