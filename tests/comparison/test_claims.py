"""Claims are read, and every file of claims/ names grids that can be run."""

from pathlib import Path
from typing import Any

import pytest

from headway.comparison.claims import (
    COSTS,
    ClaimPath,
    chosen_files,
    claim_files,
    claims_folder,
    read_claims,
    tree_of_cell,
)
from headway.comparison.reproduce import claimed_grid
from headway.errors import UserError
from tests.comparison.toy_claims import TREE, write_claims
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
