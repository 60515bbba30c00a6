"""Run by kills.py in a process of its own: trains in forked children and kills them.

    python tests/training/attempts.py RECIPE OUTPUT KILLS SEED moments|files|evaluations

`moments`: after a random time. `files`: just before a random one of the child's changes to files of the run, which
finds what is wrong between any two of them. `evaluations`: in the middle of a random one of its evaluations. Everything
is imported once, so that a child starts at once; a child is the command line with --resume.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial

import torch

import headway.training.loop
import headway.training.report
import headway.training.session
from headway.cli import main

# Audit events of Python; those of files in folders that are being removed have no full path.
CHANGES = ("open", "os.mkdir", "os.rename")
REMOVALS = ("os.remove", "os.rmdir")


def before_change(number: int, folder: str, act: Callable[[], None]) -> None:
    """Do something just before this process's change of that number to files below `folder`."""
    left = number

    def note(event: str, arguments: tuple) -> None:
        nonlocal left
        path = arguments[0] if event in CHANGES else None
        if event in REMOVALS or (isinstance(path, str | os.PathLike) and os.fspath(path).startswith(folder)):
            left -= 1
            if left == 0:
                act()

    sys.addaudithook(note)


def die_before_change(number: int, folder: str, signal_number: int = 9) -> None:
    """Signal this process just before its change of that number to files below `folder`."""
    before_change(number, folder, partial(os.kill, os.getpid(), signal_number))


def die_in_evaluation(number: int) -> None:
    """Kill this process in the middle of its evaluation of that number."""
    left, whole = number, headway.training.session.dev_loss

    def dev_loss(*arguments: object) -> float:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(*arguments)

    headway.training.session.dev_loss = dev_loss


def attempt(recipe: str, output: str, prepare_death: Callable[[], None]) -> int:
    """Start a child, to die as `prepare_death` says, and give its process number."""
    child = os.fork()
    if child == 0:
        prepare_death()
        try:
            main(["train", recipe, "--output", output, "--resume"])
        except SystemExit as ended:
            os._exit(int(ended.code or 0))
        os._exit(1)
    return child


def run(recipe: str, output: str, kills: int, seed: int, what: str) -> int:
    """Kill that many children, then let one finish; gives how many really were killed."""
    draw, killed = random.Random(seed), 0
    while True:
        again = killed < kills
        deaths = {
            "files": partial(die_before_change, draw.randint(1, 60), output),
            "evaluations": partial(die_in_evaluation, draw.randint(1, 2)),
        }
        child = attempt(recipe, output, deaths.get(what, int) if again else int)
        if again and what == "moments":
            time.sleep(draw.uniform(0.02, 0.7))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            killed += 1
        else:
            assert os.WEXITSTATUS(status) == 0, status
            return killed


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]))
