"""`headway inspect tables layers`: a tagger's weights of encoder layers, and the evenness of its self-attention.

Shapes: K heads, N words, J heads over layers, L layers, P tokens.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from headway.core.errors import UserError, option
from headway.core.figures import STYLE, draw_weights, pick_fonts, save_figure, visible_token
from headway.core.tables import Cell, Column, Spread, Table
from headway.formats.conllu import label_column, read_labelled
from headway.formats.lines import check_file
from headway.inspect.capture import Captured, ReadOptions, read
from headway.inspect.inspect_options import LayerOptions
from headway.pages.charts import Chart, Panel
from headway.predictors.captured_attention import AttentionName, AttentionWeights, layer_titles
from headway.predictors.label_predictor import LabelPredictor
from headway.predictors.output import Example
from headway.runs.load import load

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class LayerWeights:
    """The attention to layers over all words of a test set."""

    mean: Floats  # (J, L)
    deviation: Floats  # (J, L), over words
    words: int

    def to_json(self) -> dict[str, Any]:
        """The weights, and their mean over heads, as a JSON object."""
        return {
            "words": self.words,
            "mean": self.mean.mean(0).tolist(),
            "mean_by_head": self.mean.tolist(),
            "deviation_by_head": self.deviation.tolist(),
        }

    def table(self) -> Table:
        """A table with a row per head and a column per layer: mean ± standard deviation over words; then all heads."""
        heads, layers = self.mean.shape
        rows: list[list[Any]] = [
            [str(head + 1), *map(Spread, self.mean[head].tolist(), self.deviation[head].tolist())]
            for head in range(heads)
        ]
        rows.append(["all", *self.mean.mean(0).tolist()])
        return Table([Column("head"), *(Column(title, format=".4f") for title in layer_titles(layers))], rows)


@dataclass(frozen=True)
class Evenness:
    """The standard deviation of self-attention weights around each word's mean, averaged over words.

    Smaller is more even. `last` is of the last layer, `layers` of each layer, and `mixed` of the layer-weighted mean;
    `mixed` is None if the model does not attend to layers.
    """

    last: float
    mixed: float | None
    layers: list[float]


def of_words(self_attention: Floats, first: Sequence[int]) -> Floats:
    """(L, N, P): the weights of the words' first tokens in all layers, averaged over heads, from (L, K, P, P)."""
    mean: Floats = self_attention.mean(1)[:, list(first)]
    return mean


def mix(by_layer: Floats, layer_weights: Floats) -> Floats:
    """(N, P): the weights of words in all layers (L, N, P), averaged by their layer weights (N, J, L) and over J."""
    mixed: Floats = np.einsum("nl,lnp->np", layer_weights.mean(1), by_layer)
    return mixed


def word_deviations(by_layer: Floats, layer_weights: Floats | None) -> tuple[Floats, Floats | None]:
    """The standard deviation of each word's weights (L, N, P) around its mean: by layer, (L, N), and mixed, (N,).

    The layer weights are (N, J, L). Without them, the second value is None.
    """
    wide = by_layer.astype(np.float64)
    return wide.std(2), None if layer_weights is None else mix(wide, layer_weights.astype(np.float64)).std(1)


class WeightTotals:
    """Sums of layer weights over words, from which mean and deviation can be computed at any time."""

    def __init__(self) -> None:
        self.words = 0
        # Weights are summed relative to those of the first word, which avoids cancellation in the variance.
        self.origin: Floats | None = None  # (J, L)
        self.sums: Floats = np.zeros(0)
        self.squares: Floats = np.zeros(0)

    def add(self, layer_weights: Floats) -> None:
        """Add N > 0 words by their weights (N, J, L)."""
        weights = layer_weights.astype(np.float64)
        if self.origin is None:
            self.origin = weights[0]
            self.sums = self.squares = np.zeros_like(self.origin)
        self.words += len(weights)
        self.sums = self.sums + (weights - self.origin).sum(0)
        self.squares = self.squares + np.square(weights - self.origin).sum(0)

    def weights(self) -> LayerWeights | None:
        """The weights of the layers; None if there were no words."""
        if self.origin is None:
            return None
        mean = self.sums / self.words
        variance = np.maximum(self.squares / self.words - np.square(mean), 0)
        return LayerWeights(self.origin + mean, np.sqrt(variance), self.words)


class LayerTotals:
    """Sums over words, from which layer weights and the evenness of self-attention can be computed at any time."""

    def __init__(self) -> None:
        self.words = 0
        self.deviations: Floats = np.zeros(0)  # (L,), summed over words
        self.mixed = 0.0
        self.of_layers = WeightTotals()

    def add(self, self_attention: Floats, first: Sequence[int], layer_weights: Floats | None) -> None:
        """Add the words of a window, whose N first tokens are at `first`.

        Self-attention is (L, K, P, P), lowest layer first; layer weights are (N, J, L), if the model has them.
        """
        if not len(first):
            return
        deviations, mixed = word_deviations(of_words(self_attention, first), layer_weights)
        self.words += len(first)
        self.deviations = self.deviations + deviations.sum(1) if len(self.deviations) else deviations.sum(1)
        if layer_weights is None or mixed is None:
            return
        self.mixed += float(mixed.sum())
        self.of_layers.add(layer_weights)

    def weights(self) -> LayerWeights | None:
        """The weights of the layers; None if there were no words, or the model does not attend to layers."""
        return self.of_layers.weights()

    def evenness(self) -> Evenness:
        """The evenness of self-attention. Raises UserError if there were no words."""
        if not self.words:
            raise UserError("there are no words to look at", where="headway inspect")
        layers = (self.deviations / self.words).tolist()
        return Evenness(layers[-1], None if self.weights() is None else self.mixed / self.words, layers)


class LayerAnalysis:
    """Attention to layers: of a tagger to its encoder's layers, or of a stack's sublayers to earlier outputs.

    For a tagger, also the evenness of its self-attention.
    """

    def __init__(self) -> None:
        self.totals = LayerTotals()
        self.depth: dict[str, WeightTotals] = {}  # by name of the attention

    def add(self, captured: Captured) -> None:
        for view in captured.views:
            if view.words is not None:
                self.totals.add(view.self_attention(), view.words, view.layer_weights())
                continue
            for name, weights in view.items():
                if AttentionName.parse(name).to_layers:
                    self.depth.setdefault(name, WeightTotals()).add(weights.transpose(1, 0, 2))

    def result(self) -> list[Chart]:
        """The weights of layers, if there are any, and a tagger's deviation of self-attention by layer."""
        charts = list[Chart]()
        for name, depth in self.depth.items():
            stack = AttentionName.parse(name).stack
            if (weights := depth.weights()) is not None:
                charts.append(_weights_chart(weights, f"{stack}-layer-weights", f"{stack}: attention to", "sublayer"))
        if not self.totals.words:
            return charts
        evenness = self.totals.evenness()
        layers = range(1, len(evenness.layers) + 1)
        if (weights := self.totals.weights()) is not None:
            charts.append(_weights_chart(weights, "layer-weights", "attention to layers:", "head"))
        lines = {"self-attention of the layer": [*zip(layers, evenness.layers, strict=True)]}
        rows: list[tuple[Cell, ...]] = [*zip(layers, evenness.layers, strict=True)]
        if evenness.mixed is not None:
            lines["layers as they are weighted"] = [(layers[0], evenness.mixed), (layers[-1], evenness.mixed)]
            rows.append(("as weighted", evenness.mixed))
        title = "standard deviation of self-attention weights around a word's mean"
        panel = Panel(title=title, x="layer", y="standard deviation", lines=lines, limits=(0, None))
        return [*charts, Chart("self-attention-deviation", [panel], Table(("layer", "deviation"), rows))]


def _weights_chart(weights: LayerWeights, name: str, title: str, head: str) -> Chart:
    """Mean and standard deviation of the weights that each `head`, or each sublayer, gives to each layer or output."""
    own = head == "head"  # sublayers see all outputs before them; output 0 is the embeddings
    title, axis = (f"{title} mean and standard deviation over words", "layer") if own else (
        f"{title} earlier outputs: mean and standard deviation over tokens", "output (0: embeddings)"
    )  # fmt: skip
    lines, bars = dict[str, list[tuple[float, float]]](), dict[str, list[tuple[float, float]]]()
    for number, (mean, deviation) in enumerate(zip(weights.mean, weights.deviation, strict=True), start=1):
        seen = range(len(mean) if own else int(np.flatnonzero(mean)[-1]) + 1)
        lines[f"{head} {number}"] = [(layer + own, float(mean[layer])) for layer in seen]
        bars[f"{head} {number}"] = [
            (float(mean[layer] - deviation[layer]), float(mean[layer] + deviation[layer])) for layer in seen
        ]
    panel = Panel(title=title, x=axis, y="weight", lines=lines, bars=bars, limits=(0, None))
    numbers = [
        (row + 1, layer + own, float(weights.mean[row, layer]), float(weights.deviation[row, layer]))
        for row, layer in np.ndindex(weights.mean.shape)
    ]
    return Chart(name, [panel], Table((head, axis.split()[0], "mean", "deviation"), numbers))


@dataclass(frozen=True)
class LayerReport:
    """The layers of a run, and the last layer of the run `beside` it."""

    weights: LayerWeights | None
    evenness: Evenness
    beside: Evenness | None

    def to_json(self) -> dict[str, Any]:
        deviation = vars(self.evenness) | {"beside_last": self.beside and self.beside.last}
        return {"layer_weights": self.weights and self.weights.to_json(), "self_attention_deviation": deviation}

    def text(self) -> str:
        """The report as text."""
        lines = ["standard deviation of self-attention weights around each word's mean:"]
        lines.append(f"  last layer              {self.evenness.last:.4f}")
        if self.evenness.mixed is not None:
            lines.append(f"  layers as weighted      {self.evenness.mixed:.4f}")
        if self.beside is not None:
            lines.append(f"  last layer of the other {self.beside.last:.4f}")
        return "\n".join([*([self.weights.table().text(), ""] if self.weights else []), *lines])


def run_layers(run: Path, options: LayerOptions) -> str:
    """Inspect a tagger's layers. Returns the report, as text or JSON. Raises UserError as `inspect_layers`."""
    report = inspect_layers(run, options)
    return json.dumps(report.to_json(), indent=1) if options.json_output else report.text()


def inspect_layers(run: Path, options: LayerOptions) -> LayerReport:
    """Inspect a tagger's layers over labelled words.

    Raises:
        UserError: a run is not a tagger, data cannot be read, or there is no such sentence.
    """
    with options.leave():
        loaded = [load(path) for path in (run, options.beside) if path is not None]
    predictors = [predictor for predictor in loaded if isinstance(predictor, LabelPredictor)]
    if len(predictors) < len(loaded):
        raise UserError("only taggers read layers", where=str(run))
    check_file(options.data, option("data"))
    sentences = list(read_labelled(options.data, label_column(predictors[0].recipe.data.train)))
    if options.figure is not None:
        if options.sentence > len(sentences):
            where, allowed = option("sentence"), str(len(sentences))
            raise UserError("there are fewer sentences", where=where, received=options.sentence, allowed=allowed)
        shown = sentences[options.sentence - 1]
        self_attention_figure(predictors[0], shown.words, shown.labels[0], options.figure, other=predictors[-1])
    totals, *beside = [layer_totals(predictor, [each.words for each in sentences]) for predictor in predictors]
    return LayerReport(totals.weights(), totals.evenness(), beside[0].evenness() if beside else None)


def layer_totals(predictor: LabelPredictor, sentences: Iterable[Sequence[str]]) -> LayerTotals:
    """The sums over sentences, for the weights of layers and the evenness of self-attention."""
    analysis = LayerAnalysis()
    examples = (Example("", words=tuple(words)) for words in sentences)
    for captured in read(predictor, examples, ReadOptions(hypotheses=False)):
        analysis.add(captured)
    return analysis.totals


def self_attention(view: AttentionWeights) -> tuple[Floats, Floats | None]:
    """(N, P): the weights of the words of a window, averaged over heads: in the last layer, and layer-weighted.

    A layer is weighted by the word's attention to layers, averaged over heads (the mix of figure 2b).
    """
    by_layer, weights = of_words(view.self_attention(), view.words or ()), view.layer_weights()
    return by_layer[-1], None if weights is None else mix(by_layer, weights)


def self_attention_figure(
    predictor: LabelPredictor,
    words: Sequence[str],
    gold: Sequence[str] | None,
    path: Path,
    *,
    other: LabelPredictor | None = None,
) -> None:
    """Draw the self-attention of a sentence twice: in the last layer, and averaged by layer weights (figure 2).

    Both axes show each word with its gold label, if known, and its predicted label. Special tokens are left out. Only
    the first window is drawn.

    Args:
        predictor: a model that attends to layers.
        words: the sentence.
        gold: its labels.
        path: the figure; the suffix determines the format.
        other: the model of the first picture, such as one that reads only the last layer; by default `predictor`.

    Raises:
        UserError: the model does not attend to layers, or the format is unknown.
    """
    pictures = []
    for title, model in (("last layer", other or predictor), ("layers as they are weighted", predictor)):
        (captured,) = read(model, [Example("", words=tuple(words))], ReadOptions())
        view = captured.views[0]
        last, mixed = self_attention(view)
        chosen = last if title == "last layer" else mixed
        if chosen is None:
            raise UserError("this model does not attend to layers", where="model.layers", allowed="attention")
        assert captured.hypothesis is not None
        assert view.words is not None
        labels, tokens = captured.hypothesis.split(" "), list(next(iter(view.rows.values())))
        for word, position in enumerate(view.words, start=view.start):
            wanted = f" {gold[word]}" if gold is not None else ""
            tokens[position] = f"{words[word]}{wanted} {labels[word]}"
        # The encoder's special tokens get most of the attention and are not informative.
        inner = slice(view.words[0], len(tokens) - len(model.special_tokens[1]))
        rows = [tokens[position] for position in view.words]
        pictures.append((title, chosen[:, inner], tokens[inner], rows))
    families, _ = pick_fonts("".join(visible_token(token) for picture in pictures for token in picture[2]))
    width = len(pictures[0][2])
    with matplotlib.rc_context(STYLE | {"font.family": families}):
        figure = Figure(figsize=(2 * (1.6 + 0.26 * width), 1.8 + 0.26 * width), layout="constrained")
        for axes, (title, weights, columns, rows) in zip(figure.subplots(1, 2), pictures, strict=True):
            draw_weights(axes, weights, columns, rows)
            axes.set_title(title, fontsize=9, loc="left")
        save_figure(figure, path)
