"""The simulation of benchmarks/coverage.py in small: its BLEU, its truth, and what it finds of the method."""

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import sacrebleu

from headway.claims.reproduce import read_record, write_record
from headway.core.tables import Table
from tests.tiers import thinned

PATH = Path(__file__).parents[2] / "benchmarks" / "coverage.py"


@pytest.fixture(scope="module")
def coverage() -> ModuleType:
    specification = importlib.util.spec_from_file_location("coverage_benchmark", PATH)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["coverage_benchmark"] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module


def test_bleu_is_bleu(coverage: ModuleType) -> None:
    rows = coverage.sentence_statistics(np.random.default_rng(1), np.full((1, 1), 0.5), 300)[0, 0]
    written, wanted, *counts = rows.sum(axis=0).astype(int).tolist()
    reference = sacrebleu.BLEU.compute_bleu(counts[:4], counts[4:], written, wanted, smooth_method="none").score
    assert coverage.BLEU.aggregate(rows.sum(axis=0)) == pytest.approx(reference)
    assert coverage.BLEU.aggregate_all(rows).shape == (300,)


def test_the_truth_is_what_many_tables_find(coverage: ModuleType) -> None:
    world = coverage.World.measured(20_000)
    spread = world.deviation(1.0)
    distance = world.distance(1.0, spread)
    assert world.truth(distance, spread) - world.truth(0, spread) == pytest.approx(1, abs=1e-6)
    rng = np.random.default_rng(2)
    scores = [
        coverage.BLEU.aggregate(rows.sum(axis=0))
        for rows in coverage.sentence_statistics(rng, 0.5 + rng.normal(0, spread, (1, 60)), 2000)[0]
    ]
    assert np.std(scores) == pytest.approx(1.0, rel=0.25)
    assert np.mean(scores) == pytest.approx(world.truth(0, spread), abs=0.8)


@pytest.mark.parametrize(("seeds", "deviation"), thinned([(3, 0.0), (3, 1.0)], 2, 1))
def test_intervals_hold_the_truth_and_verdicts_are_seldom_false(
    coverage: ModuleType, seeds: int, deviation: float
) -> None:
    world = coverage.World.measured(20_000)
    found = coverage.Simulation(world, seeds, deviation, count=100, sentences=150).run()
    assert found.coverage["headway"] >= 93
    assert found.false["headway"] <= 5
    assert found.false_of_four <= 5
    assert 0 <= found.power < 50
    if deviation:  # the segments alone say too much where seeds differ
        assert found.coverage["segments alone"] < found.coverage["headway"]


@pytest.mark.parametrize("seeds", [2, 3])
def test_verdicts_by_a_counted_metric_are_seldom_false(coverage: ModuleType, seeds: int) -> None:
    assert coverage.counted_false(seeds, sentences=20, share=5, count=200) <= 5


def test_what_a_rate_loses_is_a_square_through_the_first_two_steps(coverage: ModuleType) -> None:
    tuning = coverage.Tuning((2.5, 5.5), 2e-3, 0.5, 0.3)
    assert [tuning.loss(2e-3 * 2.0**steps) for steps in (-2, -1, 0, 1, 2)] == pytest.approx([5.5, 2.5, 0, 2.5, 5.5])


def test_rates_that_each_seed_chooses_seldom_make_a_verdict(coverage: ModuleType) -> None:
    tuning = coverage.Tuning((2.5, 5.5), 2e-3, 0.1, 1.0)
    by_variant, at_edges, by_seed, grown, doubted = coverage.tuned_row(tuning, seeds=5, count=100)
    assert by_variant > 30
    assert at_edges < by_variant
    assert by_seed <= 8
    assert grown <= 8
    assert doubted <= 5


def test_a_choice_grows_at_an_edge(coverage: ModuleType) -> None:
    tuning = coverage.Tuning((2.5, 5.5), coverage.RATES[0] / 2, 1.0, 1e-6)  # the best rate is one step below all
    for grow, value in ((0, coverage.RATES[0]), (3, coverage.RATES[0] / 2)):
        tune = coverage.TuneConfig(key="optimizer.learning_rate", values=coverage.RATES, grow=grow)
        choice = tuning.choice(np.random.default_rng(1), tune)
        assert (choice.value, choice.edge) == (value, "" if grow else "lowest")


def test_pooled_intervals_hold_the_truth_where_deviations_differ(coverage: ModuleType) -> None:
    held = coverage.pooled_row(8, 5, (0, 1), count=400)
    alone, plainly, pooled = held[:3]
    assert alone >= 92
    assert pooled >= 91
    assert plainly < 88
    assert held[5] < held[3], "narrower than of the pair alone"


@pytest.mark.parametrize("kind", ["ten segments a document", "the largest loss of eight idle heads"])
def test_adversaries_get_few_false_verdicts(coverage: ModuleType, kind: str) -> None:
    adversary = next(one for one in coverage.ADVERSARIES if one.kind == kind)
    *_, plainly, ours = adversary.row(40)
    assert plainly > 15
    assert ours <= 10


def test_a_part_of_the_record_is_measured_anew(coverage: ModuleType, tmp_path: Path) -> None:
    record = tmp_path / "coverage.json"
    shutil.copy(PATH.parents[1] / "results" / "coverage.json", record)
    before = read_record(record)
    for count in (10, 20):
        tables = [Table(["x"], [[count]], title=title) for title in (coverage.TUNED_TITLE, coverage.POOLED_TITLE)]
        write_record(record, coverage.with_tuning(record, tables, count, "python benchmarks/coverage.py"))
    after = read_record(record)
    assert after.tables[:3] == before.tables[:3]
    assert [table["rows"] for table in after.tables[3:]] == [[[20]], [[20]]]
    assert after.measured.commit == before.measured.commit
    assert sum("were made on" in sentence for sentence in after.text) == 1
