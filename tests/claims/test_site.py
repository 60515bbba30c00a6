"""The page of packed papers: findings, ranks by verdicts, and nothing that a stranger's pack could do."""

import re
from pathlib import Path
from typing import Any

import pytest

from headway.claims.site import verdict_groups
from tests.claims.toy_claims import ABOUT, FOUND, MEASURED, RECORD, packed
from tests.conftest import Command
from tests.pages.browser import open_browser


def texts(page: str) -> list[list[str]]:
    """The cells of all rows of the tables of a page."""
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(<td.*?)</tr>", page)]


def test_a_page_has_findings_ranks_data_and_the_command(tmp_path: Path, run_headway: Command) -> None:
    packs = packed(tmp_path / "one.zip"), packed(tmp_path / "two.zip", None)
    ended = run_headway("site", *packs, "--output", tmp_path / "site")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[:2] == [
        "Nobody (2024): Words: 2 not decided, 1 holds", "Nobody (2024): Words: 3 not decided",
    ]  # fmt: skip
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    rows = texts(page)
    assert ["Good is better.", "holds", "good &gt; bad", "+3.00 [+1.00, +5.00]", "plateau"] in rows
    assert rows.count(["Good is better.", "not decided", "good &gt; bad", "", ""]) == 1
    assert [row[:2] for row in rows if "0.10" in row[-1]] == [["1", "good"], ["1", "same"], ["3", "bad"]]
    assert ["test.tsv", "0" * 64] in rows
    for text in ("def5678", "2026-01-02", "two cores", "headway reproduce two.zip --output replayed"):
        assert text in page
    assert (tmp_path / "site" / "packs" / "one.zip").read_bytes() == packs[0].read_bytes()
    assert not re.search(r"https?://|src=|<script", page)


def test_systems_that_are_not_told_apart_share_a_group() -> None:
    better = {("a", "c"), ("a", "d"), ("b", "d"), ("c", "d")}
    assert list(verdict_groups("abcd", better)) == [["a", "b", "c"], ["d"]], "a and b, b and c are not told apart"
    assert list(verdict_groups("abcd", {("a", "b"), ("a", "c"), ("a", "d")})) == [["a"], ["b", "c", "d"]]
    assert list(verdict_groups("ab", set())) == [["a", "b"]]
    assert list(verdict_groups("", set())) == []


def test_the_text_of_a_stranger_is_text(tmp_path: Path, run_headway: Command) -> None:
    evil = "<script>document.title='run'</script><img src=x onerror=alert(1)>"
    record = RECORD | {"measured": MEASURED | {"machine": evil, "commit": evil}}
    variants = {evil: {evil: {"mean": 1.0}}}
    record["comparison"] = {"variants": variants, "pairs": [{}], "metrics": {evil: {"signature": evil}}}
    about = ABOUT | {"data": {evil: evil}}
    claims = [{"says": evil, "claim": f"{evil.replace(' ', '')} > bad"}]
    pack = packed(tmp_path / "evil.zip", record, about, title=evil, document=evil, claims=claims, grid="/etc/passwd")
    assert run_headway("site", pack, "--output", tmp_path / "site").code == 0
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert page.count("&lt;script&gt;") >= 9
    assert "<script" not in page
    assert "<img" not in page


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"about": ABOUT | {"claims": "../nobody"}}, "claims/../nobody.yaml"),
        ({"about": ABOUT | {"data": 1}}, "data"),
        ({"record": RECORD | {"claims": [FOUND | {"finding": "<b>"}]}}, "finding"),
        ({"record": RECORD | {"comparison": {"variants": [], "pairs": [], "metrics": {}}}}, "variants"),
        ({"claims": [{"says": "x", "claim": "no inequality"}]}, "claims.0.claim"),
    ],
)
def test_a_damaged_pack_is_refused_and_nothing_is_written(
    change: dict[str, Any], key: str, tmp_path: Path, run_headway: Command
) -> None:
    good, bad = packed(tmp_path / "good.zip"), packed(tmp_path / "bad.zip", **change)
    ended = run_headway("site", good, bad, "--output", tmp_path / "site")
    assert (ended.code, "bad.zip" in ended.err, key in ended.err) == (2, True, True), ended.err
    assert not (tmp_path / "site").exists()


def test_names_are_kept_apart(tmp_path: Path, run_headway: Command) -> None:
    (tmp_path / "other").mkdir()
    packs = packed(tmp_path / "one.zip"), packed(tmp_path / "other" / "one.zip"), packed(tmp_path / "<b>.zip")
    assert "one.zip" in run_headway("site", *packs[:2], "--output", tmp_path / "site").err
    assert "<b>.zip" in run_headway("site", packs[2], "--output", tmp_path / "site").err


def test_a_phone_shows_the_page_without_requests(tmp_path: Path, run_headway: Command) -> None:
    run_headway("site", packed(tmp_path / "one.zip"), "--output", tmp_path / "site")
    asked = list[str]()
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": 360, "height": 700})
        page.on("request", lambda request: asked.append(request.url))
        page.goto((tmp_path / "site" / "index.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.locator("td", has_text="holds").is_visible()
        grounds = set[str]()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert len(grounds) == 2
    assert len(asked) == 1, "the page asks for nothing but itself"
