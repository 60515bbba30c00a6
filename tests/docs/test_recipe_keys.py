"""The page of all keys of a recipe is that of the classes that check them."""

from pathlib import Path

import pytest

from headway.core.config import Section
from headway.core.errors import UserError
from headway.recipe.sections import Recipe
from tools.recipe_keys import PAGE, page


def test_the_page_is_that_of_the_classes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python tools/recipe_keys.py`"


def test_a_key_without_a_meaning_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sides(Section):
        """Both sides.

        `source`: the file of the sources.
        """

        source: Path
        target: Path

    monkeypatch.setitem(Recipe.model_fields, "data", Recipe.model_fields["data"].merge_field_infos(annotation=Sides))
    with pytest.raises(UserError, match="target"):
        page()
