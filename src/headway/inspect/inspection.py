"""`headway inspect page` and `heat-map`: outputs, attention, alignments, heads, contributions, labels of sentences.

The page stores each sentence separately, and reads it when it is shown. Values are integers on a square-root scale,
which is finest for small weights: 16 bits each if there are few values, 8 bits if there are many.

Shapes: K heads, T rows (attending), S columns (attended to), M source words, N target words, L layers.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from itertools import chain, islice
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from headway.core.errors import UserError, check_companions, option
from headway.core.figures import STYLE, draw_weights, drawable, save_figure, visible_token
from headway.core.files import write_text
from headway.core.log import counted, progress, say
from headway.core.registry import construct
from headway.core.tables import Cell, Column, Table
from headway.formats.alignments import Links, read_alignments
from headway.formats.lines import read_lines
from headway.inspect.capture import Captured, Layer, ReadOptions, read
from headway.inspect.carried_model import carried_model
from headway.inspect.inspect_options import AttributionOptions, HeatMapOptions, PageOptions
from headway.losses.dependency_loss import DependencyLoss
from headway.metrics import build_metric
from headway.models.tagger import LAYERS
from headway.pages.page import packed_weights, page_text
from headway.predictors.attribution import ATTRIBUTIONS, Attribution
from headway.predictors.captured_attention import BEGIN, END, AttentionName, AttentionWeights, by_kind
from headway.predictors.label_predictor import LabelPredictor
from headway.predictors.output import Example, LabelledWords, Output
from headway.predictors.sequence_predictor import SequencePredictor
from headway.predictors.word_alignment import Aligner, build_aligner, check_gold
from headway.runs.load import load
from headway.runs.run import open_run
from headway.training.report import INSIDE, link_inside

TITLES = {
    "encoder.self": "Encoder", "decoder.self": "Decoder", "decoder.cross": "Cross", "layers": "Layers",
    "encoder.layers": "Encoder: depth", "decoder.layers": "Decoder: depth",
}  # fmt: skip
KINDS = list(TITLES)
STYLES = ("palette.css", "inspect.css", "heatmap.css")
SCRIPTS = (
    "elements.js", "charts.js", "save.js", "weights.js", "heatmap.js", "overview.js", "sentence.js", "arcs.js",
    "layers.js", "recurrent.js", "model.js", "switches.js", "inspect.js",
)  # fmt: skip
LEAST_SHARE = 0.01  # tables name inputs above this share of the row's largest value
FIRST = 32  # sentences that determine the bits per value
MOST_EXACT = 8_000_000  # the most values stored with 16 bits


@dataclass(frozen=True)
class Map:
    """One kind of attention, or another measure of rows by columns, in all layers that have it."""

    title: str
    layers: list[Layer]  # lowest first
    measure: str = "weight"  # the unit of a value
    signed: bool = False  # values may be negative


@dataclass(frozen=True)
class Alignment:
    """Links between source and target words."""

    map: Map  # the weights (1, N, M) that the links are derived from
    target: str  # `output` or `reference`
    links: list[tuple[int, int]]
    gold: Links | None = None
    error_rate: float | None = None  # AER of the sentence in percent, if gold is known


@dataclass(frozen=True)
class Arcs:
    """The predicted head of each token: its position (the token itself for a root), and its weight."""

    title: str
    tokens: list[str]
    heads: list[int]
    weights: list[float]


@dataclass(frozen=True)
class ShownOutput:
    """One output. Its tokens and their probabilities include the end mark."""

    text: str
    score: float
    tokens: list[str]
    probabilities: list[float]


@dataclass(frozen=True)
class LabelledWord:
    """A word with its predicted label, the label's probability, and the true label if it is known."""

    word: str
    label: str
    probability: float
    gold: str | None = None


@dataclass(frozen=True)
class Inspected:
    """A sentence with all captured information. All lists are empty for an empty line."""

    source: str
    reference: str | None = None
    tokens: list[str] = field(default_factory=list)
    outputs: list[ShownOutput] = field(default_factory=list)
    words: list[LabelledWord] = field(default_factory=list)
    maps: list[Map] = field(default_factory=list)
    alignment: Alignment | None = None
    arcs: list[Arcs] = field(default_factory=list)


@dataclass(frozen=True)
class Attributing:
    """A method of attribution, the word that it is contrasted with, and the model."""

    predictor: SequencePredictor
    method: Attribution
    against: str | None

    @classmethod
    def of(cls, predictor: Any, name: str, against: str | None) -> Attributing:
        """A method by its name. Raises UserError for a tagger, and as `SequencePredictor.attribute`."""
        if not isinstance(predictor, SequencePredictor):
            raise UserError("attribution is of outputs that are written token by token", where=option("attribution"))
        return cls(
            predictor, construct(ATTRIBUTIONS.get(name, where := option("attribution")), {}, where=where), against
        )

    def __call__(self, output: Output, *, words: bool = False) -> AttentionWeights:
        """The attribution of an output, under the method's name."""
        return self.predictor.attribute(output, self.method, against=self.against, words=words)[0]


def run_attribution(run: Path, options: AttributionOptions) -> str:
    """The attribution of outputs to inputs, per token or word: a table per sentence, or one JSON text.

    Raises:
        UserError: there is no run or no such method, or the method does not fit the model.
    """
    references = None if options.reference is None else [*read_lines(options.reference)]
    if references is not None and len(references) != len(options.text):
        received = f"{len(references)} lines for {len(options.text)} sentences"
        raise UserError("there must be a line for each sentence", where=option("reference"), received=received)
    with options.leave():
        predictor = load(run, device=options.device)
    attributing = Attributing.of(predictor, options.attribution, options.against)
    outputs = predictor.predict(options.text) if references is None else predictor.force(options.text, references)
    views = [attributing(output, words=options.words) for output in outputs]
    if options.json_output:
        records = [
            {"source": output.source, "output": output.text, "method": name, "against": options.against}
            | {"measure": attributing.method.measure, "rows": view.rows[name], "columns": view.columns[name]}
            | {"values": view[name][0].astype(float).round(6).tolist()}
            for output, view in zip(outputs, views, strict=True) for name in view
        ]  # fmt: skip
        return json.dumps(records, indent=1, ensure_ascii=False)
    tables = [
        _table_of_inputs(output, view, name, attributing)
        for output, view in zip(outputs, views, strict=True) for name in view
    ]  # fmt: skip
    return "\n\n".join(table.text() for table in tables)


def _table_of_inputs(output: Output, view: AttentionWeights, name: str, attributing: Attributing) -> Table:
    """A table with a row per written token: the sum of all inputs' values, and the largest inputs of each side."""
    rows, columns = list[list[Cell]](), view.columns[name]
    begin = columns.index(BEGIN, columns.index(END))
    for token, values in zip(view.rows[name], view[name][0], strict=True):
        least = LEAST_SHARE * float(np.abs(values).max())
        order = [index for index in np.argsort(-np.abs(values), kind="stable") if abs(values[index]) > least]
        sides = [index for index in order if index < begin], [index for index in order if index >= begin]
        named = [", ".join(f"{visible_token(columns[at])} {values[at]:+.2g}" for at in side[:3]) for side in sides]
        rows.append([visible_token(token), float(values.sum()), *named])
    measure = attributing.method.measure + ("" if attributing.against is None else f", against {attributing.against}")
    shown = "token", Column("sum", measure, ".3g"), "of the source", "of the prefix"
    return Table(shown, rows, title=f"{output.source} -> {output.text} ({name})")


def inspect(
    predictor: Any,
    examples: Sequence[Example],
    gold: Sequence[str] = (),
    nbest: int = 1,
    attributing: Attributing | None = None,
) -> Iterator[Inspected]:
    """Inspect sentences, in order, with the predictor of a run.

    Args:
        predictor: one model.
        examples: sentences, with the target if it is known.
        gold: alignments of sentences and targets as Pharaoh links; none, or one per sentence.
        nbest: outputs per sentence.
        attributing: attributes each token of an output to the inputs; None leaves this out.

    Raises:
        UserError: as reading does; gold that does not match the sentences, or gold for a tagger.
    """
    stream = read(predictor, examples, ReadOptions(force=False, nbest=nbest, contributions=True))
    if isinstance(predictor, LabelPredictor):
        if gold:
            raise UserError("a tagger aligns nothing", where=option("gold"))
        yield from (_labelled(captured, line) for line, captured in enumerate(stream, start=1))
        return
    has_cross = any(AttentionName.parse(name).kind == "cross" for name in predictor.attention_names())
    aligner = build_aligner(predictor) if has_cross or gold else None  # raises if gold has no aligner
    if aligner is None or not gold:
        for captured in stream:
            alignment = None if aligner is None else _alignment(aligner, captured)
            yield _pair(captured, alignment, *_beside(predictor, captured.prediction, attributing))
        return
    given = [replace(example, target=example.target or "") for example in examples]
    texts = [example.source for example in given], [example.target or "" for example in given]
    true = check_gold(predictor, *texts, gold, option("gold"))
    forced = read(predictor, given, ReadOptions(hypotheses=False, capture=(aligner.layer,)))
    for captured, reference, links in zip(stream, forced, true, strict=True):
        alignment = _alignment(aligner, reference, links)
        yield _pair(captured, alignment, *_beside(predictor, captured.prediction, attributing))


def _beside(
    predictor: SequencePredictor, prediction: Output | None, attributing: Attributing | None
) -> tuple[list[Arcs], list[Map]]:
    """The arcs of the trained dependency heads, and the map of the attribution, for a prediction."""
    if prediction is None:
        return [], []
    maps = list[Map]()
    if attributing is not None:
        view, how = attributing(prediction), attributing.method
        layers = [Layer(name, view[name], view.rows[name], view.columns[name]) for name in view]
        maps.append(Map("Attribution", layers, how.measure, signed=how.additive))
    return list(_arcs(predictor, prediction)), maps


def _pair(
    captured: Captured, alignment: Alignment | None = None, arcs: Sequence[Arcs] = (), attribution: Sequence[Map] = ()
) -> Inspected:
    example, prediction = captured.example, captured.prediction
    if not isinstance(prediction, Output):
        return Inspected(example.source, example.target)
    outputs = [
        ShownOutput(each.text, each.score, [*each.tokens, END], np.exp(each.log_probabilities).tolist())
        for each in prediction.hypotheses
    ]
    maps = [*_attention_maps(captured.views[0])]
    for kind, names in by_kind(list(captured.contributions)).items():  # rows: tokens; columns: offsets or contexts
        norms, gradients = list[Layer](), list[Layer]()
        for name in names.values():
            layer = captured.contributions[name]
            axes = layer.tokens, [span.name for span in layer.spans]
            norms.append(Layer(name, layer.norm, *axes))
            gradients.append(Layer(name, layer.gradient_input, *axes))
        maps.append(Map(f"{TITLES[kind]}: contributions", norms, "norm of the contribution before the ReLU"))
        maps.append(Map(f"{TITLES[kind]}: gradient × input", gradients, "nats", signed=True))
    maps += attribution
    return Inspected(example.source, example.target, prediction.attended, outputs, [], maps, alignment, list(arcs))


@dataclass(frozen=True, repr=False)
class InCell:
    """Markup that notebooks display in a cell."""

    markup: str

    def _repr_html_(self) -> str:
        return self.markup


def show(output: Output) -> InCell:
    """The page of an output with its captured attention, for the cell of a notebook."""
    if isinstance(output, LabelledWords):
        sentence = _labelled(Captured(output.example, output.windows, output), 1)
    else:
        sentence = _pair(Captured(output.example, (output.attention,), output))
    page = page_of_sentences("headway", [], pack_sentences([sentence], 1))
    return InCell(f'<iframe srcdoc="{html.escape(page)}" style="width: 100%; height: 44rem; border: 0"></iframe>')


def maps_of(captured: Captured) -> list[Map]:
    """The attention of an output or forced target; empty if the example was not read."""
    if not captured.views:
        return []
    if captured.views[0].words is None:
        return [*_attention_maps(captured.views[0])]
    return _window_maps(captured.example.words or captured.example.source.split(), captured.views)


def _attention_maps(view: AttentionWeights) -> Iterator[Map]:
    for kind, names in sorted(by_kind(list(view)).items(), key=lambda item: KINDS.index(item[0])):
        layers = [Layer(name, view[name], view.rows[name], view.columns[name]) for name in names.values()]
        signed = any(bool((layer.weights < 0).any()) for layer in layers)
        yield Map(TITLES[kind], layers, "signed weight" if signed else "weight", signed)


def _arcs(predictor: SequencePredictor, prediction: Output) -> Iterator[Arcs]:
    """The arcs of the dependency heads that the recipe's objective trained, for the trained sides."""
    config = predictor.recipe.objective.dependency
    if config is None:
        return
    for side, tokens in (("source", prediction.source_tokens), ("target", prediction.tokens)):
        name = DependencyLoss(config).name_of(side)
        if side in config.sides and tokens and name in prediction.attention:
            # The decoder's row t writes the token t; with `input`, rows and columns are the tokens that are read.
            first = int(side == "target" and config.index_by == "input")
            real = slice(first, first + len(tokens))
            weights = prediction.attention[name][[head - 1 for head in config.heads]].mean(0)[real, real]
            heads = weights.argmax(1)
            title = f"{AttentionName.parse(name).title}, head {', '.join(map(str, config.heads))}"
            best = weights[np.arange(len(heads)), heads]
            yield Arcs(title, list(tokens), heads.tolist(), best.astype(float).tolist())


def _alignment(aligner: Aligner, captured: Captured, gold: Links | None = None) -> Alignment | None:
    """The alignment of an output or, if gold is known, of the reference that it belongs to.

    One word aligned with one word is not informative, so that without gold its tokens are aligned.
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


def _labelled(captured: Captured, line: int) -> Inspected:
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
    best = np.exp(labelled.log_probabilities).tolist()
    known = [LabelledWord(*word) for word in zip(words, labelled.labels, best, gold, strict=True)]
    return Inspected(example.source, example.target, words, words=known, maps=_window_maps(words, captured.views))


def _window_maps(words: Sequence[str], views: Sequence[AttentionWeights]) -> list[Map]:
    """The layer weights over all words, if the model has them, and the self-attention of each window."""
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


def run_heat_map(run: Path, options: HeatMapOptions) -> str:
    """Draw the weights of a sentence. Returns a text on what was drawn, and where.

    Raises:
        UserError: there is no run, the sentence is empty, or a layer or head does not exist.
    """
    with options.leave():
        predictor = load(run, device=options.device)
    (sentence,) = inspect(predictor, [Example(options.text)])
    layers = [layer for shown in sentence.maps if shown.measure.endswith("weight") for layer in shown.layers]
    if not layers:
        raise UserError("there are no weights to draw for this sentence", where=option("text"), received=options.text)
    names = {layer.name: layer for layer in layers}
    if options.layer is None:
        of_tokens = [layer for layer in layers if not AttentionName.parse(layer.name).to_layers] or layers
        layer = ([layer for layer in of_tokens if layer.name.endswith(".cross")] or of_tokens)[-1]
    elif options.layer in names:
        layer = names[options.layer]
    else:
        what, allowed = "there are no weights of this name", ", ".join(names)
        raise UserError(what, where=option("layer"), received=options.layer, allowed=allowed)
    head = options.head
    if head is not None and head > len(layer.weights):
        allowed = f"1 to {len(layer.weights)}"
        raise UserError("this layer has no such head", where=option("head"), received=head, allowed=allowed)
    title = f"{AttentionName.parse(layer.name).title}, {'mean of heads' if head is None else f'head {head}'}"
    weights = layer.weights.mean(0) if head is None else layer.weights[head - 1]
    drawn, families, _ = drawable([*layer.columns, *layer.rows])
    columns, rows = drawn[: len(layer.columns)], drawn[len(layer.columns) :]
    size = 1.8 + 0.24 * len(columns), 1.2 + 0.24 * len(rows)
    with matplotlib.rc_context(STYLE | {"font.family": families}):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        draw_weights(axes, np.asarray(weights), columns, rows, stretch=options.stretch)
        axes.set_title(f"{run.resolve().name} · {title}", fontsize=8, loc="left")
        save_figure(figure, options.output)
    return f"{options.output}: {title}"


def run_page(run: Path, options: PageOptions) -> str:
    """Write the page of a run. Returns a text with the number of sentences and the size.

    Raises:
        UserError: there is no run or no sentence, files have different lengths, or gold has no references.
    """
    check_companions(options.model_dump(exclude_none=True), {"against": ["attribution"]})
    with options.leave():
        opened = open_run(run)
    if opened.path != run and options.output is None:
        what, allowed = "the page of a pack needs a place", f"{option('output')} FILE"
        raise UserError(what, where=option("output"), received=str(run), allowed=allowed)
    with opened.trusted():
        task, recipe = opened.task, opened.recipe
        output = options.output or opened.path / INSIDE
        examples = [Example(text) for text in options.text]
        if options.input or not (options.text or recipe.data.dev is None):
            examples += task.given_test_set(recipe, options.input).examples
        if not examples:
            what = "there are no sentences to look at, and the run has no dev"
            allowed = f"{option('input')} FILE or {option('text')} TEXT"
            raise UserError(what, where=str(run), allowed=allowed)
        references = None if options.reference is None else [*read_lines(options.reference)]
        gold = None if options.gold is None else read_alignments(options.gold, options.links_from)
        for name, lines in (("reference", references), ("gold", gold)):
            if lines is not None and len(lines) != len(examples):
                received = f"{len(lines)} lines for {len(examples)} sentences"
                raise UserError("there must be a line for each sentence", where=option(name), received=received)
        if references is not None:
            examples = [replace(each, target=text) for each, text in zip(examples, references, strict=True)]
        if gold and any(example.target is None for example in examples):
            what = "gold alignments are of references, which are not given"
            raise UserError(what, where=option("gold"), allowed=option("reference"))
        if len(examples) > (most := options.sentences):
            say(f"showing the first {most} of {len(examples):,} sentences")
        shown, gold = examples[:most], (gold or [])[:most]
        predictor = load(opened.path, device=options.device)
        how = options.attribution and Attributing.of(predictor, options.attribution, options.against)
        with progress("looking inside", total=len(shown), unit="sentences") as bar:
            packed = pack_sentences(bar.over(inspect(predictor, shown, gold, options.nbest, how or None)), len(shown))
        model = carried_model(predictor, shown, options.nbest) if options.switches else None
        if model and "why" in model:
            say(model["why"])
    manifest, count = opened.manifest, counted(len(packed.index), "sentence")
    rate = "" if (found := packed.error_rate()) is None else f"AER {found:.1f}"
    facts = [
        recipe.task.replace("_", " "), f"{recipe.model.kind}, {manifest.get('parameters', 0):,} parameters",
        f"{manifest.get('updates', 0):,} updates", count, *filter(None, [rate]),
    ]  # fmt: skip
    write_inspection(output, title=f"Inside {opened.path.resolve().name}", facts=facts, packed=packed, model=model)
    if output.name == INSIDE:
        link_inside(output.with_name(opened.folder.report.name))
    size = f"{output.stat().st_size / 1e6:.1f} MB"
    return ", ".join([f"{output}: {count}", size, *filter(None, [rate])])


@dataclass
class Packed:
    """Sentences in the format of the page, with arrays as integers in text.

    Attributes:
        bits: per value.
        index: the entries of the list of sentences, with all keys that it can be sorted by.
        sentences: the content of each sentence.
        links: the model's and the gold alignments, as lines of links, of sentences that have both.
    """

    bits: int
    index: list[dict[str, Any]] = field(default_factory=list)
    sentences: list[dict[str, Any]] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)

    def add(self, sentence: Inspected) -> None:
        alignment, outputs, lists = sentence.alignment, sentence.outputs, list[list[str]]()
        gold = None if alignment is None else alignment.gold
        probabilities = outputs[0].probabilities if outputs else [word.probability for word in sentence.words]
        entry = {
            "source": sentence.source,
            "length": len(sentence.tokens),
            "certainty": math.exp(np.log(np.maximum(probabilities, 1e-45)).mean()) if probabilities else None,
            "errorRate": alignment and alignment.error_rate,
        }
        self.index.append(entry)
        content = {
            "source": sentence.source,
            "sourceTokens": _index(lists, sentence.tokens),
            "reference": sentence.reference,
            "outputs": [
                {
                    "text": output.text,
                    "score": output.score,
                    "tokens": _index(lists, output.tokens),
                    "probabilities": [round(value, 4) for value in output.probabilities],
                }
                for output in outputs
            ],
            "words": [vars(word) for word in sentence.words],
            "maps": [_packed_map(map, lists, self.bits) for map in sentence.maps],
            "alignment": alignment
            and {
                "map": _packed_map(alignment.map, lists, self.bits),
                "target": alignment.target,
                "found": alignment.links,
                "sure": gold and sorted(gold.sure),
                "possible": gold and sorted(gold.possible - gold.sure),
                "errorRate": alignment.error_rate,
            },
            "arcs": [vars(arcs) for arcs in sentence.arcs],
            "tokens": lists,
        }
        self.sentences.append(content)
        if alignment is not None and gold is not None:
            links = " ".join(f"{source}-{target}" for source, target in alignment.links)
            self.links.append((links, gold.pharaoh()))

    def error_rate(self) -> float | None:
        """AER over all sentences with gold; None without gold."""
        if not self.links:
            return None
        links, gold = zip(*self.links, strict=True)
        return build_metric("aer").score(list(links), [list(gold)]).value


def pack_sentences(sentences: Iterable[Inspected], count: int) -> Packed:
    """Pack `count` sentences one by one to save memory. The first sentences determine the bits per value."""
    rest = iter(sentences)
    first = list(islice(rest, FIRST))
    maps = [map for sentence in first for map in sentence.maps]
    maps += [sentence.alignment.map for sentence in first if sentence.alignment]
    values = sum(layer.weights.size for map in maps for layer in map.layers)
    packed = Packed(16 if values * count <= MOST_EXACT * max(1, len(first)) else 8)
    for sentence in chain(first, rest):
        packed.add(sentence)
    return packed


def write_inspection(
    path: Path, *, title: str, facts: Sequence[str], packed: Packed, model: dict[str, Any] | None = None
) -> None:
    """Write the page of packed sentences atomically, with facts about the run and the embedded model.

    `model`: see `carried_model`.
    """
    report = open_run(path.parent).folder.report
    write_text(path, page_of_sentences(title, facts, packed, report.name if report.is_file() else None, model))


def page_of_sentences(
    title: str, facts: Sequence[str], packed: Packed, report: str | None = None, model: dict[str, Any] | None = None
) -> str:
    """The HTML page, with a link to a report."""
    listed = {"title": title, "facts": list(facts), "bits": packed.bits, "sentences": packed.index, "report": report}
    data = {"index": listed} | {f"sentence-{index}": content for index, content in enumerate(packed.sentences)}
    data |= {} if model is None else {"model": model}
    assets = resources.files(__package__).joinpath("page")
    return page_text("inspect.html", title=title, styles=STYLES, scripts=SCRIPTS, data=data, assets=assets)


def packed_maps(maps: Iterable[Map], bits: int) -> dict[str, Any]:
    """Maps with their tokens in the format of pages, with 8 or 16 `bits` per value."""
    lists: list[list[str]] = []
    return {"maps": [_packed_map(map, lists, bits) for map in maps], "tokens": lists}


def _packed_map(map: Map, lists: list[list[str]], bits: int) -> dict[str, Any]:
    layers = [
        {
            "name": layer.name,
            "title": AttentionName.parse(layer.name).title,
            "rows": _index(lists, layer.rows),
            "columns": _index(lists, layer.columns),
        }
        | packed_weights(layer.weights, bits, signed=map.signed)
        for layer in map.layers
    ]
    return {"title": map.title, "measure": map.measure, "signed": map.signed, "layers": layers}


def _index(lists: list[list[str]], tokens: Sequence[str]) -> int:
    """The index of a list of tokens. Equal lists are stored once, because maps with the same axes share them."""
    if (given := list(tokens)) not in lists:
        lists.append(given)
    return lists.index(given)


def packed_attention(
    run: Path, examples: Mapping[tuple[int, int], Example], device: str, bits: int
) -> dict[tuple[int, int], dict[str, Any]]:
    """The packed attention maps of sentences, by their keys in `examples`. Raises UserError if the run is missing."""
    predictor = load(run, device=device)
    captured = read(predictor, list(examples.values()), ReadOptions(hypotheses=False))
    found = zip(examples, map(maps_of, captured), strict=True)
    return {place: packed_maps(maps, bits) for place, maps in found if maps}
