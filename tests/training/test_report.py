"""The report: one file, all text escaped, weights and curves as they were given."""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, expect
from playwright.sync_api import Page as BrowserPage

from headway.core.errors import UserError
from headway.core.tables import Table
from headway.pages.page import packed_weights
from headway.predictors.captured_attention import AttentionWeights
from headway.predictors.output import Example, Output, TextHypothesis
from headway.runs.metrics import read_metrics
from headway.training.report import BITS, MOST_POINTS, link_inside, write_report
from tests.pages.browser import open_browser

HOSTILE = "</script><script>alert(1)</script><!-- & \" ' {{payload}} {{style}} \\u003c \u2028"


class Page(HTMLParser):
    """The elements of a page and the text of each."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.texts.append("")

    def handle_data(self, data: str) -> None:
        if self.texts:
            self.texts[-1] += data

    def text_of(self, tag: str, **attributes: str) -> list[str]:
        return [
            text
            for (name, found), text in zip(self.elements, self.texts, strict=True)
            if name == tag and attributes.items() <= found.items()
        ]

    def payload(self) -> dict:
        return json.loads(self.text_of("script", type="application/json")[0])


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    lines = [
        {"update": 50, "loss": 3.5, "learning_rate": 1e-4, "gradient_norm": 2.0, "seconds": 1.5},
        {"update": 100, "loss": float("nan"), "learning_rate": 2e-4, "gradient_norm": 1.0, "seconds": 3.0},
        {"update": 100, "dev_loss": 2.5, "dev": {"exact_match": 41.0}},
        {"update": 150, "loss": 2.0, "learning_rate": 3e-4, "gradient_norm": 1.0, "seconds": 4.0},
    ]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def example(heads: int = 2, source: str = "3 ม.ค. 2021", text: str = "2021-01-03") -> Output:
    rows, columns = [*text, "</s>"], [*source, "</s>"]
    weights = np.random.default_rng(3).dirichlet(np.ones(len(columns)), (heads, len(rows)))
    return shown(source, text, "2021-01-03", "decoder.1.cross", weights, rows, columns)


def shown(
    source: str,
    text: str,
    reference: str,
    name: str,
    weights: np.ndarray[Any, Any],
    rows: list[str],
    columns: list[str],
) -> Output:
    attention = AttentionWeights({name: weights}, {name: rows}, {name: columns})
    return Output(Example(source, references=(reference,)), [TextHypothesis(text, -0.5, [], [])], attention)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


def test_payload_holds_what_was_given(tmp_path: Path, metrics: Path) -> None:
    path = tmp_path / "report.html"
    table = Table(["language", "exact match"], [["th", "98.0"]], title="By language", notes=["a note"])
    write_report(path, title="Dates", summary={"updates": "150"}, metrics=metrics, examples=[example()], tables=[table])
    payload = Page(path).payload()
    assert payload["title"] == "Dates"
    assert payload["summary"] == [["updates", "150"]]
    assert payload["curves"]["loss"] == [[50, 3.5], [150, 2.0]]
    assert payload["curves"]["dev_loss"] == [[100, 2.5]]
    assert payload["curves"]["dev.exact_match"] == [[100, 41.0]]
    assert payload["tables"] == [
        {"title": "By language", "note": "a note", "columns": ["language", "exact match"], "rows": [["th", "98.0"]]}
    ]
    (shown,) = payload["examples"]
    assert (shown["source"], shown["hypothesis"], shown["score"]) == ("3 ม.ค. 2021", "2021-01-03", -0.5)
    assert shown["sourceTokens"] == [*"3 ม.ค. 2021", "</s>"]
    (layer,) = shown["attention"]
    weights = example().attention["decoder.1.cross"]
    assert layer == {"title": "decoder layer 1, cross", "signed": False} | packed_weights(weights, BITS, signed=False)


def test_weights_below_zero_keep_their_sign(tmp_path: Path, metrics: Path) -> None:
    weights = np.array([[[-0.5, 2.0], [0.25, -1.0]]])
    output = shown("a", "b", "b", "encoder.1.self", weights, ["a", "</s>"], ["a", "</s>"])
    write_report(tmp_path / "report.html", title="t", summary={}, metrics=metrics, examples=[output])
    (layer,) = Page(tmp_path / "report.html").payload()["examples"][0]["attention"]
    packed = packed_weights(weights, BITS, signed=True)
    assert layer == {"title": "encoder layer 1, self", "signed": True} | packed


def test_training_and_dev_loss_are_drawn_as_the_same_quantity(tmp_path: Path, metrics: Path) -> None:
    report = tmp_path / "report.html"
    write_report(report, title="Dates", summary={}, metrics=metrics)
    assert Page(report).payload()["losses"] == [["objective", "loss"], ["dev", "dev_loss"]]  # of an older version
    with metrics.open("a") as file:
        file.write('{"update": 200, "loss": 2.5, "unsmoothed_loss": 1.5}\n')
    write_report(report, title="Dates", summary={}, metrics=metrics)
    assert Page(report).payload()["losses"] == [["training", "unsmoothed_loss"], ["dev", "dev_loss"]]


def test_a_report_gets_its_link_when_the_page_inside_is_there(tmp_path: Path, metrics: Path) -> None:
    report = tmp_path / "report.html"
    link_inside(report)  # there is none yet
    write_report(report, title="Dates", summary={}, metrics=metrics)
    assert Page(report).text_of("script", id="inside")[0].strip() == "null"
    link_inside(report)
    linked = report.read_bytes()
    assert Page(report).text_of("script", id="inside")[0].strip() == '"inside.html"'
    (tmp_path / "inside.html").write_text("")
    write_report(report, title="Dates", summary={}, metrics=metrics)
    assert report.read_bytes() == linked


def test_text_never_becomes_markup(tmp_path: Path, metrics: Path) -> None:
    plain, hostile = tmp_path / "plain.html", tmp_path / "hostile.html"
    for path, text in ((plain, "text"), (hostile, HOSTILE)):
        output = shown(text, text, text, "layers", np.ones((1, 1, 2)) / 2, [text], [text, "</s>"])
        table, drawings = Table([text], [[text]], title=text, notes=[text]), {text: text}
        write_report(
            path, title=text, summary={text: text}, metrics=metrics, examples=[output], tables=[table],
            drawings=lambda output, drawn=drawings: drawn,
        )  # fmt: skip
    assert Page(hostile).elements == Page(plain).elements
    assert Page(hostile).text_of("title")[0].strip() == HOSTILE.strip()
    payload = Page(hostile).payload()
    assert payload["summary"] == [[HOSTILE, HOSTILE]]
    assert payload["examples"][0]["targetTokens"] == [HOSTILE]
    assert payload["examples"][0]["drawings"] == {HOSTILE: HOSTILE}
    assert payload["tables"][0]["rows"] == [[HOSTILE]]


def test_scripts_only_ever_set_text() -> None:
    folder = Path(__file__).parents[2] / "src" / "headway"
    scripts = "".join(path.read_text("utf-8") for path in folder.rglob("*.js"))
    assert scripts
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", scripts)


def test_page_needs_nothing_from_elsewhere(tmp_path: Path, metrics: Path) -> None:
    path = tmp_path / "report.html"
    write_report(path, title="Dates", summary={}, metrics=metrics, examples=[example()])
    page = Page(path)
    assert [attributes for _, attributes in page.elements if {"src", "href"} & attributes.keys()] == []
    policy = next(attributes["content"] for tag, attributes in page.elements if "http-equiv" in attributes)
    assert "default-src 'none'" in str(policy)
    assert "url(" not in page.text_of("style")[0]
    assert "{{" not in path.read_text("utf-8")


def test_a_browser_shows_curves_and_weights(browser: Browser, tmp_path: Path, metrics: Path) -> None:
    path, shown = tmp_path / "report.html", example()
    write_report(path, title="Dates", summary={"updates": "150"}, metrics=metrics, examples=[shown])
    page, troubles = browser.new_page(), []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto(path.as_uri())
    expect(page.locator("#charts figure")).to_have_count(2)
    cells = page.locator("#cells")
    box, (rows, columns) = cells.bounding_box(), shown.attention["decoder.1.cross"].shape[1:]
    assert box is not None
    cells.hover(position={"x": 2.5 * box["width"] / columns, "y": 3.5 * box["height"] / rows})
    weight = shown.attention["decoder.1.cross"].mean(0)[3, 2]
    most = shown.attention["decoder.1.cross"].max()
    expect(page.locator("#readout")).to_contain_text("1 ← ม")
    said = float(page.locator("#readout").inner_text().split()[-1])
    assert said == pytest.approx(weight, abs=0.0005 + np.sqrt(weight * most) / 255)
    expect(page.locator("#most")).to_have_text("1.000")
    expect(page.locator("#uniform")).to_have_text(f"uniform {1 / columns:.3f}")
    page.locator("#stretch").check()
    largest = shown.attention["decoder.1.cross"].mean(0).max()
    assert float(page.locator("#most").inner_text()) == pytest.approx(largest, abs=0.005)
    expect(page.locator("#look-inside")).to_contain_text("headway inspect")
    for place in ("#charts figure >> nth=0", "#saving"):
        assert saved(page, place, "SVG").startswith(b"<svg")
        assert saved(page, place, "PNG").startswith(b"\x89PNG")
    metrics.write_text('{"update": 50, "loss": 2.5}\n', encoding="utf-8")  # one point is a number
    write_report(path, title="Dates", summary={}, metrics=metrics)
    page.goto("about:blank")
    page.goto(path.as_uri())
    expect(page.locator("#charts dd")).to_have_text("2.5")
    expect(page.locator("#charts svg")).to_have_count(0)
    assert troubles == []


def saved(page: BrowserPage, place: str, kind: str) -> bytes:
    """The file that a button saves."""
    with page.expect_download() as download:
        page.locator(place).get_by_role("button", name=kind, exact=True).click()
    assert download.value.suggested_filename.startswith("Dates-")
    return Path(download.value.path()).read_bytes()


def test_every_element_that_the_scripts_look_up_is_there(tmp_path: Path, metrics: Path) -> None:
    path = tmp_path / "report.html"
    write_report(path, title="Dates", summary={}, metrics=metrics)
    page = Page(path)
    scripts = "".join(page.text_of("script"))
    wanted = set(re.findall(r'(?:find|getElementById)\("([\w-]+)"\)', scripts))
    assert {"cells", "charts", "payload"} <= wanted <= {attributes.get("id") for _, attributes in page.elements}


def test_long_curves_are_thinned_to_their_ends(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"update": {update}, "loss": 1.0}}\n' for update in range(1, 5003)))
    write_report(tmp_path / "report.html", title="long", summary={}, metrics=path)
    points = Page(tmp_path / "report.html").payload()["curves"]["loss"]
    assert len(points) <= MOST_POINTS + 1
    assert (points[0][0], points[-1][0]) == (1, 5002)


@pytest.mark.parametrize("line", ['{"update": 1', '["update"]', '{"loss": 1.0}'])
def test_broken_metrics_name_their_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"update": 1}}\n{line}\n')
    with pytest.raises(UserError) as caught:
        read_metrics(path)
    assert caught.value.where == f"{path}:2"


def test_missing_metrics_are_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no metrics"):
        write_report(tmp_path / "report.html", title="", summary={}, metrics=tmp_path / "metrics.jsonl")
    assert not (tmp_path / "report.html").exists()


def test_an_output_that_should_equal_its_reference_is_marked_where_it_does_not(
    browser: Browser, tmp_path: Path, metrics: Path
) -> None:
    report = tmp_path / "report.html"
    examples = [example(), example(text="2021-01-30")]
    write_report(report, title="Dates", summary={}, metrics=metrics, examples=examples)
    page = browser.new_page()
    page.goto(report.as_uri())
    options = page.locator("#sentence option").all_text_contents()
    assert options == ["1. ✗ wrong: 3 ม.ค. 2021", "2. 3 ม.ค. 2021"]
    expect(page.locator("#texts")).to_have_class("wrong")
    page.locator("#next").click()
    expect(page.locator("#texts")).not_to_have_class("wrong")
    expect(page.locator("#charts")).to_contain_text("exact match on dev")
