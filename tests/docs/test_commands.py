"""Every command line of the documentation is one that the parser accepts."""

import re
import shlex
from collections.abc import Iterator

import pytest
from cyclopts import CycloptsError, MissingArgumentError, ValidationError

import headway.cli.verbs
from tests.docs.pages import ROOT

PAGES = [ROOT / "README.md", ROOT / "lessons" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```(?:bash|sh|console)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
# A line of a code block, with those that it goes on to; code within a line of text.
LINE = re.compile(r"^\s*(?:\$ |time )?(headway (?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
INDENTED = re.compile(r"^    (?:\$ |time )?(headway (?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
INLINE = re.compile(r"(?<!`)`(headway [^`]+)`(?!`)")


def commands(text: str) -> Iterator[tuple[str, bool]]:
    """The command lines of a page, without their line breaks, and whether they stand in a block, to be typed."""
    blocks = [command for block in FENCED.findall(text) for command in LINE.findall(block)]
    rest = FENCED.sub("", text)
    for command in (*blocks, *INDENTED.findall(rest)):
        yield re.sub(r"\s*\\\n\s*", " ", command), True
    for command in INLINE.findall(rest):
        yield re.sub(r"\s+", " ", command), False


def arguments_of(command: str) -> list[str]:
    """The words of a command line up to a pipe, a redirection, a comment or the next command."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words = []
    for word in lexer:
        if set(word) <= set("|&;<>"):
            break
        words.append(word)
    return words[1:]


def parse(arguments: list[str]) -> None:
    """Read the arguments as the command line does, and do nothing. Raises what the parser raises."""
    try:
        headway.cli.verbs.app.parse_args(arguments)
    except ValidationError as error:  # a file that is not there
        if "there is no such" not in str(error) and "a figure's format" not in str(error):
            raise


def is_command(arguments: list[str]) -> bool:
    """Whether there is more than the name of a verb or of an option in running text."""
    return len(arguments) > 2 and "..." not in arguments and not arguments[-1].startswith("--")


FOUND = [
    pytest.param(command, typed, id=f"{page.stem}: {command[:60]}")
    for page in PAGES
    for command, typed in dict.fromkeys(commands(page.read_text(encoding="utf-8")))
    if is_command(arguments_of(command))
]


@pytest.mark.parametrize(("command", "typed"), FOUND)
def test_the_parser_accepts(command: str, typed: bool) -> None:
    try:
        parse(arguments_of(command))
    except MissingArgumentError:
        if typed:  # running text leaves out what does not matter there
            raise


def test_commands_are_found() -> None:
    assert len(FOUND) > 40
    text = "    headway score --metric bleu \\\n        --references a\nSee `headway data check x.yaml`, headway."
    assert list(commands(text)) == [
        ("headway score --metric bleu --references a", True),
        ("headway data check x.yaml", False),
    ]
    assert arguments_of("headway predict run --beam 4 < in > out  # four") == ["predict", "run", "--beam", "4"]


@pytest.mark.parametrize("command", ["headway predict run --bean 4", "headway scor", "headway train"])
def test_mistakes_are_refused(command: str) -> None:
    with pytest.raises(CycloptsError):
        parse(arguments_of(command))
