"""`headway inspect` and its verbs."""

import json
from pathlib import Path

import pytest

from tests.conftest import Command, Reversal


def test_parameters(run_headway: Command, reversal: Reversal) -> None:
    verb = run_headway("inspect", "tables", "parameters", reversal.run)
    assert verb.code == 0
    lines = verb.out.splitlines()
    assert lines[0].split() == ["part", "parameters", "share", "(%)", "FLOPs", "a", "token"]
    assert any(line.startswith("encoder layer 1, mixer") for line in lines)
    assert "layer 0" not in verb.out
    values = json.loads(run_headway("inspect", "tables", "parameters", reversal.run, "--json").out)
    assert "encoder.1.mixer" in [part["name"] for part in values["parts"]]


def test_options_of_other_figures_and_tables_are_refused(run_headway: Command, reversal: Reversal) -> None:
    told = run_headway("inspect", "figures", reversal.run, "--text", "a", "--output", "weights.doc").err
    assert told.startswith("error: --output: ")
    told = run_headway("inspect", "figures", reversal.run, "--output", "figures", "--layer", "1").err
    assert told.startswith("error: --layer: unknown key")
    told = run_headway("inspect", "tables", "parameters", reversal.run, "--sentence", "1").err
    assert told.startswith("error: --sentence: unknown key")


@pytest.mark.parametrize("figure", ["page", "figures"])
def test_half_of_a_character_is_no_sentence(
    run_headway: Command, reversal: Reversal, tmp_path: Path, figure: str
) -> None:
    output = tmp_path / ("a.html" if figure == "page" else "a.pdf")
    ended = run_headway("inspect", figure, reversal.run, "--text", "caf\udce9", "--output", output)
    assert ended.code == 2
    assert "'caf\\udce9'" in ended.err
    assert not output.exists()
