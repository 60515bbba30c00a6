"""`headway inspect tables dependencies`: the accuracy of dependency heads, and the agreement of attention between
both sides, as scores and as figures (those of Deguchi et al., figures 2 and 3).

Shapes: K heads, L positions, S source, T target (with the end mark in figures), W words of a line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import networkx as nx
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc
from numpy.typing import NDArray

from headway.core.errors import UserError, option
from headway.core.figures import BLUE, GRID, INK, MUTED, ORANGE, STYLE, draw_weights, drawable, save_figure
from headway.core.files import write_text
from headway.core.processes import batched
from headway.formats.conllu import is_conllu
from headway.formats.lines import read_lines
from headway.formats.pairs import open_source
from headway.inspect.capture import ReadOptions, read
from headway.inspect.inspect_options import DependencyOptions
from headway.losses import DependencyConfig, Objective, ObjectiveConfig
from headway.losses.dependency_loss import DependencyLoss, check_sides
from headway.losses.parts import mean_of_heads
from headway.losses.synchronous import SynchronousLoss
from headway.metrics.word_metrics import UNKNOWN
from headway.models import Output
from headway.parses.parsers import Parser, load_parser, read_conllu
from headway.parses.projection import NONE, Projection, project
from headway.predictors.captured_attention import END, AttentionWeights
from headway.predictors.output import Example
from headway.predictors.sequence_predictor import SequencePredictor
from headway.processing.text.text_processor import TextProcessor
from headway.recipe import Recipe, apply_overrides, parse_recipe
from headway.runs.load import load
from headway.tensors.batch import TargetBatch

BATCH = 32  # lines that are parsed at once
TINY = 1e-30  # replaces zero probabilities in logarithms

Weights = NDArray[np.float64]


@dataclass(frozen=True)
class Analysed:
    """One side of a sentence: its tokens, their heads by the parser, and the model's head probabilities A (L, L)."""

    tokens: list[str]
    projection: Projection
    weights: Weights


@dataclass(frozen=True)
class Synchronised:
    """E (S, S), C (T, S), D' and D (T, T) of a pair, including end marks."""

    encoder: Weights
    cross: Weights
    projected: Weights
    decoder: Weights


def word_weights(sentence: Analysed) -> Weights:
    """(W, W): the probability of each word (column) as the head of each word (row); on the diagonal, of a root.

    A word is a block of the projection. Its last token chooses the head, and the tokens of a head are summed.
    """
    blocks = sentence.projection.blocks
    last = np.flatnonzero(np.diff(blocks, append=-1))
    members = np.eye(len(last))[blocks]  # (L, W)
    return sentence.weights[last] @ members


def word_heads(projection: Projection) -> NDArray[np.int32]:
    """(W,): the head of each word by the parser: the word itself for a root, `NONE` if there is no head."""
    blocks = projection.blocks
    heads = projection.heads[np.flatnonzero(np.diff(blocks, append=-1))]
    return np.where(heads == NONE, NONE, blocks[heads]).astype(np.int32)


def best_tree(weights: Weights) -> list[int]:
    """The heads of the most probable trees: a maximum spanning arborescence under a common root of all roots.

    Args:
        weights: (W, W), the probability of each head (column) of each word (row); on the diagonal, of a root.
    """
    size = len(weights)
    scores = np.log(np.maximum(weights, TINY))
    graph = nx.DiGraph()
    for word in range(size):
        graph.add_edge(size, word, weight=scores[word, word])
        graph.add_weighted_edges_from((head, word, scores[word, head]) for head in range(size) if head != word)
    tree = nx.maximum_spanning_arborescence(graph)
    heads = [next(iter(tree.predecessors(word))) for word in range(size)]
    return [word if head == size else head for word, head in enumerate(heads)]


@dataclass
class AttachmentScore:
    """Unlabelled attachment scores over all sentences of a side, against the parser's heads.

    `words` counts words whose head is scored; on the target side, only heads to the left are. `pieces` counts the edges
    of tokens, including those within words.
    """

    sentences: int = 0
    parsed: int = 0
    words: int = 0
    words_to_the_right: int = 0
    right_by_argmax: int = 0
    right_by_tree: int = 0
    pieces: int = 0
    pieces_right: int = 0

    def add(self, sentence: Analysed, causal: bool) -> tuple[str, str]:
        """Add a sentence. If `causal`, only heads to the left are scored.

        Returns:
            The heads of its words by the most probable tree and by the parser, in the format of the metric `uas`: from
            1, 0 for a root, `_` for none.
        """
        full, weights = sentence.projection, word_weights(sentence)
        scored = full.left_only() if causal else full
        greedy, tree, gold = weights.argmax(1), np.array(best_tree(weights)), word_heads(scored)
        known, edges = gold != NONE, scored.heads != NONE
        self.sentences += 1
        self.parsed += bool((full.heads != NONE).any())
        self.words += int(known.sum())
        self.words_to_the_right += int((word_heads(full) != NONE).sum() - known.sum())
        self.right_by_argmax += int((greedy == gold)[known].sum())
        self.right_by_tree += int((tree == gold)[known].sum())
        self.pieces += int(edges.sum())
        self.pieces_right += int((sentence.weights.argmax(1) == scored.heads)[edges].sum())

        def line(heads: NDArray[Any]) -> str:
            numbered = (str(0 if head == word else head + 1) for word, head in enumerate(heads))
            return " ".join(UNKNOWN if head == NONE else name for head, name in zip(heads, numbered, strict=True))

        return line(tree), line(gold)

    def to_json(self) -> dict[str, Any]:
        """Counts, and scores in percent."""
        words = max(1, self.words)
        return vars(self) | {
            "uas_argmax": 100 * self.right_by_argmax / words,
            "uas_tree": 100 * self.right_by_tree / words,
            "pieces_argmax": 100 * self.pieces_right / max(1, self.pieces),
        }

    def text(self, name: str) -> str:
        """The scores as two lines of text."""
        values = self.to_json()
        right = f", and {self.words_to_the_right:,} whose head stands to the right" if self.words_to_the_right else ""
        return (
            f"{name}: {self.parsed:,} of {self.sentences:,} sentences parsed, {self.words:,} words with a head{right}\n"
            f"  UAS {values['uas_argmax']:.1f} by argmax, {values['uas_tree']:.1f} by maximum spanning tree;"
            f" pieces {values['pieces_argmax']:.1f}"
        )


@dataclass
class Agreement:
    """Agreement of D and D': rows with the same greatest weight, mean total variation, mean squared distance.

    The decoder's first row has only one position to attend to, and is not counted.
    """

    rows: int = 0
    same: int = 0
    variation: float = 0.0
    squared: float = 0.0

    def add(self, pair: Synchronised) -> None:
        projected, decoder = pair.projected[1:], pair.decoder[1:]
        self.rows += len(decoder)
        self.same += int((projected.argmax(1) == decoder.argmax(1)).sum())
        self.variation += float(np.abs(projected - decoder).sum() / 2)
        self.squared += float(((projected - decoder) ** 2).sum())

    def to_json(self) -> dict[str, Any]:
        """Means over the rows."""
        rows = max(1, self.rows)
        return {
            "rows": self.rows,
            "same_argmax": 100 * self.same / rows,
            "total_variation": self.variation / rows,
            "squared_distance": self.squared / rows,
        }

    def text(self) -> str:
        """The agreement as a line of text."""
        values = self.to_json()
        return (
            f"D and D': the same argmax in {values['same_argmax']:.1f} % of {self.rows:,} rows, total variation"
            f" {values['total_variation']:.3f}, squared distance {values['squared_distance']:.3f} a row"
        )


@dataclass(frozen=True)
class ReadPair:
    """A pair with its tokens, dependency heads and synchronous attention."""

    tokens: tuple[list[str], list[str]]  # source and target, without end marks
    sides: dict[str, Analysed]  # by `source` and `target`: sides with a parser and dependency heads
    synchronised: Synchronised | None  # the attention of both sides, if the objective has this constraint


@dataclass
class DependencyAnalysis:
    """The scores over all sentences; the first `kept` sentences are stored for figures.

    Attributes:
        heads: by side, the model's and the parser's heads of each sentence, as lines in the format of the metric `uas`.
    """

    kept: int = 0
    scores: dict[str, AttachmentScore] = field(default_factory=dict)
    agreement: Agreement = field(default_factory=Agreement)
    heads: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    sentences: list[ReadPair] = field(default_factory=list)

    def add(self, pair: ReadPair) -> None:
        for side, sentence in pair.sides.items():
            lines = self.scores.setdefault(side, AttachmentScore()).add(sentence, causal=side == "target")
            self.heads.setdefault(side, []).append(lines)
        if pair.synchronised is not None:
            self.agreement.add(pair.synchronised)
        if len(self.sentences) < self.kept:
            self.sentences.append(pair)

    def to_json(self) -> dict[str, Any]:
        """All counts and scores, without sides that have no parser, and without agreement if nothing was compared."""
        content = {side: score.to_json() for side, score in self.scores.items()}
        return content | ({"agreement": self.agreement.to_json()} if self.agreement.rows else {})

    def text(self) -> str:
        lines = [score.text(side) for side, score in self.scores.items()]
        return "\n".join([*lines, *([self.agreement.text()] if self.agreement.rows else [])])


def read_pairs(
    predictor: SequencePredictor,
    objective: ObjectiveConfig,
    parsers: tuple[Parser | None, Parser | None],
    examples: Iterable[Example],
) -> Iterator[ReadPair]:
    """Read the dependency heads and synchronous attention of pairs with forced targets, or of sources alone.

    Args:
        predictor: one model of text.
        objective: determines which attention is read; by default, that of the default dependency head.
        parsers: of source and target; a side without a parser is not scored.
        examples: the pairs; empty and too long pairs are skipped.
    """
    dependency, synchronous = objective.dependency or DependencyConfig(), Objective(objective).parts.get("synchronous")
    constraint = synchronous if isinstance(synchronous, SynchronousLoss) else None
    heads = DependencyLoss(dependency)
    for name in heads.attention:
        check_sides(name, predictor.models[0].attention_axes(name), "RUN")
    names = dict.fromkeys([*heads.attention, *(constraint.attention if constraint else ())])
    given = (
        Example(example.source, example.target or "")  # a source without a target is read with an empty target
        for example in examples
        if example.source.strip() and (example.target is None or example.target.strip())
    )
    stream = read(predictor, given, ReadOptions(hypotheses=False, capture=tuple(names)))
    assert isinstance(predictor.source, TextProcessor)
    processors: tuple[TextProcessor, TextProcessor] = predictor.source, predictor.target
    for chunk in batched((captured for captured in stream if captured.views), BATCH):
        texts = [each.example.source for each in chunk], [each.example.target or "" for each in chunk]
        encoded = [
            [*map(processor.encode_with_spans, lines)] for processor, lines in zip(processors, texts, strict=True)
        ]
        sides: list[dict[str, Analysed]] = [{} for _ in chunk]
        for index, (side, parser) in enumerate(zip(("source", "target"), parsers, strict=True)):
            if parser is None or side not in dependency.sides or not any(texts[index]):
                continue
            shift = int(side == "target" and dependency.index_by == "input")
            segmented = processors[index].config.segment != "none"
            for row, (tokens, parse) in enumerate(zip(encoded[index], parser.parse(texts[index]), strict=True)):
                real = slice(shift, shift + len(tokens))
                weights = _mean(chunk[row].views[0], heads.name_of(side), dependency.heads)[real, real]
                projection = project(tokens, parse, segmented=segmented)
                sides[row][side] = Analysed([token.text for token in tokens], projection, weights)
        for row, captured in enumerate(chunk):
            source, target = ([token.text for token in lines[row]] for lines in encoded)
            compared = _synchronised(constraint, captured.views[0]) if constraint and captured.example.target else None
            yield ReadPair((source, target), sides[row], compared)


def _mean(view: AttentionWeights, name: str, heads: tuple[int, ...] | None) -> Weights:
    """(T, S): the mean of the chosen heads of an attention, by default of all."""
    weights: Weights = mean_of_heads(torch.from_numpy(view[name])[None], heads)[0].double().numpy()
    return weights


def _synchronised(constraint: SynchronousLoss, view: AttentionWeights) -> Synchronised:
    names = list(constraint.attention)
    attention = {name: torch.from_numpy(view[name])[None] for name in names}
    real = torch.ones(1, attention[names[1]].shape[-1], dtype=torch.bool)
    batch = TargetBatch(
        target_output=torch.zeros_like(real, dtype=torch.int64), target_mask=real, indices=np.zeros(1, np.int64)
    )
    projected, decoder = constraint.compared(Output(torch.empty(0), attention), batch)
    return Synchronised(
        _mean(view, names[0], constraint.heads), _mean(view, names[2], constraint.attention[names[2]]),
        projected[0].double().numpy(), decoder[0].double().numpy(),
    )  # fmt: skip


CELL = 0.28  # inches


def run_dependencies(run: Path, overrides: Sequence[str], options: DependencyOptions) -> str:
    """Measure a run, draw the requested figures, and return the report. Raises as `inspect_dependencies`."""
    analysis = inspect_dependencies(run, overrides, options)
    if (folder := options.figures) is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for number, pair in enumerate(analysis.sentences, start=1):
            for side, sentence in pair.sides.items():
                dependency_figure(sentence, folder / f"dependencies-{side}-{number}.png", causal=side == "target")
            if pair.synchronised is not None:
                source, target = ([*tokens, END] for tokens in pair.tokens)
                synchronous_figure(pair.synchronised, source, target, folder / f"synchronous-{number}.png")
    if options.heads is not None:
        options.heads.mkdir(parents=True, exist_ok=True)
        for side, lines in analysis.heads.items():  # in the format of the metric `uas`
            for name, column in zip(("model", "parser"), zip(*lines, strict=True), strict=True):
                write_text(options.heads / f"{side}.{name}.heads", "".join(f"{line}\n" for line in column))
    return json.dumps(analysis.to_json(), indent=1) if options.json_output else analysis.text()


def inspect_dependencies(run: Path, overrides: Sequence[str], options: DependencyOptions) -> DependencyAnalysis:
    """Measure a run, with `overrides` of its recipe, such as another parser or gold parses.

    Raises:
        UserError: there is no run, sentence or parser, or the parser cannot be loaded.
    """
    with options.leave():
        predictor = load(run, device=options.device)
    if not isinstance(predictor, SequencePredictor) or not isinstance(predictor.source, TextProcessor):
        raise UserError("dependency heads are of words, and this model reads none", where=str(run))
    tree = predictor.recipe.model_dump(mode="json")
    apply_overrides(tree, overrides)
    recipe = parse_recipe(tree)
    examples, parses = _examples(recipe, options), recipe.data.parses
    of_target = parses.target if any(example.target is not None for example in examples) else None
    source, target = (
        None if config is None else load_parser(config, f"data.parses.{side}")
        for side, config in (("source", parses.source), ("target", of_target))
    )
    analysis = DependencyAnalysis(options.sentences if options.figures is not None else 0)
    for pair in read_pairs(predictor, recipe.objective, (source, target), examples):
        analysis.add(pair)
    if not (analysis.scores or analysis.agreement.rows):
        raise UserError("there is nothing to measure: no parser and no synchronous constraint", where="data.parses")
    return analysis


def _examples(recipe: Recipe, options: DependencyOptions) -> list[Example]:
    """The sentences of the files, or of the dev set."""
    if options.source is None:
        if recipe.data.dev is None:
            allowed = f"{option('source')} FILE {option('target')} FILE"
            raise UserError("the recipe has no dev to measure on", where="data.dev", allowed=allowed)
        dev = open_source(recipe.data.dev, "data.dev", recipe.data.broken)
        return [Example(pair.source, pair.target) for pair in dev]
    sources, *targets = (
        [text for text, _ in read_conllu(path)] if is_conllu(path) else list(read_lines(path))
        for path in (options.source, options.target) if path is not None
    )  # fmt: skip
    if targets and len(sources) != len(targets[0]):
        received = f"{len(sources)} sources and {len(targets[0])} targets"
        raise UserError("each source needs one target", where=option("target"), received=received)
    return [Example(*texts) for texts in zip(sources, *targets, strict=True)]


def dependency_figure(sentence: Analysed, path: Path, causal: bool = False) -> None:
    """Draw the parser's heads as arcs above the tokens and the model's heads below, and the matrix A_dep.

    Row t of the matrix has the head probabilities of token t; a circle marks the parser's head. If `causal`, heads to
    the right are not marked, because the decoder cannot see them.

    Raises:
        UserError: the file format is unknown.
    """
    tokens, families, _ = drawable(sentence.tokens)
    projection = sentence.projection.left_only() if causal else sentence.projection
    size = CELL * len(tokens)
    with matplotlib.rc_context(STYLE | {"font.family": families}):
        figure = Figure(figsize=(2.2 + size, 3.2 + 1.4 * size), layout="constrained")
        arcs, matrix = figure.subplots(2, 1, height_ratios=[0.6, 1])
        _draw_arcs(arcs, tokens, projection.heads.tolist(), sentence.weights.argmax(1).tolist())
        draw_weights(matrix, sentence.weights, tokens, tokens)
        edges = [(head, position) for position, head in enumerate(projection.heads.tolist()) if head >= 0]
        if edges:
            columns, rows = zip(*edges, strict=True)
            matrix.scatter(columns, rows, s=46, facecolors="none", edgecolors=ORANGE, linewidths=1.2)
        save_figure(figure, path)


def _draw_arcs(axes: Axes, tokens: list[str], parser: list[int], model: list[int]) -> None:
    """Arcs from heads to dependents, the parser's above the tokens and the model's below; roots as short lines."""
    for sign, heads, colour in ((1, parser, ORANGE), (-1, model, BLUE)):
        for position, head in enumerate(heads):
            if head == position:
                axes.plot([position, position], [sign * 0.45, sign * 1.1], color=colour, linewidth=1)
            elif head >= 0:
                width = abs(head - position)
                angles = (0, 180) if sign > 0 else (180, 360)
                middle = ((head + position) / 2, sign * 0.45)
                axes.add_patch(Arc(middle, width, width, theta1=angles[0], theta2=angles[1], color=colour, linewidth=1))
                axes.plot(position, sign * 0.45, marker="v" if sign > 0 else "^", color=colour, markersize=3)
    longest = max(
        [abs(head - position) for heads in (parser, model) for position, head in enumerate(heads) if head >= 0] + [2]
    )
    for position, token in enumerate(tokens):
        rotation = 30 if len(token) > 4 else 0
        axes.text(position, 0, token, ha="center", va="center", color=INK, fontsize=8, rotation=rotation)
    axes.text(-1.2, 0.9, "parser", color=ORANGE, ha="right", fontsize=8)
    axes.text(-1.2, -0.9, "model", color=BLUE, ha="right", va="top", fontsize=8)
    axes.set_xlim(-2, len(tokens))
    axes.set_ylim(-longest / 2 - 0.8, longest / 2 + 0.8)
    axes.set_aspect("equal")
    axes.axis("off")


def synchronous_figure(pair: Synchronised, source: list[str], target: list[str], path: Path) -> None:
    """Draw E, C, the projection D' of E by C, and D as matrices, with the squared distance between D' and D.

    Tokens include the end marks; row t writes the target token t. Raises UserError for an unknown format.
    """
    shown, families, _ = drawable([*source, *target])
    sources, targets = shown[: len(source)], shown[len(source) :]
    distance = float(np.square(pair.projected - pair.decoder).sum())
    panels = (
        ("E, encoder", pair.encoder, sources, sources), ("C, cross-attention", pair.cross, sources, targets),
        ("D', E carried over", pair.projected, targets, targets), ("D, decoder", pair.decoder, targets, targets),
    )  # fmt: skip
    with matplotlib.rc_context(STYLE | {"font.family": families}):
        widths = [len(columns) for _, _, columns, _ in panels]
        height = max(len(source), len(target))
        figure = Figure(figsize=(7 + CELL * sum(widths), 2 + CELL * height), layout="constrained")
        for axes, (title, weights, columns, rows) in zip(
            figure.subplots(1, 4, width_ratios=widths), panels, strict=True
        ):
            draw_weights(axes, weights, columns, rows)
            axes.set_title(title, color=INK, fontsize=10)
        figure.supxlabel(f"squared distance of D' and D: {distance:.3f}", color=MUTED, fontsize=8)
        figure.patch.set_edgecolor(GRID)
        save_figure(figure, path)
