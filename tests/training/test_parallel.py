"""Two processes give the weights of one, to rounding, replicated or sharded, and resume."""

import os
import shutil
import subprocess
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from headway.corpora.plan import EncodedPairs
from headway.recipe import TrainingConfig, dump_recipe
from headway.training.checkpoints import TrainingState
from headway.training.parallel import Parallel
from headway.training.updates import planned_updates, prepare_update, sizes_of
from tests.command_server import commands
from tests.conftest import write_reversal
from tests.rounding import rounding
from tests.training import toys
from tests.training.test_lost_processes import free_port
from tests.training.test_recurrent import recipe as recurrent

ROOT = Path(__file__).parents[2]


class Numbers(EncodedPairs):
    """Pair i has i % 5 + 1 tokens a side."""

    def __init__(self):
        self.source_lengths = self.target_lengths = np.arange(100) % 5 + 1
        self.lines, self.fingerprint = np.arange(1, 101), ""

    def source(self, index):
        return np.full(self.source_lengths[index], 9)

    target = source

    def labels(self, index):
        return {}


def two_processes(recipe: Path, output: Path, *more: str) -> tuple[int, str]:
    """Train with the variables that torchrun sets: how the first process ended, and what both said."""
    job = {"OMP_NUM_THREADS": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes = [
        subprocess.Popen(
            [commands() / "headway", "train", recipe, "--output", output, *more],
            cwd=ROOT, env=os.environ | job | {"RANK": rank, "LOCAL_RANK": rank}, stderr=subprocess.PIPE, text=True,
        )
        for rank in "01"
    ]  # fmt: skip
    said = [process.communicate(timeout=240)[1] for process in processes]
    return processes[0].returncode, "".join(said)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_equal_one(tmp_path, strategy):
    # Adam divides by the size of a gradient, so that one that is zero but for rounding, as that of a key's bias,
    # decides on a step of full length. With this epsilon a step is as long as its gradient, and so is its error.
    settings = {
        "updates": 6,
        "accumulate": 2,
        "checkpoint_every": 3,
        "strategy": strategy,
        "precision": "float32",
        "optimizer": {"epsilon": 1.0, "learning_rate": 1.0},
        "model": {"position": "t5", "encoder": {"layers": 2}},  # both encoder layers share the biases
    }
    alone = toys.run(tmp_path, **settings)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(dump_recipe(toys.recipe(tmp_path, **settings)))
    code, said = two_processes(recipe, tmp_path / "two")
    assert code == 0, said[-3000:]
    assert said.count("training is complete") == 1
    one, two = load_file(alone / "model.safetensors"), load_file(tmp_path / "two/model.safetensors")
    assert one.keys() == two.keys()
    before = load_file(alone / "checkpoints/update-00000003/model.safetensors")
    for name in one:
        assert torch.allclose(one[name], two[name], atol=rounding()), name
    assert max((one[name] - before[name]).abs().max() for name in one) > 1000 * rounding()
    one, two = (
        load_file(run / "checkpoints/update-00000006/optimizer.safetensors") for run in (alone, tmp_path / "two")
    )
    assert one.keys() == two.keys()
    for name in one:
        assert torch.allclose(one[name], two[name], atol=rounding()), name
    code, said = two_processes(recipe, tmp_path / "two", "training.updates=7", "--resume")
    assert code == 0, said[-3000:]
    assert "going on after update 6" in said
    steps = load_file(tmp_path / "two/checkpoints/update-00000007/optimizer.safetensors")
    assert {float(value) for name, value in steps.items() if name.endswith("/step")} == {7.0}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_matrices_by_muon_and_averages_of_weights_in_two_processes(tmp_path, strategy):
    """In a model whose blocks hand on more than vectors. Muon multiplies in bf16, and so are its errors."""
    over = {name: {"kind": "attention", "over": name} for name in ("layers", "blocks")}
    settings = {
        "updates": 4, "checkpoint_every": 2, "strategy": strategy, "precision": "float32", "average": {"kind": "ema"},
        "optimizer": {"kind": "muon", "schedule": "constant", "learning_rate": 0.01, "warmup": 0, "epsilon": 1.0},
        "model": {
            "value_residual": True, "norm": "pre", "position": "t5",
            "encoder": {"layers": 2, "residual": over["layers"]},
            "decoder": {"layers": 2, "residual": over["blocks"], "cross": "merged"},
        },
    }  # fmt: skip
    alone = toys.run(tmp_path, **settings)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(dump_recipe(toys.recipe(tmp_path, **settings)))
    code, said = two_processes(recipe, tmp_path / "two")
    assert code == 0, said[-3000:]
    one, two = (load_file(run / "model.safetensors") for run in (alone, tmp_path / "two"))
    assert all(torch.allclose(one[name], two[name], atol=0.01) for name in one)
    code, said = two_processes(recipe, tmp_path / "two", "training.updates=5", "--resume")
    assert code == 0, said[-3000:]
    assert "going on after update 4" in said


@pytest.mark.slow
def test_all_processes_remember_the_same_baseline_of_hard_attention(tmp_path):
    """By plain gradient descent, of whose fused step torch has none for shards."""
    write_reversal(tmp_path)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(dump_recipe(recurrent(tmp_path, {"kind": "hard"}, 4)))
    descent = "optimizer={kind: sgd, learning_rate: 0.1, momentum: 0.5}"
    sharded = ("training.strategy=fsdp", "training.batch_tokens=600", descent)
    assert two_processes(recipe, tmp_path / "whole", *sharded)[0] == 0
    shutil.copytree(tmp_path / "whole", tmp_path / "halves")
    shutil.rmtree(tmp_path / "halves/checkpoints/update-00000004")
    _, said = two_processes(recipe, tmp_path / "halves", *sharded, "--resume")
    assert "going on after update 2" in said
    whole, halves = (tmp_path / run / "checkpoints/update-00000004/model.safetensors" for run in ("whole", "halves"))
    assert whole.read_bytes() == halves.read_bytes()


@pytest.fixture
def group_of_one():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("group_of_one")
def test_gradients_are_exchanged_in_buckets_while_the_backward_pass_goes_on():
    """Only in the last of the passes of an update."""
    layers = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(12)))  # 4 MiB each
    parallel = Parallel(0, 2, torch.device("cpu"), TrainingConfig(updates=1))
    wrapped, events = parallel.wrap(layers, []), []
    assert isinstance(wrapped, DistributedDataParallel)

    def exchange(state, bucket):
        events.append("bucket")
        exchanged = torch.futures.Future()
        exchanged.set_result(bucket.buffer())
        return exchanged

    wrapped.register_comm_hook(None, exchange)
    for number, layer in enumerate(layers):
        layer.weight.register_post_accumulate_grad_hook(lambda weight, number=number: events.append(number))
    for last in (True, False, True):  # the first pass has one bucket, and tells torch the order of the others
        events.clear()
        with parallel.synchronise(wrapped, last=last):
            wrapped(torch.ones(1, 1024)).sum().backward()
        assert [event for event in events if event != "bucket"] == [*reversed(range(12))]
        assert ("bucket" in events) == last
    assert events.count("bucket") >= 2
    assert events.index("bucket") < events.index(0)  # the lowest layer's gradient comes last


def test_the_plan_of_updates_and_their_rows_do_not_depend_on_the_number_of_processes():
    corpus = Numbers()
    config, state = TrainingConfig(updates=1, batch_tokens=60, accumulate=2), TrainingState()
    plans = list(islice(planned_updates(corpus, config, state, sizes_of(corpus, config)), 7))  # more than an epoch
    assert [plan.epoch for plan in plans][-1] == 1
    for plan in plans:
        for count in (1, 2, 3, 4):
            shares = [
                prepare_update(corpus, plan, Parallel(rank, count, torch.device("cpu"), config)).batches
                for rank in range(count)
            ]
            for place, indices in enumerate(plan.indices):
                parts = [share[place] for share in shares]
                learned = [index for part in parts for index in part.indices[part.target_mask.any(1).numpy()]]
                assert sorted(learned) == sorted(indices)
                assert {part.counts["target_tokens"] for part in parts} == {
                    sum(len(corpus.target(index)) + 1 for each in plan.indices for index in each)
                }


def test_a_mistake_ends_all_processes_with_one_message(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    tree = yaml.safe_load(dump_recipe(toys.recipe(tmp_path)))
    tree["data"]["train"]["tsv"] = str(tmp_path / "missing.tsv")
    recipe.write_text(yaml.safe_dump(tree))
    code, said = two_processes(recipe, tmp_path / "run")
    assert code == 2
    assert said.count("error: data.train") == said.count("error: ") == 1
    assert "missing.tsv" in said


def test_a_mistake_in_a_recipe_is_told_by_the_first_process_of_a_machine(tmp_path, monkeypatch, run_headway):
    tree = yaml.safe_load(dump_recipe(toys.recipe(tmp_path)))
    tree["model"]["dim"] = "wide"
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(tree))
    for rank in ("0", "1"):
        monkeypatch.setenv("LOCAL_RANK", rank)
        ended = run_headway("train", recipe, "--output", tmp_path / "run")
        assert ended.code == 2
        assert ended.err.count("error: model.dim") == (rank == "0")
