"""Analyses of a corpus: they `add` what was captured, example by example, and give a `result` at any time.

Their sums stay as large as they are, however many examples are added.

Shapes: K heads, T queries, S keys, L positions (or layers, of taggers), P spans or tokens, N words, J heads over
layers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headway.errors import UserError
from headway.metrics import Metric
from headway.mixers import Span
from headway.models.tagger import LAYERS
from headway.predictors.captured_attention import AttentionName, by_kind, layer_titles
from headway.runs.inspect.capture import Captured
from headway.runs.inspect.charts import Chart, Panel
from headway.runs.inspect.contributions import LayerContributions
from headway.runs.inspect.inspect_options import SPAN
from headway.runs.inspect.length_quality import LengthStatistics, score_lengths_of
from headway.tables import Cell, Column, Spread, Table

OFFSETS = range(-SPAN, SPAN + 1)
EVENLY = "evenly"  # weights that are the same at all that may be seen
LEAST_SHOWN = 1e-3

Floats = NDArray[np.floating[Any]]


class OffsetTotals:
    """The weight that every head gives to every offset from a query to a key, averaged over queries.

    In short sentences most of any weight is near. Therefore the weight that is spread evenly over all that a query may
    see stands beside it.

    Attributes:
        weight: (K, 2 SPAN + 3), summed over queries: all that is further to the left, -SPAN to SPAN, further right.
        even: (2 SPAN + 3,), the same of even weights.
        queries: how many there were.
    """

    def __init__(self, heads: int) -> None:
        self.weight, self.even = np.zeros((heads, 2 * SPAN + 3)), np.zeros(2 * SPAN + 3)
        self.queries = 0

    def add(self, weights: Floats) -> None:
        """Count a sentence, (K, T, S) with T = S."""
        length = weights.shape[1]
        offsets = np.arange(length) - np.arange(length)[:, None]
        bins = (offsets.clip(-SPAN - 1, SPAN + 1) + SPAN + 1).ravel()
        for head, of_head in enumerate(weights):
            self.weight[head] += np.bincount(bins, of_head.ravel(), 2 * SPAN + 3)
        self.even += np.bincount(bins, even_weights(weights).ravel(), 2 * SPAN + 3)
        self.queries += length

    def shares(self) -> Floats:
        """(K, 2 SPAN + 3): the mean weight of every offset; those of a head sum to one."""
        return self.weight / max(1, self.queries)

    def even_shares(self) -> Floats:
        """(2 SPAN + 3,): the same of even weights."""
        return self.even / max(1, self.queries)


def within(shares: Floats, n: int) -> Floats:
    """The share of the weight (..., 2 SPAN + 3) that stays less than n away: what an n-gram of that n can see."""
    inside: Floats = shares[..., SPAN + 2 - n : SPAN + 1 + n].sum(-1)
    return inside


def even_weights(weights: Floats) -> Floats:
    """(T, S): weights that are the same at all keys to which any head gives any weight, as a softmax always does."""
    seen = (weights > 0).any(0)
    even: Floats = seen / np.maximum(seen.sum(1, keepdims=True), 1)
    return even


class EntropyTotals:
    """The entropy in bits of the weights of queries, summed over queries.

    A query that gives a part of its weight to these keys counts with that part as the whole, and one that gives
    nothing does not count.
    """

    def __init__(self, heads: int) -> None:
        self.bits, self.queries = np.zeros(heads), np.zeros(heads)
        self.even = 0.0  # bits of even weights over what a query may see, the highest that there can be

    def add(self, weights: Floats) -> None:
        """Count a sentence, (K, T, S)."""
        totals = weights.sum(2, dtype=np.float64)  # (K, T)
        seen = totals > 0
        shares = weights / np.where(seen, totals, 1)[..., None]
        logarithms = np.log2(shares, out=np.zeros_like(shares), where=shares > 0)
        self.bits -= (shares * logarithms).sum((1, 2))
        self.queries += seen.sum(1)
        self.even += float(np.log2(np.maximum((weights > 0).any(0).sum(1), 1)).sum())

    def mean(self) -> Floats:
        """(K,): the mean over queries."""
        return self.bits / np.maximum(self.queries, 1)

    def even_mean(self) -> float:
        """The mean over queries of the entropy of even weights."""
        return self.even / max(1.0, float(self.queries.max()))


class ContributionTotals:
    """The measures of a layer's contributions, (K, P) each, summed over positions."""

    def __init__(self, heads: int, spans: Sequence[Span]) -> None:
        self.spans, self.positions = tuple(spans), 0
        self.norm = np.zeros((heads, len(spans)))  # before the ReLU
        self.gradient_input = np.zeros((heads, len(spans)))  # absolute values: signs would cancel out over a corpus

    def add(self, layer: LayerContributions) -> None:
        """Count a sentence."""
        self.norm += layer.norm.sum(1, dtype=np.float64)
        self.gradient_input += np.abs(layer.gradient_input).sum(1, dtype=np.float64)
        self.positions += len(layer.tokens)

    def means(self) -> tuple[Floats, Floats]:
        """The norm and the absolute value of gradient x input, both (K, P), averaged over positions."""
        count = max(1, self.positions)
        return self.norm / count, self.gradient_input / count


@dataclass(frozen=True)
class LayerWeights:
    """The attention to layers over all words of a test set."""

    mean: Floats  # (J, L)
    deviation: Floats  # (J, L), over words
    words: int

    def to_json(self) -> dict[str, Any]:
        """The weights, and their mean over heads, as values that JSON can hold."""
        return {
            "words": self.words,
            "mean": self.mean.mean(0).tolist(),
            "mean_by_head": self.mean.tolist(),
            "deviation_by_head": self.deviation.tolist(),
        }

    def table(self) -> Table:
        """A row a head and a column a layer: mean ± standard deviation over words, then the mean of all heads."""
        heads, layers = self.mean.shape
        rows: list[list[Any]] = [
            [str(head + 1), *map(Spread, self.mean[head].tolist(), self.deviation[head].tolist())]
            for head in range(heads)
        ]
        rows.append(["all", *self.mean.mean(0).tolist()])
        return Table([Column("head"), *(Column(title, format=".4f") for title in layer_titles(layers))], rows)


@dataclass(frozen=True)
class Evenness:
    """The standard deviation of self-attention weights around a word's own mean, averaged over words.

    Smaller is more even. `last` is of the last layer, `layers` are of all of them, and `mixed` is of the layers as they
    are weighted, None for a model that does not attend to layers.
    """

    last: float
    mixed: float | None
    layers: list[float]


def of_words(self_attention: Floats, first: Sequence[int]) -> Floats:
    """(L, N, P): the weights of the first tokens of words in all layers, heads averaged, of (L, K, P, P)."""
    mean: Floats = self_attention.mean(1)[:, list(first)]
    return mean


def mix(by_layer: Floats, layer_weights: Floats) -> Floats:
    """(N, P): the weights of words in all layers (L, N, P), mixed by their layer weights (N, J, L), averaged over J."""
    mixed: Floats = np.einsum("nl,lnp->np", layer_weights.mean(1), by_layer)
    return mixed


def word_deviations(by_layer: Floats, layer_weights: Floats | None) -> tuple[Floats, Floats | None]:
    """The standard deviation of weights (L, N, P) of words around their means: in all layers, (L, N), and mixed, (N,).

    The weights of layers are (N, J, L), where the model attends to layers; without them there is no mix.
    """
    wide = by_layer.astype(np.float64)
    return wide.std(2), None if layer_weights is None else mix(wide, layer_weights.astype(np.float64)).std(1)


class LayerTotals:
    """Sums over words, which give the weights of layers and the evenness of self-attention at any time."""

    def __init__(self) -> None:
        self.words = 0
        self.deviations: Floats = np.zeros(0)  # (L,), summed over words
        self.mixed = 0.0
        # Weights as they lie beside those of the first word: what is left of their squares is of their own size.
        self.origin: Floats | None = None  # (J, L)
        self.sums: Floats = np.zeros(0)
        self.squares: Floats = np.zeros(0)

    def add(self, self_attention: Floats, first: Sequence[int], layer_weights: Floats | None) -> None:
        """Count the words of a window, whose N first tokens are at `first`.

        Self-attention is (L, K, P, P), lowest layer first; weights of layers are (N, J, L), if the model has them.
        """
        if not len(first):
            return
        deviations, mixed = word_deviations(of_words(self_attention, first), layer_weights)
        self.words += len(first)
        self.deviations = self.deviations + deviations.sum(1) if len(self.deviations) else deviations.sum(1)
        if layer_weights is None or mixed is None:
            return
        self.mixed += float(mixed.sum())
        weights = layer_weights.astype(np.float64)
        if self.origin is None:
            self.origin = weights[0]
            self.sums = self.squares = np.zeros_like(self.origin)
        self.sums = self.sums + (weights - self.origin).sum(0)
        self.squares = self.squares + np.square(weights - self.origin).sum(0)

    def weights(self) -> LayerWeights | None:
        """The weights of the layers; None for a model that does not attend to layers, or without words."""
        if self.origin is None:
            return None
        mean = self.sums / self.words
        variance = np.maximum(self.squares / self.words - np.square(mean), 0)
        return LayerWeights(self.origin + mean, np.sqrt(variance), self.words)

    def evenness(self) -> Evenness:
        """The evenness of self-attention. Raises UserError where there were no words."""
        if not self.words:
            raise UserError("there are no words to look at", where="headway inspect")
        layers = (self.deviations / self.words).tolist()
        return Evenness(layers[-1], None if self.origin is None else self.mixed / self.words, layers)


class Analysis(Protocol):
    """Sums over a corpus, as large after a million examples as after one."""

    def add(self, captured: Captured) -> None:
        """Count one example."""

    def result(self) -> Sequence[Chart]:
        """The charts, with their numbers; none where there was nothing to count."""


class RelativePositionAnalysis:
    """Self-attention by relative position (Loem et al. 2023, figure 2), and the share within windows.

    The window of an n-gram, which is shaded, reaches n - 1 tokens to each side; `window` is its n.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.totals: dict[str, OffsetTotals] = {}  # by name of the attention

    def add(self, captured: Captured) -> None:
        """Count one example."""
        for view in captured.views:
            for name, weights in view.items():
                if AttentionName.parse(name).kind == "self":
                    self.totals.setdefault(name, OffsetTotals(len(weights))).add(weights)

    def result(self) -> list[Chart]:
        """Two charts a stack: the distribution over offsets, and the share within every window."""
        charts = []
        for names in by_kind(list(self.totals)).values():
            totals = {AttentionName.parse(name): self.totals[name] for name in names.values()}
            charts += [self._by_offset(totals), _by_window(totals)]
        return charts

    def _by_offset(self, totals: Mapping[AttentionName, OffsetTotals]) -> Chart:
        """The distribution over relative position, a line a layer."""
        n, stack = self.window, next(iter(totals)).stack
        shares = {name.layer_title: total.shares().mean(0) for name, total in totals.items()}
        inside = [f"{100 * within(share, n):.0f}" for share in shares.values()]
        shares[EVENLY] = even_shares(totals.values())
        highest = np.max(list(shares.values()), axis=0)[1:-1]
        shown = [
            offset for offset, most in zip(OFFSETS, highest, strict=True) if most >= LEAST_SHOWN or abs(offset) < n
        ]
        right = n - 0.5 if highest[SPAN + 1 :].any() else 0.5
        lines = {
            name: [(offset, 100 * float(share[offset + SPAN + 1])) for offset in shown if offset < right or right > 0.5]
            for name, share in shares.items()
        }
        lowest, most = min(inside, key=float), max(inside, key=float)
        label = f"n = {n}: {lowest if lowest == most else f'{lowest} to {most}'} %"
        panel = Panel(
            title=f"{stack}: self-attention by relative position",
            x="position of what is attended to, from the token that attends", y="share of the weight (%)",
            lines=lines, shaded=(0.5 - n, right, label), limits=(0, None), baseline=EVENLY,
        )  # fmt: skip
        offsets = [f"<{-SPAN}", *map(str, OFFSETS), f">{SPAN}"]
        rows = [
            (str(name), head, offset, share)
            for name, total in totals.items()
            for head, values in _heads_and_means(total.shares(), total.even_shares())
            for offset, share in zip(offsets, values.tolist(), strict=True)
        ]
        table = Table(("attention", "head", "offset", "share"), rows)
        return Chart(f"relative-position-{stack}", [panel], table, ordered=True)


def _by_window(totals: Mapping[AttentionName, OffsetTotals]) -> Chart:
    """The share of self-attention that an n-gram of n can see, by n, a line a layer."""
    sizes, stack = range(1, SPAN + 2), next(iter(totals)).stack
    shares = {name.layer_title: total.shares().mean(0) for name, total in totals.items()}
    shares[EVENLY] = even_shares(totals.values())
    lines = {name: [(n, 100 * float(within(share, n))) for n in sizes] for name, share in shares.items()}
    panel = Panel(
        title=f"{stack}: self-attention within a window", x="n: the window reaches n - 1 tokens to each side",
        y="share of the weight (%)", lines=lines, percent=True, baseline=EVENLY,
    )  # fmt: skip
    rows = [
        (str(name), head, n, float(within(share, n)))
        for name, total in totals.items()
        for n in sizes
        for head, share in _heads_and_means(total.shares(), total.even_shares())
    ]
    return Chart(f"within-{stack}", [panel], Table(("attention", "head", "n", "share"), rows), ordered=True)


def even_shares(totals: Iterable[OffsetTotals]) -> Floats:
    """The even weights of the layer that sees furthest: layers with a window see less."""
    return min((total.even_shares() for total in totals), key=lambda shares: float(within(shares, 1)))


def _heads_and_means(values: Floats, even: Floats | float) -> Iterable[tuple[str, Any]]:
    """The rows of values (K, ...) with their numbers from 1, their mean, called `mean`, and those of even weights."""
    yield from ((str(head), of_head) for head, of_head in enumerate(values, start=1))
    yield "mean", values.mean(0)
    yield EVENLY, even


class EntropyAnalysis:
    """The entropy of self- and cross-attention."""

    def __init__(self) -> None:
        self.totals: dict[str, EntropyTotals] = {}  # by name of the attention

    def add(self, captured: Captured) -> None:
        """Count one example."""
        for view in captured.views:
            for name, weights in view.items():
                if name != LAYERS:
                    self.totals.setdefault(name, EntropyTotals(len(weights))).add(weights)

    def result(self) -> list[Chart]:
        """One chart: the mean entropy of every head as a dot, a line through the means of the layers."""
        panels = []
        for names in by_kind(list(self.totals)).values():
            totals = {layer: self.totals[name] for layer, name in names.items()}
            dots = [(layer, float(bits)) for layer, total in totals.items() for bits in total.mean()]
            lines = {
                "mean of the heads": [(layer, float(total.mean().mean())) for layer, total in totals.items()],
                EVENLY: [(layer, total.even_mean()) for layer, total in totals.items()],
            }
            title = AttentionName.parse(next(iter(names.values()))).group_title
            panels.append(Panel(title=title, x="layer", y="entropy (bits)", lines=lines, dots=dots, baseline=EVENLY))
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
    """The contributions of n-grams and the like, in layers without weights."""

    def __init__(self) -> None:
        self.totals: dict[str, ContributionTotals] = {}  # by the name that the attention of the layer would have

    def add(self, captured: Captured) -> None:
        """Count one example."""
        for name, layer in captured.contributions.items():
            self.totals.setdefault(name, ContributionTotals(len(layer.norm), layer.spans)).add(layer)

    def result(self) -> list[Chart]:
        """One chart a stack: the contribution of every span by both measures, a line a layer."""
        stacks = by_kind(list(self.totals)).values()
        return [_by_span({AttentionName.parse(name): self.totals[name] for name in names.values()}) for names in stacks]


def _by_span(totals: Mapping[AttentionName, ContributionTotals]) -> Chart:
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
    return Chart(f"contributions-{stack}", panels, table, ordered=True)


def _points(spans: Sequence[Span], values: Sequence[float], all_spans: Sequence[Span]) -> list[tuple[float, float]]:
    """Values at the positions of their spans among all; no line leads from offsets to a context of many positions."""
    points: list[tuple[float, float]] = []
    for span, value in sorted(zip(spans, values, strict=True), key=lambda pair: _from_left_to_right(pair[0])):
        position = all_spans.index(span)
        points += [(position - 0.5, float("nan"))] if span.first is None else []
        points.append((position, value))
    return points


def _from_left_to_right(span: Span) -> tuple[bool, int, int, str]:
    """A key that sorts spans from left to right, contexts of many positions last."""
    return span.first is None, span.first or 0, span.last or 0, span.name


class LayerAnalysis:
    """A tagger's attention to the layers of its encoder, and the evenness of its self-attention."""

    def __init__(self) -> None:
        self.totals = LayerTotals()

    def add(self, captured: Captured) -> None:
        """Count one example."""
        for view in captured.views:
            if view.words is not None:
                self.totals.add(view.self_attention(), view.words, view.layer_weights())

    def result(self) -> list[Chart]:
        """The deviation of self-attention by layer and, where the model attends to layers, their weights."""
        return [*self._weights(), self._deviations()] if self.totals.words else []

    def _deviations(self) -> Chart:
        evenness = self.totals.evenness()
        layers = range(1, len(evenness.layers) + 1)
        lines = {"self-attention of the layer": list(zip(layers, evenness.layers, strict=True))}
        rows: list[tuple[Cell, ...]] = list(zip(layers, evenness.layers, strict=True))
        if evenness.mixed is not None:
            lines["layers as they are weighted"] = [(layers[0], evenness.mixed), (layers[-1], evenness.mixed)]
            rows.append(("as weighted", evenness.mixed))
        title = "standard deviation of self-attention weights around a word's mean"
        panel = Panel(title=title, x="layer", y="standard deviation", lines=lines, limits=(0, None))
        return Chart("self-attention-deviation", [panel], Table(("layer", "deviation"), rows))

    def _weights(self) -> list[Chart]:
        if (weights := self.totals.weights()) is None:
            return []
        layers = range(1, weights.mean.shape[1] + 1)
        heads = {f"head {head}": mean for head, mean in enumerate(weights.mean, start=1)}
        panel = Panel(
            title="attention to layers: mean and standard deviation over words", x="layer", y="weight",
            lines={name: list(zip(layers, mean.tolist(), strict=True)) for name, mean in heads.items()},
            bars={
                name: list(zip((mean - spread).tolist(), (mean + spread).tolist(), strict=True))
                for (name, mean), spread in zip(heads.items(), weights.deviation, strict=True)
            },
            limits=(0, None),
        )  # fmt: skip
        rows = [
            (head + 1, layer + 1, float(weights.mean[head, layer]), float(weights.deviation[head, layer]))
            for head, layer in np.ndindex(weights.mean.shape)
        ]
        return [Chart("layer-weights", [panel], Table(("head", "layer", "mean", "deviation"), rows))]


class LengthAnalysis:
    """Quality by the length of the source (Bahdanau et al. 2015, figure 2), of outputs whose references are known."""

    def __init__(self, metric: Metric) -> None:
        self.statistics = LengthStatistics(metric)

    def add(self, captured: Captured) -> None:
        """Count one example."""
        example = captured.example
        if captured.hypothesis is not None and example.references:
            self.statistics.add([captured.hypothesis], [[text] for text in example.references], [example.source])

    def result(self) -> list[Chart]:
        """The score by length."""
        if not self.statistics.rows:
            return []
        scores = score_lengths_of({"": self.statistics})
        bins = zip(scores.ranges, scores.centres, scores.scores[""], strict=True)
        rows = [
            (low, high, bin.segments, centre, bin.value, bin.interval.low, bin.interval.high)
            for (low, high), centre, bin in bins
        ]
        columns = ("shortest", "longest", "segments", "mean_length", scores.metric, "low", "high")
        return [Chart("quality-by-length", [scores.panel()], Table(columns, rows))]
