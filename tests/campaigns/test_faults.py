"""Headway broken on purpose: each fault is noticed by the campaign that must, which finds nothing in a sound headway.

That it finds nothing is what `test_campaigns.test_longer` asks of the first half of the same cases.
"""

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.campaigns.test_campaigns import LONGER, ROOT
from tools.campaigns import CAMPAIGNS, build_campaign
from tools.campaigns.faults import FAULTS, OF_TESTS


def test_every_campaign_has_faults_to_notice() -> None:
    counts = Counter(fault.campaign for fault in FAULTS.values())
    assert counts.keys() == CAMPAIGNS.keys()


@pytest.mark.parametrize("name", FAULTS | OF_TESTS)
def test_a_fault_can_be_made(name: str) -> None:
    fault = (FAULTS | OF_TESTS)[name]
    spec = importlib.util.find_spec(fault.name)
    assert spec is not None
    assert spec.origin is not None
    compile(fault.applied(Path(spec.origin).read_text(encoding="utf-8")), name, "exec")


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_noticed(name: str) -> None:
    cases = LONGER * build_campaign(FAULTS[name].campaign).quick
    command = [sys.executable, "-m", "tools.campaigns", "--fault", name, "--cases", str(cases), "--json"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 1, ended.stderr[-3000:]
    (record,) = json.loads(ended.stdout)
    assert record["failures"]
    kinds = {failure["kind"] for failure in record["failures"]}
    assert kinds <= {"wrong", "exception", "unclear", "hang", "allocation", "crash"}


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_TESTS)
def test_a_fault_is_noticed_by_its_test(name: str) -> None:
    code = (
        "import sys, pytest; from tools.campaigns.faults import break_headway;"
        " options = ['-q', '-p', 'no:cacheprovider', '--assert=plain'];"  # rewritten modules would have no fault
        " sys.exit(pytest.main([*options, break_headway(sys.argv[1]).campaign]))"
    )
    ended = subprocess.run([sys.executable, "-c", code, name], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout[-3000:]
