"""Records of campaigns as files, and the table that docs/reliability.md shows of them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.core.files import write_json, write_text
from headway.core.tables import Column, Table
from tools.campaigns.engine import Record
from tools.campaigns.history import ROOT, moved_too_far

RECORDS = ROOT / "results" / "reliability"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- table of results/reliability -->", "<!-- end of the table -->"


def store(record: Record, folder: Path) -> Path:
    """Write a record as `CAMPAIGN-SEED.json`, in place of an older one."""
    assert not record.commit.endswith("+"), "a record names a commit, and the working tree had changes"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record.campaign}-{record.seed}.json"
    write_json(path, record.to_json())
    return path


def sound_records(folder: Path = RECORDS) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of a folder that speak of today's headway, and why each of the others is refused."""
    records, refused = list[dict[str, Any]](), list[str]()
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if reason := moved_too_far(record["commit"]):
            refused.append(f"{path.name}: {reason}")
        else:
            records.append(record)
    return records, refused


def table(records: Sequence[dict[str, Any]]) -> str:
    """Records as a table in Markdown, a row each."""
    columns = [
        Column("campaign"), Column("what is attacked"), Column("tried", format=","), Column("survived", format=","),
        Column("right", format=","), Column("refused", format=","), Column("failures"), Column("minutes", format=".1f"),
        Column("seed"), Column("commit"),
    ]  # fmt: skip
    return Table(columns, [_row(record) for record in records]).markdown()


def _row(record: dict[str, Any]) -> list[Any]:
    outcomes = record["outcomes"]
    failed = [f"{count:,} {kind}" for kind, count in outcomes.items() if kind not in ("right", "refused")]
    return [
        record["campaign"], record["about"], record["tried"], record["survived"], outcomes.get("right", 0),
        outcomes.get("refused", 0), ", ".join(failed) or "none", record["minutes"], str(record["seed"]),
        record["commit"],
    ]  # fmt: skip


def page_with_table(text: str, markdown: str) -> str:
    """The text of the page with another table between its marks."""
    pattern = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", re.DOTALL)
    assert pattern.search(text), f"docs/reliability.md has no {BEGIN}"
    return pattern.sub(lambda _: f"{BEGIN}\n\n{markdown.strip()}\n\n{END}", text)


def write_page() -> list[str]:
    """Bring the table of docs/reliability.md up to date, and give the records that were refused."""
    records, refused = sound_records()
    write_text(PAGE, page_with_table(PAGE.read_text(encoding="utf-8"), table(records)))
    return refused
