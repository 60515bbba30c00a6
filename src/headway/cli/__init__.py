"""The command line: a thin function per command. Exit codes: 0 for success, 1 for failure, 2 for a user's mistake."""

import os
import sys
from collections.abc import Sequence

from headway.cli.interruption import ended_by_signals


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. Errors that headway raises on purpose end with a message and their exit code."""
    with ended_by_signals(last=arguments is None):
        from headway.cli import shell
        from headway.cli.console import show
        from headway.cli.standard_streams import prepare_output
        from headway.cli.verbs import app

        prepare_output()
        # Threads that spin while they wait take cores from other programs. Without any spinning, small steps are
        # 15 % slower on an idle machine. torch's library reads the setting once.
        if "OMP_WAIT_POLICY" not in os.environ:
            os.environ.setdefault("GOMP_SPINCOUNT", "10000")
        with show():
            sys.exit(shell.run(app, sys.argv[1:] if arguments is None else list(arguments)))
