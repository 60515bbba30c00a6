"""`headway inspect`: its verbs, and the calls in which an option stands for the verb."""

import json
from pathlib import Path

import pytest

from headway.cli.inspect_commands import with_verb
from headway.errors import UserError
from tests.conftest import Command, Reversal


@pytest.mark.parametrize(
    ("given", "verb"),
    [
        ("run --output a.html --input b", "page run --output a.html --input b"),
        ("run --output=a.html", "page run --output=a.html"),
        ("run", "page run"),
        ("run --text a", "page run --text a"),
        ("run --text a --figure a.pdf --head 2", "heat-map run --text a --figure a.pdf --head 2"),
        ("run --figures DIR --within 4", "figures run --figures DIR --within 4"),
        ("--parameters recipe.yaml model.dim=3", "parameters recipe.yaml model.dim=3"),
        ("run --layers words.tsv --json", "layers run --layers words.tsv --json"),
        ("--dependencies run --figures DIR", "dependencies run --figures DIR"),
    ],
)
def test_an_option_stands_for_the_verb(given: str, verb: str) -> None:
    assert with_verb(given.split()) == verb.split()


@pytest.mark.parametrize("given", ["run --parameters --layers x", "run --output a --dependencies"])
def test_one_thing_is_looked_at_a_time(given: str) -> None:
    with pytest.raises(UserError, match="say what to look at"):
        with_verb(given.split())


def test_both_ways_say_the_same(run_headway: Command, reversal: Reversal) -> None:
    verb = run_headway("inspect", "parameters", reversal.run)
    option = run_headway("inspect", reversal.run, "--parameters")
    assert (verb.code, verb.out) == (0, option.out)
    lines = verb.out.splitlines()
    assert lines[0].split() == ["part", "parameters", "share", "(%)", "FLOPs", "a", "token"]
    assert any(line.startswith("encoder layer 1, mixer") for line in lines)
    assert "layer 0" not in verb.out
    values = json.loads(run_headway("inspect", "parameters", reversal.run, "--json").out)
    assert "encoder.1.mixer" in [part["name"] for part in values["parts"]]


@pytest.mark.parametrize("flag", ["--figure", "--output"])
def test_an_error_names_the_flag_that_was_given(run_headway: Command, reversal: Reversal, flag: str) -> None:
    told = run_headway("inspect", "heat-map", reversal.run, "--text", "a", flag, "weights.doc").err
    assert told.startswith(f"error: {flag}: ")
    told = run_headway("inspect", reversal.run, "--text", "a", "--figure", "weights.doc").err
    assert told.startswith("error: --figure: ")


def test_help_lists_the_verbs_and_their_options(run_headway: Command) -> None:
    shown = run_headway("inspect", "--help").out
    assert run_headway("inspect", "-h").out == shown
    assert all(verb in shown for verb in ("page", "figures", "parameters", "layers", "dependencies"))
    assert "--within" in run_headway("inspect", "figures", "--help").out


@pytest.mark.parametrize("figure", ["page", "heat-map"])
def test_half_of_a_character_is_no_sentence(
    run_headway: Command, reversal: Reversal, tmp_path: Path, figure: str
) -> None:
    output = tmp_path / ("a.html" if figure == "page" else "a.pdf")
    ended = run_headway("inspect", figure, reversal.run, "--text", "caf\udce9", "--output", output)
    assert ended.code == 2
    assert "'caf\\udce9'" in ended.err
    assert not output.exists()
