"""Checks of a grid as a whole, before any of its runs begins."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any, get_type_hints

from headway.comparison.checks import check_margin
from headway.comparison.grid import ENDS, FREE, Grid, content, corpus_files, name_of_corpus
from headway.config import validated_options
from headway.errors import UserError
from headway.formats.corpus_config import parts
from headway.formats.corpus_format import open_format
from headway.formats.lines import check_file
from headway.log import warn
from headway.metrics import METRICS, Metric, check_kind
from headway.predictors.predict_options import PredictOptions
from headway.recipe import Recipe, changed_keys
from headway.runs.training.preparation import check_recipe, new_schedule
from headway.tasks import build_task

NOT_OF_GRIDS = ("capture", "prefixes")  # options of prediction for single inputs


@contextmanager
def at_key(where: str) -> Iterator[None]:
    """Put the place of a variant or value before the errors of its recipe."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error.args[0]}") from error


def check_grid(grid: Grid) -> None:
    """Raise UserError where a grid cannot be run as a whole.

    Its metrics and margins are checked, what is tuned and on what, the options of prediction, and the names of runs.
    """
    _check_metrics(grid)
    _check_tuning(grid)
    _check_predict(grid)
    _check_run_names(grid)


def check_corpora(grid: Grid) -> None:
    """Raise UserError where a file that variants are trained on, or evaluated on meanwhile, is missing or empty."""
    for variant in grid.variants:
        with at_key(f"variants.{variant.name}"):
            for name, corpus in variant.recipe.data.corpora().items():
                for where, part in parts(corpus, name):
                    open_format(part, where).check()


def _check_metrics(grid: Grid) -> None:
    """Raise UserError for metrics that are not there, the same twice or of other outputs, or margins of others."""
    scored, writes = list[Metric](), build_task(grid.variants[0].recipe.task).writes
    for where, test in (("metrics", None), *((f"test.{test.name}.metrics", test) for test in grid.tests)):
        for entry in grid.metrics if test is None else test.metrics or ():
            if "name" not in entry:
                raise UserError("a metric needs a name", where=where, received=entry, allowed=METRICS)
        metrics = grid.metrics_of(test)
        if not metrics:
            raise UserError("a comparison needs a metric", where=where, allowed=METRICS)
        names = [metric.label for metric in metrics]
        scored += metrics
        if test is not None:
            check_kind(metrics, test.kind(writes), "metrics" if test.metrics is None else where)
        for name in names:
            if names.count(name) > 1:
                raise UserError("two metrics of one name", where=where, received=name)
    check_margin(grid.config.margin, scored)


def _warn_of_warmup(variant: str, recipe: Recipe) -> None:
    """Say that short runs reach no learning rate which is tuned, where they end within the warm-up."""
    updates, warmup = recipe.training.updates, recipe.optimizer.warmup
    if updates is not None and updates <= warmup:
        warn(
            f"{variant}: tune.updates {updates:,} are within optimizer.warmup {warmup:,}, so that the short runs reach"
            " none of the learning rates that are tuned"
        )


def _check_tuning(grid: Grid) -> None:
    """Raise UserError for values that make the same recipe, or a split that is also reported."""
    tune, tuning_set = grid.config.tune, grid.tuning_set
    if tune is None or tuning_set is None:
        return
    if tune.key in (*FREE, *ENDS) or tune.key.split(".")[0] == "data":
        raise UserError("this key is not one to tune", where="tune.key", received=tune.key)
    for variant in grid.variants:
        with at_key(f"variants.{variant.name}"):
            runs = grid.tuning_runs(variant)
            for run in runs:
                new_schedule(run.recipe)
                if not tune.key.startswith("optimizer."):  # which has nothing to do with the model
                    check_recipe(run.recipe)
        for one, other in combinations(runs, 2):
            if one.seed == other.seed and one.name != other.name and not changed_keys(one.recipe, other.recipe):
                what = "two of the values make the same recipe"
                raise UserError(what, where="tune.values", received=f"{one.value}, {other.value}")
        if tune.key == "optimizer.learning_rate":
            _warn_of_warmup(variant.name, runs[0].recipe)
    tuned = {content(path): path for path in corpus_files(tuning_set.corpus)}
    for test in grid.tests:
        for path in corpus_files(test.corpus):
            if content(path) in tuned:
                raise UserError(
                    f"the test set {test.name} reports this split, so that nothing can be tuned on it",
                    where="tune.on", received=str(tuned[content(path)]),
                )  # fmt: skip
        if test.corpus == tuning_set.corpus:
            what = f"the test set {test.name} reports this corpus, so that nothing can be tuned on it"
            raise UserError(what, where="tune.on", received=name_of_corpus(test.corpus))


def _check_predict(grid: Grid) -> None:
    """Raise UserError for options of prediction that the task does not have, or that a variant's recipe cannot have."""
    task = build_task(grid.variants[0].recipe.task)
    predictor = get_type_hints(type(task).predictor)["return"]
    if not hasattr(predictor, "Options"):
        return
    for name in NOT_OF_GRIDS:
        if name in grid.config.predict:
            raise UserError("a grid's test sets are decoded without this", where=f"predict.{name}")
    with at_key("predict"):
        checked = validated_options(predictor.Options, grid.config.predict)
    if not isinstance(checked, PredictOptions):
        return
    if checked.dictionary is not None:
        check_file(checked.dictionary, "predict.dictionary")
    for variant in grid.variants:
        with at_key(f"variants.{variant.name}: predict"):
            checked.search(variant.recipe.decoding)


def _check_run_names(grid: Grid) -> None:
    """Raise UserError for two runs of one name, which would share a folder."""
    cells = [run for variant in grid.variants for run in grid.cells(variant, _first_value(grid))]
    runs = [run for variant in grid.variants for run in grid.tuning_runs(variant)]
    for where, planned in (("seeds or variants", cells), ("tune.values, tune.seeds or variants", runs)):
        names: dict[str, str] = {}
        for run in planned:
            if run.name.casefold() in names:
                what = "two cells of one name"
                raise UserError(what, where=where, received=f"{names[run.name.casefold()]}, {run.name}")
            names[run.name.casefold()] = run.name


def _first_value(grid: Grid) -> Any:
    return None if grid.config.tune is None else grid.config.tune.values[0]
