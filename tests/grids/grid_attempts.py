"""Run by test_grid_run.py in a process of its own: makes a grid in forked children, and kills them.

    python tests/grids/grid_attempts.py GRID.yaml OUTPUT KILLS SEED

A kill hits, in turn, the call with all of its cells, the call alone, so that its cells have to end by themselves, and
each cell, always just before a drawn one of a cell's changes to files: so it does not matter how quick the machine is.
Everything is imported once, so that a child starts at once.
"""

import contextlib
import os
import random
import signal
import sys
import traceback
from functools import partial
from pathlib import Path

import torch

from headway.comparison.executors import ProcessesOfTheirOwn
from headway.core.storage import locked
from headway.grids import run as cell_process
from headway.grids.grid import CellJob, load_grid
from headway.grids.grid_run import GridRun
from tests.training.attempts import before_change

the_call = 0  # the process that begins cells


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


def kill(what: str) -> None:
    """Kill, from within a cell, the call with its cells (`all`), the call alone (`call`) or the cell (`files`)."""
    call, cell = os.getppid(), os.getpid()
    if what != "files":
        if call != the_call:  # it is dead, and this cell about to end
            return
        cells = children_of(call) if what == "all" else []
        os.kill(call, signal.SIGKILL)
        for other in cells:
            if other != cell:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(other, signal.SIGKILL)
    if what != "call":
        os.kill(cell, signal.SIGKILL)


def kill_at_changes(what: str, number: int, output: str) -> None:
    """Let each cell that this process begins kill, just before its change of that number, as `what` says."""
    global the_call
    the_call, make = os.getpid(), cell_process._make

    def made(job: CellJob) -> int:
        before_change(number, output, partial(kill, what))
        return make(job)

    cell_process._make = made


def attempt(grid: str, output: str, what: str = "", number: int = 0) -> int:
    """Make the grid in a child, which is killed as `what` says, or not; gives the wait status of the child."""
    child = os.fork()
    if child == 0:
        try:
            if what:
                kill_at_changes(what, number, output)
            failed = GridRun(load_grid(Path(grid)), Path(output), 1).run(ProcessesOfTheirOwn(2, 1, "fork")).failed
            os._exit(1 if failed else 0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(2)
    status = os.waitpid(child, 0)[1]
    with locked(Path(output) / ".lock", wait=60):  # which cells that are about to end have from the call
        return status


def run(grid: str, output: str, kills: int, seed: int) -> int:
    """Kill so often, then let one call finish; gives how many calls were killed or had a cell killed."""
    draw, hit = random.Random(seed), 0
    for number in range(kills):
        hit += attempt(grid, output, ("all", "call", "files")[number % 3], draw.randint(1, 60)) != 0
    assert attempt(grid, output) == 0
    return hit


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
