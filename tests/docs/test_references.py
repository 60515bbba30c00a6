"""Every paper that code or documentation cites stands on the page of references."""

import calendar
import re

from tests.docs.pages import ROOT

NAME = r"[A-Z][a-zçéöüñ]+[A-Za-zçéöüñ]*"
CITATION = re.compile(rf"({NAME}(?: et al\.|(?:, {NAME})* and {NAME})?),? \(?((?:19|20)\d\d)\b")
NO_PAPERS = {*calendar.month_name[1:], "Mai", "Jan", "WMT", "Penn"}  # dates and data that look like citations
READ = [
    *sorted((ROOT / "src").rglob("*.py")), *sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md",
    *sorted((ROOT / "recipes").rglob("*.yaml")), *sorted((ROOT / "recipes").rglob("*.md")),
]  # fmt: skip


def cited() -> dict[tuple[str, str], str]:
    """The citations (authors, year) of code and documentation, with a file that has each."""
    found = {}
    for path in READ:
        if path.name != "references.md":
            text = re.sub(r"\s+", " ", path.read_text(encoding="utf-8"))
            for authors, year in CITATION.findall(text):
                found.setdefault((authors, year), str(path.relative_to(ROOT)))
    return {citation: path for citation, path in found.items() if citation[0].split()[0] not in NO_PAPERS}


def test_the_page_of_references_has_every_citation() -> None:
    found = cited()
    assert {("Vaswani et al.", "2017"), ("Kaneko and Komachi", "2019")} <= found.keys()
    assert len(found) > 40
    page = (ROOT / "docs" / "references.md").read_text(encoding="utf-8")
    entries = re.sub(r"\s+", " ", page).split("- ")
    for (authors, year), path in found.items():
        first = authors.split(" et al.")[0].split(",")[0].split(" and ")[0]
        assert any(first in entry and f"({year})" in entry for entry in entries), (authors, year, path)


def test_papers_have_names() -> None:
    """A reader of one page does not know whose "the paper" is."""
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        assert not re.findall(r"(?i)\bthe (?:paper|document)(?:'s)?\b", path.read_text(encoding="utf-8")), path.name
