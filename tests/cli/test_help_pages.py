"""Help fits a screen of 80 columns, and says what each option does and what stands for it."""

from typing import Any

import pytest
from typer.main import get_command

from headway.cli.commands import app
from headway.cli.help_pages import SCREEN, default_text, gist, group_of
from tests.conftest import Command

ROOT = get_command(app)


def commands(verb: Any = ROOT, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """All commands and groups with the words that call them."""
    below = getattr(verb, "commands", {})
    return [(path, verb), *(found for name, each in below.items() for found in commands(each, (*path, name)))]


ALL = commands()
VERBS = [(path, verb) for path, verb in ALL if not hasattr(verb, "commands")]
NAMES = [" ".join(path) for path, _ in VERBS]


def options_of(verb: Any) -> list[Any]:
    """The options of a command but its help."""
    return [each for each in verb.params if each.param_type_name == "option"]


@pytest.mark.parametrize("path", [path for path, _ in ALL], ids=" ".join)
def test_a_page_fits_a_screen(run_headway: Command, monkeypatch: pytest.MonkeyPatch, path: tuple[str, ...]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ended = run_headway(*path, "--help")
    lines = ended.out.splitlines()
    assert (ended.code, ended.err) == (0, "")
    assert len(lines) <= SCREEN
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(("path", "verb"), VERBS, ids=NAMES)
def test_every_option_is_explained(run_headway: Command, path: tuple[str, ...], verb: Any) -> None:
    page, whole = (" ".join(run_headway(*path, flag).out.split()) for flag in ("--help", "--help-all"))
    for option in options_of(verb):
        assert option.help, option.name
        flag = next(flag for flag in (*option.opts, *option.secondary_opts) if flag.startswith("--"))
        assert flag in page
        assert " ".join(option.help.split()[:4]) in whole
        assert default_text(option) in whole
    for argument in (each for each in verb.params if each.param_type_name == "argument"):
        assert argument.help, argument.name


@pytest.mark.parametrize(("path", "verb"), VERBS, ids=NAMES)
def test_numbers_have_a_default_and_many_options_have_groups(path: tuple[str, ...], verb: Any) -> None:
    options = options_of(verb)
    numbers = [
        each for each in options if any(kind in str(each.type_descriptor.annotation) for kind in ("int", "float"))
    ]
    assert [each.name for each in numbers if not each.is_flag and not default_text(each)] == []
    if len(options) > 10:
        assert len({group_of(each) for each in options}) > 1


def test_the_gist_ends_at_a_full_stop_or_colon() -> None:
    assert gist("Train a model. It is kept.") == "Train a model"
    assert gist("Score files: scores\n and p.") == "Score files"


@pytest.mark.parametrize("path", [path for path, verb in ALL if hasattr(verb, "commands")], ids=" ".join)
def test_a_group_without_a_verb_shows_its_help(run_headway: Command, path: tuple[str, ...]) -> None:
    verb = next(verb for other, verb in ALL if other == path)
    if not verb.no_args_is_help:
        return
    ended = run_headway(*path)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == run_headway(*path, "--help").out
