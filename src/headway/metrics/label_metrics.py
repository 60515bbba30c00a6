"""Metrics of labels: precision, recall and F-beta of one label, and accuracy. A segment is `label label ...`."""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from headway.core.errors import UserError
from headway.formats import LabelColumn
from headway.formats.conllu import is_conllu, read_labelled
from headway.metrics.metric import Metric, Signature, Statistics, check_segments, release, share


class LabelMetric(Metric):
    """A metric of labels, one per word. Files have a word per row with its label in the second column, or are CoNLL-U.

    Args:
        conllu_label: the CoNLL-U column with the labels.
    """

    each_reference = True
    kinds = ("labels",)

    def __init__(self, *, conllu_label: LabelColumn = "upos") -> None:
        self._reference_sets: int | None = None
        self.conllu_label = conllu_label
        self._reads_conllu = False

    def read(self, path: Path) -> list[str]:
        self._reads_conllu |= is_conllu(path)
        return [" ".join(sentence.labels[0]) for sentence in read_labelled(path, self.conllu_label)]

    def read_words(self, path: Path) -> list[tuple[str, ...]]:
        return [tuple(sentence.words) for sentence in read_labelled(path, self.conllu_label)]

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        self._reference_sets = check_segments(hypotheses, references)
        rows = []
        for segment, (hypothesis, *texts) in enumerate(zip(hypotheses, *references, strict=True), start=1):
            labels, gold = hypothesis.split(), [text.split() for text in texts]
            for reference in gold:
                if len(reference) != len(labels):
                    raise UserError(
                        "a sentence has one label a word",
                        where=f"segment {segment}",
                        received=f"{len(labels)} labels",
                        allowed=f"{len(reference)}, as in the reference",
                    )
            rows.append(self._counts(labels, gold))
        return np.array(rows, dtype=np.float64)

    @abstractmethod
    def _counts(self, labels: list[str], gold: list[list[str]]) -> list[int]:
        """The statistics of one sentence."""

    def _settings(self) -> dict[str, str]:
        return {}

    def signature(self) -> Signature:
        return Signature.of(
            nrefs=self._reference_sets,
            conllu=self.conllu_label if self._reads_conllu else None,
            **self._settings(),
            version=release(),
        )


class OneLabel(LabelMetric):
    """A metric of one label over all words of a corpus. With several references, the label of any of them counts.

    Statistics: true positives, false positives, false negatives.

    Args:
        label: the label that counts as positive.
        conllu_label: the CoNLL-U column with the labels.
    """

    def __init__(self, *, label: str = "i", conllu_label: LabelColumn = "upos") -> None:
        super().__init__(conllu_label=conllu_label)
        self.label_sought = label

    def _counts(self, labels: list[str], gold: list[list[str]]) -> list[int]:
        predicted = [label == self.label_sought for label in labels]
        true = [self.label_sought in reference for reference in zip(*gold, strict=True)]
        pairs = list(zip(predicted, true, strict=True))
        return [pairs.count((True, True)), pairs.count((True, False)), pairs.count((False, True))]

    def _settings(self) -> dict[str, str]:
        return {"label": self.label_sought}

    def notes(self, totals: Statistics) -> list[str]:
        return [] if totals[0] + totals[2] else [self._none()]

    def missing(self, references: Sequence[Sequence[str]]) -> str | None:
        there = any(self.label_sought in text.split() for texts in references for text in texts)
        return None if there else self._none()

    def _none(self) -> str:
        none = f"no word of the references has the label {self.label_sought!r}"
        return f"{none}; the metric's option label names another"


class Precision(OneLabel):
    """The share of words predicted to have the label that do have it, times 100; 0 if there are none."""

    name = "precision"

    def aggregate(self, totals: Statistics) -> float:
        return share(totals[0], totals[0] + totals[1])


class Recall(OneLabel):
    """The share of words with the label that are predicted to have it, times 100; 0 if there are none."""

    name = "recall"

    def aggregate(self, totals: Statistics) -> float:
        return share(totals[0], totals[0] + totals[2])


class FBeta(OneLabel):
    """(1 + beta^2) P R / (beta^2 P + R), times 100 (van Rijsbergen 1979): recall has beta times precision's weight.

    Args:
        label: the label that counts as positive.
        beta: precision has the larger weight if it is below 1.
        conllu_label: the CoNLL-U column with the labels.
    """

    name = "f0.5"

    def __init__(
        self, *, label: str = "i", beta: Annotated[float, Field(gt=0, le=100)] = 0.5, conllu_label: LabelColumn = "upos"
    ) -> None:
        super().__init__(label=label, conllu_label=conllu_label)
        self.beta = beta

    @property
    def label(self) -> str:
        return f"f{self.beta:g}"

    def _settings(self) -> dict[str, str]:
        return {**super()._settings(), "beta": f"{self.beta:g}"}

    def aggregate(self, totals: Statistics) -> float:
        # F = (1 + b^2) TP / ((1 + b^2) TP + b^2 FN + FP), the same without dividing by zero in between
        weight = self.beta**2
        return share((1 + weight) * totals[0], (1 + weight) * totals[0] + weight * totals[2] + totals[1])


class Accuracy(LabelMetric):
    """The share of words whose label equals that of any reference, times 100.

    Statistics: right words, words.
    """

    name = "accuracy"

    def _counts(self, labels: list[str], gold: list[list[str]]) -> list[int]:
        right = [label in wanted for label, wanted in zip(labels, zip(*gold, strict=True), strict=True)]
        return [sum(right), len(right)]

    def aggregate(self, totals: Statistics) -> float:
        return share(totals[0], totals[1])


def best_threshold(
    scores: NDArray[np.floating[Any]], wanted: NDArray[np.bool_], beta: float = 0.5
) -> tuple[float, float]:
    """The threshold on scores for predicting the label that maximises F-beta.

    Args:
        scores: (N,) the score of each word.
        wanted: (N,) whether the word has the label.
        beta: as for `FBeta`.

    Returns:
        The threshold and its F-beta. The threshold is half-way between the lowest predicted score and the next lower
        one,
        or the former if no number of the scores' type lies between them.
    """
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(wanted[order])
    given = np.arange(1, len(order) + 1)
    # F = (1 + b^2) TP / (b^2 (TP + FN) + TP + FP)
    values = (1 + beta**2) * hits / np.maximum(beta**2 * wanted.sum() + given, 1e-12)
    last_of_equals = np.append(np.diff(scores[order]) != 0, True)  # words with equal scores are predicted together
    best = int(np.argmax(np.where(last_of_equals, values, -1)))
    lowest = float(scores[order][best])
    below = float(scores[order][best + 1]) if best + 1 < len(order) else 0.0
    between = float(scores.dtype.type((lowest + below) / 2))
    return between if between > below else lowest, 100 * float(values[best])
