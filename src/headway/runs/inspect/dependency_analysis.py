"""How well dependency heads attach words, and how well both sides' attention agrees.

Shapes: B batch, K heads, L positions, S source, T target, W words of a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import networkx as nx
import numpy as np
import torch
from numpy.typing import NDArray

from headway.losses import DependencyConfig, Objective, ObjectiveConfig
from headway.losses.dependency_loss import DependencyLoss
from headway.losses.parts import mean_of_heads
from headway.losses.synchronous import SynchronousLoss
from headway.models import Seq2Seq
from headway.parses.parsers import Parser
from headway.parses.projection import NONE, Projection, project
from headway.processing.text.text_processor import Side
from headway.tensors.batch import collate

BATCH = 32
TINY = 1e-30  # what a weight of zero counts as in a logarithm

Weights = NDArray[np.float64]


@dataclass(frozen=True)
class Analysed:
    """One side of a sentence: its pieces, their heads by the parser, and A (L, L) over its pieces by the model."""

    pieces: list[str]
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
    """(W, W): how probable each word is as the head of each, the word itself standing for the root.

    A word is a block of the projection. Its head is what its last piece looks at; a head's pieces count together.
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


@dataclass
class AttachmentScore:
    """Unlabelled attachment over all sentences of a side: words with a head by the parser, and how many are right.

    `words` counts those whose head is scored: on the target side it stands to the left. `pieces` counts all edges,
    those within words included.
    """

    sentences: int = 0
    parsed: int = 0
    words: int = 0
    words_to_the_right: int = 0
    right_by_argmax: int = 0
    right_by_tree: int = 0
    pieces: int = 0
    pieces_right: int = 0

    def add(self, sentence: Analysed, causal: bool) -> None:
        """Count one sentence."""
        full = sentence.projection
        scored = full.left_only() if causal else full
        gold, weights = word_heads(scored), word_weights(sentence)
        known = gold != NONE
        self.sentences += 1
        self.parsed += bool((full.heads != NONE).any())
        self.words += int(known.sum())
        self.words_to_the_right += int((word_heads(full) != NONE).sum() - known.sum())
        if known.any():
            self.right_by_argmax += int((weights.argmax(1) == gold)[known].sum())
            self.right_by_tree += int((np.array(best_tree(weights)) == gold)[known].sum())
        edges = scored.heads != NONE
        self.pieces += int(edges.sum())
        self.pieces_right += int((sentence.weights.argmax(1) == scored.heads)[edges].sum())

    def to_json(self) -> dict[str, Any]:
        """Counts and scores in percent."""
        words, pieces = max(1, self.words), max(1, self.pieces)
        scores = {
            "uas_argmax": 100 * self.right_by_argmax / words,
            "uas_tree": 100 * self.right_by_tree / words,
            "pieces_argmax": 100 * self.pieces_right / pieces,
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
    """D beside D': in how many rows both look at the same place most, their mean total variation and squared distance.

    The first row of a decoder has one place to look at and does not count.
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
class Analysis:
    """What was measured, sentence by sentence and in all. A side without a parser has no sentences."""

    source: list[Analysed] = field(default_factory=list)
    target: list[Analysed] = field(default_factory=list)
    pairs: list[Synchronised] = field(default_factory=list)

    def scores(self) -> dict[str, AttachmentScore]:
        """The attachment scores of the sides that have sentences."""
        found = {}
        for name in ("source", "target"):
            if sentences := getattr(self, name):
                found[name] = AttachmentScore()
                for sentence in sentences:
                    found[name].add(sentence, causal=name == "target")
        return found

    def agreement(self) -> Agreement | None:
        """How D and D' agree; None where no pair was compared."""
        total = Agreement()
        for pair in self.pairs:
            total.add(pair)
        return total if self.pairs else None


@dataclass(frozen=True)
class Reader:
    """What reads dependency heads and synchronous attention out of a model.

    Args:
        model: the model, in evaluation mode.
        sides: source and target text preparation.
        objective: which attention is read; the default dependency head where it has none.
        device: where the model is.
    """

    model: Seq2Seq
    sides: tuple[Side, Side]
    objective: ObjectiveConfig
    device: torch.device

    @property
    def dependency(self) -> DependencyConfig:
        """Which heads are read as dependency heads."""
        return self.objective.dependency or DependencyConfig()

    def read(
        self, sources: Sequence[str], targets: Sequence[str] | None, parsers: tuple[Parser | None, Parser | None]
    ) -> Analysis:
        """Analyse lines.

        Args:
            sources: raw text.
            targets: their targets, which are forced; None where only the encoder is read.
            parsers: of both sides; a side without one is not scored.
        """
        analysis = Analysis()
        places = [
            place for place, line in enumerate(sources) if line.strip() and (not targets or targets[place].strip())
        ]
        for start in range(0, len(places), BATCH):
            chunk = places[start : start + BATCH]
            lines = [sources[place] for place in chunk], [targets[place] for place in chunk] if targets else None
            self._read_batch(lines[0], lines[1], parsers, analysis)
        return analysis

    @torch.inference_mode()
    def _read_batch(
        self,
        sources: Sequence[str],
        targets: Sequence[str] | None,
        parsers: tuple[Parser | None, Parser | None],
        analysis: Analysis,
    ) -> None:
        ids = [np.asarray(self.sides[0].encode(line)) for line in sources]
        target_ids = [np.asarray(self.sides[1].encode(line), dtype=np.int64) for line in targets or [""] * len(sources)]
        batch = collate(ids, target_ids).to(self.device)
        heads = DependencyLoss(self.dependency)
        synchronous = Objective(self.objective).parts.get("synchronous") if targets else None
        capture = dict.fromkeys([*heads.attention, *(synchronous.attention if synchronous else ())])
        output = self.model(batch, capture=tuple(capture))
        shift = int(self.dependency.index_by == "input")
        for number, (lines, parser) in enumerate(zip((sources, targets), parsers, strict=True)):
            name = ("source", "target")[number]
            if lines is not None and parser is not None and name in self.dependency.sides:
                weights = mean_of_heads(output.attention[heads.name_of(name)], self.dependency.heads).double().cpu()
                found = _analysed(lines, weights.numpy(), self.sides[number], parser, shift if number else 0)
                getattr(analysis, name).extend(found)
        if isinstance(synchronous, SynchronousLoss):
            analysis.pairs.extend(_synchronised(synchronous, output, batch))


def _analysed(lines: Sequence[str], weights: Weights, side: Side, parser: Parser, shift: int) -> Iterator[Analysed]:
    for row, (line, parse) in enumerate(zip(lines, parser.parse(lines), strict=True)):
        pieces = side.pieces(line)
        projection = project(pieces, parse, segmented=side.config.segment != "none")
        real = slice(shift, shift + len(pieces))
        yield Analysed([piece.text for piece in pieces], projection, weights[row, real, real])


def _synchronised(part: SynchronousLoss, output: Any, batch: Any) -> Iterator[Synchronised]:
    compared = part.compared(output, batch)
    names = list(part.attention)
    encoder = mean_of_heads(output.attention[names[0]], part.heads)
    cross = mean_of_heads(output.attention[names[2]], part.attention[names[2]])
    arrays = [each.double().cpu().numpy() for each in (encoder, cross, *compared)]
    sizes = zip(batch.source_mask.sum(1).tolist(), batch.target_mask.sum(1).tolist(), strict=True)
    for row, (source, target) in enumerate(sizes):
        e, c, projected, decoder = (each[row] for each in arrays)
        yield Synchronised(
            e[:source, :source], c[:target, :source], projected[:target, :target], decoder[:target, :target]
        )


def report_text(scores: Iterable[tuple[str, AttachmentScore]], agreement: Agreement | None) -> str:
    """The whole report, to be read."""
    return "\n".join([*(score.text(name) for name, score in scores), *([agreement.text()] if agreement else [])])
