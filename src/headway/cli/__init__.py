"""The command line: one function a command, thin over the rooms below. Exit: 0 done, 1 failed, 2 user's mistake."""

import os
import sys
from collections.abc import Sequence

from headway.cli.commands import app
from headway.cli.console import show
from headway.cli.shell import interruption_kept, run
from headway.cli.standard_streams import prepare_output


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; every error that headway raises on purpose ends in one message and its exit code."""
    prepare_output()
    # Threads that spin while they wait take the core that the thread which they wait for needs: where another program
    # computes as well, a training with two threads was 10 to 15 times as slow. torch's library reads it once.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with show(), interruption_kept():
        sys.exit(run(app, sys.argv[1:] if arguments is None else list(arguments)))
