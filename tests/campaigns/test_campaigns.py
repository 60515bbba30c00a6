"""Every campaign for some minutes, among the slow tests: nothing fails.

They run in a process of their own, which begins without threads and without the memory of earlier tests.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.campaigns import CAMPAIGNS, build_campaign

ROOT = Path(__file__).parents[2]
LONGER = 10  # times the cases of a moment, in which faults are noticed; half as many for what is sound


def run(*arguments: str, timeout: float) -> list[dict[str, Any]]:
    """The records of campaigns, which the process writes as JSON."""
    command = [sys.executable, "-m", "tools.campaigns", *arguments, "--seed", "1", "--json"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout)
    assert ended.returncode in (0, 1), ended.stderr[-3000:]
    records: list[dict[str, Any]] = json.loads(ended.stdout)
    return records


def assert_nothing_failed(record: dict[str, Any]) -> None:
    assert record["failures"] == []
    assert record["tried"] == record["survived"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", CAMPAIGNS)
def test_longer(name: str) -> None:
    (record,) = run(name, "--cases", str(LONGER // 2 * build_campaign(name).quick), timeout=600)
    assert_nothing_failed(record)
