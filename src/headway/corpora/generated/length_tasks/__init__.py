"""Length generalization: tasks whose test lengths go beyond those of training (Kazemnejad et al. 2023).

Each task draws prompts of any length with their answers, in tokens that white space separates.
"""

from pathlib import Path

from headway.corpora.generated.length_tasks.arithmetic import ADDITION, PARITY, POLYNOMIAL, SUMMATION
from headway.corpora.generated.length_tasks.copying import COPY, REVERSE
from headway.corpora.generated.length_tasks.lego import LEGO
from headway.corpora.generated.length_tasks.length_task import (
    DEFAULT_SIZES,
    LengthData,
    LengthExample,
    LengthTask,
    Sizes,
)
from headway.corpora.generated.length_tasks.scan import read_scan
from headway.corpora.generated.length_tasks.sorting import SORTING
from headway.corpora.generated.length_tasks.splits import generate, write_lengths
from headway.errors import UserError, nearest, option

__all__ = [
    "LENGTH_TASKS",
    "LengthData",
    "LengthExample",
    "LengthTask",
    "Sizes",
    "generate",
    "lengths_data",
    "read_scan",
    "write_lengths",
]

LENGTH_TASKS: dict[str, LengthTask] = {
    task.name: task for task in (COPY, REVERSE, ADDITION, SUMMATION, PARITY, SORTING, POLYNOMIAL, LEGO)
}


def lengths_data(
    name: str,
    variant: str | None = None,
    *,
    seed: int = 1,
    sizes: Sizes = DEFAULT_SIZES,
    trained: int | None = None,
    tested: int | None = None,
    scan: Path | None = None,
) -> LengthData:
    """The data of a task by its name, `scan` among them; arguments as for `generate`.

    Args:
        scan: the folder with the length split of SCAN.

    Raises:
        UserError: an unknown task or variant, lengths that cannot be, or that leave training or dev without examples;
            options that are not the task's.
    """
    if name == "scan":
        if scan is None:
            raise UserError("the length split of SCAN is read from files", where=option("scan"), allowed="their folder")
        if variant or tested:
            where = ", ".join(map(option, ("variant", "test_length")))
            raise UserError("SCAN is one task, whose test has all of its longer lengths", where=where)
        return _with_all_parts(read_scan(scan, seed=seed, sizes=sizes, trained=trained))
    if scan is not None:
        raise UserError("this task reads no files", where=option("scan"), received=name, allowed="with the task scan")
    if name not in LENGTH_TASKS:
        allowed = [*LENGTH_TASKS, "scan"]
        raise UserError(f"unknown task{nearest(name, allowed)}", where="the task", received=name, allowed=allowed)
    drawn = generate(LENGTH_TASKS[name], variant, seed=seed, sizes=sizes, trained=trained, tested=tested)
    return _with_all_parts(drawn)


def _with_all_parts(data: LengthData) -> LengthData:
    """The data. Raises UserError where the trained lengths have too few prompts for training and dev."""
    for part, examples in (("training", data.train), ("dev", data.dev)):
        if not examples:
            what = f"prompts of the trained lengths are so few that none is left for {part}"
            where, allowed = option("train_length"), f"a greater one, or another {option('seed')}"
            raise UserError(what, where=where, received=data.trained, allowed=allowed)
    return data
