"""The command line: one function a command, thin over the rooms below. Exit: 0 done, 1 failed, 2 user's mistake."""

import sys
from collections.abc import Sequence
from io import TextIOWrapper

from headway.cli.commands import app
from headway.cli.console import show


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; every error that headway raises on purpose ends in one message and its exit code."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # results are UTF-8 as all input is, whatever the locale
    with show():
        app(sys.argv[1:] if arguments is None else list(arguments), prog_name="headway")
