"""Tasks: what an experiment is scored by."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headway.errors import UserError, nearest
from headway.recipe import Recipe
from headway.scoring import METRICS, Metric, build_metric


@dataclass(frozen=True)
class Task:
    """A kind of sequence transduction: the metrics that its dev set is decoded for unless the recipe names others."""

    name: str
    metrics: tuple[dict[str, Any], ...]


TASKS = {task.name: task for task in (Task("translation", ({"name": "bleu"}, {"name": "chrf"})),)}


def build_task(name: str) -> Task:
    """The task of that name. Raises UserError where there is none."""
    if name not in TASKS:
        raise UserError(f"unknown task{nearest(name, TASKS)}", where="task", received=name, allowed=list(TASKS))
    return TASKS[name]


def dev_metrics(recipe: Recipe) -> Sequence[Metric]:
    """The metrics that dev is decoded for. Raises UserError for unknown ones, or a `best_by` that is not among them."""
    task, chosen = build_task(recipe.task), recipe.training.dev_metrics
    chosen = task.metrics if chosen is None else chosen
    for each in chosen:
        if "name" not in each:
            raise UserError("a metric needs a name", where="training.dev_metrics", received=each, allowed=METRICS)
    metrics = [build_metric(**each) for each in chosen] if recipe.data.dev else []
    names = ["loss", *(metric.name for metric in metrics)]
    best_by = recipe.training.best_by
    if best_by is not None and best_by not in names:
        raise UserError("no such dev metric", where="training.best_by", received=best_by, allowed=names)
    return metrics
