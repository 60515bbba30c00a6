"""Ablation: in planted models the one part that the answer hangs on is found, and nothing else; pruning, errors."""

import copy
import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import headway
from headway.cli import main
from headway.comparison.comparison import Measure, compared_pairs
from headway.comparison.options import AblateOptions
from headway.core.errors import UserError
from headway.grids.ablation import (
    WHOLE,
    Ablation,
    Ablations,
    Correlation,
    LogProbability,
    _pruned,
    ablate,
    as_one_family,
    by_rank,
    cut,
    draw,
)
from headway.grids.compare import Existing
from headway.metrics import metric_in
from headway.metrics.intervals import holm, linearise
from headway.metrics.metric import Metric
from headway.predictors.output import Example
from headway.predictors.sequence_predictor import SequencePredictor
from headway.tensors.batch import EOS
from tests.conftest import Command, Reversal

PLACES, TOKENS = 16, 16  # channels: 16 of the position, 16 of the token, 16 that the answer is read from
RECIPE = {
    "data": {"train": {"tsv": "train.tsv"}, "dev": {"tsv": "dev.tsv"}, "max_length": 12},
    "vocabulary": {"kind": "char", "shared": True},
    "model": {
        "dim": 48, "heads": 4, "head_dim": 16, "feed_forward": 16, "dropout": 0.0, "norm": "pre", "tied": "none",
        "position": "learned", "max_position": PLACES, "scale_embeddings": False,
        "encoder": {"layers": 1, "mixer": {"kind": "ngram", "n": 4, "heads": 1}}, "decoder": {"layers": 1},
    },
    "training": {"updates": 1, "batch_tokens": 512},
    "decoding": {"beam": 2, "max_length_offset": 8},
}  # fmt: skip
COPYING, OFFSET = "decoder.1.cross:head=3", "encoder.1.self:offset=-2"


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one update, into whose models weights are written by hand."""
    folder = tmp_path_factory.mktemp("planted")
    words = ["".join(random.Random(seed).choices("abcde", k=3 + seed % 5)) for seed in range(60)]
    for name, rows in (("train", words), ("dev", words[:30])):
        (folder / f"{name}.tsv").write_text("".join(f"{word}f\t{word}f\n" for word in rows), encoding="utf-8")
    (folder / "recipe.yaml").write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["train", str(folder / "recipe.yaml"), "--output", str(folder / "run")])
    assert ended.value.code == 0
    return folder / "run"


@torch.no_grad()
def planted(predictor: SequencePredictor, seed: int, shift: bool) -> SequencePredictor:
    """The model writes x_t at position t through head 3 of cross-attention or, with `shift`, x_{t-2}, which an n-gram
    has fetched; all other weights are small random numbers."""
    predictor = copy.deepcopy(predictor)
    (model,) = predictor.models
    torch.manual_seed(seed)
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, std=0.002 if shift else 0.02) if "norm" not in name else parameter.fill_(
            float("weight" in name)
        )
    one_hot, answer = torch.eye(16), slice(PLACES + TOKENS, 48)
    for embedding in (model.source_embedding, model.target_embedding):
        embedding.position.table[:, :PLACES] += one_hot
        embedding.tokens.weight[:, PLACES : PLACES + TOKENS] += one_hot[: len(embedding.tokens.weight)]
    mixer, cross = model.encoder[0].mixer, model.decoder[0].cross
    if shift:  # window position 1 of 7 is offset -2
        mixer.in_projection.weight[:16, PLACES : PLACES + TOKENS] += one_hot
        mixer.weight[0, :16, :16, 1] += one_hot
        mixer.out_projection.weight[answer, :16] += 2 * one_hot
    head, read = slice(32, 48), answer if shift else slice(PLACES, PLACES + TOKENS)
    cross.query_projection.weight[head, :PLACES] += 3 * one_hot
    cross.memory_projection.weight[head, :PLACES] += 3 * one_hot
    cross.memory_projection.weight[64:][head, read] += one_hot
    cross.out_projection.weight[answer, head] += one_hot
    written = one_hot[: len(model.projection.weight)].clone()
    if shift:  # the end of the output is two positions after the first f of the input
        letter = predictor.target.encode_lines(["f"])[0][-1]
        written[[EOS, letter]] = written[[letter, EOS]]
    model.projection.weight[:, answer] += 2 * written
    return predictor


def examined(
    untrained: Path, shift: bool, options: dict[str, Any], metrics: list[Metric], seeds: range = range(1, 6)
) -> Ablations:
    predictor = headway.load(untrained, device="cpu")
    words = [
        line.split("\t")[0] for line in (untrained.parent / "dev.tsv").read_text(encoding="utf-8").split("\n")[:-1]
    ]
    examples = [Example(word + "ff", "a " + word) if shift else Example(word, word) for word in words]
    models = [planted(predictor, seed, shift) for seed in seeds]
    names = [f"run-{seed}" for seed in seeds]
    return cut(names, models, examples, metrics, AblateOptions.model_validate({"margin": 0.1} | options))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["zero", "mean", "resample"])
def test_the_head_that_copies_is_found_and_nothing_else(untrained: Path, how: str) -> None:
    options = {"what": ["*.*.*:heads", "offsets"], "how": [how]}
    metrics = [LogProbability(), metric_in(None, {"name": "exact_match"})]
    found = examined(untrained, False, options, metrics)
    assert min(found.wholes["exact_match"]) == 100
    for ablation in found.ablations:
        rows = {row["part"]: row for row in ablation.found()}
        assert len(rows) == 1 + 4 + 4 + 7
        copying = rows.pop(COPYING)
        assert (copying["verdict"], copying["seen_in"]) == ("worse", 5)
        assert next(iter(row["part"] for row in ablation.found())) == COPYING
        assert all(row["verdict"] in ("even", "none") for row in rows.values())
        assert all(abs(row["difference"]) < 0.1 for row in rows.values())


@pytest.mark.parametrize("how", ["zero", "resample"])
def test_the_offset_that_the_answer_hangs_on_is_found_and_nothing_else(untrained: Path, how: str) -> None:
    found = examined(untrained, True, {"what": ["encoder.*.self:offsets"], "how": [how]}, [LogProbability()])
    (ablation,) = found.ablations
    rows = {row["part"]: row for row in ablation.found()}
    offset = rows.pop(OFFSET)
    assert (offset["verdict"], offset["seen_in"]) == ("worse", 5)
    assert len(rows) == 6
    assert {row["verdict"] for row in rows.values()} <= {"even", "none"}
    assert all(abs(row["difference"]) < 0.1 for row in rows.values())


def test_pruning_a_figure_and_json(untrained: Path, tmp_path: Path) -> None:
    options = {"what": ["decoder.*.cross:heads"], "how": ["zero", "mean"], "prune": 0.5}
    found = examined(untrained, False, options, [LogProbability()], range(1, 4))
    assert found.pruned is not None
    assert [sorted(parts) for parts in found.pruned] == [[f"decoder.1.cross:head={head}" for head in (1, 2, 4)]] * 3
    assert "Of 4 parts so many can go together, on these sentences: 3, 3, 3" in found.text()
    values = json.loads(json.dumps(found.to_json()))
    assert [len(each["parts"]) for each in values["ablations"]] == [4, 4]
    assert values["ablations"][0]["parts"][0]["seen_in"] == 3
    draw(found, tmp_path / "losses.svg")
    picture = (tmp_path / "losses.svg").read_text(encoding="utf-8")
    assert picture.startswith("<?xml")


def test_parts_that_can_go_are_tried_with_those_that_have_gone() -> None:
    """Each part costs 0.4 alone, so that two of three cost less than 1 together."""
    one: Any = SimpleNamespace(
        metrics=[SimpleNamespace(higher_is_better=True, aggregate=float)], parts={name: [name] for name in "abc"},
        statistics=lambda parts, how: [np.full(1, -0.4 * len(parts))],
    )  # fmt: skip
    assert _pruned(one, [0.4, 0.4, 0.4], AblateOptions(prune=1.0)) == ["a", "b"]


def heads_of(losses: list[list[float]], sentences: int = 200) -> tuple[list[Any], dict[str, list[Any]]]:
    """The statistics of whole models, a seed each, and without each head, which then lose so much on average."""
    rng, ones = np.random.default_rng(1), np.ones(sentences)
    whole = [np.stack([rng.normal(-1, 0.1, sentences), ones], axis=1) for _ in losses]
    without = {}
    for head in range(len(losses[0])):
        noise = [rng.normal(seed[head], 0.05, sentences) for seed in losses]
        without[f"d.1.cross:head={head + 1}"] = [
            rows - np.stack([lost, 0 * ones], axis=1) for rows, lost in zip(whole, noise, strict=True)
        ]
    return whole, without


def test_a_head_that_every_seed_needs_is_found_whatever_its_number() -> None:
    measure = Measure("logprob", "logprob", LogProbability())
    losses = [[0.5 if head == seed else 0.0 for head in range(8)] for seed in range(5)]
    pairs = by_rank(measure, *heads_of(losses), margin=0.05)
    assert [pair.b for pair in pairs[:2]] == ["d.1.cross:rank=1", "d.1.cross:rank=2"]
    assert [pair.verdict for pair in pairs] == ["worse", *["even"] * 7]
    idle = by_rank(measure, *heads_of([[0.0] * 8] * 5), margin=0.05)
    assert {pair.verdict for pair in idle} == {"even"}, (
        "the largest of eight idle heads is not chosen by what judges it"
    )
    assert by_rank(measure, *heads_of(losses[:1]), margin=0.05) == []


def test_parts_of_all_metrics_and_kinds_are_one_family() -> None:
    """That a part makes no difference is as seldom said by chance as that it matters."""
    measure = Measure("logprob", "logprob", LogProbability())
    whole, without = heads_of([[0.0] * 64] * 5, 40)
    systems = {WHOLE: linearise(LogProbability(), whole)}
    systems |= {part: linearise(LogProbability(), rows) for part, rows in without.items()}
    margin = 2.2 * (systems["d.1.cross:head=1"] - systems[WHOLE]).estimate().half_width()
    one = Ablation(measure, "zero", systems, compared_pairs(measure, systems, margin, WHOLE), [[0.0]], [0], None)
    alone, both = (as_one_family(family, margin)[0] for family in ([one], [one] * 3))
    counts = [sum(pair.verdict == "even" for pair in each.pairs) for each in (one, alone, both)]
    assert counts[0] > counts[1] >= counts[2]
    p_values = [pair.estimate.p_within(margin) or 1.0 for pair in one.pairs]
    assert [pair.verdict == "even" for pair in both.pairs] == [p <= 0.05 for p in holm([*p_values] * 3)[:64]]


def test_one_seed_has_no_verdict(untrained: Path) -> None:
    found = examined(untrained, False, {"what": ["decoder.*.cross:heads"]}, [LogProbability()], range(1, 2))
    assert {row["verdict"] for row in found.ablations[0].found()} == {"none"}
    assert "One seed says nothing of the method" in found.text()
    assert found.ablations[0].stable is None


def test_rank_correlations_between_seeds() -> None:
    same = Correlation.of([[1.0, 2, 3, 4, 5, 6], [2.0, 3, 4, 5, 6, 7], [0.0, 1, 2, 3, 4, 9]])
    turned = Correlation.of([[1.0, 2, 3, 4, 5, 6], [6.0, 5, 4, 3, 2, 1]])
    assert same is not None
    assert turned is not None
    assert same.value == pytest.approx(1)
    assert same.low is not None
    assert same.low > 0.9
    assert turned.value == pytest.approx(-1)
    one = Correlation.of([[1.0, 2, 3, 4, 5, 6, 7, 8], [2.0, 1, 4, 3, 6, 5, 8, 7]])  # 1 - 6 * 8 / (8 * 63)
    assert one is not None
    assert one.value == pytest.approx(1 - 48 / 504)
    # tanh(atanh(r) -+ 1.96 sqrt(1.06 / 5))
    assert (one.low, one.high) == (pytest.approx(0.5338, abs=2e-4), pytest.approx(0.9837, abs=2e-4))
    assert Correlation.of([[1.0, 2], [3.0, 3]]) is None
    assert Correlation.of([[1.0, 2]]) is None


def test_runs_are_the_seeds_of_one_model_by_name(run_headway: Command, reversal: Reversal, untrained: Path) -> None:
    words, options = (
        ("inspect", "ablate", f"a:1={reversal.run}"),
        ("--sentences", "4", "--what", "decoder.*.cross:heads"),
    )
    verb = run_headway(*words, f"a:2={reversal.run}", *options)
    assert (verb.code, "4 sentences by each of 2 runs" in verb.out) == (0, True)
    verb = run_headway(*words, f"a:2={untrained}", *options)
    assert (verb.code, f"{untrained}: the parts of this run are not those of {reversal.run}" in verb.err) == (2, True)


def test_the_command(run_headway: Command, reversal: Reversal, tmp_path: Path) -> None:
    verb = run_headway(
        "inspect", "ablate", reversal.run, "--what", "decoder.*.cross:heads,layers", "--how", "zero,mean",
        "--metric", "logprob,exact_match", "--sentences", "8", "--figure", tmp_path / "a.png",
    )  # fmt: skip
    assert verb.code == 0
    assert "8 sentences by each of 1 run" in verb.out
    assert verb.out.count("decoder.1.cross:head=2") == verb.out.count("encoder.1 ") == 4
    assert (tmp_path / "a.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--what", "decoder.*.cros:heads"], "did you mean 'decoder.*.cross:heads'"),
        (["--what", "decoder.1.self:offset=-1"], "no part of this model has such a name"),
        (["--how", "nothing"], "--how"),
        (["--metric", "logprop"], "logprop"),
        (["--sentences", "1"], "--sentences"),
        (["--figure", "a.doc"], "--figure"),
        (["--input", "absent.txt"], "absent.txt"),
    ],
)
def test_bad_input(run_headway: Command, reversal: Reversal, words: list[str], message: str) -> None:
    verb = run_headway("inspect", "ablate", reversal.run, *words)
    assert verb.code == 2
    assert message in verb.err


def test_runs_that_do_not_belong_together(reversal: Reversal, untrained: Path) -> None:
    for runs in ([reversal.run, untrained], [reversal.run, reversal.run]):
        with pytest.raises(UserError, match="runs of one recipe, each with a seed"):
            ablate(list(map(Existing, runs)), AblateOptions())


def test_parts_of_a_pattern_are_cut_at_once(untrained: Path) -> None:
    others, copying = "decoder.*.cross:head=[124]", "decoder.*.cross:head=[34]"
    options = {"what": [others, copying], "together": True, "prune": 0.5}
    found = examined(untrained, False, options, [LogProbability()], range(1, 4))
    (ablation,) = found.ablations
    rows = {row["part"]: row["verdict"] for row in ablation.found()}
    assert rows == {copying: "worse", others: "even"}
    assert found.pruned == [[others]] * 3
    alone = examined(untrained, False, {"what": [COPYING]}, [LogProbability()], range(1, 4)).ablations[0]
    assert ablation.systems[copying].scores == pytest.approx(alone.systems[COPYING].scores, abs=0.1)
    assert ablation.losses[0][1] == pytest.approx(ablation.systems[copying].scores[0] - found.wholes["logprob"][0])
