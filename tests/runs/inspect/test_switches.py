"""The model that a page carries: in a real browser it writes what `predict` writes, with and without its parts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from headway.predictors.output import Example
from headway.predictors.sequence_predictor import SequencePredictor
from headway.runs.inspect import carried_model as carried
from headway.runs.inspect.inspection import inspect, pack_sentences, write_inspection
from tests.predictors.test_captured_attention import MODELS, untrained
from tests.runs.inspect.browser import open_browser

LINES = ["abcd", "", "ba", "dcabdc"]
NGRAMS = {"kind": "ngram", "n": 3}
KINDS: dict[str, dict[str, Any]] = {
    "attention": {},
    "pre-norm": {},
    "n-grams": {
        "encoder": {"layers": 2, "mixer": NGRAMS | {"global_context": True}},
        "decoder": {"layers": 2, "mixer": NGRAMS | {"global_context": "prefix"}},
    },
    "mixed": {
        "encoder": {"layers": 2, "mixer": [NGRAMS, "attention"]},
        "decoder": {"layers": 2, "mixer": ["attention", NGRAMS]},
        "activation": "swish", "norm_kind": "rms", "position": "none", "tied": "none", "key_dim": 3, "value_dim": 5,
        "embedding_norm": True, "first_input": "zero", "output_bias": True,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


def write(path: Path, own: SequencePredictor, nbest: int = 3) -> dict[str, Any]:
    examples = [Example(line) for line in LINES]
    model = carried.carried_model(own, examples, nbest)
    packed = pack_sentences(inspect(own, examples, nbest=nbest), len(examples))
    write_inspection(path, title="t", facts=[], packed=packed, model=model)
    return model


def opened(browser: Browser, path: Path, **options: Any) -> Page:
    page = browser.new_context(color_scheme="light", **options).new_page()
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.goto(path.as_uri())
    return page


SEARCH = "([number, off]) => createModel(JSON.parse(find('model').textContent)).search(number, new Set(off))"


def check_alike(page: Page, own: SequencePredictor, off: list[str], nbest: int = 3) -> None:
    with own.models[0].intervened(dict.fromkeys(off, "zero")):
        outputs = own.predict(LINES, beam=max(nbest, own.recipe.decoding.beam), nbest=nbest)
    for number, output in enumerate(outputs):
        if output.is_empty:
            continue
        found = page.evaluate(SEARCH, [number, off])
        assert [tuple(each["ids"]) for each in found] == [each.ids for each in output.hypotheses]
        for each, hypothesis in zip(found, output.hypotheses, strict=True):
            np.testing.assert_allclose(each["logs"], hypothesis.log_probabilities, atol=1e-4)
            np.testing.assert_allclose(each["score"], hypothesis.score, atol=1e-4)


def test_a_trained_model_writes_the_same(predictor: SequencePredictor, browser: Browser, tmp_path: Path) -> None:
    model = write(tmp_path / "page.html", predictor)
    page = opened(browser, tmp_path / "page.html")
    assert model["switches"] == [
        *(f"encoder.1.self:head={head}" for head in (1, 2)),
        *(f"decoder.{layer}.{kind}:head={head}" for layer in (1, 2) for kind in ("self", "cross") for head in (1, 2)),
    ]
    for off in ([], *([name] for name in model["switches"]), model["switches"]):
        check_alike(page, predictor, off)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_block_writes_the_same(
    predictor: SequencePredictor, browser: Browser, tmp_path: Path, kind: str
) -> None:
    own = untrained(predictor, kind if kind in MODELS else "attention", **KINDS[kind])
    model = write(tmp_path / "page.html", own)
    assert "why" not in model
    page = opened(browser, tmp_path / "page.html")
    if "grams" in kind:
        assert {"encoder.1.self:offset=+2", "encoder.2.self:offset=global", "decoder.2.self:offset=prefix"} <= {
            *model["switches"]
        }
    for off in ([], *([name] for name in model["switches"][::3]), model["switches"][1::2]):
        check_alike(page, own, off)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"position": "rotary"}, "relative positions"),
        ({"encoder": {"layers": 1, "mixer": "linear"}}, "LinearAttention"),
        ({"decoder": {"layers": 1, "cross": "dot"}}, "DotAttention"),
        ({"encoder": {"layers": 1, "canon": "A"}}, "Canon"),
        ({"encoder": {"layers": 1, "residual": "attention"}}, "outputs before"),
        ({"feed_forward": {"kind": "gelu", "hidden": 8}}, "GeluFeedForward"),
    ],
)
def test_what_the_page_cannot_compute_is_not_offered(
    predictor: SequencePredictor, changes: dict[str, Any], why: str
) -> None:
    own = untrained(predictor, "attention", **changes)
    found = carried.carried_model(own, [Example("ab")], 1)
    assert set(found) == {"why"}
    assert why in found["why"]


def test_the_page_says_why_there_are_no_switches(
    predictor: SequencePredictor, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carried, "MOST_PARAMETERS", 1000)
    write(tmp_path / "page.html", predictor)
    page = opened(browser, tmp_path / "page.html")
    expect(page.locator("#switches")).to_be_hidden()
    expect(page.locator("#why")).to_contain_text("a page carries models of up to a million parameters")
    monkeypatch.undo()
    for name in ("decoder-only", "luong"):
        assert "only Transformers" in carried.carried_model(untrained(predictor, name), [Example("a")], 1)["why"]


@pytest.mark.parametrize("touch", [False, True])
def test_switches_change_the_output_at_once(
    predictor: SequencePredictor, browser: Browser, tmp_path: Path, touch: bool
) -> None:
    write(tmp_path / "page.html", predictor)
    size = {"width": 390, "height": 844} if touch else {"width": 1200, "height": 800}
    page = opened(browser, tmp_path / "page.html", viewport=size, has_touch=touch, is_mobile=touch)
    page.get_by_text("Switch heads and offsets off").click()
    said = page.locator("#tree > li").first.locator(".said").first
    expect(said).to_have_text("dcba")
    expect(page.locator("#switched")).to_have_text("All parts are on: the output is as above.")
    parts = [f"decoder.{layer}.cross:head={head}" for layer in (1, 2) for head in (1, 2)]
    for part in parts:
        button = page.locator(f'[data-part="{part}"]')
        button.tap() if touch else button.click()
        expect(button).to_have_attribute("aria-pressed", "false")
    with predictor.models[0].intervened(dict.fromkeys(parts, "zero")):
        (output,) = predictor.predict("abcd", beam=4, nbest=3)
    expect(said).to_have_text(output.text)
    expect(page.locator("#switched")).to_have_text("4 off: the output is another.")
    page.get_by_role("button", name="next sentence").click()  # an empty line
    expect(page.locator("#tree > li")).to_have_count(0)
    page.get_by_role("button", name="previous sentence").click()
    expect(said).to_have_text(output.text)
    page.get_by_role("button", name="All on").click()
    expect(said).to_have_text("dcba")


def test_switches_and_the_tree_are_used_with_the_keyboard(
    predictor: SequencePredictor, browser: Browser, tmp_path: Path
) -> None:
    write(tmp_path / "page.html", predictor, nbest=1)
    page = opened(browser, tmp_path / "page.html")
    page.locator("#switches > summary").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".switch").first).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(page.locator('[data-part="encoder.1.self:head=1"]')).to_have_attribute("aria-pressed", "false")
    expect(page.locator('[data-part="encoder.1.self:head=1"]')).to_be_focused()
    page.keyboard.press("Space")
    page.locator("#tree > li > .chips button").nth(2).focus()  # dc
    page.keyboard.press("Enter")
    choices = page.locator("#tree > li > .others button")
    expect(choices).to_have_count(5)
    expect(choices.first).to_be_disabled()
    other = choices.nth(1)
    token = other.locator("bdi").inner_text()
    other.focus()
    page.keyboard.press("Enter")
    grown = page.locator("#tree > li > .branches > li .chips").first
    expect(grown).to_be_visible()
    (output,) = predictor.predict("abcd", beam=4, prefixes=[f"d{token}"])
    assert grown.locator("button bdi").all_inner_texts() == ["␣", *output.text, "</s>"]
