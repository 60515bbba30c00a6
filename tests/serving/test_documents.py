"""Models that read the sentences before each are served: the sentences of a request are documents, as lines are."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pages.browser import open_browser
from tests.predictors.test_context import SOURCE, made, recipe_with
from tests.serving.conftest import Running, running
from tests.serving.test_page import translated

TEXT = "\n".join(SOURCE)


@pytest.fixture(scope="module", params=[2, {"source": 1, "target": 2}], ids=str)
def served(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, list[str]]]:
    """A server, whose batches are smaller than documents, and the outputs of `SOURCE`."""
    folder: Path = tmp_path_factory.mktemp("served")
    recipe = recipe_with(folder, request.param)
    decoding = recipe.decoding.model_copy(update={"batch_tokens": 6})
    predictor, _ = made(recipe.model_copy(update={"decoding": decoding}), folder)
    texts = [output.text for output in predictor.predict(SOURCE)]
    assert texts[4:] != [predictor.predict([line])[0].text for line in SOURCE[4:]]
    with running({"en-de": predictor}) as server:
        yield server, texts


def test_inputs_are_lines_of_documents(served: tuple[Running, list[str]]) -> None:
    server, texts = served
    answer = server.predict("en-de", SOURCE)
    assert [output["text"] for output in answer.content["outputs"]] == texts
    (model,) = server.ask("/v1/models").content
    assert model["context"] is True


def test_a_text_is_a_document(served: tuple[Running, list[str]]) -> None:
    server, texts = served
    fields = {"source": "en", "target": "de"}
    assert server.ask("/translate", {"q": TEXT, **fields}).content["translatedText"] == "\n".join(texts)
    several = [*TEXT.split("\n\n"), TEXT]
    found = server.ask("/translate", {"q": several, **fields}).content["translatedText"]
    assert found == ["\n".join(texts[:2]), "\n".join(texts[3:]), "\n".join(texts)]


def test_documents_with_markup_are_refused(served: tuple[Running, list[str]]) -> None:
    answer = served[0].ask("/translate", {"q": "<p>a</p>", "format": "html", "source": "en", "target": "de"})
    assert answer.status == 400
    assert "reads the sentences before each" in answer.content["error"]


def test_the_page_has_documents(served: tuple[Running, list[str]]) -> None:
    server, texts = served
    with open_browser() as browser:
        page = browser.new_page()
        page.goto(server.url)
        page.get_by_text("Ready.", exact=True).wait_for()
        page.locator("#from").select_option("en")
        translated(page, TEXT, "\n".join(texts))
