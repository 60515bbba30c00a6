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


def test_attribution_is_a_table_or_json(run_headway: Command, reversal: Reversal, tmp_path: Path) -> None:
    verb = "inspect", "tables", "attribution", reversal.run, "--text", "abcd", "--attribution", "occlusion"
    said = run_headway(*verb).out.splitlines()
    assert said[0] == "abcd -> dcba (occlusion)"
    assert said[3].startswith("d ")
    assert " d +" in said[3]
    (tmp_path / "given.txt").write_text("dcbb\n", encoding="utf-8")
    given = ["--reference", tmp_path / "given.txt", "--against", "a", "--words", "--json"]
    (record,) = json.loads(run_headway(*verb, *given).out)
    assert (record["output"], record["against"], record["measure"]) == ("dcbb", "a", "nats")
    assert (record["rows"], record["columns"]) == (["dcbb", "</s>"], ["abcd", "</s>", "<s>", "dcbb"])
    assert len(record["values"]) == 2


def test_mistakes_about_attribution_are_named(run_headway: Command, reversal: Reversal, tmp_path: Path) -> None:
    page = "inspect", "page", reversal.run, "--text", "ab", "--output", tmp_path / "page.html"
    for given, said in (
        (["--against", "a"], "--against: alone, this option does nothing; allowed: beside --attribution"),
        (["--attribution", "oclusion"], "--attribution: unknown attribution; did you mean 'occlusion'"),
        (["--attribution", "occlusion", "--against", "ü"], "--against: the vocabulary of the outputs does not have"),
        (["--attribution", "value_zeroing", "--against", "a"], "--against: value zeroing says what a position is made"),
    ):
        ended = run_headway(*page, *given)
        assert (ended.code, ended.err.startswith(f"error: {said}")) == (2, True), ended.err
    assert not (tmp_path / "page.html").exists()
    (tmp_path / "given.txt").write_text("a\nb\n", encoding="utf-8")
    table = "inspect", "tables", "attribution", reversal.run, "--text", "ab"
    assert "2 lines for 1 sentences" in run_headway(*table, "--reference", tmp_path / "given.txt").err
