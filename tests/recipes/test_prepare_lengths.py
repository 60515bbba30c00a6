"""The preparation of length tasks, as claims call it, in miniature."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from headway.claims.claims import ClaimData, read_claims
from headway.claims.reproduce import prepare
from tests.preparation import RECIPES, write

CLAIMS = RECIPES.parent / "claims"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "budget", "each"),
    [
        ("copy", "small", 50),
        ("copy", "full", 100),
        ("reverse", "full", 250),
        ("summation", "full", 625),
        ("scan", "full", 0),
    ],
)
def test_claims_get_a_test_of_seen_lengths_and_one_of_longer(name: str, budget: str, each: int, tmp_path: Path) -> None:
    """At most `each` examples of a length, where there are as many; of SCAN, all."""
    scan = tmp_path / "scan"
    for part, counts in (("train", range(1, 23)), ("test", range(23, 49))):
        rows = (f"IN: jump {way} {count} OUT:{' I_JUMP' * count}\n" for count in counts for way in "abcdefghij")
        write(scan / f"tasks_{part}_length.txt", "".join(rows))
    commands = read_claims(CLAIMS / f"kazemnejad2023-{name}.yaml").data_of(budget).prepare
    fewer = re.sub(r"train_size=\d+", "", commands).strip() + ("" if name == "scan" else " train_size=60")
    data = ClaimData(about="made", prepare=fewer)
    folder = prepare(data, tmp_path / "out", scan, CLAIMS)
    longest = json.loads((folder / "lengths.json").read_text())["trained"]
    lengths = [int(line) for line in (folder / "test.lengths").read_text().splitlines()]
    seen, longer = (len((folder / f"{part}.tsv").read_text().splitlines()) for part in ("seen", "longer"))
    assert (seen, longer) == (sum(length <= longest for length in lengths), sum(length > longest for length in lengths))
    assert seen
    assert longer
    if each:
        assert max(Counter(lengths).values()) == each
