"""Attachment of words by dependency heads, and agreement of the attention of both sides.

Shapes: K heads, L positions, S source, T target, W words of a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import networkx as nx
import numpy as np
import torch
from numpy.typing import NDArray

from headway.batched import batched
from headway.losses import DependencyConfig, Objective, ObjectiveConfig
from headway.losses.dependency_loss import DependencyLoss, check_sides
from headway.losses.parts import mean_of_heads
from headway.losses.synchronous import SynchronousLoss
from headway.metrics.word_metrics import UNKNOWN
from headway.models import Output
from headway.parses.parsers import Parser
from headway.parses.projection import NONE, Projection, project
from headway.predictors.sequence_predictor import SequencePredictor
from headway.processing.text.text_processor import TextProcessor
from headway.runs.inspect.capture import AttentionView, Captured, ReadOptions, read
from headway.tasks.task import RawExample
from headway.tensors.batch import TargetBatch

BATCH = 32  # lines that are parsed at once
TINY = 1e-30  # the probability in the place of zero, in a logarithm

Weights = NDArray[np.float64]


@dataclass(frozen=True)
class Analysed:
    """One side of a sentence: its tokens, their heads by the parser, and A (L, L) over its tokens by the model."""

    tokens: list[str]
    projection: Projection
    weights: Weights


@dataclass(frozen=True)
class Synchronised:
    """E (S, S), C (T, S), D' and D (T, T) of a pair, end marks included."""

    encoder: Weights
    cross: Weights
    projected: Weights
    decoder: Weights


def word_weights(sentence: Analysed) -> Weights:
    """(W, W): the probability of every word (column) as the head of every word (row), of itself as the root.

    A word is a block of the projection. Its last token chooses its head; the tokens of a head count together.
    """
    blocks = sentence.projection.blocks
    last = np.flatnonzero(np.diff(blocks, append=-1))
    members = np.eye(len(last))[blocks]  # (L, W)
    return sentence.weights[last] @ members


def word_heads(projection: Projection) -> NDArray[np.int32]:
    """(W,): the head of each word by the parser, itself for a root, `NONE` where there is none."""
    blocks = projection.blocks
    heads = projection.heads[np.flatnonzero(np.diff(blocks, append=-1))]
    return np.where(heads == NONE, NONE, blocks[heads]).astype(np.int32)


def best_tree(weights: Weights) -> list[int]:
    """The heads of the most probable tree or trees: a maximum spanning arborescence below a root of all roots.

    Args:
        weights: (W, W), the probability of each head (column) of each word (row); itself for a root.
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


class WordHeads(NamedTuple):
    """Heads of the words of a sentence, all (W,), the word itself for a root.

    `greedy` takes the most probable head of each word, `tree` the most probable tree; `gold` are the parser's, `NONE`
    where there is none to be scored.
    """

    greedy: NDArray[np.intp]
    tree: NDArray[np.intp]
    gold: NDArray[np.int32]

    @classmethod
    def of(cls, sentence: Analysed, causal: bool) -> Self:
        """Those of a sentence; where `causal`, only heads to the left are scored."""
        weights = word_weights(sentence)
        scored = sentence.projection.left_only() if causal else sentence.projection
        return cls(weights.argmax(1), np.array(best_tree(weights)), word_heads(scored))

    def lines(self) -> tuple[str, str]:
        """The tree's heads and the parser's as the metric `uas` reads them: from 1, 0 for a root, `_` for none."""
        return _numbered(self.tree), _numbered(self.gold)


def _numbered(heads: NDArray[Any]) -> str:
    names = {NONE: UNKNOWN}
    return " ".join(names.get(head, str(0 if head == word else head + 1)) for word, head in enumerate(heads.tolist()))


@dataclass
class AttachmentScore:
    """Unlabelled attachment over all sentences of a side: words with a head by the parser, and how many are right.

    `words` counts those whose head is scored: on the target side it stands to the left. `pieces` counts the edges of
    tokens, those within words included.
    """

    sentences: int = 0
    parsed: int = 0
    words: int = 0
    words_to_the_right: int = 0
    right_by_argmax: int = 0
    right_by_tree: int = 0
    pieces: int = 0
    pieces_right: int = 0

    def add(self, sentence: Analysed, causal: bool) -> WordHeads:
        """Count one sentence, and give its heads."""
        full = sentence.projection
        scored = full.left_only() if causal else full
        heads = WordHeads.of(sentence, causal)
        known = heads.gold != NONE
        self.sentences += 1
        self.parsed += bool((full.heads != NONE).any())
        self.words += int(known.sum())
        self.words_to_the_right += int((word_heads(full) != NONE).sum() - known.sum())
        self.right_by_argmax += int((heads.greedy == heads.gold)[known].sum())
        self.right_by_tree += int((heads.tree == heads.gold)[known].sum())
        edges = scored.heads != NONE
        self.pieces += int(edges.sum())
        self.pieces_right += int((sentence.weights.argmax(1) == scored.heads)[edges].sum())
        return heads

    def to_json(self) -> dict[str, Any]:
        """Counts and scores in percent."""
        words, tokens = max(1, self.words), max(1, self.pieces)
        scores = {
            "uas_argmax": 100 * self.right_by_argmax / words,
            "uas_tree": 100 * self.right_by_tree / words,
            "pieces_argmax": 100 * self.pieces_right / tokens,
        }
        return vars(self) | scores

    def text(self, name: str) -> str:
        """Two lines to be read."""
        values = self.to_json()
        right = f", and {self.words_to_the_right:,} whose head stands to the right" if self.words_to_the_right else ""
        return (
            f"{name}: {self.parsed:,} of {self.sentences:,} sentences parsed, {self.words:,} words with a head{right}\n"
            f"  UAS {values['uas_argmax']:.1f} by argmax, {values['uas_tree']:.1f} by maximum spanning tree;"
            f" pieces {values['pieces_argmax']:.1f}"
        )


@dataclass
class Agreement:
    """D beside D': the rows with the same greatest weight, the mean total variation and the mean squared distance.

    The first row of a decoder has one position to look at and does not count.
    """

    rows: int = 0
    same: int = 0
    variation: float = 0.0
    squared: float = 0.0

    def add(self, pair: Synchronised) -> None:
        """Count one pair."""
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
        """One line to be read."""
        values = self.to_json()
        return (
            f"D and D': the same argmax in {values['same_argmax']:.1f} % of {self.rows:,} rows, total variation"
            f" {values['total_variation']:.3f}, squared distance {values['squared_distance']:.3f} a row"
        )


@dataclass
class DependencyAnalysis:
    """Attachment and agreement over a corpus, with the first sentences kept for figures.

    Args:
        kept: how many sentences are kept.

    Attributes:
        heads: of each side, for each sentence, the model's heads and the parser's, as lines of the metric `uas`.
    """

    kept: int = 0
    scores: dict[str, AttachmentScore] = field(default_factory=dict)
    agreement: Agreement = field(default_factory=Agreement)
    heads: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    sentences: list[ReadPair] = field(default_factory=list)

    def add(self, pair: ReadPair) -> None:
        """Count one sentence."""
        for side, sentence in pair.sides.items():
            heads = self.scores.setdefault(side, AttachmentScore()).add(sentence, causal=side == "target")
            self.heads.setdefault(side, []).append(heads.lines())
        if pair.synchronised is not None:
            self.agreement.add(pair.synchronised)
        if len(self.sentences) < self.kept:
            self.sentences.append(pair)

    def to_json(self) -> dict[str, Any]:
        """All counts and scores; a side without a parser is not there, nor is agreement where none was compared."""
        content = {side: score.to_json() for side, score in self.scores.items()}
        return content | ({"agreement": self.agreement.to_json()} if self.agreement.rows else {})

    def text(self) -> str:
        """The same, to be read."""
        lines = [score.text(side) for side, score in self.scores.items()]
        return "\n".join([*lines, *([self.agreement.text()] if self.agreement.rows else [])])


@dataclass(frozen=True)
class ReadPair:
    """A pair with all that was read of it.

    Attributes:
        example: the raw texts.
        tokens: those of the source and of the target, without end marks.
        sides: by `source` and `target`, the sides that have a parser and dependency heads.
        synchronised: the attention of both sides, where the objective has a synchronous constraint.
    """

    example: RawExample
    tokens: tuple[list[str], list[str]]
    sides: dict[str, Analysed]
    synchronised: Synchronised | None


@dataclass(frozen=True)
class DependencyReader:
    """Dependency heads and synchronous attention of a model.

    Args:
        predictor: one model of text.
        objective: which attention is read; the default dependency head where it has none.
        parsers: of source and target; a side without one is not scored.
    """

    predictor: SequencePredictor
    objective: ObjectiveConfig
    parsers: tuple[Parser | None, Parser | None]

    @property
    def dependency(self) -> DependencyConfig:
        """The heads that are read as dependency heads."""
        return self.objective.dependency or DependencyConfig()

    def read(self, examples: Iterable[RawExample]) -> Iterator[ReadPair]:
        """Read pairs whose targets are forced, or sources alone; what is empty or too long is left out."""
        synchronous = Objective(self.objective).parts.get("synchronous")
        constraint = synchronous if isinstance(synchronous, SynchronousLoss) else None
        heads = DependencyLoss(self.dependency)
        for name in heads.attention:
            check_sides(name, self.predictor.models[0].attention_axes(name), "RUN")
        names = dict.fromkeys([*heads.attention, *(constraint.attention if constraint else ())])
        # Without its target, a source is read beside an empty one.
        given = (RawExample(example.source, example.target or "") for example in examples if _is_whole(example))
        stream = read(self.predictor, given, ReadOptions(hypotheses=False, capture=tuple(names)))
        for chunk in batched(stream, BATCH):
            yield from self._read_chunk([captured for captured in chunk if captured.views], heads, constraint)

    def _read_chunk(
        self, chunk: Sequence[Captured], heads: DependencyLoss, constraint: SynchronousLoss | None
    ) -> Iterator[ReadPair]:
        sides: list[dict[str, Analysed]] = [{} for _ in chunk]
        for index, (side, parser) in enumerate(zip(("source", "target"), self.parsers, strict=True)):
            lines = [(captured.example.source, captured.example.target or "")[index] for captured in chunk]
            if parser is None or side not in self.dependency.sides or not any(lines):
                continue
            shift = int(side == "target" and self.dependency.index_by == "input")
            for row, (line, parse) in enumerate(zip(lines, parser.parse(lines), strict=True)):
                weights = _mean(chunk[row].views[0], heads.name_of(side), self.dependency.heads)
                sides[row][side] = self._analysed(line, parse, weights, index, shift)
        for captured, analysed in zip(chunk, sides, strict=True):
            synchronised = None
            if constraint is not None and captured.example.target:
                synchronised = _synchronised(constraint, captured.views[0])
            yield ReadPair(captured.example, self._tokens(captured.example), analysed, synchronised)

    def _analysed(self, line: str, parse: Any, weights: Weights, index: int, shift: int) -> Analysed:
        processor = self._processors()[index]
        tokens = processor.encode_with_spans(line)
        projection = project(tokens, parse, segmented=processor.config.segment != "none")
        real = slice(shift, shift + len(tokens))
        return Analysed([token.text for token in tokens], projection, weights[real, real])

    def _tokens(self, example: RawExample) -> tuple[list[str], list[str]]:
        source, target = self._processors()
        return [token.text for token in source.encode_with_spans(example.source)], [
            token.text for token in target.encode_with_spans(example.target or "")
        ]

    def _processors(self) -> tuple[TextProcessor, TextProcessor]:
        source, target = self.predictor.source, self.predictor.target
        assert isinstance(source, TextProcessor)
        return source, target


def _is_whole(example: RawExample) -> bool:
    return bool(example.source.strip()) and (example.target is None or bool(example.target.strip()))


def _mean(view: AttentionView, name: str, heads: tuple[int, ...] | None) -> Weights:
    """(T, S): the mean of some heads of an attention, or of all."""
    weights: Weights = mean_of_heads(torch.from_numpy(view.attention[name])[None], heads)[0].double().numpy()
    return weights


def _synchronised(constraint: SynchronousLoss, view: AttentionView) -> Synchronised:
    names = list(constraint.attention)
    attention = {name: torch.from_numpy(view.attention[name])[None] for name in names}
    real = torch.ones(1, attention[names[1]].shape[-1], dtype=torch.bool)
    batch = TargetBatch(
        target_output=torch.zeros_like(real, dtype=torch.int64), target_mask=real, indices=np.zeros(1, np.int64)
    )
    projected, decoder = constraint.compared(Output(torch.empty(0), attention), batch)
    return Synchronised(
        _mean(view, names[0], constraint.heads), _mean(view, names[2], constraint.attention[names[2]]),
        projected[0].double().numpy(), decoder[0].double().numpy(),
    )  # fmt: skip
