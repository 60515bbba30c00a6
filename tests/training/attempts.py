"""Run by test_kill.py in a process of its own: trains in forked children and kills them at random moments.

    python -m tests.training.attempts RECIPE OUTPUT KILLS SEED

Everything is imported once, so that a child starts at once; a child is the command line with --resume.
"""

import os
import random
import signal
import sys
import time

import torch

import headway.analysis.run_report
import headway.training.loop  # noqa: F401
from headway.cli import main


def attempt(recipe: str, output: str) -> int:
    """Start a child and give its process number."""
    child = os.fork()
    if child == 0:
        try:
            main(["train", recipe, "--output", output, "--resume"])
        except SystemExit as ended:
            os._exit(int(ended.code or 0))
        os._exit(1)
    return child


def run(recipe: str, output: str, kills: int, seed: int) -> int:
    """Kill that many children, then let one finish; gives how many really were killed."""
    moments, killed = random.Random(seed), 0
    while True:
        child = attempt(recipe, output)
        if killed < kills:
            time.sleep(moments.uniform(0.02, 0.7))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            killed += 1
        else:
            assert os.WEXITSTATUS(status) == 0, status
            return killed


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
