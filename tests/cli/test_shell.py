"""Flags made from models, and how command lines end."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from cyclopts import App, Parameter
from pydantic import Field, PositiveInt

import headway.cli.shell
from headway.cli.shell import Given, command, keys_given, new_app, run, section_of, verbs
from headway.cli.verbs import app
from headway.core.config import Section
from headway.core.errors import UserError, option
from tests.conftest import Command

VERBS = dict(verbs(app))
SOURCE = {"PYTHONPATH": str(Path(headway.cli.__file__).parents[2])}


class Toy(Section):
    """Options of several kinds."""

    beam: PositiveInt | None = Field(
        None, description="Hypotheses kept.", json_schema_extra={"group": "Search", "default_text": "the recipe's"}
    )
    quality: bool = Field(True, description="Decode too.")
    references: tuple[str, ...] = Field((), description="Files.")
    text: tuple[str, ...] = Field((), description="Sentences.", json_schema_extra={"metavar": "TEXT"})
    takes: tuple[int, int] = Field((45, 49), description="First and last.")
    json_output: bool = Field(False, description="Write JSON.", json_schema_extra={"flag": "json"})


class Tags(Section):
    """Shares an option with `Trees`."""

    format: Literal["tsv", "json"] = Field("tsv", description="Taggers: the form.")
    threshold: float | None = Field(None, ge=0, le=1, description="The threshold.")
    hidden: dict[str, int] | None = Field(None, json_schema_extra={"flag": None})


class Trees(Section):
    """Shares an option with `Tags`."""

    format: Literal["brackets", "drawing"] = Field("brackets", description="Parsers: the form.")


seen: list[Any] = []
toys = new_app("toys", "Toys.")


@toys.meta.default
def _root(*words: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> Any:
    return toys(words)


@command(toys)
def toy(run: str, /, *, options: Toy) -> None:
    """A toy."""
    seen[:] = [run, options]


@command(toys)
def either(*, options: Annotated[dict[str, Any], Given((Tags, Trees))]) -> int:
    """Another."""
    seen[:] = [options]
    return 3


@command(toys)
def fails(*, options: Toy) -> None:
    """A third."""
    raise UserError("wrong", where=option("json_output"), allowed=f"{option('quality')} beside {option('runs')}")


def test_a_verb_gets_the_model_with_what_was_given() -> None:
    line = "toy there --beam 3 --no-quality --references a b --text c --text d --takes 1 2 --json"
    assert run(toys, line.split()) == 0
    assert seen[0] == "there"
    given = {"beam": 3, "quality": False, "references": ("a", "b"), "text": ("c", "d"), "takes": (1, 2)}
    assert seen[1].model_dump() == Toy(**given, json_output=True).model_dump()  # type: ignore[arg-type]
    assert seen[1].model_fields_set == {*given, "json_output"}
    assert run(toys, ["toy", "there"]) == 0
    assert seen[1].model_fields_set == set()


def test_options_of_several_models() -> None:
    assert run(toys, ["either", "--threshold", "0.5", "--format", "drawing"]) == 3
    assert seen == [{"threshold": 0.5, "format": "drawing"}]
    assert run(toys, ["either"]) == 3
    assert seen == [{}]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("toy r --beam 0", "--beam: input should be greater than 0; received '0'"),
        ("toy r --bem 1", "Unknown option: --bem. Did you mean --beam?; see headway toy --help"),
        ("either --hidden 1", "Unknown option: --hidden"),
        ("either --format json --threshold 2", "--threshold: input should be less than or equal to 1; received '2'"),
        ("fails", "--json: wrong; allowed: --no-quality beside RUN"),
    ],
)
def test_mistakes_name_the_flag(line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(toys, line.split()) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith(f"error: {message}")
    assert written.err.count("\n") == 1


def test_help_has_groups_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(toys, ["toy", "--help"]) == 0
    page = capsys.readouterr().out
    assert "─ Search ─" in page
    assert "Hypotheses kept. [default: the recipe's]" in page


def test_keys_of_a_section() -> None:
    assert keys_given(["tags", "threshold=0.5"], Tags) == {"format": "tags", "threshold": 0.5}
    assert section_of(["json", "threshold=0.5"], Tags, {}) == Tags(format="json", threshold=0.5)
    with pytest.raises(UserError, match="treshold: unknown key; did you mean 'threshold'"):
        section_of(["treshold=1"], Tags, {})


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_every_option_is_explained(path: tuple[str, ...], run_headway: Command) -> None:
    ended = run_headway(*path, "--help")
    assert (ended.code, ended.err) == (0, "")
    for each in VERBS[path].assemble_argument_collection():
        if each.parse and not each.children:
            assert each.parameter.help, each.name
            assert each.name.split()[0] in ended.out


@pytest.fixture
def _default_handler() -> Iterator[None]:
    """Ctrl-C as it is in a terminal; a shell begins what is in its background without it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def wrapped_interrupt(*arguments: Any) -> None:
    """What a library does that turns a KeyboardInterrupt into an error of its own."""
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    except KeyboardInterrupt as error:
        raise ValueError("an error of a library") from error


def fault(*arguments: Any) -> None:
    raise ValueError("a mistake of ours")


class Collected:
    """Is interrupted where Python prints what is raised, and forgets it."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("_default_handler")
def test_an_interrupt_that_is_lost_in_a_callback_comes_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(*arguments: Any) -> None:
        Collected()
        time.sleep(5)

    monkeypatch.setattr(headway.cli.shell, "run", work)
    with pytest.raises(SystemExit) as ended:
        headway.cli.main([])
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", "interrupted\n")


@pytest.mark.usefixtures("_default_handler")
def test_an_error_that_an_interrupt_has_caused_is_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(headway.cli.shell, "run", wrapped_interrupt)
    with pytest.raises(SystemExit) as ended:
        headway.cli.main([])
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", "interrupted\n")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    monkeypatch.setattr(headway.cli.shell, "run", fault)
    with pytest.raises(ValueError, match="a mistake of ours"):
        headway.cli.main([])


def test_an_interrupt_that_is_ignored_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(headway.cli.shell, "run", lambda *_: seen.append(signal.getsignal(signal.SIGINT)))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(SystemExit):
            headway.cli.main([])
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIG_IGN]


def test_nothing_slow_is_imported_before_signals_are_handled() -> None:
    slow = {"pydantic", "cyclopts", "rich", "importlib.metadata", "pathlib"}
    script = "import sys, headway.cli; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, check=True, env=SOURCE)
    assert not slow & set(ended.stdout.decode().split())


def test_the_help_begins_with_what_newcomers_need_and_ends_with_lessons(run_headway: Command) -> None:
    shown = [line.split()[1] for line in run_headway("--help").out.splitlines() if re.match("│ [a-z]", line)]
    assert (shown[0], shown[-1]) == ("new", "check")
    assert shown.index("data") < shown.index("train") < shown.index("predict")


def test_commands_run_in_any_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[App] = []
    monkeypatch.setattr(headway.cli.shell, "run", lambda app, _: ran.append(app))

    def started() -> None:
        with suppress(SystemExit):
            headway.cli.main([])

    thread = threading.Thread(target=started)
    thread.start()
    thread.join()
    assert ran == [app]
