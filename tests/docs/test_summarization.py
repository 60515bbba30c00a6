"""The page on summarization does what it says, in miniature."""

import random
import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, run_page

WORDS = ["a", "library", "for", "reading", "old", "new", "files", "of", "the", "network", "server", "tools"]
SMALL = (
    "vocabulary.size=60 training.updates=20 training.checkpoint_every=10 model.dim=16 model.feed_forward=16"
    " model.heads=2 data.truncate_source=30 decoding.beam=2"
)


def write(path: Path, rows: list[tuple[str, ...]]) -> None:
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path) -> None:
    draw = random.Random(1)
    sources = [" ".join(draw.choices(WORDS, k=draw.randint(9, 30))).capitalize() + "." for _ in range(120)]
    pairs = [(source, " ".join(source.split()[:5]), source.rsplit(" ", 4)[1]) for source in sources]
    write(tmp_path / "train.tsv", [pair[:2] for pair in pairs[:100]])
    write(tmp_path / "dev.tsv", pairs[100:110])
    for column, name in enumerate(("source", "ref0", "ref1")):
        write(tmp_path / f"test.{name}", [(pair[column],) for pair in pairs[110:]])
    commands = {
        "--output runs": f"{SMALL} --output runs",
        "check summaries.yaml": "check summaries.yaml vocabulary.size=60",
    }
    printed = run_page(ROOT / "docs" / "summarization.md", tmp_path, **commands)
    assert re.search(r"data\.train: 100 pairs read, \d+ kept\n.*  truncated \d+ \(", printed, re.DOTALL)
    assert len((tmp_path / "test.out").read_text(encoding="utf-8").splitlines()) == 10
    rows = {row.split()[0]: row.split() for row in printed.splitlines() if row.startswith(("test ", "lead-"))}
    assert set(rows) == {"test", "lead-8-words", "lead-1-sentences"}
    assert float(rows["lead-8-words"][1]) > 70
    assert "nrefs:2|refs:best" in printed
