"""What a tagger reads from its encoder: the weights of the layers, and how evenly it looks over the sentence.

Shapes: N words, J heads over layers, L layers, K heads of self-attention, P pieces.
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

from headway.errors import UserError
from headway.formats.labelled_words import read_columns
from headway.formats.lines import check_file
from headway.predictors.label_predictor import LabelPredictor, WindowCapture
from headway.runs.inspect.figures import STYLE, draw_weights, pick_fonts, save_figure, visible_token
from headway.runs.load import load, task_of

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class LayerWeights:
    """The attention to layers over all words of a test set.

    Attributes:
        mean: (J, L).
        deviation: (J, L), over words.
        words: how many.
    """

    mean: Floats
    deviation: Floats
    words: int

    def to_json(self) -> dict[str, Any]:
        """All of it, and the mean over heads, as values that JSON can hold."""
        return {
            "words": self.words,
            "mean": self.mean.mean(0).tolist(),
            "mean_by_head": self.mean.tolist(),
            "deviation_by_head": self.deviation.tolist(),
        }

    def text(self) -> str:
        """A table with a row a head and a column a layer, mean ± standard deviation over words, then over all heads."""
        heads, layers = self.mean.shape
        lines = ["head " + "".join(f"{f'layer {layer + 1}':>16}" for layer in range(layers))]
        for head in range(heads):
            cells = zip(self.mean[head], self.deviation[head], strict=True)
            lines.append(f"{head + 1:<5}" + "".join(f"{f'{mean:.4f} ± {spread:.4f}':>16}" for mean, spread in cells))
        lines.append("all  " + "".join(f"{mean:>16.4f}" for mean in self.mean.mean(0)))
        return "\n".join(lines)


@dataclass(frozen=True)
class Evenness:
    """The standard deviation of self-attention weights around a word's own mean, averaged over words.

    Smaller is more even. `mixed` is None for a model that does not attend to layers; `layers` are all of them.
    """

    last: float
    mixed: float | None
    layers: list[float]


def self_attention(look: WindowCapture) -> tuple[Floats, Floats | None]:
    """What each word of a window looks at, (N, P), heads averaged: in the last layer, and in all, layer-weighted.

    The weight of a layer is that of a word's attention to layers, averaged over its heads (the mix of figure 2b).
    """
    by_layer = of_words(look.self_attention, look.window.first)
    return by_layer[-1], None if look.layer_weights is None else mix(by_layer, look.layer_weights)


def of_words(self_attention: Floats, first: Sequence[int]) -> Floats:
    """(L, N, P): what the first pieces of words look at in each layer, heads averaged, of (L, K, P, P)."""
    mean: Floats = self_attention.mean(1)[:, list(first)]
    return mean


def mix(by_layer: Floats, layer_weights: Floats) -> Floats:
    """(N, P): what words look at in all layers (L, N, P), each as its weights (N, J, L) say, averaged over the J."""
    mixed: Floats = np.einsum("nl,lnp->np", layer_weights.mean(1), by_layer)
    return mixed


class LayerTotals:
    """Sums over words, from which the weights of layers and the evenness of self-attention come at any time."""

    def __init__(self) -> None:
        self.words = 0
        self.deviations: Floats = np.zeros(0)  # (L,), summed over words
        self.mixed = 0.0
        # Weights as they lie beside those of the first word: what is left of their squares is of their own size.
        self.origin: Floats | None = None  # (J, L)
        self.sums: Floats = np.zeros(0)
        self.squares: Floats = np.zeros(0)

    def add(self, self_attention: Floats, first: Sequence[int], layer_weights: Floats | None) -> None:
        """Count the words of a window, whose first pieces are at `first`.

        Args:
            self_attention: (L, K, P, P), lowest layer first.
            first: (N,).
            layer_weights: (N, J, L), where the model attends to layers.
        """
        if not len(first):
            return
        by_layer = of_words(self_attention, first).astype(np.float64)
        self.words += len(first)
        self.deviations = self.deviations + by_layer.std(2).sum(1) if len(self.deviations) else by_layer.std(2).sum(1)
        if layer_weights is None:
            return
        weights = layer_weights.astype(np.float64)
        self.mixed += float(mix(by_layer, weights).std(1).sum())
        if self.origin is None:
            self.origin = weights[0]
            self.sums = self.squares = np.zeros_like(self.origin)
        self.sums = self.sums + (weights - self.origin).sum(0)
        self.squares = self.squares + np.square(weights - self.origin).sum(0)

    def weights(self) -> LayerWeights | None:
        """The weights of the layers; None for a model without such, or without words."""
        if self.origin is None:
            return None
        mean = self.sums / self.words
        variance = np.maximum(self.squares / self.words - np.square(mean), 0)
        return LayerWeights(self.origin + mean, np.sqrt(variance), self.words)

    def evenness(self) -> Evenness:
        """How even self-attention is. Raises UserError where there were no words."""
        if not self.words:
            raise UserError("there are no words to look at", where="headway inspect")
        layers = (self.deviations / self.words).tolist()
        return Evenness(layers[-1], None if self.origin is None else self.mixed / self.words, layers)


def measure(predictor: LabelPredictor, sentences: Iterable[Sequence[str]]) -> tuple[LayerWeights | None, Evenness]:
    """The weights of the layers, where the model has such, and the evenness of self-attention, over sentences.

    Raises:
        UserError: there are no words.
    """
    totals = LayerTotals()
    for words in sentences:
        for look in predictor.capture(words):
            totals.add(look.self_attention, look.window.first, look.layer_weights)
    return totals.weights(), totals.evenness()


@dataclass(frozen=True)
class LayerReport:
    """What `headway inspect --layers` found: of a run, and of the run beside it."""

    weights: LayerWeights | None
    evenness: Evenness
    beside: Evenness | None

    def to_json(self) -> str:
        """All of it as JSON text."""
        content = {
            "layer_weights": self.weights and self.weights.to_json(),
            "self_attention_deviation": vars(self.evenness) | {"beside_last": self.beside and self.beside.last},
        }
        return json.dumps(content, indent=1)

    def text(self) -> str:
        """The same, to be read."""
        lines = ["standard deviation of self-attention weights around each word's mean:"]
        lines.append(f"  last layer              {self.evenness.last:.4f}")
        if self.evenness.mixed is not None:
            lines.append(f"  layers as weighted      {self.evenness.mixed:.4f}")
        if self.beside is not None:
            lines.append(f"  last layer of the other {self.beside.last:.4f}")
        return "\n".join([*([self.weights.text(), ""] if self.weights else []), *lines])


def inspect_layers(run: Path, data: Path, *, beside: Path | None, figure: Path | None, sentence: int) -> LayerReport:
    """Look at a tagger's layers over labelled words.

    Args:
        run: the run.
        data: a word a row with its label.
        beside: another run, whose last layer is measured and drawn.
        figure: where to draw the self-attention of a sentence, if at all.
        sentence: which one, counted from 1.

    Raises:
        UserError: runs of no tagger, data that cannot be read, no such sentence.
    """
    task = task_of([run] if beside is None else [run, beside])
    loaded = [load(each) for each in (run, beside) if each is not None]
    predictors = [each for each in loaded if isinstance(each, LabelPredictor)]
    if not predictors:
        raise UserError("only taggers read layers", where="--layers", received=task.name)
    check_file(data, "--layers")
    sentences = list(read_columns(data))
    if figure is not None:
        if sentence > len(sentences):
            raise UserError(
                "there are fewer sentences", where="--sentence", received=sentence, allowed=f"{len(sentences)}"
            )
        shown = sentences[sentence - 1]
        self_attention_figure(predictors[0], shown.words, shown.labels[0], figure, other=predictors[-1])
    words = [each.words for each in sentences]
    weights, evenness = measure(predictors[0], words)
    return LayerReport(weights, evenness, measure(predictors[1], words)[1] if beside is not None else None)


def self_attention_figure(
    predictor: LabelPredictor,
    words: Sequence[str],
    gold: Sequence[str] | None,
    path: Path,
    *,
    other: LabelPredictor | None = None,
) -> None:
    """Draw the self-attention of a sentence twice: in the last layer, and mixed as the layers are (figure 2).

    Behind each word of both axes stand its gold label, where there is one, and the predicted one; marks are left out.

    Args:
        predictor: a model that attends to layers.
        words: the sentence, of which the first window is drawn.
        gold: its labels.
        path: the figure; its suffix says the format.
        other: the model of the first picture, such as one that reads the last layer alone; by default the same.

    Raises:
        UserError: the model does not attend to layers, or the format is unknown.
    """
    pictures = []
    for title, each in (("last layer", other or predictor), ("layers as they are weighted", predictor)):
        look = each.capture(words)[0]
        last, mixed = self_attention(look)
        chosen = last if title == "last layer" else mixed
        if chosen is None:
            raise UserError("this model does not attend to layers", where="model.layers", allowed="attention")
        said = each.predict([words])[0].labels
        tokens = _tagged(look, words, gold, said)
        # The encoder's own marks take most of the attention and say nothing of the words.
        inner = slice(look.window.first[0], len(tokens) - len(each.special_tokens[1]))
        rows = [tokens[place] for place in look.window.first]
        pictures.append((title, chosen[:, inner], tokens[inner], rows))
    families, _ = pick_fonts("".join(visible_token(token) for picture in pictures for token in picture[2]))
    width = len(pictures[0][2])
    with matplotlib.rc_context(STYLE | {"font.family": families}):
        figure = Figure(figsize=(2 * (1.6 + 0.26 * width), 1.8 + 0.26 * width), layout="constrained")
        for axes, (title, weights, columns, rows) in zip(figure.subplots(1, 2), pictures, strict=True):
            draw_weights(axes, weights, columns, rows)
            axes.set_title(title, fontsize=9, loc="left")
        save_figure(figure, path)


def _tagged(look: WindowCapture, words: Sequence[str], gold: Sequence[str] | None, said: Sequence[str]) -> list[str]:
    """The pieces of a window, those that begin a word with its gold and its predicted label."""
    tokens = list(look.tokens)
    for number, place in enumerate(look.window.first, start=look.window.start):
        wanted = f" {gold[number]}" if gold is not None else ""
        tokens[place] = f"{words[number]}{wanted} {said[number]}"
    return tokens
