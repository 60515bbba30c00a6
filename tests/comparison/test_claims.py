"""Claims are read, decided by intervals, and every file of claims/ names grids that can be run."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from headway.comparison.claims import (
    COSTS,
    ClaimConfig,
    ClaimPath,
    chosen_files,
    claim_files,
    claims_folder,
    claims_table,
    decide,
    finding_of,
    read_claims,
    tree_of_cell,
)
from headway.comparison.reproduce import claimed_grid
from headway.comparison.verdicts import compare_cells
from headway.errors import UserError
from headway.metrics import build_metric
from tests.comparison.toys import cell
from tests.models.encoders import write_encoder
from tests.runs.training import toys

FOLDER = Path(__file__).parents[2] / "claims"
FILES = claim_files(FOLDER)
BUDGETS = [(name, budget) for name, path in FILES.items() for budget in read_claims(path).budgets]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In the place of encoders that have to be downloaded."""
    return write_encoder(tmp_path_factory.mktemp("encoder"), hidden_size=24, max_position_embeddings=512)


@pytest.mark.parametrize(("name", "budget"), BUDGETS)
def test_the_grid_of_a_claim_file_can_be_run(name: str, budget: str, encoder: Path, tmp_path: Path) -> None:
    claims, tagger = read_claims(FILES[name]), name.startswith("kaneko")
    overrides = [f"model.encoder={encoder}"] if tagger else []
    if "$OUTPUT" in str(claims.grid):  # a run that the preparation trains
        toys.run(tmp_path, "runs/general", updates=1)
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
    assert chosen_files(FOLDER, ClaimPath.parse("kaneko2019")) == {"kaneko2019/layers": FILES["kaneko2019/layers"]}


@pytest.mark.parametrize(
    ("claim", "low", "high", "finding"),
    [
        ("a > b", 0.1, 2.0, "holds"),
        ("a > b", -0.1, 2.0, "open"),
        ("a > b", -2.0, -0.1, "fails"),
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


def test_a_variant_that_was_not_made_is_not_decided() -> None:
    comparison = made()
    assert decide(ClaimConfig(says="", claim="good > other"), comparison) is None
    with pytest.raises(UserError, match="there is no such measure; received 'chrf on None'"):
        decide(ClaimConfig(says="", claim="good > bad", metric="chrf"), comparison)


TREE: dict[str, Any] = {
    "title": "Words", "document": "Nobody (2024)", "data": {"about": "made", "prepare": "true"},
    "grid": {
        "recipe": "base.yaml", "seeds": [1], "test": [{"tsv": "test.tsv"}],
        "variants": {"good": {}, "bad": {"model.dim": 8}, "same": {"model.dim": 4}},
    },
    "budgets": {"small": {}, "full": {"as_printed": True, "grid": {"seeds": [1, 2, 3]}}},
    "claims": [
        {"says": "Good is better.", "claim": "good > bad", "paper": {"good": 20.5, "bad": 20}},
        {"says": "Good is even.", "claim": "good = same", "margin": 15},
        {"says": "It is free.", "claim": "good >= bad", "metric": "cpu_seconds"},
    ],
}  # fmt: skip


def write_claims(folder: Path, **changes: Any) -> Path:
    path = folder / "nobody2024-words.yaml"
    path.write_text(yaml.safe_dump(TREE | changes, sort_keys=False))
    return path


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
        r"\d+ seeds( and [\d,]+ segments)? would tell a difference of 2\.50, the document's, from 0", told
    )
    assert seen.endswith("would be enough, were the difference the one that is seen")
    assert known == ""
    assert small == "the interval leaves out a difference of 70.00, the document's"
    notes = claims_table(decided, claims, as_printed=False).notes
    assert notes[1:] == tuple(f"Open, good > same: {needs}." for needs in (told, seen, small))
    one = decide(claims.claims[0], made((1,)))
    assert one is not None
    assert one.needs == "more seeds than one are needed"


def test_a_budget_changes_the_grid(tmp_path: Path) -> None:
    claims = read_claims(write_claims(tmp_path))
    assert [claims.tree(budget)["seeds"] for budget in ("small", "full")] == [[1], [1, 2, 3]]
    assert set(tree_of_cell(claims.tree("small"), claims, "bad")["variants"]) == {"good", "bad"}
    matched = claims.tree("small") | {"match_parameters": True}
    assert list(tree_of_cell(matched, claims, "bad")["variants"]) == ["good", "bad"]


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no inequality": ({"claims": [{"says": "", "claim": "good"}]}, "a claim is A > B, A = B or A >= B"),
    "even without a margin": ({"claims": [{"says": "", "claim": "good = bad"}]}, "needs a margin"),
    "an unknown variant": ({"claims": [{"says": "", "claim": "god > bad"}]}, "no such variant; did you mean 'good'"),
    "an unknown key": ({"cliams": []}, "cliams: unknown key; did you mean 'claims'"),
    "an unknown budget": ({"budgets": {"large": {}}}, "budgets"),
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
