"""The page for a model that is trained does what it says, in miniature."""

from pathlib import Path

import pytest

from tests.docs.pages import ROOT, run_page
from tests.docs.shell import type_lines
from tests.docs.test_first_ten_minutes import SMALL
from tests.docs.test_tutorial import write_corpus

SIZES = SMALL.replace("kind=whitespace", "size=48").replace("beam=2", "beam=4")  # most exports need SentencePiece
BEFORE = [
    "paste corpus.ja corpus.en > pairs.tsv",
    "headway data split pairs.tsv --columns 1 2 --shuffle --output data",
    "headway recipes start --output .",
    f"headway train start.yaml data.folder=data {SIZES} --output runs/first",
]


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path) -> None:
    for package in ("ctranslate2", "onnx", "transformers", "fastapi"):
        pytest.importorskip(package)
    write_corpus(tmp_path)
    type_lines(BEFORE, tmp_path)
    printed = run_page(ROOT / "docs" / "trained.md", tmp_path, **{"data.folder=data": f"data.folder=data {SIZES}"})
    yes, no = ("ctranslate2", "argos", "onnx"), ("huggingface", "marian", "firefox", "page")
    lines = map(str.split, printed.splitlines())
    rows = {line[0]: line[1] for line in lines if line[1:2] in (["yes"], ["no"]) and line[0] in (*yes, *no)}
    assert rows == dict.fromkeys(yes, "yes") | dict.fromkeys(no, "no")
    sources, outputs = (len((tmp_path / name).read_text("utf-8").splitlines()) for name in ("test.src", "test.out"))
    assert sources == outputs > 0
    assert "translatedText" in printed
    for made in ("lengths.svg", "inside.html", "exports/first/model.bin", "first.zip"):
        assert (tmp_path / made).is_file(), made
