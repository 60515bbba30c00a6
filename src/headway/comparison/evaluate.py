"""`headway.evaluate`: the scores of a run on a test set."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.comparison.grid import NamedCorpus
from headway.comparison.run_results import decode, read_corpus
from headway.errors import UserError
from headway.formats.corpus_config import parse_corpus, paths_resolved
from headway.metrics import Metric, as_metrics, check_kind
from headway.metrics.score_report import ScoreReport, score_texts
from headway.recipe import Recipe
from headway.registry import foreign_code
from headway.runs.load import AnyPredictor, load
from headway.tasks import build_task, dev_metrics


def evaluate(
    run: str | Path | AnyPredictor,
    corpus: str | Mapping[str, Any] | Sequence[Any] | None = None,
    metrics: Metric | str | Sequence[Metric | str] | None = None,
    *,
    device: str = "auto",
    allow_code: bool = False,
    **options: Any,
) -> ScoreReport:
    """Decode a test set with a run, and score the outputs, each score with its 95 % interval over segments.

        headway.evaluate("runs/ja-en", {"tsv": "test.tsv"}, ["bleu", "chrf"], beam=1).table()

    References are normalised as the run's outputs are, by `text.target.normalise`, which the signatures say.

    Args:
        run: a run folder, a pack of one, or what `headway.load` gave.
        corpus: the test set as a recipe has it, such as `{"source": "test.ja", "target": "test.en"}`; by default the
            dev set of the run's recipe.
        metrics: metrics or their names, one or several; by default those of dev in training.
        device: as `headway.load` has it.
        allow_code: as `headway.load` has it.
        options: of prediction, such as `beam`.

    Raises:
        UserError: what `headway.load` and `predict` raise, a test set that cannot be read, or metrics of other outputs.
    """
    if isinstance(run, str | Path):
        predictor, name = load(run, device=device, allow_code=allow_code), str(run)
    else:
        predictor, name, allow_code = run, "run", True  # it was allowed when it was loaded
    recipe = predictor.recipe
    with foreign_code(allow_code):
        chosen = list(dev_metrics(recipe)) if metrics is None else as_metrics(metrics, recipe.text.target.language)
        task = build_task(recipe.task)
        test = replace(_test_set(recipe, corpus), written=task.written(recipe))
        check_kind(chosen, test.kind(task.writes), "metrics")
        read = read_corpus(recipe, test)
        outputs = decode(predictor, read.examples, options).hypotheses
    report = score_texts(chosen, {name: outputs}, read.scored.references)
    scores = tuple(tuple(row.with_references(test.steps) for row in rows) for rows in report.scores)
    return replace(report, scores=scores)


def _test_set(recipe: Recipe, given: Any) -> NamedCorpus:
    if given is not None:
        corpus = paths_resolved(parse_corpus(given, "corpus"), Path.absolute)
        return NamedCorpus("test", corpus, key="corpus")
    if recipe.data.dev is None:
        what = "the run has no dev, so that there is no test set"
        raise UserError(what, where="corpus", allowed='a corpus, such as {"tsv": "test.tsv"}')
    return NamedCorpus("dev", recipe.data.dev, key="data.dev")
