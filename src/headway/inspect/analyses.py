"""`headway inspect figures`: the attention of a model over a whole corpus, in constant memory.

Analyses `add` captured examples one by one, and compute a `result` at any time. The size of their sums does not grow
with the number of examples.

Shapes: K heads, T queries, S keys, L positions, P spans.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import UserError, option
from headway.core.languages import look_unspaced
from headway.core.log import progress
from headway.core.tables import Cell, Column, Table
from headway.inspect.capture import Captured, LayerContributions, ReadOptions, mixers_of, read
from headway.inspect.inspect_options import SPAN, FigureOptions
from headway.inspect.layers import LayerAnalysis
from headway.metrics import Metric, metric_in
from headway.metrics.intervals import length_bins, linearise
from headway.metrics.metric import Statistics
from headway.mixers import Span
from headway.pages.charts import Chart, Panel
from headway.predictors.captured_attention import AttentionName, by_kind
from headway.predictors.output import TestSet
from headway.predictors.sequence_predictor import SequencePredictor
from headway.runs.load import load
from headway.runs.run import open_run

OFFSETS = range(-SPAN, SPAN + 1)
UNIFORM = "uniform attention"  # equal weights on all tokens that may be attended to
LEAST_SHOWN = 1e-3

Floats = NDArray[np.floating[Any]]
HeadShares = Mapping[str, Sequence[tuple[str, Floats]]]  # by attention, the shares of each head and of all heads


class OffsetTotals:
    """The share of its weight that every head gives to every offset from query to key, averaged over queries.

    In short sentences most of any weight is near the query. Uniform attention, over all keys that a query may attend
    to, is therefore measured as well.

    Attributes:
        weight: (K, 2 SPAN + 3), summed over queries: all offsets further left, -SPAN to SPAN, all offsets further
            right.
        even: (2 SPAN + 3,), the same for uniform attention.
        queries: the number of queries.
        signed: whether any weight was negative. Weights count by their absolute values.
    """

    def __init__(self, heads: int) -> None:
        self.weight, self.even = np.zeros((heads, 2 * SPAN + 3)), np.zeros(2 * SPAN + 3)
        self.queries, self.signed = 0, False

    def add(self, weights: Floats) -> None:
        """Add the weights (K, T, S) of a sentence, with T = S."""
        self.signed |= bool((weights < 0).any())
        length = weights.shape[1]
        offsets = np.arange(length) - np.arange(length)[:, None]
        bins = (offsets.clip(-SPAN - 1, SPAN + 1) + SPAN + 1).ravel()
        for head, of_head in enumerate(shares_of(weights)):
            self.weight[head] += np.bincount(bins, of_head.ravel(), 2 * SPAN + 3)
        self.even += np.bincount(bins, even_weights(weights).ravel(), 2 * SPAN + 3)
        self.queries += length

    def shares(self) -> Floats:
        """(K, 2 SPAN + 3): the mean weight of every offset; each head's weights sum to one."""
        return self.weight / max(1, self.queries)

    def even_shares(self) -> Floats:
        """(2 SPAN + 3,): the mean weights of uniform attention."""
        return self.even / max(1, self.queries)


def within(shares: Floats, n: int) -> Floats:
    """The share of the weights (..., 2 SPAN + 3) at distances below n, which an n-gram of size n can see."""
    inside: Floats = shares[..., SPAN + 2 - n : SPAN + 1 + n].sum(-1)
    return inside


def shares_of(weights: Floats) -> Floats:
    """(K, T, S): absolute weights divided by their sum for each query; zero if the sum is zero."""
    absolute = np.abs(weights)
    totals = absolute.sum(2, keepdims=True, dtype=np.float64)
    shares: Floats = absolute / np.where(totals > 0, totals, 1)
    return shares


def even_weights(weights: Floats) -> Floats:
    """(T, S): equal weights on all keys with a nonzero weight in any head (a softmax gives all visible keys one)."""
    seen = (weights != 0).any(0)
    even: Floats = seen / np.maximum(seen.sum(1, keepdims=True), 1)
    return even


class EntropyTotals:
    """The entropy, in bits, of attention weights, summed over queries.

    The weights of each query are normalised to sum to one. Queries without weight are not counted. Negative weights,
    which set `signed`, count by their absolute values.
    """

    def __init__(self, heads: int) -> None:
        self.bits, self.queries, self.signed = np.zeros(heads), np.zeros(heads), False
        self.even = 0.0  # bits of uniform weights over the visible keys: the maximum

    def add(self, weights: Floats) -> None:
        """Add the weights (K, T, S) of a sentence."""
        self.signed |= bool((weights < 0).any())
        shares = shares_of(weights)
        logarithms = np.log2(shares, out=np.zeros_like(shares), where=shares > 0)
        self.bits -= (shares * logarithms).sum((1, 2))
        self.queries += (shares > 0).any(2).sum(1)
        self.even += float(np.log2(np.maximum((shares > 0).any(0).sum(1), 1)).sum())

    def mean(self) -> Floats:
        """(K,): the mean entropy over queries."""
        return self.bits / np.maximum(self.queries, 1)

    def even_mean(self) -> float:
        """The mean entropy of uniform weights over queries."""
        return self.even / max(1.0, float(self.queries.max()))


class ContributionTotals:
    """The contributions of a layer's spans by two measures, (K, P) each, summed over positions."""

    def __init__(self, heads: int, spans: Sequence[Span]) -> None:
        self.spans, self.positions = tuple(spans), 0
        self.norm = np.zeros((heads, len(spans)))  # before the ReLU
        self.gradient_input = np.zeros((heads, len(spans)))  # absolute values: signed values would cancel over a corpus

    def add(self, layer: LayerContributions) -> None:
        """Add the contributions of a sentence."""
        self.norm += layer.norm.sum(1, dtype=np.float64)
        self.gradient_input += np.abs(layer.gradient_input).sum(1, dtype=np.float64)
        self.positions += len(layer.tokens)

    def means(self) -> tuple[Floats, Floats]:
        """The norm and the absolute value of gradient x input, both (K, P), averaged over positions."""
        count = max(1, self.positions)
        return self.norm / count, self.gradient_input / count


class Analysis(Protocol):
    """Sums over a corpus, whose size does not depend on the number of examples."""

    def add(self, captured: Captured) -> None:
        """Add an example."""

    def result(self) -> Sequence[Chart]:
        """The charts with their numbers; empty if nothing was counted."""


class RelativePositionAnalysis:
    """Self-attention by relative position (Loem et al. 2023, figure 2), and the share within windows.

    The window of an n-gram, which is shaded, reaches n - 1 tokens to each side; `window` is n.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.totals: dict[str, OffsetTotals] = {}  # by name of the attention

    def add(self, captured: Captured) -> None:
        for view in captured.views:
            for name, weights in view.items():
                if AttentionName.parse(name).kind == "self":
                    self.totals.setdefault(name, OffsetTotals(len(weights))).add(weights)

    def result(self) -> list[Chart]:
        """Two charts per stack, a line per layer: the distribution over offsets, and the share within windows."""
        charts = []
        for names in by_kind(list(self.totals)).values():
            totals = {AttentionName.parse(name): self.totals[name] for name in names.values()}
            shares = {name.layer_title: total.shares().mean(0) for name, total in totals.items()}
            even = even_shares(totals.values())
            heads = {str(name): _heads_and_means(total.shares(), total.even_shares()) for name, total in totals.items()}
            signed = any(total.signed for total in totals.values())
            axis = f"share of the {'absolute ' if signed else ''}weight (%)"
            charts += [self._by_offset(next(iter(totals)).stack, shares, even, heads, axis)]
            charts += [_by_window(next(iter(totals)).stack, shares | {UNIFORM: even}, heads, axis)]
        return charts

    def _by_offset(self, stack: str, shares: Mapping[str, Floats], even: Floats, heads: HeadShares, axis: str) -> Chart:
        n = self.window
        inside = [f"{100 * within(share, n):.0f}" for share in shares.values()]
        shares = {**shares, UNIFORM: even}
        highest = np.max(list(shares.values()), axis=0)[1:-1]
        shown = [
            offset for offset, most in zip(OFFSETS, highest, strict=True) if most >= LEAST_SHOWN or abs(offset) < n
        ]
        right = n - 0.5 if highest[SPAN + 1 :].any() else 0.5
        lowest, most = min(inside, key=float), max(inside, key=float)
        panel = Panel(
            title=f"{stack}: self-attention by relative position",
            x="position of what is attended to, from the token that attends", y=axis,
            lines={
                name: [(at, 100 * float(share[at + SPAN + 1])) for at in shown if at < right or right > 0.5]
                for name, share in shares.items()
            },
            shaded=(0.5 - n, right, f"n = {n}: {lowest if lowest == most else f'{lowest} to {most}'} %"),
            limits=(0, None), baseline=UNIFORM,
        )  # fmt: skip
        offsets = [f"<{-SPAN}", *map(str, OFFSETS), f">{SPAN}"]
        rows = [
            (name, head, offset, share)
            for name, of_heads in heads.items()
            for head, values in of_heads
            for offset, share in zip(offsets, values.tolist(), strict=True)
        ]
        table = Table(("attention", "head", "offset", "share"), rows)
        return Chart(f"relative-position-{stack}", [panel], table, ordered=True)


def _by_window(stack: str, shares: Mapping[str, Floats], heads: HeadShares, axis: str) -> Chart:
    """The share of self-attention within the window of an n-gram, by n."""
    sizes = range(1, SPAN + 2)
    panel = Panel(
        title=f"{stack}: self-attention within a window", x="n: the window reaches n - 1 tokens to each side",
        y=axis, percent=True, baseline=UNIFORM,
        lines={name: [(n, 100 * float(within(share, n))) for n in sizes] for name, share in shares.items()},
    )  # fmt: skip
    rows = [
        (name, head, n, float(within(share, n)))
        for name, of_heads in heads.items() for n in sizes for head, share in of_heads
    ]  # fmt: skip
    return Chart(f"within-{stack}", [panel], Table(("attention", "head", "n", "share"), rows), ordered=True)


def even_shares(totals: Iterable[OffsetTotals]) -> Floats:
    """The shares of uniform attention in the layer with the widest view. (Some layers are limited to a window.)"""
    return min((total.even_shares() for total in totals), key=lambda shares: float(within(shares, 1)))


def _heads_and_means(values: Floats, even: Floats | float) -> list[tuple[str, Any]]:
    """The rows of `values` (K, ...) named by their number from 1, then their mean, then the uniform weights."""
    return [*((str(head), row) for head, row in enumerate(values, start=1)), ("mean", values.mean(0)), (UNIFORM, even)]


class EntropyAnalysis:
    """The entropy of self- and cross-attention."""

    def __init__(self) -> None:
        self.totals: dict[str, EntropyTotals] = {}  # by name of the attention

    def add(self, captured: Captured) -> None:
        for view in captured.views:
            for name, weights in view.items():
                if not AttentionName.parse(name).to_layers:
                    self.totals.setdefault(name, EntropyTotals(len(weights))).add(weights)

    def result(self) -> list[Chart]:
        """One chart: the mean entropy of every head as a dot, with a line through the means of the layers."""
        panels = []
        for names in by_kind(list(self.totals)).values():
            totals = {layer: self.totals[name] for layer, name in names.items()}
            dots = [(layer, float(bits)) for layer, total in totals.items() for bits in total.mean()]
            lines = {
                "mean of the heads": [(layer, float(total.mean().mean())) for layer, total in totals.items()],
                UNIFORM: [(layer, total.even_mean()) for layer, total in totals.items()],
            }
            title = AttentionName.parse(next(iter(names.values()))).group_title
            axis = f"entropy{' of absolute weights' if any(total.signed for total in totals.values()) else ''} (bits)"
            panels.append(Panel(title=title, x="layer", y=axis, lines=lines, dots=dots, baseline=UNIFORM))
        if not panels:
            return []
        highest = max(bits for panel in panels for points in (*panel.lines.values(), panel.dots) for _, bits in points)
        panels = [panel._replace(limits=(0, 1.05 * max(highest, 0.1))) for panel in panels]
        rows = [
            (name, head, float(bits))
            for name, total in self.totals.items()
            for head, bits in _heads_and_means(total.mean(), total.even_mean())
        ]
        return [Chart("entropy", panels, Table(("attention", "head", "bits"), rows), ordered=True)]


class ContributionAnalysis:
    """The contributions of offsets and contexts in layers without attention weights, such as n-grams."""

    def __init__(self) -> None:
        self.totals: dict[str, ContributionTotals] = {}  # by the name that the attention of the layer would have

    def add(self, captured: Captured) -> None:
        for name, layer in captured.contributions.items():
            self.totals.setdefault(name, ContributionTotals(len(layer.norm), layer.spans)).add(layer)

    def result(self) -> list[Chart]:
        """One chart per stack, with a line per layer: the contribution of every span by both measures."""
        charts = []
        for names in by_kind(list(self.totals)).values():
            totals = {AttentionName.parse(name): self.totals[name] for name in names.values()}
            stack = next(iter(totals)).stack
            spans = sorted({span for total in totals.values() for span in total.spans}, key=_from_left_to_right)
            means = {name: total.means() for name, total in totals.items()}
            panels = [
                Panel(
                    title=f"{stack}: {title}", x="offset", y="mean over positions and heads", limits=(0, None),
                    names=[span.name for span in spans],
                    lines={
                        name.layer_title: _points(totals[name].spans, both[measure].mean(0).tolist(), spans)
                        for name, both in means.items()
                    },
                )
                for measure, title in enumerate(("norm of the contribution", "|gradient x input|"))
            ]  # fmt: skip
            rows = [
                (str(name), head, span.name, float(norm), float(gradient))
                for name, total in totals.items()
                for head, (norms, gradients) in enumerate(zip(*means[name], strict=True))
                for span, norm, gradient in zip(total.spans, norms, gradients, strict=True)
            ]
            table = Table(("layer", "head", "part", "norm", "gradient_input"), rows)
            charts.append(Chart(f"contributions-{stack}", panels, table, ordered=True))
        return charts


def _points(spans: Sequence[Span], values: Sequence[float], all_spans: Sequence[Span]) -> list[tuple[float, float]]:
    """The values at the positions of their spans in `all_spans`. A NaN interrupts the line before contexts."""
    points: list[tuple[float, float]] = []
    for span, value in sorted(zip(spans, values, strict=True), key=lambda pair: _from_left_to_right(pair[0])):
        position = all_spans.index(span)
        points += [(position - 0.5, float("nan"))] if span.first is None else []
        points.append((position, value))
    return points


def _from_left_to_right(span: Span) -> tuple[bool, int, int, str]:
    """A sort key for spans: from left to right, contexts of many positions last."""
    return span.first is None, span.first or 0, span.last or 0, span.name


class LengthAnalysis:
    """Quality by the length of the source (Bahdanau et al. 2015, figure 2), for outputs with references."""

    def __init__(self, metric: Metric) -> None:
        self.metric, self.unit = metric, "words"
        self.lengths, self.rows = list[int](), list[Statistics]()

    def add(self, captured: Captured) -> None:
        """Add an example. Lengths are in words or, if the first source has no spaces, in characters."""
        example = captured.example
        if captured.hypothesis is None or not example.references:
            return
        if not self.rows and look_unspaced([example.source]):
            self.unit = "characters"
        self.lengths.append(len(example.source.split() if self.unit == "words" else example.source))
        references = [[text] for text in example.references]
        self.rows.append(self.metric.counted([captured.hypothesis], references, [example.source])[0])

    def result(self) -> list[Chart]:
        """The score by length. Each bin is scored as a corpus."""
        if not self.rows:
            return []
        lengths, rows, name = np.array(self.lengths), np.array(self.rows), self.metric.label
        starts = length_bins(self.lengths)
        bins = np.searchsorted(starts, lengths, side="right") - 1
        members = [bins == index for index in range(len(starts))]
        scores = [linearise(self.metric, [rows[chosen]]).interval(self.metric.bounds) for chosen in members]
        centres, counts = [float(lengths[chosen].mean()) for chosen in members], [int(each.sum()) for each in members]
        panel = Panel(
            title=f"{name} by length of the source", x=f"source length in {self.unit}", y=f"{name}, 95 % intervals",
            lines={"": [(centre, score.value) for centre, score in zip(centres, scores, strict=True)]},
            bars={"": [score.ends for score in scores]}, counts=list(zip(centres, counts, strict=True)),
        )  # fmt: skip
        table = [
            (int(lengths[chosen].min()), int(lengths[chosen].max()), count, centre, score.value, *score.ends)
            for chosen, count, centre, score in zip(members, counts, centres, scores, strict=True)
        ]
        columns = ("shortest", "longest", "segments", "mean_length", name, "low", "high")
        return [Chart("quality-by-length", [panel], Table(columns, table))]


class CorpusAnalysis:
    """All analyses of a corpus. Analyses of features that a model does not have stay empty.

    Args:
        metric: for scores by length.
        window: n of the n-gram that attention is compared with.

    Attributes:
        examples: the number of examples.
        read: the number of examples that were neither empty nor too long.
        without: the layers of a sequence model that have neither weights nor contributions.
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
        self.examples += 1
        self.read += bool(captured.views)
        for analysis in self.analyses:
            analysis.add(captured)

    def write(self, folder: Path, of: str = "") -> list[Path]:
        """Write all figures with data into an existing folder. Returns their paths.

        `of` is the name of the run, which is shown above each figure.
        """
        charts = [chart for analysis in self.analyses for chart in analysis.result()]
        return [path for chart in charts for path in chart.write(folder, of)]

    def summary(self) -> dict[str, Any]:
        """The main numbers as a JSON object: shares and entropies, averaged over heads and for each head."""
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
        """A table with a row per attention: the share of its weight within the window, and its entropy."""
        rows: list[list[Cell]] = []
        for name, values in self.summary()["attention"].items():
            shares = [100 * values[key] if key in values else None for key in ("within", "even_within")]
            rows.append([AttentionName.parse(name).title, *shares, values["entropy"], values["even_entropy"]])
        columns = [
            Column("attention"), Column(f"within n = {self.window}", "%", ".1f"), Column("uniform", "%", ".1f"),
            Column("entropy", "bits", ".2f"), Column("uniform", "bits", ".2f"),
        ]  # fmt: skip
        notes = ["uniform: uniform attention, the same weight on every token that may be attended to"]
        notes = notes if self.relative.totals else []
        signed = [AttentionName.parse(name).title for name, total in self.entropies.totals.items() if total.signed]
        if signed:
            notes.append(f"signed weights count by their absolute values: {'; '.join(signed)}")
        return Table(columns, rows, notes=notes)

    def text(self, quality: bool) -> str:
        """The numbers as text, and what is missing; `quality`: whether scores by length were requested."""
        lines = [f"{self.read:,} of {self.examples:,} sentences read"]
        if self.entropies.totals:
            lines.append(self.table().text())
        for name, total in self.contributions.totals.items():
            norm, gradient = (means.mean(0) for means in total.means())
            largest = ", ".join(f"{total.spans[index].name} ({norm[index]:.2f})" for index in np.argsort(-norm)[:3])
            strongest, title = total.spans[int(gradient.argmax())].name, AttentionName.parse(name).title
            strongest = strongest if strongest.isalpha() else f"offset {strongest}"
            largest = f"largest contributions: {largest}; largest gradient x input: {strongest}"
            lines.append(f"{title}: no weights; {largest}")
        if self.without:
            titles = "; ".join(AttentionName.parse(name).title for name in self.without)
            lines.append(f"{titles}: no weights and no contributions, so that there is nothing to draw")
        if not (self.relative.totals or self.contributions.totals or self.without):
            lines.append("this model has no self-attention and no n-grams: nothing by relative position")
        if not self.entropies.totals:
            lines.append("this model has no attention: no entropy")
        if quality and not self.lengths.rows:
            lines.append("no references: no quality by length")
        return "\n".join(lines)


def analyse(predictor: Any, corpus: TestSet, analysis: CorpusAnalysis, options: ReadOptions) -> None:
    """Read a corpus into `analysis`, showing the speed and the remaining time.

    Raises:
        UserError: files are missing or damaged, or there is nothing to read.
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
    """Read a corpus with a run's model, and write figures and their numbers into a folder. Returns the report.

    Raises:
        UserError: there is no run, files are missing or damaged, or there is nothing to read or to draw.
    """
    with options.leave():
        opened = open_run(run)
        task, predictor = opened.task, load(run, device=options.device)
    recipe = predictor.recipe
    corpus = task.given_test_set(recipe, [] if options.input is None else [options.input], options.reference)
    if (written := task.written(recipe)) is not None:
        corpus = TestSet(corpus.size, (example.as_written(written) for example in corpus.examples))
    with opened.trusted():
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
