"""A task says what an experiment is scored by."""

from typing import Any

import pytest

from headway.errors import UserError
from headway.recipe import Recipe, parse_recipe
from headway.tasks import TASKS, build_task, dev_metrics


def recipe(task: str = "translation", dev: bool = True, **training: Any) -> Recipe:
    corpus = {"tsv": "data.tsv"}
    data = {"train": corpus} | ({"dev": corpus} if dev else {})
    return parse_recipe({"task": task, "data": data, "training": {"updates": 1} | training})


def test_every_task_has_metrics_that_exist() -> None:
    for name in TASKS:
        assert build_task(name).name == name
        assert dev_metrics(recipe(name))


def test_the_metrics_of_translation() -> None:
    assert [metric.name for metric in dev_metrics(recipe())] == ["bleu", "chrf"]


def test_others_can_be_named_or_none() -> None:
    chosen = dev_metrics(recipe(dev_metrics=["exact_match", {"name": "bleu", "lowercase": True}]))
    assert [metric.name for metric in chosen] == ["exact_match", "bleu"]
    assert list(dev_metrics(recipe(dev_metrics=[]))) == []
    assert list(dev_metrics(recipe(dev=False))) == []


@pytest.mark.parametrize("best_by", ["loss", "bleu", "chrf", None])
def test_best_by_is_the_loss_or_a_metric(best_by: str | None) -> None:
    assert len(dev_metrics(recipe(best_by=best_by))) == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"task": "translate"}, "task: unknown task; did you mean 'translation'?; received 'translate'"),
        ({"task": "x", "dev_metrics": ["bleu"]}, "task: unknown task"),
        ({"best_by": "ter"}, "training.best_by: no such dev metric; received 'ter'; allowed: loss, bleu, chrf"),
        ({"best_by": "bleu", "dev_metrics": []}, "training.best_by: no such dev metric"),
        ({"dev_metrics": ["blue"]}, "unknown metric; did you mean 'bleu'?"),
        ({"dev_metrics": [{"name": "bleu", "lower": True}]}, "bleu.lower: unknown key; did you mean 'lowercase'?"),
        ({"dev_metrics": [{"lowercase": True}]}, "training.dev_metrics: a metric needs a name"),
    ],
)
def test_mistakes(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        dev_metrics(recipe(**given))
    assert message in str(error.value)
