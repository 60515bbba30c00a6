"""Views of single sentences: outputs, attention, alignments, dependency heads, contributions, labels.

Shapes: K heads, T rows (what attends), S columns (what is attended to), M source words, N target words, L layers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.errors import UserError, option
from headway.formats.alignments import Links
from headway.losses.dependency_loss import DependencyLoss
from headway.metrics import build_metric
from headway.models.tagger import LAYERS
from headway.predictors.captured_attention import END, AttentionName, AttentionWeights, by_kind
from headway.predictors.label_predictor import LabelPredictor
from headway.predictors.output import Example, LabelledWords, Output
from headway.predictors.sequence_predictor import SequencePredictor
from headway.predictors.word_alignment import Aligner, build_aligner, check_gold
from headway.runs.inspect.capture import Captured, ReadOptions, read
from headway.runs.inspect.contributions import LayerContributions

TITLES = {"encoder.self": "Encoder", "decoder.self": "Decoder", "decoder.cross": "Cross", "layers": "Layers"}
KINDS = list(TITLES)

Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Layer:
    """One layer of a map: its name, such as `decoder.1.cross`, values (K, T, S), T row and S column names."""

    name: str
    values: Floats
    rows: Sequence[str]
    columns: Sequence[str]

    @property
    def title(self) -> str:
        """The name as people read it: `decoder layer 1, cross`."""
        return AttentionName.parse(self.name).title


@dataclass(frozen=True)
class Map:
    """One kind of attention, or another measure of rows by columns, in all layers that have it."""

    title: str
    layers: list[Layer]  # lowest first
    measure: str = "weight"  # the unit of a value
    signed: bool = False  # values may be below zero


@dataclass(frozen=True)
class Alignment:
    """Links of words, each a source and a target word."""

    map: Map  # the weights that they were read from, (1, N, M)
    target: str  # `output` or `reference`
    links: list[tuple[int, int]]
    gold: Links | None = None
    error_rate: float | None = None  # AER of the sentence, in percent, where gold is known


@dataclass(frozen=True)
class Arcs:
    """The head of every token by dependency heads: its position, the token's own for a root, and its weight."""

    title: str
    tokens: list[str]
    heads: list[int]
    weights: list[float]


@dataclass(frozen=True)
class ShownOutput:
    """One output; its tokens and their probabilities include the end mark."""

    text: str
    score: float
    tokens: list[str]
    probabilities: list[float]


@dataclass(frozen=True)
class LabelledWord:
    """A word with its label, the probability of the label, and the true label where it is known."""

    word: str
    label: str
    probability: float
    gold: str | None = None


@dataclass(frozen=True)
class Inspected:
    """A sentence with all there is to see of it; an empty line has nothing."""

    source: str
    reference: str | None = None
    tokens: list[str] = field(default_factory=list)
    outputs: list[ShownOutput] = field(default_factory=list)
    words: list[LabelledWord] = field(default_factory=list)
    maps: list[Map] = field(default_factory=list)
    alignment: Alignment | None = None
    arcs: list[Arcs] = field(default_factory=list)


def inspect(
    predictor: Any, examples: Sequence[Example], gold: Sequence[str] = (), nbest: int = 1
) -> Iterator[Inspected]:
    """Look at sentences, in their order, with what a run's task predicts with.

    Args:
        predictor: one model.
        examples: sentences, with the target that each should become where that is known.
        gold: alignments of sentences and targets as Pharaoh links; none, or one a sentence.
        nbest: outputs of a sentence.

    Raises:
        UserError: whatever reading raises; gold that does not fit the sentences, or for a tagger.
    """
    stream = read(predictor, examples, ReadOptions(force=False, nbest=nbest, contributions=True))
    if isinstance(predictor, LabelPredictor):
        if gold:
            raise UserError("a tagger aligns nothing", where=option("gold"))
        yield from (_labelled(predictor, captured, line) for line, captured in enumerate(stream, start=1))
        return
    has_cross = any(AttentionName.parse(name).kind == "cross" for name in predictor.attention_names())
    aligner = build_aligner(predictor) if has_cross or gold else None  # it says what is missing where gold needs one
    if aligner is None or not gold:
        for captured in stream:
            yield _pair(predictor, captured, None if aligner is None else _alignment(aligner, captured))
        return
    given = [replace(example, target=example.target or "") for example in examples]
    texts = [example.source for example in given], [example.target or "" for example in given]
    true = check_gold(predictor, *texts, gold, option("gold"))
    forced = read(predictor, given, ReadOptions(hypotheses=False, capture=(aligner.layer,)))
    for captured, reference, links in zip(stream, forced, true, strict=True):
        yield _pair(predictor, captured, _alignment(aligner, reference, links))


def _pair(predictor: SequencePredictor, captured: Captured, alignment: Alignment | None) -> Inspected:
    example, prediction = captured.example, captured.prediction
    if not isinstance(prediction, Output):
        return Inspected(example.source, example.target)
    outputs = [
        ShownOutput(each.text, each.score, [*each.tokens, END], np.exp(each.log_probabilities).tolist())
        for each in prediction.hypotheses
    ]
    maps = [*_attention_maps(captured.views[0]), *_contribution_maps(captured.contributions)]
    arcs = list(_arcs(predictor, prediction))
    return Inspected(example.source, example.target, prediction.attended, outputs, [], maps, alignment, arcs)


def maps_of(captured: Captured) -> list[Map]:
    """The attention behind an output or a given target; none where the model read nothing."""
    if not captured.views:
        return []
    if captured.views[0].words is None:
        return [*_attention_maps(captured.views[0])]
    return _window_maps(captured.example.words or captured.example.source.split(), captured.views)


def _attention_maps(view: AttentionWeights) -> Iterator[Map]:
    for kind, names in sorted(by_kind(list(view)).items(), key=lambda item: KINDS.index(item[0])):
        yield Map(
            TITLES[kind], [Layer(name, view[name], view.rows[name], view.columns[name]) for name in names.values()]
        )


def _contribution_maps(layers: Mapping[str, LayerContributions]) -> Iterator[Map]:
    """A map of each measure and stack, a row a token and a column an offset or context."""
    for kind, names in by_kind(list(layers)).items():
        shown = [(name, layers[name], [span.name for span in layers[name].spans]) for name in names.values()]
        norms = [Layer(name, layer.norm, layer.tokens, spans) for name, layer, spans in shown]
        yield Map(f"{TITLES[kind]}: contributions", norms, measure="norm of the contribution before the ReLU")
        gradients = [Layer(name, layer.gradient_input, layer.tokens, spans) for name, layer, spans in shown]
        yield Map(f"{TITLES[kind]}: gradient × input", gradients, measure="nats", signed=True)


def _arcs(predictor: SequencePredictor, prediction: Output) -> Iterator[Arcs]:
    """The arcs of the heads that the recipe's objective taught; those of a side that was not taught are left out."""
    config = predictor.recipe.objective.dependency
    if config is None:
        return
    for side, tokens in (("source", prediction.source_tokens), ("target", prediction.tokens)):
        name = DependencyLoss(config).name_of(side)
        if side in config.sides and tokens and name in prediction.attention:
            # The decoder's row t writes the token t; `input` lets rows and columns stand for the token that is read.
            first = int(side == "target" and config.index_by == "input")
            real = slice(first, first + len(tokens))
            weights = prediction.attention[name][[head - 1 for head in config.heads]].mean(0)[real, real]
            heads = weights.argmax(1)
            title = f"{AttentionName.parse(name).title}, head {', '.join(map(str, config.heads))}"
            best = weights[np.arange(len(heads)), heads]
            yield Arcs(title, list(tokens), heads.tolist(), best.astype(float).tolist())


def _alignment(aligner: Aligner, captured: Captured, gold: Links | None = None) -> Alignment | None:
    """The alignment of an output or, where gold is known, of a reference, whose words the gold is of.

    A single word aligned with a single word tells nothing, so that without gold its tokens are aligned.
    """
    if not isinstance(captured.prediction, Output):
        return None
    words = aligner(captured.prediction, split=gold is None)
    if not (words.source and words.target):
        return None
    layer = Layer(aligner.layer, words.weights[None], words.target, words.source)
    texts = captured.prediction.source_words.texts, captured.prediction.target_words.texts
    units = "words" if (words.source, words.target) == texts else "words, or the tokens of a side of one word"
    weights = Map("Alignment", [layer], measure=f"weight between {units}")
    if gold is None:
        return Alignment(weights, "output", words.links())
    rate = build_metric("aer").score([words.pharaoh()], [[gold.pharaoh()]]).value
    return Alignment(weights, "reference", words.links(), gold, rate)


def _labelled(predictor: LabelPredictor, captured: Captured, line: int) -> Inspected:
    example, labelled = captured.example, captured.prediction
    if not isinstance(labelled, LabelledWords):
        return Inspected(example.source)
    words = list(labelled.words)
    gold: Sequence[str | None] = example.target.split() if example.target is not None else [None] * len(words)
    if len(gold) != len(words):
        raise UserError(
            "a tagger's reference has a label for each word, separated by spaces",
            where=f"{option('reference')}, line {line}", received=f"{len(gold)} labels for {len(words)} words",
        )  # fmt: skip
    best = [float(labelled.probabilities[n, predictor.labels.index(label)]) for n, label in enumerate(labelled.labels)]
    known = [LabelledWord(*word) for word in zip(words, labelled.labels, best, gold, strict=True)]
    return Inspected(example.source, example.target, words, words=known, maps=_window_maps(words, captured.views))


def _window_maps(words: Sequence[str], views: Sequence[AttentionWeights]) -> list[Map]:
    """The layers' weights over all words, where there are any, and self-attention window by window."""
    maps = []
    weights = [view[LAYERS] for view in views if LAYERS in view]
    if weights:
        layers = views[0].columns[LAYERS]
        maps.append(Map(TITLES[LAYERS], [Layer(LAYERS, np.concatenate(weights, axis=1), words, layers)]))
    for view in views:
        title = TITLES["encoder.self"]
        if len(views) > 1:
            title = f"{title}, words {view.start + 1}–{view.start + len(view.words or ())}"
        layers_of_window = [
            Layer(name, values, view.rows[name], view.columns[name]) for name, values in view.items() if name != LAYERS
        ]
        maps.append(Map(title, layers_of_window))
    return maps
