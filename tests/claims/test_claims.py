"""Claims are read, every file of claims/ names grids that can be run, and intervals decide; what would, is named."""

import re
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import pytest

from headway.claims.claims import (
    COSTS,
    ClaimConfig,
    ClaimPath,
    Grouped,
    Regime,
    chosen_files,
    claim_files,
    claims_folder,
    claims_table,
    decide,
    decided_by,
    finding_of,
    read_claims,
    regime_of,
    regimes_of,
    sought_of_claims,
    tree_of_cell,
)
from headway.claims.reproduce import claimed_grid, read_record
from headway.comparison.cells import Costs, CurvePoint
from headway.comparison.comparison import compare_cells
from headway.comparison.differences import with_limits
from headway.core.errors import UserError
from headway.grids.power import (
    MOST_SEEDS,
    POWER,
    TYPICAL,
    Sought,
    needed,
    needed_in_words,
    reach,
    scaled,
    sought_of_grid,
)
from headway.metrics import build_metric
from headway.metrics.intervals import Estimate
from tests.claims.toy_claims import TREE, write_claims
from tests.comparison.toys import cell
from tests.grids.grids import write_grid
from tests.models.encoders import write_encoder
from tests.tiers import thinned
from tests.training import toys

FOLDER = Path(__file__).parents[2] / "claims"
FILES = claim_files(FOLDER)
ESTIMATE = Estimate(0.5, 3, 400, seed_variance=0.3, segment_variance=0.04, interaction_variance=0.1)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In the place of encoders that have to be downloaded."""
    return write_encoder(tmp_path_factory.mktemp("encoder"), hidden_size=24, max_position_embeddings=512)


@pytest.mark.parametrize("name", thinned(FILES, 8))
def test_the_grids_of_a_claim_file_can_be_run(name: str, encoder: Path, tmp_path: Path) -> None:
    claims, tagger = read_claims(FILES[name]), name.startswith("kaneko")
    overrides = [f"model.encoder={encoder}"] if tagger else []
    if "$OUTPUT" in str(claims.grid):  # a run that the preparation trains
        toys.run(tmp_path, "runs/general", updates=1)
    for budget in claims.budgets:
        grid = claimed_grid(claims, FILES[name], tmp_path, budget, overrides=overrides)
        assert len(grid.config.seeds) >= 3
        assert grid.config.metrics, "the direction of a difference is known before any run"
        assert grid.config.baseline is None, "every pair of a claim is compared"
        metrics = {metric.name for test in grid.tests for metric in grid.metrics_of(test)}
        tests = {test.name for test in grid.tests}
        for claim in claims.claims:
            assert claim.metric in (None, *metrics, *COSTS), claim
            assert claim.test in (None, *tests) or budget == "full", claim
    for path in (claims.data, claims.full_data):
        assert path is None or path.prepare.strip()


def test_the_claims_that_come_with_headway_are_those_of_a_clone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert claims_folder().resolve() == FOLDER
    assert chosen_files(FOLDER, ClaimPath.parse("bahdanau2015")) == {
        "bahdanau2015/attention": FILES["bahdanau2015/attention"]
    }


def test_a_budget_changes_the_grid(tmp_path: Path) -> None:
    claims = read_claims(write_claims(tmp_path))
    assert [claims.tree(budget)["seeds"] for budget in ("small", "full")] == [[1], [1, 2, 3]]
    assert set(tree_of_cell(claims.tree("small"), claims, "bad")["variants"]) == {"good", "bad"}
    matched = claims.tree("small") | {"match_parameters": True}
    assert list(tree_of_cell(matched, claims, "bad")["variants"]) == ["good", "bad"]


def test_the_variants_can_be_those_of_a_budget(tmp_path: Path) -> None:
    grid = {key: value for key, value in TREE["grid"].items() if key != "variants"}
    budgets = {"small": {"grid": {"variants": TREE["grid"]["variants"], "seeds": [1]}}}
    assert read_claims(write_claims(tmp_path, grid=grid, budgets=budgets)).claims


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no inequality": ({"claims": [{"says": "", "claim": "good"}]}, "a claim is A > B, A = B or A >= B"),
    "a variant and itself": ({"claims": [{"says": "", "claim": "good > good"}]}, "A and B being two variants"),
    "no budget": ({"budgets": {}}, "budgets"),
    "even without a margin": ({"claims": [{"says": "", "claim": "good = bad"}]}, "needs a margin"),
    "an unknown variant": ({"claims": [{"says": "", "claim": "god > bad"}]}, "no such variant; did you mean 'good'"),
    "an unknown key": ({"cliams": []}, "cliams: unknown key; did you mean 'claims'"),
    "the same claim twice": (
        {"claims": [{"says": "x", "claim": claim} for claim in ("good > bad", "bad > good")]},
        "two claims say the same",
    ),
    "an unknown key of the grid": ({"grid": TREE["grid"] | {"sedes": [1]}}, r"grid\.sedes: unknown key"),
    "an unknown budget": ({"budgets": {"large": {}}}, "budgets"),
    "a part of no variant": (
        {"cut": {"parts": {"god/head": "decoder.1.cross:head=1"}, "options": {}}},
        "cut: no such variant",
    ),
    "a part without a variant": ({"cut": {"parts": {"head": "decoder.1.cross:head=1"}, "options": {}}}, "cut.parts"),
    "a part that is not cut": ({"claims": [{"says": "", "claim": "good > good/head"}]}, "no such variant"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_claim_file_is_named(tmp_path: Path, mistake: str) -> None:
    changes, message = MISTAKES[mistake]
    with pytest.raises(UserError, match=message):
        read_claims(write_claims(tmp_path, **changes))


def test_unknown_claims_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such claims; did you mean 'kaneko2019/layers'"):
        chosen_files(FOLDER, ClaimPath.parse("kaneko2019/layer"))
    with pytest.raises(UserError, match="PAPER/TABLE/CELL"):
        ClaimPath.parse("a/b/c/d")
    with pytest.raises(UserError, match="there are no claim files here"):
        claim_files(tmp_path)
    claims = read_claims(write_claims(tmp_path))
    with pytest.raises(UserError, match="no such variant; did you mean 'good'"):
        tree_of_cell(claims.tree("small"), claims, "god")


@pytest.mark.parametrize(
    ("claim", "low", "high", "finding"),
    [
        ("a > b", 0.1, 2.0, "holds"),
        ("a > b", -0.1, 2.0, "open"),
        ("a > b", -2.0, -0.1, "fails"),
        ("a > b", 0.0, 0.0, "fails"),
        ("a > b + 1", 0.1, 2.0, "open"),
        ("a > b + 1", 1.1, 2.0, "holds"),
        ("a > b + 1", -0.5, 0.9, "fails"),
        ("a = b + 1", -0.9, 0.9, "holds"),
        ("a = b + 1", -1.1, 0.9, "open"),
        ("a = b + 1", 1.1, 2.0, "fails"),
        ("a = b + 1", -2.0, -1.1, "fails"),
        ("a >= b + 1", -0.9, 5.0, "holds"),
        ("a >= b + 1", -1.1, 5.0, "open"),
        ("a >= b + 1", -5.0, -1.1, "fails"),
    ],
)
def test_an_interval_decides(claim: str, low: float, high: float, finding: str) -> None:
    inequality, _, margin = claim.partition(" + ")
    assert finding_of(ClaimConfig(says="", claim=inequality, margin=float(margin or 0)), low, high) == finding


def made(seeds: tuple[int, ...] = (1, 2, 3), **options: Any) -> Any:
    kept = {"good": 0.9, "bad": 0.6, "same": 0.9}
    cells = [cell(name, seed, share) for name, share in kept.items() for seed in seeds]
    return compare_cells(cells, [build_metric("bleu"), build_metric("ter")], **options)


@pytest.mark.parametrize("metric", ["bleu", "ter"])
def test_better_is_lower_for_an_error_rate(metric: str) -> None:
    comparison = made()
    for text, finding in {"good > bad": "holds", "bad > good": "fails"}.items():
        found = decide(ClaimConfig(says="", claim=text, metric=metric), comparison)
        assert found is not None
        assert found.finding == finding
        assert found.low is not None
        assert found.high is not None
        assert found.low < found.difference < found.high
        assert (found.difference > 0) == (finding == "holds")
    even = decide(ClaimConfig(says="", claim="good = same", metric=metric, margin=15), comparison)
    assert even is not None
    assert even.finding == "holds"


def test_no_finding_stands_where_the_choice_of_a_rate_may_decide(tmp_path: Path) -> None:
    doubt = "tune bad with lower values"
    comparison = made(doubts={"bad": doubt})
    claims = read_claims(
        write_claims(
            tmp_path,
            claims=[
                {"says": says, "claim": says, "margin": margin}
                for says, margin in (("good > bad", 0), ("bad > good", 0), ("good = bad", 0.1), ("good = same", 30))
            ]
            + [{"says": "good >= bad", "claim": "good >= bad", "margin": 60}]
            + [{"says": "bad = good", "claim": "bad = good", "margin": 0.1}],
        )
    )
    regimes: dict[str, Regime] = dict.fromkeys(("good", "bad", "same"), "early")
    decided = {claim.says: decide(claim, comparison, claims.level, regimes) for claim in claims.claims}
    table = claims_table(decided, claims, as_printed=False)
    assert [row[-1] for row in table.cells()] == ["rate?", "rate?", "rate?", "holds early", "rate?", "rate?"]
    assert f"Rate?, good > bad: {doubt}." in table.notes
    assert not any("good = same" in note for note in table.notes)
    better = made(doubts={"good": doubt})
    kept = (decide(claim, better, claims.level, regimes) for claim in claims.claims[:2])
    assert [each and each.verdict for each in kept] == ["holds early", "fails early"], "good could only be better still"
    seen = decided["good > bad"]
    assert seen is not None
    undecided = decide(ClaimConfig(says="", claim="good > bad", margin=seen.difference), comparison)
    assert undecided is not None
    assert undecided.finding == "open", "an interval that decides nothing leaves nothing to doubt"
    assert doubt not in undecided.needs


def test_one_seed_decides_nothing() -> None:
    found = decide(ClaimConfig(says="", claim="good > bad"), made((1,)))
    assert found is not None
    assert found.finding == "open"


@pytest.mark.parametrize(
    ("good", "bad", "margin", "finding"),
    [
        ((100, 101, 99), (110, 111, 109), 0, "holds"),  # seconds of three seeds
        ((100, 101, 99), (90, 91, 89), 0, "fails"),
        ((100, 120, 80), (101, 80, 120), 0, "open"),
        ((100, 101, 99), (99, 100, 98), 2, "holds"),
        ((100,), (110,), 0, "open"),
        ((100, 101, None), (110, 111, 109), 0, None),
    ],
)
def test_seeds_decide_a_cost(
    good: tuple[float | None, ...], bad: tuple[float | None, ...], margin: float, finding: str | None
) -> None:
    cells = [
        replace(cell(name, seed, 0.9), costs=Costs(cpu_seconds=seconds))
        for name, row in (("good", good), ("bad", bad))
        for seed, seconds in enumerate(row, start=1)
    ]
    claim = ClaimConfig(says="", claim="good >= bad", metric="cpu_seconds", margin=margin)
    found = decide(claim, compare_cells(cells, [build_metric("bleu")]))
    assert (found and found.finding) == finding
    if found is not None and len(good) > 1:
        assert found.difference == pytest.approx(found.values[1] - found.values[0])
        assert found.low is not None
        assert found.high is not None
        assert found.low <= found.difference <= found.high
        assert bool(found.needs) == (finding == "open")


def test_a_variant_that_was_not_made_is_not_decided() -> None:
    comparison = made()
    assert decide(ClaimConfig(says="", claim="good > other"), comparison) is None


def test_looks_share_the_level(tmp_path: Path) -> None:
    once, twice = (read_claims(write_claims(tmp_path, looks=looks)) for looks in (1, 2))
    assert (once.level, twice.level) == (pytest.approx(0.95), pytest.approx(0.975))
    comparison, claim = made(), once.claims[0]
    narrow, wide = (decide(claim, comparison, claims.level) for claims in (once, twice))
    assert narrow is not None
    assert wide is not None
    (pair,) = (p for p in comparison.pairs if {p.a, p.b} == {"good", "bad"} and p.metric == "bleu")
    assert wide.high - wide.low == pytest.approx(2 * pair.estimate.half_width(0.975))  # type: ignore[operator]
    assert wide.high - wide.low > narrow.high - narrow.low  # type: ignore[operator]
    notes = [claims_table({}, claims, as_printed=False).notes for claims in (once, twice)]
    assert [note[0].rsplit(", ", 1)[1] for note in notes] == ["with the 95 % interval.", "with the 97.5 % interval."]
    assert [len(note) for note in notes] == [1, 2]


def test_numbers_are_absolute_where_the_budget_is_the_papers(tmp_path: Path) -> None:
    claims, comparison = read_claims(write_claims(tmp_path)), made()
    decided = {claim.says: decide(claim, comparison) for claim in claims.claims}
    small, full = (claims_table(decided, claims, as_printed=given).cells() for given in (False, True))
    assert small[0][1:3] == ["good > bad", "+0.50"]
    assert full[0][1:3] == ["good > bad", "20.5 / 20"]
    assert [row[-1] for row in full] == ["holds", "holds", "not compared"]
    assert " / " not in small[0][3]
    assert " / " in full[0][3]


def test_printed_variances_and_another_metric_of_the_document_are_shown(tmp_path: Path) -> None:
    claim = {"says": "A.", "claim": "good > bad", "paper": {"good": 35.34, "bad": 34.77}, "paper_spread": {"good": 0.1}}
    changes: dict[str, Any] = {"claims": [claim], "paper_metric": "bleu:tokenize=13a-compounds"}
    claims = read_claims(write_claims(tmp_path, **changes))
    small, full = (claims_table({}, claims, as_printed=given) for given in (False, True))
    assert small.cells()[0][2] == "+0.57 (35.34 ± 0.1 / 34.77)"
    assert full.cells()[0][2] == "35.34 ± 0.1 / 34.77"
    assert any("13a-compounds" in note for note in small.notes)


def test_printed_flops_of_training_are_shown_beside_ours(tmp_path: Path) -> None:
    claims = read_claims(write_claims(tmp_path, paper_flops={"good": 3.3e18, "bad": 2e17}))
    table = claims_table({}, claims, as_printed=True, costs={"good": Costs(training_flops=4.04e12), "bad": Costs()})
    assert {
        "FLOPs of training good: 3.3e+18 in the document, 4e+12 here.",
        "FLOPs of training bad: 2e+17 in the document, not measured here.",
    } <= set(table.notes)


def trained(gains: dict[str, tuple[float, ...]], seeds: tuple[int, ...] = (1, 2), margin: float = 0.5) -> Any:
    """A comparison whose runs have these BLEU on dev after 200, 400, ... updates."""
    cells = [
        replace(
            cell(name, seed, 0.9 if name == "good" else 0.5),
            curve=tuple(CurvePoint(200 * (index + 1), index, {"bleu": score}) for index, score in enumerate(curve)),
        )
        for name, curve in gains.items()
        for seed in seeds
    ]
    return compare_cells(cells, [build_metric("bleu")], {"bleu": margin} if margin else {})


PLATEAU, RISING = (10.0, 29.0, 30.0, 30.5, 30.9), (10.0, 20.0, 25.0, 28.0, 30.0)


@pytest.mark.parametrize(
    ("curve", "margin", "regime"),
    [
        (PLATEAU, 0.5, "plateau"),  # 0.4 in the last fifth
        (PLATEAU, 0.3, "early"),
        (RISING, 0.5, "early"),
        ((10.0, 31.0, 28.0, 27.0, 30.0), 0.5, "plateau"),  # the best is kept
        ((10.0, 20.0), 0.5, "early"),  # on a line, 4 in the last fifth
        ((30.0, 31.0), 0.5, "plateau"),  # on a line, 0.4
        ((30.0,), 0.5, "unknown"),
        ((), 0.5, "unknown"),
        (PLATEAU, 0.0, "unknown"),
    ],
)
def test_a_curve_says_how_far_a_variant_was_trained(curve: tuple[float, ...], margin: float, regime: str) -> None:
    comparison = trained({"good": curve, "bad": PLATEAU}, margin=margin)
    assert regimes_of(comparison)["good"] == regime
    assert regimes_of(comparison, as_printed=True) == {"good": "as printed", "bad": "as printed"}


def test_a_verdict_carries_what_it_holds_for() -> None:
    def words(curve: tuple[float, ...], *rates: float | None, tuned: bool, margin: float = 0.5) -> str:
        comparison = trained({"good": curve, "bad": PLATEAU}, margin=margin, seeds=(1, 2, 3))
        known = {"good": rates[0], "bad": rates[-1]}
        cells = {name: tuple(replace(each, rate=known[name]) for each in row) for name, row in comparison.cells.items()}
        return with_limits(replace(comparison, cells=cells), tuned=tuned).pairs[0].words

    assert words(PLATEAU, 1e-3, tuned=True) == "worse"
    assert words(PLATEAU, 1e-3, tuned=False) == "worse, one rate for all"
    assert words(PLATEAU, 1e-3, 2e-3, tuned=False) == "worse, untuned"
    assert words(PLATEAU, 1e-3, 2e-3, tuned=True) == words(PLATEAU, None, tuned=False) == "worse"
    assert words(RISING, 1e-3, tuned=False) == "worse, one rate for all, still learning"
    assert words(RISING, None, tuned=False, margin=0) == "worse, still learning"
    assert words(PLATEAU, None, tuned=False, margin=0) == "worse"
    assert words(RISING, 1e-3, tuned=False, margin=99) == "even, one rate for all"


def test_an_error_rate_falls_to_its_plateau() -> None:
    cells = [
        replace(
            cell(name, 1, 0.9),
            curve=tuple(CurvePoint(update, update, {"wer": 100.0 / update}) for update in range(1, last)),
        )
        for name, last in {"good": 20, "bad": 4}.items()
    ]
    regimes = regimes_of(compare_cells(cells, [build_metric("wer")], {"wer": 2.0}))
    assert regimes == {"good": "plateau", "bad": "early"}


def test_a_difference_is_early_where_either_variant_is(tmp_path: Path) -> None:
    claims = read_claims(
        write_claims(tmp_path, claims=[{"says": says, "claim": says} for says in ("good > bad", "bad > good")])
    )
    words = {"holds early": RISING, "holds": PLATEAU}
    for verdict, curve in words.items():
        comparison = trained({"good": PLATEAU, "bad": curve})
        regimes = regimes_of(comparison)
        decided = {claim.says: decide(claim, comparison, claims.level, regimes) for claim in claims.claims}
        table = claims_table(decided, claims, as_printed=False)
        assert [row[-1] for row in table.cells()] == [verdict, verdict.replace("holds", "fails")]
        assert any(note.startswith("Early: ") for note in table.notes) == ("early" in verdict)
    cost = ClaimConfig(says="", claim="good >= bad", metric="cpu_seconds")
    assert regime_of(cost, {"good": "early", "bad": "early"}) == ""


def test_the_papers_difference_points_where_ours_does(tmp_path: Path) -> None:
    claim = {"says": "Fewer errors.", "claim": "good > bad", "metric": "ter", "paper": {"good": 3.52, "bad": 4.06}}
    claims = read_claims(write_claims(tmp_path, claims=[claim]))
    found = decide(claims.claims[0], made())
    assert found is not None
    assert found.difference > 0
    assert claims_table({"Fewer errors.": found}, claims, as_printed=False).cells()[0][2] == "+0.54"


def test_a_claim_is_by_a_metric_of_the_grid_by_its_label(tmp_path: Path) -> None:
    claim = {"says": "A.", "claim": "good > bad", "metric": "chrF2++", "paper": {"good": 4, "bad": 3}}
    grid = TREE["grid"] | {"metrics": ["chrf", {"name": "chrf", "word_order": 2}]}
    claims = read_claims(write_claims(tmp_path, claims=[claim], grid=grid))
    assert claims_table({}, claims, as_printed=False).cells()[0][2] == "+1.00"
    claims = read_claims(write_claims(tmp_path, claims=[claim | {"metric": "nosuch"}], grid=grid))
    with pytest.raises(UserError, match="unknown metric; received 'nosuch'"):
        claims_table({}, claims, as_printed=False)


def test_an_open_claim_says_what_would_decide_it(tmp_path: Path) -> None:
    paper = {"good": 30.5, "same": 28}
    tree = [
        {"says": "A.", "claim": "good > same", "paper": paper},
        {"says": "B.", "claim": "good > same"},
        {"says": "C.", "claim": "good > bad"},
        {"says": "D.", "claim": "good > same", "paper": {"good": 90, "same": 20}},
    ]
    claims, comparison = read_claims(write_claims(tmp_path, claims=tree)), made()
    decided = {claim.says: decide(claim, comparison) for claim in claims.claims}
    told, seen, known, small = (found.needs if found else "" for found in decided.values())
    assert re.fullmatch(
        r"\d+ seeds( and [\d,]+ segments)? would mostly tell a difference of 2\.50, the published one, from 0", told
    )
    assert seen.endswith("would mostly be enough, were the difference the one that is seen")
    assert known == ""
    assert small == "the interval leaves out a difference of 70.00, the published one"
    notes = claims_table(decided, claims, as_printed=False).notes
    assert notes[2:] == tuple(f"Open, good > same: {needs}." for needs in (told, seen, small))
    one = decide(claims.claims[0], made((1,)))
    assert one is not None
    assert one.needs == "more seeds than one are needed"


def test_variances_shrink_as_there_is_more() -> None:
    assert scaled(ESTIMATE, 3, 400) == ESTIMATE
    more = scaled(ESTIMATE, 12, 1600)
    assert (more.seed_variance, more.segment_variance) == pytest.approx(((0.2 + 0.1 / 4) / 4, 0.01))
    assert more.interaction_variance == pytest.approx(0.1 / 16)


def test_seeds_alone_where_they_are_enough() -> None:
    seeds, segments = needed(ESTIMATE, 1.0) or (0, 0)
    assert segments == 400
    assert reach(scaled(ESTIMATE, seeds, 400), 0.95, 3) <= 1.0 < reach(scaled(ESTIMATE, seeds - 1, 400), 0.95, 3)
    assert needed_in_words(ESTIMATE, 1.0) == f"{seeds} seeds"


def test_seeds_and_segments_where_the_test_set_is_too_small() -> None:
    assert scaled(ESTIMATE, MOST_SEEDS, 400).half_width() > 0.4
    seeds, segments = needed(ESTIMATE, 0.4) or (0, 0)
    times = seeds // 3
    assert (seeds, segments) == (3 * times, 400 * times)
    assert reach(scaled(ESTIMATE, seeds, segments), 0.95, 3) <= 0.4
    assert reach(scaled(ESTIMATE, seeds - 3, segments - 400), 0.95, 3) > 0.4
    assert needed_in_words(ESTIMATE, 0.4) == f"{seeds} seeds and {segments:,} segments"


@pytest.mark.parametrize("seen", thinned([3, 5], 2))
def test_so_many_decide_as_often_as_they_should(seen: int) -> None:
    """Seeds of a true difference of 1 are first so many, by whose variance as many are drawn anew as are needed."""
    rng, of_segments, found = np.random.default_rng(1), 0.02, list[bool]()
    for of_seeds in rng.chisquare(seen - 1, 2000) / (seen - 1):
        seeds, segments = needed(Estimate(1.0, seen, 400, of_seeds / seen, of_segments), 1.0) or (0, 0)
        if segments == 400:
            drawn = rng.normal(1.0, 1.0, seeds) + rng.normal(0.0, np.sqrt(of_segments))
            low, _ = Estimate(drawn.mean(), seeds, 400, drawn.var(ddof=1) / seeds, of_segments).interval()
            found.append(low > 0)
    assert len(found) > 1900
    assert np.mean(found) == pytest.approx(POWER, abs=0.05)


def test_more_seeds_than_there_are() -> None:
    assert needed_in_words(Estimate(1.0, 5, 1000, 0.3, 0.02, 0.01), 20.0) == "6 seeds"


def test_a_cost_has_no_segments() -> None:
    estimate = Estimate(0.5, 3, 3, seed_variance=30.0, segment_variance=0.0)
    seeds, segments = needed(estimate, 1.0) or (0, 0)
    assert seeds > MOST_SEEDS
    assert segments == 3
    assert needed_in_words(estimate, 1.0) == f"{seeds:,} seeds"
    assert needed_in_words(estimate, 1e-4) == "more than 1,000 times as many seeds"


def sought(distance: float, metric: str = "bleu", level: float = 0.95) -> Sought:
    return Sought("the margin", build_metric(metric), "test", distance, level)


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_a_small_margin_is_out_of_reach_of_a_small_test_set(seeds: int) -> None:
    said = re.fullmatch(
        r"the margin: 0\.5 BLEU on test is out of reach of (\d+) seeds and 500 segments, which mostly tell (\S+) .*; "
        r"(\d+) seeds and ([\d,]+) segments would mostly be enough",
        sought(0.5).beyond(seeds, 500),
    )
    assert said is not None
    assert int(said[1]) == seeds
    assert sought(float(said[2]) + 0.1).beyond(seeds, 500) == ""
    assert sought(0.5).beyond(int(said[3]), int(said[4].replace(",", ""))) == ""


def test_what_a_usual_difference_is_not_known_of_has_no_reach() -> None:
    assert sought(1e-3, "ter").beyond(3, 500) == ""
    assert sought(1e-3).beyond(1, 500) == "", "one seed decides nothing in any case"
    assert sought(0.2).beyond(3).split("; ")[1] == "more of them would mostly be enough"
    assert sought(0.2).beyond(500) == ""


def test_typical_deviations_are_those_of_the_records() -> None:
    found: dict[str, list[tuple[float, float, float]]] = {}
    for path in sorted((FOLDER.parent / "results").glob("*.json")):
        for pair in (read_record(path).comparison or {}).get("significance", ()):
            if "interaction_variance" in pair:
                seeds, segments, of_both = pair["seeds"], pair["segments"], pair["interaction_variance"]
                own = seeds * (pair["seed_variance"] - of_both)
                row = own, segments * pair["segment_variance"], seeds * segments * of_both
                found.setdefault(pair["metric"].split(" on ")[0], []).append(row)
    for metric, deviations in TYPICAL.items():
        medians = [max(0.0, median(row[part] for row in found[metric])) ** 0.5 for part in range(3)]
        assert deviations == pytest.approx(medians, rel=0.25, abs=0.1), f"{metric}: {medians}"


def test_differences_that_are_sought_are_margins_and_the_papers(tmp_path: Path) -> None:
    tree = [
        {"says": "A.", "claim": "good > bad", "metric": "bleu", "paper": {"good": 21, "bad": 20}, "margin": 0.25},
        {"says": "B.", "claim": "good > same", "metric": "bleu"},
        {"says": "C.", "claim": "good = bad", "metric": "chrf", "margin": 2},
        {"says": "D.", "claim": "good >= bad", "metric": "cpu_seconds", "margin": 2},
        {"says": "E.", "claim": "good > bad", "metric": "ter", "paper": {"good": 21, "bad": 20}},
    ]
    write_grid(tmp_path)
    grid = TREE["grid"] | {"metrics": ["bleu", "chrf", "ter"], "margin": {"bleu": 0.5, "chrF2": 1.0}, "seeds": [1, 2]}
    path = write_claims(tmp_path, claims=tree, grid=grid, looks=2)
    claims = read_claims(path)
    made = claimed_grid(claims, path, tmp_path, "small")
    assert [(each.says, each.metric.name, each.distance, each.level) for each in sought_of_claims(claims, made)] == [
        ("good > bad, the published difference", "bleu", 0.75, claims.level),
        ("good = bad, the margin", "chrf", 2, claims.level),
    ]
    assert [(each.metric.name, each.distance) for each in sought_of_grid(made)] == [("bleu", 0.5), ("chrf", 1.0)]


def test_what_nothing_would_tell() -> None:
    assert needed(ESTIMATE, 0.0) is None
    assert needed(Estimate(0.5, 1, 400, None, 0.04), 1.0) is None
    assert needed_in_words(ESTIMATE, 1e-4) == "more than 1,000 times as many seeds and segments"


@pytest.mark.parametrize(
    ("says", "margin", "shares", "finding"),
    [
        ("a > b", 0.0, (8, 1), "holds"),
        ("a > b", 0.0, (1, 8), "fails"),
        ("a > b", 0.0, (5, 2), "open"),
        ("a > b", 60.0, (8, 1), "fails"),
        ("a >= b", 1.0, (8, 1), "holds"),
        ("a = b", 1.0, (8, 1), "fails"),
        ("a = b", 1.0, (1, 8), "fails"),
    ],
)
def test_shares_of_seeds_that_fall_decide_a_claim(
    says: str, margin: float, shares: tuple[int, int], finding: str
) -> None:
    """By Fisher's test: 8 and 1 of 10 seeds are apart (p = .005), 5 and 2 are not (p = .35)."""
    ours, others = ([10 + 0.1 * seed + 40 * (seed < share) for seed in range(10)] for share in shares)
    difference = fmean(ours) - fmean(others)
    estimate = Estimate(difference, 10, 400, 40.0, 0.01)
    claim = ClaimConfig(says="It does.", claim=says, margin=margin)
    decided = decided_by(claim, estimate, (fmean(ours), fmean(others)), groups=Grouped(ours, others, 30.0))
    assert (decided.finding, decided.low) == (finding, None)
