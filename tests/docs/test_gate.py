"""The page on the gate: its loop begins as it stands, and its command lines and words are those of the verb."""

from pathlib import Path

import pytest

from headway.gate.ledger import Ledger
from headway.gate.loop import Loop
from headway.gate.rules import EXIT_CODES
from tests.docs.pages import ROOT, run_page

PAGE = ROOT / "docs" / "gate.md"


@pytest.mark.slow
def test_the_loop_begins(tmp_path: Path) -> None:
    sizes = "dates train_size=50 dev_size=5 test_size=450"
    said = run_page(PAGE, tmp_path, **{"make dates": f"make {sizes}"})
    assert "Effects in reach" in said
    loop = Loop(Ledger(tmp_path / "loop.jsonl"))
    assert loop.settings.baseline == "base"
    assert loop.settings.sizes["sealed"] > 100


def test_words_and_exit_codes_are_those_of_the_gate() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"| `{word}` | {code} |" in text for word, code in EXIT_CODES.items())
