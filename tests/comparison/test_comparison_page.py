"""The page of a comparison in a real browser: what it shows is what was written into it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

import headway
from headway.comparison.cells import Costs, CurvePoint
from headway.comparison.report import Report, payload, report_of, write_comparison_page
from headway.inspect.capture import Layer
from headway.inspect.inspection import Map, packed_maps
from headway.metrics import build_metric
from tests.comparison.toys import cell, evaluation_set
from tests.pages.browser import open_browser
from tests.tiers import thinned

HOSTILE = "</script><script>window.harmed = 1</script><!-- <img src=x onerror='harmed=1'> {{data}}"
WORST, BEST = "worst", "best"
ROWS, COLUMNS = ["a", "b", "</s>"], ["x", "y", "z", "</s>"]


def weights(seed: int, heads: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(4), (heads, 3)).astype(np.float32)


CROSS = {name: weights(seed) for seed, name in enumerate((WORST, BEST))}


def comparison_report() -> Report:
    tests = [
        replace(evaluation_set(80), groups=tuple(str(index % 4) for index in range(80))),
        evaluation_set(24, "other"),
    ]
    tests[0] = replace(tests[0], sources=(*tests[0].sources[:79], HOSTILE))
    cells = []
    for variant, kept in ((WORST, 0.6), (HOSTILE, 0.8), (BEST, 0.95)):
        for seed in (1, 2):
            made = [cell(variant, seed + 5 * index, kept, test).outputs[0] for index, test in enumerate(tests)]
            made[0] = replace(made[0], hypotheses=(*made[0].hypotheses[:79], f"{HOSTILE} {seed}"))
            curve = tuple(CurvePoint(update, 2.0 * update, {"bleu": update / 10 + seed}) for update in (100, 200))
            cells.append(
                replace(cell(variant, seed, kept), outputs=tuple(made), costs=Costs(cpu_seconds=3), curve=curve)
            )
    return report_of(headway.compare(cells, [build_metric("bleu"), build_metric("ter")], {"bleu": 1}), {"the": 3})


REPORT = comparison_report()
PAIRS = [(WORST, HOSTILE), (WORST, BEST), (HOSTILE, BEST)]
DATA = payload(REPORT, {})


def maps(name: str) -> list[Map]:
    encoder = Layer("encoder.1.self", weights(9, 1)[:, :, :3], ROWS, ROWS)
    return [Map("Encoder", [encoder]), Map("Cross", [Layer("decoder.1.cross", CROSS[name], ROWS, COLUMNS)])]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = tmp_path_factory.mktemp("page") / "page.html"
    shown = REPORT.shown[WORST, BEST, 0]
    attentions = {(name, 0, index): packed_maps(maps(name), 8) for name in (WORST, BEST) for index in shown}
    write_comparison_page(written, REPORT, attentions, title=HOSTILE)
    return written


@pytest.fixture
def page(browser: Browser, path: Path) -> Iterator[Page]:
    """The page in a fresh context; whatever it logs, and whatever it asks the network for, fails the test."""
    context = browser.new_context(viewport={"width": 1200, "height": 800}, color_scheme="light")
    opened = context.new_page()
    troubles: list[str] = []
    opened.on("console", lambda message: troubles.append(message.text))
    opened.on("pageerror", lambda error: troubles.append(str(error)))
    opened.on("request", lambda request: troubles.append(request.url) if "page" not in request.url else None)
    opened.goto(path.as_uri())
    expect(opened.locator("#contents li")).to_have_count(6)
    yield opened
    assert opened.evaluate("window.harmed") is None
    context.close()
    assert troubles == []


def choose_pair(page: Page, index: int) -> None:
    page.locator("#sentences select.pair").select_option(str(index))


def test_text_is_only_text(page: Page) -> None:
    assert page.locator("h1").inner_text() == HOSTILE
    assert page.locator("img").count() == 0
    expect(page.locator(".forest").first.locator("th[scope=row] bdi").first).to_have_text(HOSTILE)


def test_forests_show_every_pair(page: Page) -> None:
    forests = page.locator(".forest")
    expect(forests).to_have_count(4)
    rows = forests.first.locator("tbody tr[tabindex]")
    expect(rows).to_have_count(3)
    for index, pair in enumerate(DATA["pairs"][:3]):
        numbers = rows.nth(index).locator(".numbers").inner_text().replace("−", "-")
        low, high = pair["low"], pair["high"]
        assert numbers == f"{pair['difference']:+.2f} {low:+.2f} to {high:+.2f}"
        assert rows.nth(index).locator(".verdict").inner_text() == pair["words"]
    dot, zero = (rows.nth(1).locator(part).bounding_box() for part in (".dot", ".zero"))
    assert dot is not None
    assert zero is not None
    assert dot["x"] > zero["x"]  # the best is better than the worst
    margins = forests.first.locator("tbody tr[tabindex] .margin")
    expect(margins).to_have_count(3)
    expect(forests.nth(1).locator(".margin")).to_have_count(0)  # TER has none


@pytest.mark.slow
def test_rows_of_a_forest_by_keyboard(page: Page) -> None:
    rows = page.locator(".forest").first.locator("tbody tr[tabindex]")
    rows.first.focus()
    page.keyboard.press("ArrowDown")
    expect(rows.nth(1)).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(rows.first).to_be_focused()


def test_curves_are_read_off_by_keyboard(page: Page) -> None:
    charts = page.locator("#curve-charts figure")
    expect(charts).to_have_count(2)
    expect(charts.first.locator("polygon.band")).to_have_count(3)
    charts.first.locator("svg").focus()
    page.keyboard.press("Home")
    expect(charts.first.locator("figcaption")).to_contain_text("update 100")
    expect(charts.first.locator("figcaption")).to_contain_text("worst 11.5 (11 to 12)")
    expect(charts.nth(1).locator("figcaption")).to_contain_text("CPU second 400")


def test_parts_show_scores_and_differences(page: Page) -> None:
    figures = page.locator("#bucket-charts figure")
    expect(figures).to_have_count(len(DATA["buckets"]))
    group = next(index for index, one in enumerate(DATA["buckets"]) if one["axis"] == "group")
    figure, parts = figures.nth(group), DATA["buckets"][group]
    figure.locator("svg").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    value, low, high = parts["scores"][BEST][1]
    said = figure.locator("figcaption").inner_text().replace("−", "-")
    assert said.startswith("1, 20 segments")
    assert f"{BEST} {value:.2f} ({low:.2f} to {high:.2f})" in said
    choose_pair(page, 1)
    page.get_by_label("differences of").check()
    box = figure.locator("svg").bounding_box()
    assert box is not None
    figure.locator("svg").hover(position={"x": 0.2 * box["width"], "y": box["height"] / 2})
    value, low, high = parts["differences"][1]["values"][0]
    said = figure.locator("figcaption").inner_text().replace("−", "-")
    assert f"{BEST} - {WORST} {value:.2f} ({low:.2f} to {high:.2f})" in said


def test_ngrams_and_sentences_follow_the_pair_and_the_test_set(page: Page) -> None:
    choose_pair(page, 1)
    expect(page.locator("#ngrams select.pair")).to_have_value("1")
    tables = page.locator("#ngram-tables table")
    expect(tables).to_have_count(2)
    won = [row[0] for row in DATA["ngrams"][1]["rows"] if row[2] > row[1]]
    assert tables.first.locator("tbody td:first-child").all_inner_texts() == won
    cards = page.locator(".card")
    expect(cards).to_have_count(len(REPORT.shown[WORST, BEST, 0]))
    expect(cards.first.locator("h3")).to_contain_text(f"segment {REPORT.shown[WORST, BEST, 0][0] + 1}")
    page.locator("#sentences select.test").select_option("1")
    expect(cards).to_have_count(len(REPORT.shown[WORST, BEST, 1]))
    expect(page.locator(".card > button")).to_have_count(0)  # no attention was captured there
    expect(page.locator("#sentence-note")).to_contain_text("BLEU on other")


def test_words_that_the_reference_has_not_are_marked(page: Page) -> None:
    choose_pair(page, 1)
    outputs = page.locator(".card").first.locator("dd")
    marked = outputs.locator("mark.other").all_text_contents()
    assert set(marked) == {"thing"}


def test_attention_of_both_is_one_click_away(page: Page) -> None:
    choose_pair(page, 1)
    button = page.locator(".card > button").first
    button.click()
    for name in (WORST, BEST):
        figure = page.locator(f'figure[data-variant="{name}"][data-shown="decoder.1.cross"]')
        expect(figure).to_be_visible()
        cells = figure.locator('[data-part="cells"]')
        cells.scroll_into_view_if_needed()
        box = cells.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 1.5 * box["width"] / 4, box["y"] + 2.5 * box["height"] / 3)
        readout = figure.locator('[data-part="readout"]')
        expect(readout).to_contain_text("</s> ← y")
        value = float(readout.locator("b").inner_text())
        assert value == pytest.approx(CROSS[name].mean(0)[2, 1], abs=0.01)
        expect(page.locator("#tip")).to_be_visible()
    cells.focus()
    page.keyboard.press("ArrowUp")
    expect(readout).to_contain_text("b ← ")
    figure.get_by_label(f"Head of {BEST}").select_option("1")
    figure.get_by_label(f"Kind of attention of {BEST}").select_option("0")
    expect(page.locator(f'figure[data-variant="{BEST}"][data-shown="encoder.1.self"]')).to_be_visible()
    button.click()
    expect(figure).to_be_hidden()


@pytest.mark.slow
def test_every_picture_can_be_saved(page: Page) -> None:
    choose_pair(page, 1)
    page.locator(".card > button").first.click()
    for place in (".forest caption", "#curve-charts figure", "#bucket-charts figure", ".attention figure"):
        with page.expect_download() as download:
            page.locator(place).first.get_by_role("button", name="SVG", exact=True).click()
        picture = Path(download.value.path()).read_text(encoding="utf-8")
        assert picture.startswith("<svg")
        assert picture.count("<text") > 3


@pytest.mark.slow
def test_the_keys_go_from_sentence_to_sentence(page: Page) -> None:
    page.keyboard.press("n")
    page.keyboard.press("n")
    expect(page.locator(".card").nth(1)).to_be_focused()
    page.keyboard.press("p")
    expect(page.locator(".card").first).to_be_focused()


def test_themes(page: Page) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.locator("#theme").click()
    page.locator("#theme").click()
    assert page.locator("#theme").inner_text() == "Theme: dark"
    assert page.evaluate(background) != light
    page.emulate_media(color_scheme="dark", media="print")
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    expect(page.locator("nav")).to_be_hidden()
    expect(page.locator("#theme")).to_be_hidden()


@pytest.mark.parametrize("width", thinned([360, 768], 2))
def test_narrow_windows_scroll_down_only(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 740})
    choose_pair(page, 1)
    page.locator(".card > button").first.click()
    expect(page.locator(f'figure[data-variant="{BEST}"][data-shown]')).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_page_needs_nothing_from_elsewhere(path: Path) -> None:
    text = path.read_text("utf-8")
    assert "default-src 'none'" in text
    assert "url(" not in text
