"""`headway inspect layers`: a tagger's weights of its encoder's layers, and the evenness of its self-attention.

Shapes: N words, J heads over layers, L layers, P tokens.
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

from headway.errors import UserError, option
from headway.figures.drawing import STYLE, draw_weights, save_figure
from headway.figures.fonts import pick_fonts, visible_token
from headway.formats.conllu import label_column, read_labelled
from headway.formats.lines import check_file
from headway.predictors.captured_attention import AttentionWeights
from headway.predictors.label_predictor import LabelPredictor
from headway.predictors.output import Example
from headway.registry import foreign_code
from headway.runs.inspect.analyses import Evenness, LayerAnalysis, LayerTotals, LayerWeights, mix, of_words
from headway.runs.inspect.capture import ReadOptions, read
from headway.runs.inspect.inspect_options import LayerOptions
from headway.runs.load import load, task_of

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class LayerReport:
    """The layers of a run, and the last one of the run beside it."""

    weights: LayerWeights | None
    evenness: Evenness
    beside: Evenness | None

    def to_json(self) -> dict[str, Any]:
        """All of it as values that JSON can hold."""
        deviation = vars(self.evenness) | {"beside_last": self.beside and self.beside.last}
        return {"layer_weights": self.weights and self.weights.to_json(), "self_attention_deviation": deviation}

    def text(self) -> str:
        """The same, to be read."""
        lines = ["standard deviation of self-attention weights around each word's mean:"]
        lines.append(f"  last layer              {self.evenness.last:.4f}")
        if self.evenness.mixed is not None:
            lines.append(f"  layers as weighted      {self.evenness.mixed:.4f}")
        if self.beside is not None:
            lines.append(f"  last layer of the other {self.beside.last:.4f}")
        return "\n".join([*([self.weights.table().text(), ""] if self.weights else []), *lines])


def run_layers(run: Path, options: LayerOptions) -> str:
    """Look at a tagger's layers, and give the report, as text or JSON. Raises UserError as `inspect_layers` does."""
    report = inspect_layers(run, options)
    return json.dumps(report.to_json(), indent=1) if options.json_output else report.text()


def inspect_layers(run: Path, options: LayerOptions) -> LayerReport:
    """Look at a tagger's layers over labelled words.

    Raises:
        UserError: runs of no tagger, data that cannot be read, no such sentence.
    """
    runs = [run] if options.beside is None else [run, options.beside]
    with foreign_code(options.allow_code):
        task = task_of(runs)
    loaded = [load(path, allow_code=options.allow_code) for path in runs]
    predictors = [predictor for predictor in loaded if isinstance(predictor, LabelPredictor)]
    if not predictors:
        raise UserError("only taggers read layers", where=str(run), received=task.name)
    check_file(options.data, option("data"))
    sentences = list(read_labelled(options.data, label_column(predictors[0].recipe.data.train)))
    if options.figure is not None:
        if options.sentence > (count := len(sentences)):
            what = "there are fewer sentences"
            raise UserError(what, where=option("sentence"), received=options.sentence, allowed=f"{count}")
        shown = sentences[options.sentence - 1]
        self_attention_figure(predictors[0], shown.words, shown.labels[0], options.figure, other=predictors[-1])
    words = [sentence.words for sentence in sentences]
    totals = [layer_totals(predictor, words) for predictor in predictors]
    return LayerReport(
        totals[0].weights(), totals[0].evenness(), totals[1].evenness() if options.beside is not None else None
    )


def layer_totals(predictor: LabelPredictor, sentences: Iterable[Sequence[str]]) -> LayerTotals:
    """The sums over sentences, which give the weights of the layers and the evenness of self-attention."""
    analysis = LayerAnalysis()
    for captured in read(predictor, map(_example, sentences), ReadOptions(hypotheses=False)):
        analysis.add(captured)
    return analysis.totals


def _example(words: Sequence[str]) -> Example:
    return Example(" ".join(words), words=tuple(words))


def self_attention(view: AttentionWeights) -> tuple[Floats, Floats | None]:
    """The weights of the words of a window, (N, P), heads averaged: in the last layer, and in all, layer-weighted.

    The weight of a layer is that of a word's attention to layers, averaged over its heads (the mix of figure 2b).
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
    """Draw the self-attention of a sentence twice: in the last layer, and mixed as the layers are (figure 2).

    Behind every word of both axes stand its gold label, where there is one, and the predicted one. Special tokens are
    left out. Only the first window is drawn.

    Args:
        predictor: a model that attends to layers.
        words: the sentence.
        gold: its labels.
        path: the figure; its suffix says the format.
        other: the model of the first picture, such as one that reads the last layer alone; by default the same.

    Raises:
        UserError: the model does not attend to layers, or the format is unknown.
    """
    pictures = []
    for title, model in (("last layer", other or predictor), ("layers as they are weighted", predictor)):
        (captured,) = read(model, [_example(words)], ReadOptions())
        view = captured.views[0]
        last, mixed = self_attention(view)
        chosen = last if title == "last layer" else mixed
        if chosen is None:
            raise UserError("this model does not attend to layers", where="model.layers", allowed="attention")
        assert captured.hypothesis is not None
        assert view.words is not None
        labels, tokens = captured.hypothesis.split(" "), next(iter(view.rows.values()))
        for word, position in enumerate(view.words, start=view.start):
            wanted = f" {gold[word]}" if gold is not None else ""
            tokens[position] = f"{words[word]}{wanted} {labels[word]}"
        # The encoder's own special tokens take most of the attention and say nothing of the words.
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
