"""The command line: one function a command, thin over the rooms below. Exit: 0 done, 1 failed, 2 user's mistake."""

import sys
from collections.abc import Sequence
from io import TextIOWrapper

from headway.cli.commands import app
from headway.cli.console import show
from headway.errors import HeadwayError

# Options that take several values after one flag, as in `--references a b`.
VARIADIC = ("--hypotheses", "--references", "--metric", "--lead")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; every error that headway raises on purpose ends in one message and its exit code."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # results are UTF-8 as all input is, whatever the locale
    spread = spread_variadic(sys.argv[1:] if arguments is None else arguments)
    try:
        with show():
            app(spread, prog_name="headway")
    except HeadwayError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


def spread_variadic(arguments: Sequence[str]) -> list[str]:
    """`--references a b` as `--references a --references b`, which the parser understands."""
    spread: list[str] = []
    flag = None
    for argument in arguments:
        if argument.startswith("-") and argument != "-":
            name = argument.partition("=")[0]
            flag = name if name in VARIADIC else None
        elif flag is not None and spread[-1] != flag:
            spread.append(flag)
        spread.append(argument)
    return spread
