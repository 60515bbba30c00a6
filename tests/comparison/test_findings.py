"""What is found of claims: intervals decide, one seed does not, and open claims say what would decide them."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.comparison.cells import Costs
from headway.comparison.claims import ClaimConfig, claims_table, decide, finding_of, read_claims
from headway.comparison.comparison import compare_cells
from headway.errors import UserError
from headway.metrics import build_metric
from tests.comparison.toy_claims import TREE, write_claims
from tests.comparison.toys import cell


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


def made(seeds: tuple[int, ...] = (1, 2, 3)) -> Any:
    kept = {"good": 0.9, "bad": 0.6, "same": 0.9}
    cells = [cell(name, seed, share) for name, share in kept.items() for seed in seeds]
    return compare_cells(cells, [build_metric("bleu"), build_metric("ter")])


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
    with pytest.raises(UserError, match="there is no such measure; received 'chrf on None'"):
        decide(ClaimConfig(says="", claim="good > bad", metric="chrf"), comparison)


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
    assert notes[1:] == tuple(f"Open, good > same: {needs}." for needs in (told, seen, small))
    one = decide(claims.claims[0], made((1,)))
    assert one is not None
    assert one.needs == "more seeds than one are needed"
