"""The command line: one function a command, thin over the rooms below. Exit: 0 done, 1 failed, 2 user's mistake."""

import os
import sys
from collections.abc import Sequence

from headway.cli.interruption import ended_by_signals


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; every error that headway raises on purpose ends in one message and its exit code."""
    with ended_by_signals(last=arguments is None):
        from headway.cli import shell
        from headway.cli.console import show
        from headway.cli.standard_streams import prepare_output
        from headway.cli.verbs import app

        prepare_output()
        # A thread that spins while it waits takes the core which another one needs, where other programs compute too.
        # One that never spins makes small steps 15 % slower where they do not. torch's library reads the number once.
        if "OMP_WAIT_POLICY" not in os.environ:
            os.environ.setdefault("GOMP_SPINCOUNT", "10000")
        with show():
            sys.exit(shell.run(app, sys.argv[1:] if arguments is None else list(arguments)))
