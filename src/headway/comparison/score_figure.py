"""The scores of variants as figures: in their order, such as by how many layers are replaced, and by length."""

from collections.abc import Sequence
from pathlib import Path

from headway.comparison.buckets import BucketScore, length_bucketings
from headway.comparison.compare_options import CompareOptions
from headway.comparison.comparison import Comparison
from headway.errors import UserError, option
from headway.runs.inspect.charts import Panel, panel_chart


def draw_figures(comparison: Comparison, options: CompareOptions) -> None:
    """Draw the figures that the options name."""
    if options.figure is not None:
        draw_scores(comparison, options.figure)
    if options.by_length is not None:
        draw_by_length(comparison, options.by_length)


def draw_scores(comparison: Comparison, path: Path) -> None:
    """Draw the mean score of every variant by every measure, a panel a measure, as PNG, SVG or PDF by the suffix.

    Bars reach one standard deviation between seeds to each side. A level line is the baseline or, without one, the
    first variant.

    Raises:
        UserError: a suffix that is no format of figures.
    """
    names = [variant.name for variant in comparison.variants]
    level = comparison.baseline or names[0]
    what = "mean over seeds" if comparison.seeds > 1 else "score"
    line = level if level != what else f"{level} (baseline)"
    panels = []
    for measure in comparison.measures:
        scores = {variant.name: variant.scores[measure.key] for variant in comparison.variants}
        points = [(float(index), scores[name].mean) for index, name in enumerate(names)]
        lines = {what: points, line: [(x, scores[level].mean) for x, _ in points]}
        spans = [(scores[name].mean, scores[name].sd or 0.0) for name in names]
        bars = {what: [(mean - sd, mean + sd) for mean, sd in spans]}
        panels.append(Panel(title="", x="", y=measure.label, lines=lines, bars=bars, names=names, baseline=line))
    panel_chart(panels, path)


def draw_by_length(comparison: Comparison, path: Path) -> None:
    """Draw the mean score of every variant in each part of a test set by length, with its 95 % interval, as in figure 2
    of Bahdanau et al. (2015) and figure 3 of Kazemnejad et al. (2023). There is a panel a measure.

    Raises:
        UserError: a suffix that is no format of figures, or no test set with lengths.
    """
    what = "mean over seeds" if comparison.seeds > 1 else "score"
    panels = [
        Panel(
            title=bucketing.title, x=bucketing.axis, y=f"{what}, 95 % intervals",
            lines={name: _points(bucketing.lengths, scores) for name, scores in bucketing.scores.items()},
            bars={name: list(map(_ends, scores)) for name, scores in bucketing.scores.items()},
            counts=list(zip(bucketing.lengths, bucketing.counts, strict=True)),
        )
        for bucketing in length_bucketings(comparison)
    ]  # fmt: skip
    if not panels:
        allowed = "groups whose names are numbers, sources, or references of text"
        raise UserError("no test set has lengths", where=option("by_length"), allowed=allowed)
    panel_chart(panels, path)


def _points(lengths: Sequence[float], scores: Sequence[BucketScore]) -> list[tuple[float, float]]:
    return [(length, score.value) for length, score in zip(lengths, scores, strict=True)]


def _ends(score: BucketScore) -> tuple[float, float]:
    """The interval; the score itself where it has none, with one segment."""
    return (score.value, score.value) if score.low is None or score.high is None else (score.low, score.high)
