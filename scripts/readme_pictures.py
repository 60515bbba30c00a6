"""The pictures of README.md, light and dark, from a run of the demo: `python scripts/readme_pictures.py runs/dates`.

They are docs/alignment.png and docs/inside.png, and the same names with -dark. The second is the page of `headway
inspect` in Chromium, at the fifth sentence of dev, with a head and a cell chosen. `... --served RUN` makes
docs/serving.png instead: the page of `headway serve` over a run that translates English captions, with a word chosen.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Page, sync_playwright

import headway
from headway.inspect.inspect_options import PageOptions
from headway.inspect.inspection import run_page
from headway.pages.charts import alignment_figure
from headway.predictors.sequence_predictor import SequencePredictor

DOCS = Path(__file__).parents[1] / "docs"
DATE = "Quarta-feira, 8 de março de 1950"  # of the demo's test
SENTENCE, TOKEN, CHARACTER = 5, "5", "五"  # of dev, counted from 1; what is written, and what it is read from
SIZE = {"width": 1240, "height": 893}
CAPTIONS = (
    "Two girls are playing with a brown dog in the snow. An old man with a red hat sits on a bench.\n"
    "A woman is reading a newspaper next to a window."
)
CHOSEN, SERVED_SIZE = "spielen", {"width": 1100, "height": 500}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def draw_alignment(run: Path) -> None:
    """Draw the mean attention of a date."""
    predictor = headway.load(run)
    assert isinstance(predictor, SequencePredictor)
    (prediction,) = predictor.predict([DATE], capture="*.cross")
    for dark in (False, True):
        alignment_figure(prediction, DOCS / f"alignment{'-dark' * dark}.png", dark=dark)


def photograph(run: Path) -> None:
    """Take the picture of the page."""
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "inside.html"
        run_page(run, PageOptions(output=file, sentences=24))
        executable = next(filter(None, map(shutil.which, BROWSERS)), None)
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        for scheme, name in (("light", "inside.png"), ("dark", "inside-dark.png")):
            page = browser.new_page(viewport=SIZE, device_scale_factor=1.5, color_scheme=scheme)
            page.goto(f"{file.as_uri()}#sentence={SENTENCE}&tab=Cross&layer=0&head={best_head(page, file)}")
            point(page)
            page.screenshot(path=DOCS / name)
        browser.close()


def best_head(page: Page, file: Path) -> int:
    """The head of the first layer whose row of the token gives the character the largest weight."""
    weights = []
    for head in range(page_heads(page, file)):
        page.goto("about:blank")
        page.goto(f"{file.as_uri()}#sentence={SENTENCE}&tab=Cross&layer=0&head={head}")
        weights.append(float(point(page).split()[-1]))
    return weights.index(max(weights))


def page_heads(page: Page, file: Path) -> int:
    """How many heads the first layer has."""
    page.goto(f"{file.as_uri()}#sentence={SENTENCE}&tab=Cross&layer=0&head=mean")
    page.locator(".overview button").first.wait_for()
    return page.locator('.overview button[aria-label^="decoder layer 1"]').count() - 1  # the mean is none


def point(page: Page) -> str:
    """Put the pointer on the cell of token and character; what the page reads there."""
    page.locator("#cells").wait_for()
    page.wait_for_timeout(500)
    tokens = {
        line: page.locator(f"#lines .chips[data-list] >> nth={line}").locator(".chip").all_inner_texts()
        for line in (0, 1)
    }
    box = page.locator("#cells").bounding_box()
    assert box is not None
    place = {
        "x": (tokens[0].index(CHARACTER) + 0.5) * box["width"] / len(tokens[0]),
        "y": (tokens[1].index(TOKEN) + 0.5) * box["height"] / len(tokens[1]),
    }
    page.locator("#cells").hover(position=place)
    return page.locator("#readout").inner_text()


def photograph_server(run: Path) -> None:
    """Take the picture of the page of a server."""
    command = [sys.executable, "-m", "headway", "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:  # noqa: S603
        assert server.stderr is not None
        url = server.stderr.readline().split()[-1]
        executable = next(filter(None, map(shutil.which, BROWSERS)), None)
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        for scheme, name in (("light", "serving.png"), ("dark", "serving-dark.png")):
            page = browser.new_page(viewport=SERVED_SIZE, device_scale_factor=1.5, color_scheme=scheme)
            page.goto(url)
            page.locator("#source").fill(CAPTIONS)
            page.locator("#target .item >> nth=2").wait_for()
            page.locator("#target .item").first.hover()
            page.locator("#target .word", has_text=CHOSEN).first.hover()
            page.locator("#pair", has_text=CHOSEN).wait_for()
            page.screenshot(path=DOCS / name)
        browser.close()
        server.terminate()


if __name__ == "__main__":
    if sys.argv[1] == "--served":
        photograph_server(Path(sys.argv[2]))
    else:
        draw_alignment(Path(sys.argv[1]))
        photograph(Path(sys.argv[1]))
