"""The scores of variants in their order as a figure, such as BLEU by the number of layers that are replaced."""

from pathlib import Path

from headway.comparison.comparison import Comparison
from headway.runs.inspect.drawing import Panel, panel_chart


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
    panels = []
    for measure in comparison.measures:
        scores = {variant.name: variant.scores[measure.key] for variant in comparison.variants}
        points = [(float(index), scores[name].mean) for index, name in enumerate(names)]
        lines = {what: points, level: [(x, scores[level].mean) for x, _ in points]}
        spans = [(scores[name].mean, scores[name].sd or 0.0) for name in names]
        bars = {what: [(mean - sd, mean + sd) for mean, sd in spans]}
        panels.append(Panel(title="", x="", y=measure.label, lines=lines, bars=bars, names=names, baseline=level))
    panel_chart(panels, path)
