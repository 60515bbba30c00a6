"""The page of `headway inspect --output` in a real browser: what it shows is what was written into it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from headway.formats.alignments import parse_pharaoh
from headway.inspect.capture import Layer
from headway.inspect.inspection import (
    Alignment,
    Arcs,
    Inspected,
    LabelledWord,
    Map,
    ShownOutput,
    pack_sentences,
    write_inspection,
)
from tests.pages.browser import open_browser

HOSTILE = "</script><script>window.harmed = 1</script><!-- <img src=x onerror='harmed=1'> {{data}}"
SOURCE, TARGET = ["二", "〇", "八", "一", "年", "</s>"], ["2", "0", "8", "1", "</s>"]
HEADS = 3


def distributions(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(shape[-1], 0.5), shape[:-1]).astype(np.float32)


CROSS = [distributions(HEADS, 5, 6, seed=seed) for seed in (1, 2)]
ENCODER = [distributions(1, 6, 6, seed=3)]
SIGNED = np.random.default_rng(4).normal(size=(HEADS, 6, 5)).astype(np.float32)
WORDS = np.array([[[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]]], np.float32)


def pair() -> Inspected:
    cross = [Layer(f"decoder.{number}.cross", each, TARGET, SOURCE) for number, each in enumerate(CROSS, start=1)]
    signed = Layer("encoder.2.self", SIGNED, SOURCE, ["-2", "-1", "0", "+1", "+2"])
    maps = [
        Map("Encoder", [Layer("encoder.1.self", ENCODER[0], SOURCE, SOURCE)]),
        Map("Cross", cross),
        Map("Encoder: gradient × input", [signed], measure="nats", signed=True),
    ]
    links = Map("Alignment", [Layer("decoder.1.cross", WORDS, ["the", "year"], ["あ", "い", "う"])], "weight")
    gold = parse_pharaoh("0-0 1?1", "gold")
    said = [
        ShownOutput("2081", -0.25, TARGET, [0.9, 0.5, 1.0, 0.031, 0.99]),
        ShownOutput("2018", -1.5, ["2", "0", "1", "8", "</s>"], [0.5] * 5),
    ]
    return Inspected(
        "二〇八一年", "2081", SOURCE, said, [], maps,
        Alignment(links, "reference", [(0, 0), (2, 1)], gold, 33.25),
        [Arcs("encoder layer 1, self, head 1", SOURCE[:5], [1, 1, 1, 2, 1], [0.5, 0.9, 0.2, 0.3, 0.4])],
    )  # fmt: skip


def hostile() -> Inspected:
    tokens = [HOSTILE, "<b>b</b>", "</s>"]
    layer = Layer("decoder.1.cross", distributions(2, 3, 3), tokens, tokens)
    arcs = [Arcs(HOSTILE, tokens[:2], [1, 1], [0.5, 0.5])]
    outputs = [ShownOutput(HOSTILE, -1.0, tokens, [0.5] * 3)]
    return Inspected(HOSTILE, HOSTILE, tokens, outputs, [], [Map("Cross", [layer])], None, arcs)


def labelled() -> Inspected:
    words = [LabelledWord("he", "C", 0.9, "C"), LabelledWord("go", "I", 0.8, "C")]
    layers = Layer("layers", distributions(2, 2, 4), ["he", "go"], [f"layer {n}" for n in range(4)])
    return Inspected("he go", "C C", ["he", "go"], [], words, [Map("Layers", [layers])])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = tmp_path_factory.mktemp("page") / "page.html"
    sentences = [pair(), hostile(), labelled(), Inspected("")]
    write_inspection(written, title=HOSTILE, facts=["a model", HOSTILE], packed=pack_sentences(sentences, 4))
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
    opened.goto(f"{path.as_uri()}#tab=Cross")
    expect(opened.locator("#caption")).not_to_be_empty()
    yield opened
    context.close()
    assert troubles == []


def hover(page: Page, row: int, place: int, rows: int, columns: int) -> tuple[str, str, float]:
    """Points at a cell and gives what the tooltip says: the row, the column, the value."""
    box = page.locator("#cells").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + (place + 0.5) * box["width"] / columns, box["y"] + (row + 0.5) * box["height"] / rows)
    tip = page.locator("#tip")
    expect(tip).to_be_visible()
    (target, source), value = tip.locator("bdi").all_inner_texts(), tip.locator("b").inner_text()
    assert page.locator("#readout").inner_text() == tip.inner_text()
    return target, source, float(value.replace("−", "-"))


def picture(page: Page, canvas: str = "#cells") -> str:
    return str(page.locator(canvas).evaluate("canvas => canvas.toDataURL()"))


def wait_until_drawn(page: Page, before: str, *, alike: bool) -> None:
    """Wait for the picture to be like an earlier one, or unlike it: a page hears of other media after its styles."""
    picture_is = "picture => document.querySelector('#cells').toDataURL() === picture"
    page.wait_for_function(picture_is if alike else picture_is.replace("===", "!=="), arg=before)


READ = """(canvas, [x, y, width, height]) => {  // a copy, since the page's own canvas is not made to be read
    const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
    const [left, top] = [x * canvas.width, y * canvas.height].map(Math.floor);
    copy.drawImage(canvas, left, top, width, height, 0, 0, width, height);
    return [...copy.getImageData(0, 0, width, height).data] }"""


def pixel(page: Page, row: int, column: int, rows: int, columns: int) -> list[int]:
    """The colour of a cell, off its middle."""
    place = [(column + 0.3) / columns, (row + 0.3) / rows, 1, 1]
    return list(page.locator("#cells").evaluate(READ, place))[:3]


def choose(page: Page, name: str) -> None:
    page.get_by_role("radio", name=name, exact=True).click()


def open_tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()
    expect(page.get_by_role("tab", name=name, exact=True)).to_have_attribute("aria-selected", "true")


def test_hovering_shows_the_weight_of_every_cell(page: Page) -> None:
    for row, target in enumerate(TARGET):
        for column, source in enumerate(SOURCE):
            said = hover(page, row, column, 5, 6)
            assert said[:2] == (target, source)
            assert said[2] == pytest.approx(CROSS[0].mean(0)[row, column], abs=6e-4)


def test_layers_and_heads_are_drawn_anew_and_hovered(page: Page) -> None:
    pictures = {picture(page)}
    for layer, weights in enumerate(CROSS):
        for head in range(HEADS):
            choose(page, f"decoder layer {layer + 1}, cross, head {head + 1}")
            expect(page.locator("#caption")).to_have_text(f"decoder layer {layer + 1}, cross · head {head + 1}")
            pictures.add(picture(page))
            row, column = 3, int(weights[head, 3].argmax())
            assert hover(page, row, column, 5, 6)[2] == pytest.approx(weights[head, row, column], abs=6e-4)
            page.mouse.move(0, 0)
    assert len(pictures) == 1 + 2 * HEADS
    choose(page, "decoder layer 1, cross, mean of heads")
    assert picture(page) in pictures


@pytest.mark.slow
def test_colours_follow_the_values(page: Page) -> None:
    choose(page, "decoder layer 2, cross, head 1")
    brightness = [[sum(pixel(page, row, column, 5, 6)) for column in range(6)] for row in range(5)]
    order = np.argsort(CROSS[1][0].flatten())
    assert (np.diff(np.array(brightness).flatten()[order]) <= 3).all()  # a higher weight is never brighter


def test_weights_have_one_scale_unless_it_is_stretched(page: Page) -> None:
    choose(page, "decoder layer 2, cross, head 1")
    expect(page.locator("#most")).to_have_text("1.000")
    expect(page.locator("#uniform")).to_have_text("uniform 0.167")
    page.get_by_label("stretch the scale").check()
    expect(page.locator("#most")).to_have_text(f"{CROSS[1][0].max():.3f}")
    page.get_by_label("stretch the scale").uncheck()
    open_tab(page, "Encoder: gradient × input")
    expect(page.get_by_label("stretch the scale")).to_be_hidden()
    expect(page.locator("#uniform")).to_be_hidden()


def test_values_below_zero_have_their_own_colour(page: Page) -> None:
    open_tab(page, "Encoder: gradient × input")
    mean = SIGNED.mean(0)
    most, least = (np.unravel_index(at, mean.shape) for at in (mean.argmax(), mean.argmin()))
    for (row, column), stronger in ((most, 2), (least, 0)):
        colour = pixel(page, int(row), int(column), 6, 5)
        assert int(np.argmax(colour)) == stronger  # blue above, red below
        assert hover(page, int(row), int(column), 6, 5)[2] == pytest.approx(mean[row, column], abs=1e-3)
        page.mouse.move(0, 0)
    expect(page.locator("#measure")).to_have_text("nats")


@pytest.mark.slow
def test_columns_are_sorted_by_the_weight_they_get_or_a_kept_row_gives(page: Page) -> None:
    page.get_by_label("by weight").check()
    means = CROSS[0].mean(0).mean(0)
    assert [hover(page, 0, place, 5, 6)[1] for place in range(6)] == [SOURCE[n] for n in np.argsort(-means)]
    page.locator("#cells").click(position={"x": 30, "y": 65})  # in the third row
    row = CROSS[0].mean(0)[2]
    assert [hover(page, 2, place, 5, 6)[1] for place in range(6)] == [SOURCE[n] for n in np.argsort(-row)]
    assert hover(page, 2, 0, 5, 6)[2] == pytest.approx(row.max(), abs=6e-4)
    page.get_by_label("by position").check()
    assert hover(page, 0, 0, 5, 6)[1] == SOURCE[0]


def test_texts_stay_text(page: Page) -> None:
    assert page.title() == HOSTILE
    page.get_by_role("button", name="next sentence").click()
    expect(page.locator("#source")).to_have_text(HOSTILE)
    for name in ("Dependencies", "Cross"):
        open_tab(page, name)
    hover(page, 0, 0, 3, 3)
    assert page.locator("img").count() == 0
    assert page.locator("b").count() == 2  # the values of tooltip and readout
    assert page.evaluate("window.harmed") is None
    assert page.locator("#lines .chip").first.inner_text() == HOSTILE


def test_tokens_have_their_probabilities_and_outputs_their_scores(page: Page) -> None:
    output = page.locator("#lines div", has_text="output")
    bars = output.locator(".chip").evaluate_all(
        "chips => chips.map(chip => chip.style.getPropertyValue('--probability'))"
    )
    assert [float(each) for each in bars] == [0.9, 0.5, 1.0, 0.031, 0.99]
    assert output.locator(".chip").nth(3).get_attribute("title") == "probability 3.1 %"
    page.get_by_text("1 more output").click()
    expect(page.locator("#outputs li")).to_contain_text(["2018score −1.500"])
    expect(page.locator("#lines div", has_text="reference")).to_contain_text("2081")


def test_what_a_row_looks_at_is_shaded_in_the_text(page: Page) -> None:
    hover(page, 1, 2, 5, 6)
    expect(page.locator(".chip.active")).to_have_text("0")
    chips = page.locator("#lines .chips").first.locator(".chip")
    strongest = chips.nth(int(CROSS[0].mean(0)[1].argmax()))
    assert strongest.get_attribute("style")
    page.mouse.move(0, 0)
    expect(page.locator(".chip.active")).to_have_count(0)


@pytest.mark.slow
def test_japanese_is_drawn(page: Page) -> None:
    expect(page.locator("#source")).to_have_text("二〇八一年")
    drawn = [str(page.locator("#column-labels").evaluate(READ, [n / 6, 0.75, 22, 20])) for n in range(5)]
    assert len(set(drawn)) == 5  # signs of their own, not five times the box of a missing one


def test_links_have_their_error_rate_and_gold(page: Page) -> None:
    open_tab(page, "Alignment")
    expect(page.locator("#marks")).to_contain_text("AER of this sentence: 33.3")
    assert hover(page, 1, 2, 2, 3) == ("year", "う", pytest.approx(0.6, abs=6e-4))
    page.mouse.move(0, 0)
    centre = [pixel(page, *each, 4, 6) for each in ((0, 0), (2, 2))]  # near, not on, the marks
    assert centre[0] != centre[1]
    expect(page.locator("#sentences button").first).to_contain_text("AER 33")
    page.locator("#order").select_option("highest AER first")
    expect(page.locator("#sentences button").first).to_contain_text("二〇八一年")


def test_arcs_lead_from_heads_to_tokens(page: Page) -> None:
    open_tab(page, "Dependencies")
    expect(page.locator("#arcs .arc")).to_have_count(5)
    expect(page.locator("#arcs .arc.root title")).to_have_text("〇 ← root, 0.900")
    expect(page.locator("#arcs .arc title").nth(3)).to_have_text("一 ← 八, 0.300")
    expect(page.locator("#maps")).to_be_hidden()


def test_taggers_show_labels_and_layers(page: Page) -> None:
    page.locator("#sentences button").nth(2).click()
    expect(page.locator(".chip.wrong")).to_have_text("goI (C)")
    expect(page.locator("#caption")).to_have_text("layers · mean of heads")
    assert hover(page, 1, 3, 2, 4)[:2] == ("go", "layer 3")


def test_an_empty_line_has_nothing_to_show(page: Page) -> None:
    page.locator("#sentences button").nth(3).click()
    expect(page.locator("#source")).to_have_text("(an empty line)")
    expect(page.locator("#inside")).to_be_hidden()


def test_the_keyboard_reaches_everything(page: Page) -> None:
    first = page.get_by_role("radio", name="decoder layer 1, cross, mean of heads")
    first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#caption")).to_have_text("decoder layer 1, cross · head 1")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#caption")).to_have_text("decoder layer 2, cross · head 1")
    focused = page.locator(":focus")
    expect(focused).to_have_attribute("aria-label", "decoder layer 2, cross, head 1")
    assert focused.evaluate("each => getComputedStyle(each).outlineStyle") == "solid"
    page.locator("#cells").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    expect(page.locator("#readout")).to_contain_text("0 ← 八")
    page.get_by_label("by weight").check()
    page.locator("#cells").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.press("Home")
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    expect(page.locator("#source")).to_have_text(HOSTILE)
    page.keyboard.press("p")
    expect(page.locator("#source")).to_have_text("二〇八一年")
    page.locator("#sentences [aria-current]").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#source")).to_have_text(HOSTILE)
    page.keyboard.press("End")
    expect(page.locator("#source")).to_have_text("(an empty line)")
    page.keyboard.press("Home")
    page.get_by_role("tab", selected=True).focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("tab", selected=True)).to_have_text("Encoder")


def test_everything_that_can_be_used_has_a_name(page: Page) -> None:
    unnamed = page.locator("button:visible, select:visible, canvas[tabindex]:visible").evaluate_all(
        "all => all.filter(each => !(each.getAttribute('aria-label') || each.innerText || each.labels?.[0]?.innerText))"
        ".map(each => each.outerHTML)"
    )
    assert unnamed == []


@pytest.mark.slow
def test_light_dark_and_paper(page: Page) -> None:
    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = background(), picture(page)
    page.emulate_media(color_scheme="dark")
    expect(page.locator("body")).to_have_css("background-color", "rgb(20, 24, 29)")
    assert light[0] == "rgb(255, 255, 255)"
    wait_until_drawn(page, light[1], alike=False)
    assert sum(pixel(page, *np.unravel_index(CROSS[0].mean(0).argmax(), (5, 6)), 5, 6)) > sum(pixel(page, 0, 0, 5, 6))
    theme = page.locator("#theme")
    theme.click()
    expect(theme).to_have_text("Theme: light")
    assert (background(), picture(page)) == light
    theme.click()
    expect(theme).to_have_text("Theme: dark")
    page.emulate_media(media="print")
    wait_until_drawn(page, light[1], alike=True)
    assert background() == light[0]
    expect(page.locator("nav")).to_be_hidden()
    expect(page.locator("#cells")).to_be_visible()


@pytest.mark.slow
@pytest.mark.parametrize("width", [340, 800])
def test_narrow_windows_do_not_scroll_sideways(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 700})
    for number in range(4):
        page.locator("#sentences button").nth(number).click()
        for tab in page.get_by_role("tab").all_inner_texts():
            open_tab(page, tab)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (number, tab)


@pytest.mark.slow
def test_the_address_leads_back(page: Page, path: Path) -> None:
    choose(page, "decoder layer 2, cross, head 2")
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    expect(page.locator("#caption")).to_have_text("decoder layer 2, cross · head 2")
    assert "layer=2&head=2" in address


@pytest.mark.slow
def test_addresses_count_layers_in_the_stack_and_heads_from_1(browser: Browser, tmp_path: Path) -> None:
    """The lowest layer has no weights here."""
    layers = [Layer(f"decoder.{number}.cross", distributions(HEADS, 5, 6), TARGET, SOURCE) for number in (2, 3)]
    sentence = Inspected("a", "b", SOURCE, [], [], [Map("Cross", layers)])
    write_inspection(tmp_path / "page.html", title="page", facts=[], packed=pack_sentences([sentence], 1))
    page = browser.new_page()
    for layer, shown in (("2", "layer 2"), ("3", "layer 3"), ("1", "layer 2")):
        page.goto("about:blank")
        page.goto(f"{(tmp_path / 'page.html').as_uri()}#sentence=1&tab=Cross&layer={layer}&head=1")
        expect(page.locator("#caption")).to_have_text(f"decoder {shown}, cross · head 1")


@pytest.mark.slow
def test_sentences_of_a_hundred_tokens_stay_usable(browser: Browser, tmp_path: Path) -> None:
    tokens = [f"token{number}" for number in range(100)]
    weights = distributions(4, 100, 100)
    names = [("Encoder", "encoder.{}.self"), ("Decoder", "decoder.{}.self"), ("Cross", "decoder.{}.cross")]
    maps = [Map(title, [Layer(name.format(n), weights, tokens, tokens) for n in (1, 2)]) for title, name in names]
    text = " ".join(tokens)
    sentence = Inspected(text, text, tokens, [ShownOutput(text, -1.0, tokens, [0.5] * 100)], [], maps)
    write_inspection(tmp_path / "long.html", title="long", facts=[], packed=pack_sentences([sentence] * 20, 100))
    assert (tmp_path / "long.html").stat().st_size < 8e6
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    page.goto((tmp_path / "long.html").as_uri())
    expect(page.locator("#caption")).to_have_text("decoder layer 1, cross · mean of heads", timeout=20_000)
    for _ in range(5):
        page.keyboard.press("n")
    choose(page, "decoder layer 2, cross, head 3")
    for row in (3, 4, 5):
        page.locator("#cells").hover(position={"x": 20 + row, "y": 20 * row})
    expect(page.locator("#tip")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 1200
    page.close()
