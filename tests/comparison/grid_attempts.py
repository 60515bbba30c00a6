"""Run by test_grid_kills.py in a process of its own: makes a grid in forked children, and kills them.

    python -m tests.comparison.grid_attempts GRID.yaml OUTPUT KILLS SEED

A kill hits, in turn, the call with all of its cells, the call alone, so that its cells have to end by themselves, and
one cell just before a random one of its changes to files. Everything is imported once, so that a child starts at once.
"""

import contextlib
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

import headway.comparison.cell_process as cell_process
from headway.comparison.grid import load_grid
from headway.comparison.grid_run import GridRun
from headway.comparison.workers import LocalWorkers
from tests.runs.training.attempts import die_before_change


def children_of(process: int) -> list[int]:
    """The processes that a process has begun."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process:
            found.append(int(stat.parent.name))
    return found


def kill_cells_at_changes(draw: random.Random, output: str) -> None:
    """Let a cell that begins die, sometimes, just before one of its changes to files."""
    make, number = cell_process._make, draw.randint(1, 120)

    def made(job: cell_process.CellJob) -> int:
        die_before_change(number, output)
        return make(job)

    cell_process._make = made


def attempt(grid: str, output: str, what: str, draw: random.Random) -> int:
    """Make the grid in a child, which is killed as `what` says; gives the wait status of the child."""
    child = os.fork()
    if child == 0:
        if what == "files":
            kill_cells_at_changes(draw, output)
        failed = GridRun(load_grid(Path(grid)), Path(output), 1).run(LocalWorkers(2, 1, "fork")).failed
        os._exit(1 if failed else 0)
    if what in ("all", "call"):
        while not (cells := children_of(child)):  # or it has ended
            if (ended := os.waitpid(child, os.WNOHANG)) != (0, 0):
                return ended[1]
            time.sleep(0.02)
        time.sleep(draw.uniform(0.1, 1.0))
        cells = children_of(child)
        os.kill(child, signal.SIGKILL)
        for cell in cells if what == "all" else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(cell, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def run(grid: str, output: str, kills: int, seed: int) -> int:
    """Kill so often, then let one call finish; gives how many calls were killed or had a cell killed."""
    draw, hit = random.Random(seed), 0
    for number in range(kills):
        what = ("all", "call", "files")[number % 3]
        hit += attempt(grid, output, what, draw) != 0
    assert attempt(grid, output, "nothing", draw) == 0
    return hit


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
