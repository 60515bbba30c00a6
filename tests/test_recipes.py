"""The recipes that come with headway are valid, and their models can be built."""

from pathlib import Path

import pytest

from headway.comparison.grid import load_grid
from headway.errors import UserError
from headway.recipe import load_recipe, read_tree
from headway.runs.training.preparation import check_recipe
from tests.models.encoders import write_encoder

FOLDER = Path(__file__).parents[1] / "recipes"
GRIDS = sorted(FOLDER.rglob("*-grid.yaml"))
RECIPES = sorted(path for path in FOLDER.rglob("*.yaml") if path not in GRIDS)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In the place of encoders that have to be downloaded."""
    return write_encoder(tmp_path_factory.mktemp("encoder"), hidden_size=24, max_position_embeddings=512)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: str(path.relative_to(FOLDER)))
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
