"""A page that translates in a browser, offline, as `engine="firefox"` does."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import yaml

import headway
from headway.core.errors import UserError
from headway.export import page_export
from headway.export.export_options import ExportOptions, FirefoxOptions
from headway.export.exporting import export_run
from headway.export.firefox_export import FirefoxExporter, translator_of
from headway.export.page_export import BYTES, ENGINE, HOLDER, engine_files, packed_bytes, unpacked_bytes
from headway.predictors.word_alignment import build_aligner, merge_words
from headway.processing.firefox_files import PARTS, files_of
from headway.runs.engines import build_engine, kept_export
from headway.runs.run import open_run
from tests.conftest import Command
from tests.export.student import lines, write_student
from tests.export.test_firefox import WORDS
from tests.export.test_firefox_split import SPLIT, split, write_split  # noqa: F401 - split is a fixture
from tests.pages.browser import open_browser
from tests.shared_runs import shared_run
from tests.tiers import tiered

# Before tests have a cache of their own.
PACKAGE = Path(os.environ.get("HEADWAY_CACHE") or Path.home() / ".cache" / "headway") / "npm"
TEXTS = [source for source, _ in lines(60, 3)]
ODD = [
    "", "  ", "one\ttwo", "one\x0btwo", "one \u2028 two", "\0 one", "one 😀 two", "\u2581", "one\u2581two",
    "<b>one</b> &amp; two",
]  # fmt: skip


def test_bytes_come_back_from_what_html_leaves_as_it_is() -> None:
    random = np.random.default_rng(1)
    for size in (0, 1, 6, 7, 8, 1000, 100_000):
        content = random.integers(0, 256, size, np.uint8).tobytes()
        text = packed_bytes(content)
        assert unpacked_bytes(text) == content
        assert not re.search("[\0\r<\x80-\uffff]", text)
    assert len(text) < 1.19 * len(content)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache without the engine, on a machine without npm."""
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    return tmp_path / "npm" / f"{ENGINE.replace('@', '-')}.tgz"


def test_without_npm_an_error_says_where_the_package_goes(cache: Path) -> None:
    with pytest.raises(UserError) as raised:
        engine_files()
    what = "the engine for browsers cannot be fetched (npm is not installed here)"
    assert str(raised.value).startswith(f"{cache}: {what}")
    assert f"npm pack {ENGINE}" in str(raised.value)


def test_npm_that_fails_is_quoted(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho 'npm error network is unreachable' >&2\nexit 1\n", encoding="utf-8")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match=r"cannot be fetched \(npm error network is unreachable\)"):
        engine_files()
    assert not [*(tmp_path / "cache").rglob("*.tgz")]


def test_another_package_is_refused(cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_bytes(b"another")
    with pytest.raises(UserError, match="this is not the package of the engine that was tried"):
        engine_files()


@pytest.fixture(scope="module")
def run(pytestconfig: pytest.Config) -> Path:
    return shared_run(pytestconfig.cache.mkdir("runs"), "numbers", write_student) / "run"


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a page. Skips where the engine's package was not fetched before."""
    if not (PACKAGE / f"{ENGINE.replace('@', '-')}.tgz").exists():
        pytest.skip(f"the engine is not in {PACKAGE}; any `headway export page` fetches it")
    pytest.importorskip("fxtranslate")
    folder = tmp_path_factory.mktemp("page") / "page"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_export, "cache_folder", lambda: PACKAGE.parent)
        export_run("page", run, ExportOptions(output=folder), {})
    return folder


@pytest.fixture(scope="module")
def engine(run: Path) -> "headway.predictors.sequence_predictor.SequencePredictor":
    return headway.load(run, engine="firefox")


@pytest.fixture(scope="module")
def browser(exported: Path) -> Iterator:
    with open_browser() as opened:
        yield opened


@pytest.fixture
def page(exported: Path, browser) -> Iterator:
    """The page, opened from disk and ready; it may ask for nothing but itself, and its scripts may not fail."""
    opened, wrong = browser.new_page(), list[str]()
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda request: wrong.extend([request.url] * (not request.url.startswith("blob:"))))
    opened.goto((exported / "index.html").as_uri())
    opened.get_by_text("Ready.", exact=True).wait_for()
    yield opened
    opened.close()
    assert wrong == [(exported / "index.html").as_uri()]


def test_the_folder_and_what_the_page_holds(exported: Path, run: Path) -> None:
    assert sorted(path.name for path in exported.iterdir()) == [
        "LICENSE-engine.txt", "README.md", "index.html", "parity.json",
    ]  # fmt: skip
    shares = json.loads((exported / "parity.json").read_text("utf-8"))["shares"]
    assert shares["engine equal to int8"] > 0.9  # how near both are to the run hangs on what this machine trained
    text = (exported / "index.html").read_text("utf-8")
    files = files_of(kept_export(build_engine("firefox"), open_run(run)))
    for part in PARTS:
        found = re.search(HOLDER.format(kind=BYTES, name=part, content="([^<]*)"), text)
        assert (found and unpacked_bytes(found[1])) == files.get(part)
    assert "Mozilla Public License Version 2.0" in text
    assert "Mozilla Public License Version 2.0" in (exported / "LICENSE-engine.txt").read_text("utf-8")
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", text)


def translated_file(page, content: bytes, name: str = "some.txt") -> tuple[str, str]:
    """The name and the text of what the page makes of a file."""
    page.set_input_files("#file", {"name": name, "mimeType": "text/plain", "buffer": content})
    page.locator("#result").wait_for(timeout=60_000)
    with page.expect_download() as download:
        page.click("#result")
    return download.value.suggested_filename, Path(download.value.path()).read_bytes().decode()


def test_a_file_becomes_what_the_engine_writes_one_line_for_each(page, engine) -> None:
    name, text = translated_file(page, "".join(f"{line}\n" for line in [*TEXTS, *ODD]).encode())
    assert name == "some.de.txt"
    assert text == "".join(f"{each.text}\n" for each in engine.predict([*TEXTS, *ODD]))
    one, two = (each.text for each in engine.predict(["one", "two three"]))
    assert translated_file(page, b"one\r\n\r\ntwo three", "windows")[1] == f"{one}\n\n{two}"
    page.set_input_files("#file", {"name": "bad.txt", "mimeType": "text/plain", "buffer": b"\xff\xfe\x00"})
    page.get_by_text("This is no text in UTF-8.").wait_for()


def test_a_dropped_file(page, engine) -> None:
    page.evaluate(
        """() => {
          const data = new DataTransfer();
          data.items.add(new File(["six five\\n"], "numbers.txt", { type: "text/plain" }));
          for (const kind of ["dragover", "drop"]) {
            document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
          }
        }"""
    )
    page.get_by_text("1 lines in").wait_for()
    assert page.locator("#result").get_attribute("download") == "numbers.de.txt"
    assert page.locator("#drop").is_hidden()


def test_typing_words_and_keys(page, engine, run: Path) -> None:
    source, target = page.get_by_role("textbox", name="English"), page.locator("#target")
    assert source.evaluate("box => box === document.activeElement")
    page.keyboard.type("three one")
    page.keyboard.press("Enter")
    page.keyboard.type("four")
    first, second = (each.text for each in engine.predict(["three one", "four"]))
    target.get_by_text(second, exact=True).wait_for()
    assert target.locator("p").all_inner_texts() == [first, second]
    assert page.locator("#source-counts").inner_text() == "3 words"
    assert re.fullmatch(r"3 words · \d+\.\d\d s", page.locator("#target-counts").inner_text())
    target.locator(".linked").nth(2).wait_for()
    page.keyboard.press("Tab")  # to the button that copies, then to the translation
    page.keyboard.press("Tab")
    assert target.evaluate("box => box === document.activeElement")
    page.keyboard.press("ArrowRight")
    assert page.locator("#pair").inner_text().endswith(f"→ {first.split()[0]}")
    assert page.locator("#mirror .chosen").count() == 1
    page.keyboard.press("Escape")
    assert page.locator(".chosen").count() == 0
    page.get_by_role("button", name="Clear").click()
    assert source.input_value() == ""
    assert target.inner_text().strip() == ""


def test_links_are_those_of_the_runs_attention(page, engine, run: Path) -> None:
    own = headway.load(run, device="cpu")
    aligner = build_aligner(own)
    texts = [line for line in TEXTS if len(line.split()) > 2][:8]
    page.locator("#source").fill("\n".join(texts))
    page.locator(f"#target p:nth-child({len(texts)}) .linked").first.wait_for()
    for number, (text, output) in enumerate(zip(texts, engine.predict(texts), strict=True)):
        (forced,) = own.force([text], [output.text], capture=(aligner.layer,))
        weights = forced.attention[aligner.layer].mean(0)
        expected = merge_words(weights, forced.source_words, forced.target_words).argmax(1)
        spans = page.locator(f"#target p:nth-child({number + 1}) .word")
        found = [int(each.split(":")[1]) for each in spans.evaluate_all("all => all.map((each) => each.dataset.link)")]
        assert sum(one == other for one, other in zip(found, expected, strict=True)) >= len(found) - 1


@pytest.mark.parametrize(
    "text", ["one two", "  one   two ", "sixone", "x one", "oneåé two", "one\u2581two", "six five " * 30]
)
def test_the_page_cuts_text_as_sentencepiece_does(page, run: Path, text: str) -> None:
    files = files_of(kept_export(build_engine("firefox"), open_run(run)))
    expected = sentencepiece.SentencePieceProcessor(model_proto=files["vocab"]).encode(text.replace("\u2581", " "))
    found = page.evaluate("async (source) => (await linkers[0].ask('links', { source, target: 'x' })).source", text)
    assert [each["id"] for each in found] == expected
    read = "".join(text[each["start"] : each["end"]] for each in found).replace("\u2581", " ")
    assert read.split() == text.replace("\u2581", " ").split()


def test_colours_can_be_switched_and_the_theme_chosen(page) -> None:
    page.locator("#source").fill("one two")
    page.locator("#target .linked").first.wait_for()
    page.get_by_label("Colour words").uncheck()
    page.locator("#target .linked").first.wait_for(state="detached")
    theme = page.get_by_role("button", name="Theme: auto")
    background = "getComputedStyle(document.body).backgroundColor"
    theme.click()
    light = page.evaluate(background)
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate(background) != light


@pytest.mark.parametrize(
    "size", [(390, 844), *(tiered(size, slow=True) for size in ((820, 1180), (1440, 900)))], ids=str
)
def test_nothing_is_wider_than_the_screen(exported: Path, browser, size: tuple[int, int]) -> None:
    page = browser.new_page(viewport={"width": size[0], "height": size[1]})
    page.goto((exported / "index.html").as_uri())
    page.get_by_text("Ready.", exact=True).wait_for()
    page.locator("#source").fill("one " * 40 + "\n" + "x" * 300)
    page.locator("#target .linked").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    boxes = [page.locator(name).bounding_box() for name in ("#source", "#target")]
    assert (abs(boxes[0]["x"] - boxes[1]["x"]) < 9) == (size[0] < 700), "side by side where there is room"
    page.close()


@pytest.fixture(scope="module")
def both(run: Path, exported: Path, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a page with two directions."""

    def write_back(folder: Path) -> Path:
        recipe = write_student(folder)
        tree = yaml.safe_load(recipe.read_text("utf-8"))
        tree["text"] = {"source": tree["text"]["target"], "target": tree["text"]["source"]}
        for part in ("train", "dev"):
            tree["data"][part]["columns"] = [2, 1]
        recipe.write_text(yaml.safe_dump(tree), encoding="utf-8")
        return recipe

    back = shared_run(pytestconfig.cache.mkdir("runs"), "numbers-back", write_back) / "run"
    folder = tmp_path_factory.mktemp("both") / "page"
    links, counts = folder.with_name("links.txt"), [len(source.split()) for source, _ in lines(400, 1)]
    rows = (" ".join(f"{word}-{word}" for word in range(count)) for count in counts)
    links.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_export, "cache_folder", lambda: PACKAGE.parent)
        export_run("page", run, ExportOptions(output=folder), {"back": str(back), "links": str(links)})
    return folder


def test_the_direction_follows_the_text_but_not_within_a_word(both: Path, browser) -> None:
    page = browser.new_page()
    page.goto((both / "index.html").as_uri())
    page.get_by_text("Ready.", exact=True).wait_for()
    source, name = page.locator("#source"), page.locator("#source-name")
    assert page.title() == "English ⇄ German"
    source.focus()
    page.keyboard.type("fünf")
    page.locator("#target .word").first.wait_for()
    assert name.inner_text() == "English", "a word is being typed"
    page.keyboard.type(" ")
    page.locator("#source-name", has_text="German").wait_for()
    assert page.locator("#target-name").inner_text() == "English"
    page.get_by_role("button", name="Switch").click()
    assert name.inner_text() == "English"
    page.keyboard.type(" drei ")
    page.get_by_text("Ready.", exact=True).wait_for()
    assert name.inner_text() == "English", "the switch was used"
    page.get_by_role("button", name="Clear").click()
    page.keyboard.type("vier fünf ")
    page.locator("#source-name", has_text="German").wait_for()
    page.close()


@pytest.fixture(scope="module")
def part_split(
    split: Path,  # noqa: F811
    exported: Path,
    pytestconfig: pytest.Config,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, Path]:
    """The folder of a page with a run of two vocabularies and one of a single vocabulary, and the latter run."""

    def write_back(folder: Path) -> Path:
        recipe = write_split(folder)
        tree = SPLIT | {
            "text": {"source": SPLIT["text"]["target"], "target": SPLIT["text"]["source"]},
            "data": {part: corpus | {"columns": [2, 1]} for part, corpus in SPLIT["data"].items()},
            "vocabulary": {"kind": "unigram", "size": 64, "shared": True},
        }
        recipe.write_text(yaml.safe_dump(tree), encoding="utf-8")
        return recipe

    back = shared_run(pytestconfig.cache.mkdir("runs"), "split-back", write_back) / "run"
    folder = tmp_path_factory.mktemp("part_split") / "page"
    given = {"back": str(back), "links": str(split / "links.txt"), "shortlist_first": 4, "shortlist_best": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_export, "cache_folder", lambda: PACKAGE.parent)
        export_run("page", split / "run", ExportOptions(output=folder), given)
    return folder, back


def test_a_page_with_two_vocabularies_and_a_direction_back_with_one(
    split: Path,  # noqa: F811
    part_split: tuple[Path, Path],
    browser,
) -> None:
    folder, back = part_split
    page = browser.new_page()
    page.goto((folder / "index.html").as_uri())
    page.get_by_text("Ready.", exact=True).wait_for()
    texts = [f"{one} {other}" for one in WORDS for other in WORDS[:3]]
    for run, names, read in ((split / "run", PARTS[2:4], texts), (back, PARTS[1:2] * 2, [t.upper() for t in texts])):
        files = files_of(kept_export(build_engine("firefox"), open_run(run)))
        expected = [each.text for each in headway.load(run, engine="firefox").predict(read)]
        if run != back:
            exporter = FirefoxExporter(FirefoxOptions(links=split / "links.txt", shortlist_first=4, shortlist_best=2))
            exporter.write(open_run(run), folder.with_name("files"))
            engine = translator_of(files_of(folder.with_name("files")))
            expected = [engine.translate(text) for text in read]
        written = translated_file(page, "".join(f"{text}\n" for text in read).encode())[1].splitlines()
        assert sum(one == other for one, other in zip(written, expected, strict=True)) >= len(texts) - 1
        for side, name in enumerate(names):
            pieces = sentencepiece.SentencePieceProcessor(model_proto=files[name])
            for text in (read[0], expected[0], "pe 日本 😀é", "日"):
                cut = page.evaluate("([side, text]) => linkers[way].ask('links', side ? {source: 'x', target: text} : "
                                    "{source: text, target: 'x'})", [side, text])  # fmt: skip
                assert [each["id"] for each in cut[("source", "target")[side]]] == pieces.encode(text)
        page.locator("#source").fill(texts[5])
        page.locator("#target .linked").first.wait_for()
        page.get_by_role("button", name="Switch").click()
    page.get_by_role("button", name="Clear").click()
    page.locator("#source").fill("ONAR IMET ")
    page.locator("#source-name", has_text="Japanese").wait_for()
    page.close()


def test_links_of_two_vocabularies_are_those_of_the_runs_attention(
    split: Path,  # noqa: F811
    part_split: tuple[Path, Path],
    browser,
) -> None:
    page, own = browser.new_page(), headway.load(split / "run", device="cpu")
    page.goto((part_split[0] / "index.html").as_uri())
    page.get_by_text("Ready.", exact=True).wait_for()
    layer = build_aligner(own).layer
    for text in ("rano temi kulas", "pe 日 si"):
        target = own.predict([text])[0].text
        found = page.evaluate("([source, target]) => linkers[0].ask('links', {source, target})", [text, target])
        (forced,) = own.force([text], [target], capture=(layer,))
        weights = np.array(found["weights"]).reshape(-1, found["width"])
        np.testing.assert_allclose(weights, forced.attention[layer].mean(0), atol=0.02)
    page.close()


def test_a_run_that_does_not_translate_back_is_refused(run: Path, run_headway: Command, tmp_path: Path) -> None:
    done = run_headway("export", "page", run, run, "--output", tmp_path / "page")
    assert done.code == 2
    assert "this run does not translate back" in done.err
    assert not [*tmp_path.iterdir()]


def test_a_line_that_is_too_long_has_no_translation(page) -> None:
    page.locator("#source").fill("one\n" + "one " * 2000)
    page.get_by_text("1 line has more than 4000 characters and no translation.").wait_for()
    assert page.locator("#target p").nth(1).inner_text() == ""


def test_a_run_that_is_no_student_is_refused(reversal, run_headway: Command, tmp_path: Path) -> None:
    done = run_headway("export", "page", reversal.run, "--output", tmp_path / "page")
    assert done.code == 2
    assert "page cannot express this run: " in done.err
