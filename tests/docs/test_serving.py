"""The page on the server does what it says, in miniature: two commands, and the answers to both interfaces."""

import json
import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, run_page
from tests.export.student import write_student

SKIPPED = {
    "headway serve runs/en-de fr-en=": "three other runs",
    "location": "lines of a proxy's configuration",
}


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path) -> None:
    write_student(tmp_path).rename(tmp_path / "recipe.yaml")
    first = "curl -s http://127.0.0.1:5000/translate"
    changes = {first: f"curl -so page.html http://127.0.0.1:5000/\n{first}"}
    printed = run_page(ROOT / "docs" / "serving.md", tmp_path, SKIPPED, **changes)
    translated, end = json.JSONDecoder().raw_decode(printed)
    predicted, _ = json.JSONDecoder().raw_decode(printed, end)
    assert translated["translatedText"] == "eins zwei"
    assert translated["detectedLanguage"]["language"] == "en"
    assert [output["text"] for output in predicted["outputs"]] == ["eins zwei", "drei"]
    assert predicted["outputs"][0]["alignment"]["source_words"] == ["one", "two"]
    assert "<title>Translate</title>" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_limits_are_those_of_the_options() -> None:
    from headway.serving.options import ServeOptions

    text = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    rows = text.split("## Limits")[1].split("##")[0].splitlines()
    for row in (row for row in rows if row.startswith("| `--")):
        names = [name.replace("-", "_") for name in re.findall(r"`--([a-z-]+)`", row.split("|")[1])]
        numbers = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", row.split("|")[2])]
        assert numbers == [ServeOptions.model_fields[name].default for name in names]
