"""Links between pages lead to files and headings that are there."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

FOLDERS = ("", "docs", "docs/results", "lessons", "benchmarks", "recipes/lengths", ".github")
PAGES = [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.md"))]
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(\s*([^)\s]+)\)")


@cache
def anchors(path: Path) -> set[str]:
    """The anchors of a page: those of its headings as GitHub makes them, and those that are written."""
    text = FENCED.sub("", path.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w -]", "", each).replace(" ", "-") for each in plain} | {*re.findall(r'<a id="([^"]+)"', text)}


def broken(path: Path) -> Iterator[str]:
    """The links of a page to files or headings that are not there."""
    for link in LINK.findall(CODE.sub("", FENCED.sub("", path.read_text(encoding="utf-8")))):
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if not link.startswith("http") and (not target.exists() or (anchor and anchor not in anchors(target))):
            yield link


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    assert [*broken(path)] == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# Its `heading`\n", encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text("[a](other.md#its-heading) [b](other.md#none) [c](none.md) `[d](none.md)`\n", encoding="utf-8")
    assert [*broken(page)] == ["other.md#none", "none.md"]
