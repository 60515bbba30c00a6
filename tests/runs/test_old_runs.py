"""Run folders of every released format predict, score and go on as they did when they were written."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import Command
from tests.runs.old_runs import CASES, Case, copied
from tests.tiers import thinned

NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


@pytest.fixture
def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    torch.set_num_threads(1)
    return copied(request.param, tmp_path / "case")


def assert_close(text: str, expected: str) -> None:
    """The same text; numbers with a point may differ a little."""
    assert NUMBER.sub("#", text) == NUMBER.sub("#", expected)
    found, wanted = ([float(number) for number in NUMBER.findall(each)] for each in (text, expected))
    assert found == pytest.approx(wanted, abs=2e-4, rel=1e-4)


def assert_same_values(value: Any, expected: Any) -> None:
    """The same JSON; numbers with a point may differ a little."""
    if isinstance(expected, dict):
        assert value.keys() == expected.keys()
        for key in expected:
            assert_same_values(value[key], expected[key])
    elif isinstance(expected, list):
        assert len(value) == len(expected)
        for one, other in zip(value, expected, strict=True):
            assert_same_values(one, other)
    elif isinstance(expected, float):
        assert value == pytest.approx(expected, abs=2e-4, rel=1e-3)
    else:
        assert value == expected


def assert_same_lines(text: str, expected: str) -> None:
    """The same lines of JSON."""
    lines, wanted = text.splitlines(), expected.splitlines()
    assert len(lines) == len(wanted)
    for one, other in zip(lines, wanted, strict=True):
        assert_same_values(json.loads(one), json.loads(other))


@pytest.mark.parametrize("case", thinned(CASES, 2), indirect=True)
def test_outputs_and_forced_scores_are_the_same(case: Case, run_headway: Command) -> None:
    commands = [each for each in case.read("commands.json") if each["arguments"][0] in ("predict", "score")]
    assert len(commands) >= 3
    for command in commands:
        stdin = (case.folder / command["stdin"]).read_bytes() if command.get("stdin") else b""
        ended = run_headway(*map(str, command["arguments"]), stdin=stdin)
        assert ended.code == 0, ended.err
        written = {command["stdout"]: ended.out} | {
            name: (case.folder / "out" / name).read_text(encoding="utf-8") for name in command.get("files") or ()
        }
        for name, text in written.items():
            expected = case.real((case.stored / name).read_text(encoding="utf-8"))
            compare = assert_same_lines if name.endswith(".jsonl") else assert_close
            compare(text, expected)


@pytest.mark.parametrize("case", thinned(CASES, 2, 1), indirect=True)
def test_training_goes_on(case: Case, run_headway: Command) -> None:
    plan, expected = case.read("resume.json"), case.read("resumed.json")
    ended = run_headway(*plan["arguments"])
    assert ended.code == 0, ended.err
    lines = [json.loads(line) for line in (case.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    timed = ("seconds", "cpu_seconds", "evaluation_seconds", "target_tokens_per_second")
    newer = ("unsmoothed_loss",)  # than the format
    after = [
        {name: value for name, value in line.items() if name not in (*timed, *newer)}
        for line in lines
        if line["update"] > plan["after"]
    ]
    assert_same_values(after, expected["metrics"])
