"""The page in a browser, over a real server."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.pages.browser import open_browser
from tests.serving.conftest import Gate, Running, wait
from tests.tiers import tiered


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as opened:
        yield opened


@pytest.fixture
def page(server: Running, browser: Any) -> Iterator[Any]:
    """The page, ready. It may ask its server alone, its scripts may not fail, and its policy may stop nothing."""
    opened, wrong = browser.new_page(), list[str]()
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda message: wrong.extend([message.text] * ("Policy" in message.text)))
    opened.on(
        "request", lambda request: wrong.extend([request.url] * (not request.url.startswith((server.url, "data:"))))
    )
    opened.goto(server.url)
    opened.get_by_text("Ready.", exact=True).wait_for()
    yield opened
    opened.close()
    assert wrong == []


def translated(page: Any, text: str, expected: str) -> None:
    """Type a text and wait for its translation."""
    page.locator("#source").fill(text)
    page.wait_for_function(
        """expected => {
          const lines = document.querySelectorAll("#target:not(.waiting) p");
          return Array.from(lines, (line) => line.textContent).join("\\n") === expected;
        }""",
        arg=expected,
    )


def test_it_translates_as_one_types(page: Any) -> None:
    page.locator("#source").press_sequentially("one two", delay=20)
    page.get_by_text("eins zwei", exact=True).first.wait_for()
    assert page.locator("#from option").first.inner_text() == "Detected: English"
    assert page.locator("#to").input_value() == "de"
    assert page.locator("#counts").inner_text() == "7 of 5,000 characters"
    translated(page, "one\n\nsix two", "eins\n\nsechs zwei")
    page.locator("#from").select_option("en")
    translated(page, "five", "fünf")
    page.get_by_role("button", name="Clear").click()
    page.wait_for_function("document.querySelector('#target').innerText.trim() === ''")


def test_a_word_says_where_it_looked(page: Any) -> None:
    translated(page, "one two", "eins zwei")
    page.locator("#target .item").hover()
    word = page.locator("#target .word")
    word.first.wait_for()
    word.first.hover()
    page.get_by_text("eins looked at one").wait_for()
    assert page.locator("#mirror .looked").all_inner_texts() == ["one", "two"]
    shares = page.locator("#mirror .looked").evaluate_all(
        "all => all.map((each) => +each.style.getPropertyValue('--share'))"
    )
    assert shares[0] > shares[1]
    page.locator("h1").hover()
    page.locator("#mirror .looked").first.wait_for(state="detached")


def test_keys_go_from_word_to_word_and_a_reader_hears_it(page: Any) -> None:
    translated(page, "one two", "eins zwei")
    page.locator("#target").focus()
    page.keyboard.press("ArrowRight")
    page.locator("#spoken").get_by_text("eins looked at one").wait_for(state="attached")
    page.keyboard.press("ArrowRight")
    page.locator("#spoken").get_by_text("zwei looked at").wait_for(state="attached")
    assert page.locator("#target .chosen").inner_text() == "zwei"
    page.keyboard.press("Escape")
    assert page.locator("#target .chosen").count() == 0
    assert page.locator("#spoken").get_attribute("aria-live") == "polite"
    for control in page.locator("input:visible, select:visible, textarea:visible, button:visible").all():
        assert control.evaluate("each => Boolean(each.labels?.length || each.ariaLabel || each.textContent.trim())")


def test_another_output_can_be_taken(page: Any) -> None:
    translated(page, "one two", "eins zwei")
    other = page.locator("#list button").first
    text = other.inner_text()
    assert text != "eins zwei"
    other.click()
    assert page.locator("#target").inner_text().strip() == text
    assert "eins zwei" in page.locator("#list button").all_inner_texts()


def test_other_tasks_show_what_they_give(page: Any) -> None:
    page.locator("#task").select_option("tagging")
    page.locator("#source").fill("they goes home .")
    page.locator("#target .label").nth(3).wait_for()
    assert page.locator("#target .label").first.inner_text().split() == ["they", "PRON", "100", "%"]
    assert not page.locator("#from").is_visible()
    assert not page.locator("#tools").is_visible()
    page.locator("#task").select_option("parsing")
    page.locator("#source").fill("d n v .")
    page.get_by_text("─ NP").wait_for()
    page.locator("#task").select_option("summarization")
    page.locator("#source").fill("e a c b h")
    page.locator("#target .item").wait_for()


def test_a_file_that_is_dropped_is_translated(page: Any) -> None:
    page.evaluate(
        """() => {
          const carried = new DataTransfer();
          carried.items.add(new File(["one\\ntwo\\n"], "notes.txt", { type: "text/plain" }));
          const given = { dataTransfer: carried, cancelable: true };
          for (const name of ["dragover", "drop"]) dispatchEvent(new DragEvent(name, given));
        }"""
    )
    link = page.get_by_role("link", name="Save the translation")
    link.wait_for()
    with page.expect_download() as download:
        link.click()
    assert download.value.suggested_filename == "notes.de.txt"
    assert download.value.path().read_text("utf-8") == "eins\nzwei\n"
    page.locator("#file").set_input_files({"name": "a.bin", "mimeType": "text/plain", "buffer": b"x"})
    page.get_by_text("file format not supported").wait_for()


def test_an_old_answer_is_given_up(page: Any, server: Running, gate: Gate) -> None:
    def gone() -> float:
        numbers = re.findall(
            r'requests_total\{path="/translate",status="499"\} (.*)', server.ask("/metrics").content.decode()
        )
        return sum(map(float, numbers))

    before = gone()
    page.locator("#source").fill("one two three")
    assert gate.begun.wait()
    page.locator("#source").fill("six")
    wait(lambda: server.models["en-de"].batchers[0].waiting() == 1)
    page.locator("#source").fill("two")
    wait(lambda: gone() >= before + 2)
    gate.opened.set()
    page.get_by_text("zwei", exact=True).first.wait_for()
    assert ["six"] not in gate.read


def test_an_error_of_the_server_is_shown(page: Any) -> None:
    page.evaluate("document.querySelector('#source').maxLength = 10000")
    page.locator("#source").fill("one " * 1500)
    page.get_by_text("exceeds text limit (5000)").wait_for()


@pytest.mark.parametrize("size", [(390, 844), tiered((1440, 900), slow=True)], ids=str)
def test_it_fits_the_screen_in_both_themes(server: Running, browser: Any, size: tuple[int, int]) -> None:
    page = browser.new_page(viewport={"width": size[0], "height": size[1]})
    page.goto(server.url)
    page.get_by_text("Ready.", exact=True).wait_for()
    page.locator("#source").fill("one " * 40 + "\n" + "x" * 300)
    page.locator("#target .item").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    background, colours = "getComputedStyle(document.body).backgroundColor", set()
    for _ in range(2):
        page.get_by_role("button", name="Theme").click()
        colours.add(page.evaluate(background))
    assert len(colours) == 2
    page.close()
