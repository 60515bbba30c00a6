"""Tasks: what can be learned, by name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.errors import UserError, nearest
from headway.metrics import METRICS, Metric, build_metric
from headway.recipe import Recipe
from headway.runs.run_folder import RunFolder
from headway.tasks.parsing import Parsing
from headway.tasks.speech_recognition import SpeechRecognition
from headway.tasks.summarization import Summarization
from headway.tasks.task import Task
from headway.tasks.translation import Translation
from headway.tasks.word_labelling import ErrorDetection, Tagging

TASKS: dict[str, Task] = {
    task.name: task
    for task in (Translation(), Summarization(), SpeechRecognition(), Parsing(), ErrorDetection(), Tagging())
}


def build_task(name: str) -> Task:
    """The task of that name. Raises UserError where there is none."""
    if name not in TASKS:
        raise UserError(f"unknown task{nearest(name, TASKS)}", where="task", received=name, allowed=list(TASKS))
    return TASKS[name]


def task_of(runs: Sequence[Path]) -> Task:
    """The task of these runs. Raises UserError where they are no runs, or of different tasks."""
    names = [RunFolder(run).read_recipe().task for run in runs]
    if len(set(names)) > 1:
        raise UserError("runs of different tasks cannot predict together", where="RUN", received=", ".join(names))
    return build_task(names[0])


def load(run: str | Path, *more_runs: str | Path, device: str = "auto", average: int | None = None) -> Any:
    """Load a run, or several as an ensemble, for prediction.

    Args:
        run: the run folder.
        more_runs: further runs with the same vocabularies; the mean of all probabilities is decoded.
        device: `auto`, `cpu`, `cuda`, ...
        average: use the mean of each run's last so many checkpoints.

    Returns:
        What the run's task predicts with, such as a `headway.predictors.sequence_predictor.Predictor` for translation.

    Raises:
        UserError: a folder that holds no finished model.
    """
    runs = [Path(path) for path in (run, *more_runs)]
    return task_of(runs).load(runs, device, average)


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
