"""`headway inspect figures`: the attention of a model over a whole corpus, in constant memory."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from headway.errors import UserError, option
from headway.log import progress
from headway.metrics import Metric, metric_in
from headway.predictors.captured_attention import AttentionName
from headway.predictors.output import TestSet
from headway.predictors.sequence_predictor import SequencePredictor
from headway.registry import foreign_code
from headway.runs.inspect.analyses import (
    Analysis,
    ContributionAnalysis,
    EntropyAnalysis,
    LayerAnalysis,
    LengthAnalysis,
    RelativePositionAnalysis,
    within,
)
from headway.runs.inspect.capture import Captured, ReadOptions, read
from headway.runs.inspect.contributions import mixers_of
from headway.runs.inspect.inspect_options import FigureOptions
from headway.runs.load import load, task_of
from headway.tables import Cell, Column, Table


class CorpusAnalysis:
    """All analyses of a corpus; those of what a model does not have stay empty.

    Args:
        metric: scores by length.
        window: n of the n-gram that attention is compared with.

    Attributes:
        examples: how many there were.
        read: how many of them were neither empty nor too long.
        without: the layers of a sequence model that give neither weights nor contributions.
    """

    def __init__(self, metric: Metric, window: int) -> None:
        self.relative, self.entropies = RelativePositionAnalysis(window), EntropyAnalysis()
        self.contributions, self.lengths = ContributionAnalysis(), LengthAnalysis(metric)
        self.analyses: tuple[Analysis, ...] = (
            self.relative, self.entropies, self.contributions, LayerAnalysis(), self.lengths
        )  # fmt: skip
        self.window, self.examples, self.read = window, 0, 0
        self.without: list[str] = []

    def add(self, captured: Captured) -> None:
        """Count one example."""
        self.examples += 1
        self.read += bool(captured.views)
        for analysis in self.analyses:
            analysis.add(captured)

    def write(self, folder: Path, of: str = "") -> list[Path]:
        """Write all figures that there are numbers for into an existing folder; their paths.

        `of` is the run that they are of, whose name stands above each.
        """
        charts = [chart for analysis in self.analyses for chart in analysis.result()]
        return [path for chart in charts for path in chart.write(folder, of)]

    def summary(self) -> dict[str, Any]:
        """The main numbers, as JSON can hold them; shares and entropies are means over heads, and then head by head."""
        n, attention = self.window, dict[str, dict[str, Any]]()
        for name, entropy in self.entropies.totals.items():
            bits, even = entropy.mean(), entropy.even_mean()
            attention[name] = {"entropy": float(bits.mean()), "entropy_by_head": bits.tolist(), "even_entropy": even}
        for name, relative in self.relative.totals.items():
            inside, even = within(relative.shares(), n), float(within(relative.even_shares(), n))
            attention[name] |= {"within": float(inside.mean()), "within_by_head": inside.tolist(), "even_within": even}
        norms = {
            name: dict(zip([span.name for span in total.spans], total.means()[0].mean(0).tolist(), strict=True))
            for name, total in self.contributions.totals.items()
        }
        counts = {"sentences": self.examples, "read": self.read, "window": n}
        return counts | {"attention": attention, "norms": norms}

    def table(self) -> Table:
        """A row an attention: the share of its weight within the window, and its entropy."""
        rows: list[list[Cell]] = []
        for name, values in self.summary()["attention"].items():
            shares = [100 * values[key] if key in values else None for key in ("within", "even_within")]
            rows.append([AttentionName.parse(name).title, *shares, values["entropy"], values["even_entropy"]])
        columns = [
            Column("attention"), Column(f"within n = {self.window}", "%", ".1f"), Column("evenly", "%", ".1f"),
            Column("entropy", "bits", ".2f"), Column("evenly", "bits", ".2f"),
        ]  # fmt: skip
        notes = ["evenly: what it would be if all that a token may see had the same weight"]
        return Table(columns, rows, notes=notes if self.relative.totals else ())

    def text(self, quality: bool) -> str:
        """The numbers to be read, and what the model does not have; `quality` where scores by length were asked for."""
        lines = [f"{self.read:,} of {self.examples:,} sentences read"]
        if self.entropies.totals:
            lines.append(self.table().text())
        for name, total in self.contributions.totals.items():
            norm, gradient = (means.mean(0) for means in total.means())
            largest = ", ".join(f"{total.spans[index].name} ({norm[index]:.2f})" for index in np.argsort(-norm)[:3])
            strongest, title = total.spans[int(gradient.argmax())].name, AttentionName.parse(name).title
            lines.append(
                f"{title}: no weights; largest contributions: {largest}; by gradient x input most counts {strongest}"
            )
        if self.without:
            titles = "; ".join(AttentionName.parse(name).title for name in self.without)
            lines.append(f"{titles}: no weights and no contributions, so that there is nothing to draw")
        if not (self.relative.totals or self.contributions.totals or self.without):
            lines.append("this model has no self-attention and no n-grams: nothing by relative position")
        if not self.entropies.totals:
            lines.append("this model has no attention: no entropy")
        if quality and not self.lengths.statistics.rows:
            lines.append("no references: no quality by length")
        return "\n".join(lines)


def analyse(predictor: Any, corpus: TestSet, analysis: CorpusAnalysis, options: ReadOptions) -> None:
    """Read a corpus into `analysis`, with a live line of the speed and the time that is left.

    Raises:
        UserError: files that are missing or at fault, or nothing to read.
    """
    with progress("reading", corpus.size, "sentences") as line:
        for captured in read(predictor, corpus.examples, options):
            analysis.add(captured)
            line.update(analysis.examples)
    if not analysis.read:
        raise UserError("there is nothing to read: every line is empty or too long", where=option("input"))
    if isinstance(predictor, SequencePredictor):
        known: Iterable[str] = analysis.relative.totals.keys() | analysis.contributions.totals.keys()
        analysis.without = [name for name in mixers_of(predictor.models[0]) if name not in known]


def run_figures(run: Path, options: FigureOptions) -> str:
    """Read a corpus with a run's model, write figures and their numbers into a folder, and give the report.

    Raises:
        UserError: no run, files that are missing or at fault, nothing to read or to draw.
    """
    with foreign_code(options.allow_code):
        task = task_of([run])
    predictor = load(run, device=options.device, allow_code=options.allow_code)
    recipe = predictor.recipe
    corpus = task.given_test_set(recipe, [] if options.input is None else [options.input], options.reference)
    if (written := task.written(recipe)) is not None:
        corpus = TestSet(corpus.size, (example.as_written(written) for example in corpus.examples))
    with foreign_code(options.allow_code):
        metric = metric_in(recipe.text.target.language, (recipe.training.dev_metrics or task.metrics)[0])
    analysis = CorpusAnalysis(metric, options.within)
    analyse(predictor, corpus, analysis, ReadOptions(hypotheses=options.quality, contributions=True))
    options.output.mkdir(parents=True, exist_ok=True)
    files = analysis.write(options.output, run.resolve().name)
    if options.json_output:
        return json.dumps(analysis.summary() | {"files": [str(path) for path in files]}, indent=1)
    drawn = sorted({path.stem for path in files})
    return "\n".join(
        [analysis.text(options.quality), f"in {options.output}, each as PNG, SVG and CSV: {', '.join(drawn)}"]
    )
