"""The registry of tasks: what a model can be trained for."""

from collections.abc import Sequence

from headway.core.errors import UserError
from headway.core.registry import Registry
from headway.metrics import METRICS, Metric, metric_in
from headway.recipe import Recipe
from headway.tasks.task import Task

TASKS: Registry[Task] = Registry(
    "task",
    "headway.tasks.task:Task",
    {
        "translation": "headway.tasks.translation:Translation",
        "summarization": "headway.tasks.translation:Summarization",
        "speech_recognition": "headway.tasks.speech_recognition:SpeechRecognition",
        "parsing": "headway.tasks.translation:Parsing",
        "error_detection": "headway.tasks.word_labelling:ErrorDetection",
        "tagging": "headway.tasks.word_labelling:Tagging",
    },
)


def build_task(name: str) -> Task:
    """Build the task with this name or import path. Raises UserError if it does not exist."""
    return TASKS.get(name, "task")()


def dev_metrics(recipe: Recipe, *, by_language: bool = True) -> Sequence[Metric]:
    """The metrics of the outputs for dev, set up for the target language.

    Args:
        recipe: the recipe, which names the metrics and the language.
        by_language: whether metrics depend on the language. False for runs of older versions, in which they did not.

    Raises:
        UserError: a metric is unknown, or `best_by` is not one of the metrics.
    """
    task, chosen = build_task(recipe.task), recipe.training.dev_metrics
    chosen = task.metrics if chosen is None else chosen
    for entry in chosen:
        METRICS.get(str(entry.get("name")), "training.dev_metrics")
    language = recipe.text.target.language if by_language else None
    metrics = [metric_in(language, entry) for entry in chosen] if recipe.data.dev else []
    names = ["loss", *(metric.name for metric in metrics)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        what = "scores on dev go by these names, which stand twice"
        raise UserError(what, where="training.dev_metrics", received=twice)
    if (best_by := recipe.training.best_by) not in (None, *names):
        raise UserError("no such dev metric", where="training.best_by", received=best_by, allowed=names)
    return metrics
