"""The recipes that come with headway are valid, and their models can be built."""

from pathlib import Path
from typing import Any

import pytest
import torch

from headway.core.errors import UserError
from headway.grids.grid import load_grid
from headway.models import build_model
from headway.models.matching import count_parameters
from headway.models.recurrent.recurrent_model import RecurrentConfig
from headway.recipe import load_recipe, read_tree
from headway.training.start import check_recipe
from tests.models.encoders import write_encoder
from tests.tiers import thinned

FOLDER = Path(__file__).parents[1] / "recipes"
GRIDS = sorted(FOLDER.rglob("*-grid.yaml"))
RECIPES = sorted(path for path in FOLDER.rglob("*.yaml") if path not in GRIDS)
VASWANI = FOLDER / "vaswani2017"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In the place of encoders that have to be downloaded."""
    return write_encoder(tmp_path_factory.mktemp("encoder"), hidden_size=24, max_position_embeddings=512)


@pytest.mark.parametrize("path", thinned(RECIPES, 4), ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_recipe_is_valid(path: Path, encoder: Path) -> None:
    model = read_tree(path).get("model")
    reads_words = isinstance(model, dict) and model.get("kind") == "tagger"
    check_recipe(load_recipe(path, [f"model.encoder={encoder}"] if reads_words else []))


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_grid_is_valid(path: Path, tmp_path: Path) -> None:
    assert len(load_grid(path, [f"data.folder={tmp_path}"]).variants) > 1


def test_what_is_wrong_would_be_found(tmp_path: Path) -> None:
    text = (FOLDER / "tanaka" / "transformer-small.yaml").read_text(encoding="utf-8")
    (tmp_path / "wrong.yaml").write_text(text.replace("norm: pre", "norm: prior"), encoding="utf-8")
    with pytest.raises(UserError, match=r"model\.norm"):
        check_recipe(load_recipe(tmp_path / "wrong.yaml"))


def rows_of_table_3() -> list[list[str]]:
    """Recipe, printed millions of parameters and those with 37,000 and 41,000 tokens, of each row of the page."""
    lines = (VASWANI / "README.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip(" `") for cell in line.split("|")] for line in lines if line.startswith("|")]
    return [[row[2], *row[4:7]] for row in cells[2:]]


def test_the_page_has_every_row_of_table_3() -> None:
    assert [row[0] for row in rows_of_table_3()].count("base") == 1
    assert {row[0] for row in rows_of_table_3()} == {path.stem for path in (VASWANI / "table-3").glob("*.yaml")}


@pytest.mark.parametrize(("recipe", "printed", "less", "more"), thinned(map(tuple, rows_of_table_3()), 4), ids=str)
def test_parameters_of_table_3(recipe: str, printed: str, less: str, more: str) -> None:
    """Of Vaswani et al. (2017): one number of tokens gives all that are printed, but for the big model's."""
    model = load_recipe(VASWANI / "table-3" / f"{recipe}.yaml").model
    millions = {}
    for tokens in (36_000, 37_000, 41_000):
        with torch.device("meta"):
            millions[tokens] = count_parameters(build_model(model, tokens, tokens, True)) / 1e6  # type: ignore[arg-type]
    assert (less, more) == (f"{millions[37_000]:.1f}", f"{millions[41_000]:.1f}")
    assert not printed or round(millions[36_000 if recipe == "big" else 41_000]) == int(printed)


LUONG = {  # of Luong et al. (2015), tables 1 and 4: what the rows change, and the row from which they do
    "base": ("reversed", {"encoder.reverse": False}),
    "reversed": ("dropout", {"dropout": 0.0}),
    "location": ("location-fed", {"attention.input_feeding": False}),
    "location-fed": ("general", {"attention.score": "location"}),
    "dot": ("general", {"attention.score": "dot"}),
    "local-m": ("general", {"attention.window": "local-m"}),
    "local-p-dot": ("dot", {"attention.window": "local-p"}),
}


@pytest.mark.parametrize("name", LUONG)
def test_a_row_of_luongs_tables_changes_one_thing(name: str) -> None:
    other, changes = LUONG[name]
    model, base = (load_recipe(FOLDER / f"recurrent/luong-tables/{row}.yaml").model for row in (name, other))
    assert isinstance(model, RecurrentConfig)
    assert differences(model.model_dump(), base.model_dump()) == changes


def test_luongs_recipes_are_the_rows_of_both_tables() -> None:
    rows = {path.stem for path in (FOLDER / "recurrent" / "luong-tables").glob("*.yaml")}
    assert rows == {*LUONG, "dropout", "general"}
    best = load_recipe(FOLDER / "recurrent" / "luong-en-de.yaml")
    general = load_recipe(FOLDER / "recurrent" / "luong-tables" / "general.yaml")
    assert differences(best.model.model_dump(), general.model.model_dump()) == {"attention.window": "local-p"}
    assert differences(best.optimizer.model_dump(), general.optimizer.model_dump()) == {}


def differences(tree: dict[str, Any], other: dict[str, Any], above: str = "") -> dict[str, Any]:
    """The values of a tree that another has not, by key."""
    found = {}
    for key, value in tree.items():
        if isinstance(value, dict) and isinstance(other.get(key), dict):
            found |= differences(value, other[key], f"{above}{key}.")
        elif other.get(key) != value:
            found[above + key] = value
    return found
