"""What can be seen of how a model treats sentences: outputs, attention, alignments, dependency heads, contributions.

Shapes: K heads, T rows (what attends), S columns (what is attended to), M source words, N target words, L layers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.errors import UserError
from headway.formats.alignments import Links, parse_pharaoh
from headway.losses.dependency_loss import DependencyLoss
from headway.metrics import build_metric
from headway.predictors.captured_attention import ALL, END, by_kind
from headway.predictors.label_predictor import LabelPredictor, WindowCapture
from headway.predictors.options import PredictOptions
from headway.predictors.prediction import Prediction
from headway.predictors.sequence_predictor import SequencePredictor
from headway.predictors.word_alignment import Aligner, build_aligner
from headway.runs.inspect.contributions import Contributions, contributions

CHUNK = 16  # sentences at once: few enough for progress to be seen, many enough to be decoded together
TITLES = {"encoder.self": "Encoder", "decoder.self": "Decoder", "decoder.cross": "Cross", "layers": "Layers"}
KINDS = list(TITLES)

Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Request:
    """What is to be looked at.

    Attributes:
        lines: sentences as the task's predictor reads them.
        references: what each should become, None where that is not known.
        gold: alignments of lines and references as Pharaoh links; none, or one a line.
        nbest: how many outputs are shown.
    """

    lines: Sequence[str]
    references: Sequence[str | None] = ()
    gold: Sequence[str] = ()
    nbest: int = 1


@dataclass(frozen=True)
class Layer:
    """One layer of a map: its name, such as `decoder.0.cross`, values (K, T, S), T row and S column names."""

    name: str
    values: Floats
    rows: Sequence[str]
    columns: Sequence[str]


@dataclass(frozen=True)
class Map:
    """One kind of attention, or another measure of rows by columns, in all layers that have it.

    Attributes:
        title: of the kind.
        layers: lowest first.
        measure: what a value is.
        signed: whether values may be below zero.
    """

    title: str
    layers: list[Layer]
    measure: str = "weight"
    signed: bool = False


@dataclass(frozen=True)
class Alignment:
    """Links of words.

    Attributes:
        map: the weights that they were read from, (1, N, M).
        target: which target it is of, `output` or `reference`.
        found: source and target word of each link.
        gold: the true links, where they are known.
        error_rate: AER of the sentence, in percent, where gold is known.
    """

    map: Map
    target: str
    found: list[tuple[int, int]]
    gold: Links | None = None
    error_rate: float | None = None


@dataclass(frozen=True)
class Arcs:
    """The head of each token by dependency heads: its place, the token's own for a root, and its weight."""

    title: str
    tokens: list[str]
    heads: list[int]
    weights: list[float]


@dataclass(frozen=True)
class Said:
    """One output: text, score, and its tokens with their probabilities, the end mark included."""

    text: str
    score: float
    tokens: list[str]
    probabilities: list[float]


@dataclass(frozen=True)
class LabelledWord:
    """A word with its label, the probability of that, and the true label where it is known."""

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
    outputs: list[Said] = field(default_factory=list)
    words: list[LabelledWord] = field(default_factory=list)
    maps: list[Map] = field(default_factory=list)
    alignment: Alignment | None = None
    arcs: list[Arcs] = field(default_factory=list)


@singledispatch
def inspect(predictor: Any, request: Request) -> Iterator[Inspected]:
    """Look at sentences, in their order, with what a run's task predicts with.

    Raises:
        UserError: a predictor that nothing is known of; whatever it raises itself.
    """
    raise UserError("there is no page for runs of this task yet", where="headway inspect --output")


@inspect.register
def _inspect_pairs(predictor: SequencePredictor, request: Request) -> Iterator[Inspected]:
    beam = max(predictor.recipe.decoding.beam, request.nbest)
    options = PredictOptions(beam=beam, nbest=request.nbest, capture=ALL, truncate=True)
    aligner = _aligner(predictor, request)
    for start in range(0, len(request.lines), CHUNK):
        chunk = slice(start, start + CHUNK)
        lines = request.lines[chunk]
        references = request.references[chunk] or [None] * len(lines)
        predictions = predictor.predict(lines, options, first_line=start + 1)
        alignments = _alignments(predictor, aligner, predictions, request, chunk)
        parts = _contributions(predictor, predictions)
        for prediction, reference, alignment, own in zip(predictions, references, alignments, parts, strict=True):
            maps = [*_attention_maps(prediction), *_contribution_maps(own)]
            yield _of_pair(predictor, prediction, reference, maps, alignment)


def _aligner(predictor: SequencePredictor, request: Request) -> Aligner | None:
    """What aligns words: None for a model without attention to the source. Raises UserError where gold needs one."""
    has_cross = any(name.endswith(".cross") for name in predictor.attention_names())
    return build_aligner(predictor) if has_cross or request.gold else None


def _of_pair(
    predictor: SequencePredictor,
    prediction: Prediction,
    reference: str | None,
    maps: list[Map],
    alignment: Alignment | None,
) -> Inspected:
    if prediction.is_empty:
        return Inspected(prediction.source, reference)
    said = [
        Said(each.text, each.score, [*each.tokens, END], np.exp(each.log_probabilities).tolist())
        for each in prediction.hypotheses
    ]
    arcs = list(_arcs(predictor, prediction))
    return Inspected(prediction.source, reference, prediction.attended, said, [], maps, alignment, arcs)


def _attention_maps(prediction: Prediction) -> Iterator[Map]:
    for kind, names in sorted(by_kind(list(prediction.attention)).items(), key=lambda each: KINDS.index(each[0])):
        layers = [
            Layer(name, prediction.attention[name], prediction.rows(name), prediction.columns(name))
            for name in names.values()
        ]
        yield Map(TITLES[kind], layers)


def _contributions(
    predictor: SequencePredictor, predictions: Sequence[Prediction]
) -> Iterator[dict[str, Contributions]]:
    """What each offset of layers without weights adds, a line; nothing for lines that were cut or are empty."""
    whole = [each for each in predictions if not each.is_empty and predictor.can_read(each.source, each.written)]
    found = contributions(predictor, [each.source for each in whole], [each.written for each in whole])
    by_line = {id(each): own for each, own in zip(whole, found, strict=True)}
    return (by_line.get(id(each), {}) for each in predictions)


def _contribution_maps(found: Mapping[str, Contributions]) -> Iterator[Map]:
    """A map of each measure and stack, a row a token and a column an offset or context."""
    for kind, names in by_kind(list(found)).items():
        layers = [(name, found[name], [part.name for part in found[name].parts]) for name in names.values()]
        norms = [Layer(name, own.norm, own.tokens, parts) for name, own, parts in layers]
        yield Map(f"{TITLES[kind]}: shares", norms, measure="norm of the share before the ReLU")
        gradients = [Layer(name, own.gradient_input, own.tokens, parts) for name, own, parts in layers]
        yield Map(f"{TITLES[kind]}: gradient × input", gradients, measure="nats", signed=True)


def _arcs(predictor: SequencePredictor, prediction: Prediction) -> Iterator[Arcs]:
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
            weights = prediction.attention[name][list(config.heads)].mean(0)[real, real]
            heads = weights.argmax(1)
            title = f"{name}, head {', '.join(map(str, config.heads))}"
            best = weights[np.arange(len(heads)), heads]
            yield Arcs(title, list(tokens), heads.tolist(), best.astype(float).tolist())


def _alignments(
    predictor: SequencePredictor,
    aligner: Aligner | None,
    predictions: Sequence[Prediction],
    request: Request,
    chunk: slice,
) -> Iterable[Alignment | None]:
    """An alignment a line: of its output or, where gold is known, of its reference, whose words the gold is of."""
    if aligner is None:
        return [None] * len(predictions)
    if not request.gold:
        return [_alignment(aligner, each, "output", None) for each in predictions]
    references = [reference or "" for reference in request.references[chunk]]
    forced = predictor.force(request.lines[chunk], references, capture=aligner.layer)
    return [
        _alignment(aligner, each, "reference", gold) for each, gold in zip(forced, request.gold[chunk], strict=True)
    ]


def _alignment(aligner: Aligner, prediction: Prediction, target: str, gold: str | None) -> Alignment | None:
    found = aligner(prediction)
    if not (found.source and found.target):
        return None
    layer = Layer(aligner.layer, found.weights[None], found.target, found.source)
    view = Map("Alignment", [layer], measure="weight between words")
    if gold is None:
        return Alignment(view, target, found.links())
    links = parse_pharaoh(gold, "--gold")
    sizes = len(found.source), len(found.target)
    if any(source >= sizes[0] or to >= sizes[1] for source, to in links.possible):
        raise UserError(
            "these links are between words that the sentences do not have",
            where="--gold", received=gold, allowed=f"{sizes[0]} source and {sizes[1]} target words, numbered from 0",
        )  # fmt: skip
    rate = build_metric("aer").score([found.pharaoh()], [[gold]]).value
    return Alignment(view, target, found.links(), links, rate)


@inspect.register
def _inspect_labels(predictor: LabelPredictor, request: Request) -> Iterator[Inspected]:
    if request.gold:
        raise UserError("a tagger aligns nothing", where="--gold")
    for number, line in enumerate(request.lines):
        words = line.split()
        reference = request.references[number] if request.references else None
        gold: Sequence[str | None] = reference.split() if reference is not None else [None] * len(words)
        if len(gold) != len(words):
            raise UserError(
                "a tagger's reference has a label for each word, separated by spaces",
                where=f"--reference, line {number + 1}", received=f"{len(gold)} labels for {len(words)} words",
            )  # fmt: skip
        if not words:
            yield Inspected(line)
            continue
        (said,) = predictor.predict([words], capture=ALL)
        best = [float(said.probabilities[n, predictor.labels.index(label)]) for n, label in enumerate(said.labels)]
        labelled = [LabelledWord(*each) for each in zip(words, said.labels, best, gold, strict=True)]
        yield Inspected(line, reference, words, words=labelled, maps=_maps_of_looks(words, said.captures))


def _maps_of_looks(words: Sequence[str], looks: Sequence[WindowCapture]) -> list[Map]:
    """The layers' weights over all words, where there are any, and self-attention window by window."""
    maps = []
    weights = [look.layer_weights for look in looks if look.layer_weights is not None]
    if weights:
        every = np.concatenate(weights).transpose(1, 0, 2)  # (J, N, L)
        names = [f"layer {layer}" for layer in range(every.shape[2])]
        maps.append(Map(TITLES["layers"], [Layer("layers", every, words, names)]))
    for look in looks:
        first = look.window.start
        title = TITLES["encoder.self"]
        if len(looks) > 1:
            title = f"{title}, words {first + 1}–{first + len(look.window.first)}"
        layers = [
            Layer(f"encoder.{number}.self", each, look.tokens, look.tokens)
            for number, each in enumerate(look.self_attention)
        ]
        maps.append(Map(title, layers))
    return maps
