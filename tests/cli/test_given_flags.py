"""Flags with their values, and those that are given twice."""

from typing import Annotated

import pytest
import typer

from headway.cli.given_flags import (
    GivenArgument,
    check_given_once,
    given_arguments,
    spread_variadic,
)
from headway.cli.options import command
from headway.errors import UserError

app = typer.Typer()


@command(app)
def toy(
    run: Annotated[str, typer.Argument()],
    beam: Annotated[int, typer.Option("--beam", "--width")] = 1,
    takes: tuple[int, int] = (1, 2),
    quality: bool = True,
    metric: Annotated[list[str] | None, typer.Option(metavar="METRIC...")] = None,
) -> None:
    """A toy."""


VERB = typer.main.get_command(app)


def test_flags_have_their_values() -> None:
    line = "a --beam=-1 --takes 1 -2 - --no-quality --metric x y --other z -- --beam"
    given = given_arguments(VERB, line.split())
    assert [(part.flag, part.option and part.option.name, part.value) for part in given] == [
        (None, None, "a"), ("--beam", "beam", "-1"), ("--takes", "takes", "1 -2"), (None, None, "-"),
        ("--no-quality", "quality", ""), ("--metric", "metric", "x"), ("--metric", "metric", "y"),
        ("--other", None, ""), (None, None, "z"), (None, None, "--beam"),
    ]  # fmt: skip
    assert list(given_arguments(VERB, ["--beam"])) == [GivenArgument("--beam", VERB.params[1], "")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--beam 1 a --width=2", r"--beam: this option is given twice; received \['1', '2'\]"),
        ("--beam 1 a --beam 1", r"--beam: this option is given twice; received \['1', '1'\]"),
        ("a --takes 1 2 --takes 3 4", r"--takes: this option is given twice; received \['1 2', '3 4'\]"),
        ("--quality a --no-quality", r"--quality: .*; received \['--quality', '--no-quality'\]"),
    ],
)
def test_what_is_taken_once_is_given_once(line: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_given_once(VERB, line.split())


@pytest.mark.parametrize("line", ["a --metric x --metric x y --beam 1", "--beam --beam a", "--beam 1 -- --beam 2"])
def test_other_lines_may_name_a_flag_twice(line: str) -> None:
    check_given_once(VERB, line.split())


def test_completion_takes_any_line() -> None:
    VERB.make_context("toy", ["a", "--beam", "1", "--beam", "2"], resilient_parsing=True)


@pytest.mark.parametrize(
    ("given", "spread"),
    [
        ("score --references a b --metric bleu", "score --references a --references b --metric bleu"),
        ("score --references=a b --json", "score --references=a --references b --json"),
        ("score --references a --references b c", "score --references a --references b --references c"),
        ("--metric bleu chrf --hypotheses - a", "--metric bleu --metric chrf --hypotheses - --hypotheses a"),
        ("score --references a a", "score --references a --references a"),
        ("train a b --output c d", "train a b --output c d"),
        ("", ""),
    ],
)
def test_several_values_after_one_flag(given: str, spread: str) -> None:
    assert spread_variadic(given.split(), ["--references", "--metric", "--hypotheses"]) == spread.split()
