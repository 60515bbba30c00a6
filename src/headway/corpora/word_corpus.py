"""Corpora of labelled words for a pretrained encoder: windows of sentences, held in memory, and their batches.

Shapes: B batch, P tokens, W words.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.corpora.plan import plan_epoch
from headway.formats.corpus_format import NOTHING_AMISS, Labelled, RowReport
from headway.formats.labelled_words import fingerprint
from headway.processing.pretrained import Window, WordProcessor
from headway.tensors.batch import UNLABELLED, Indices, TokenBatch
from headway.tensors.masks import padding_mask


def collate_windows(
    windows: Sequence[Window], padding: int, labels: Sequence[Sequence[int]] | None = None, indices: Any = None
) -> TokenBatch:
    """The batch of windows, on the CPU.

    Args:
        windows: B windows.
        padding: the id of the padding token.
        labels: the label of each word, or `UNLABELLED`; by default, words have no labels.
        indices: (B,) positions of the windows in their corpus; by default 0 .. B - 1.
    """
    tokens, token_mask = _padded([window.ids for window in windows], padding)
    first, word_mask = _padded([window.first for window in windows], 0)
    if labels is None:
        labels = [[UNLABELLED] * len(window.first) for window in windows]
    target, _ = _padded(labels, UNLABELLED)
    target_mask = target != UNLABELLED
    return TokenBatch(
        target_output=target.clamp(min=0), target_mask=target_mask, counts={"target_tokens": int(target_mask.sum())},
        indices=np.arange(len(windows)) if indices is None else np.asarray(indices, dtype=np.int64),
        tokens=tokens, token_mask=token_mask, first=first, word_mask=word_mask,
    )  # fmt: skip


def _padded(rows: Sequence[Sequence[int]], padding: int) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(row) for row in rows])
    mask = padding_mask(lengths, int(lengths.max()))
    values = torch.full(mask.shape, padding)
    values[mask] = torch.tensor([value for row in rows for value in row], dtype=torch.int64)
    return values, mask


@dataclass(frozen=True)
class TokenReport:
    """The statistics of a corpus: sentences, words, the count of each label, and the sentences that were split."""

    name: str
    sentences: int
    words: int
    annotators: int
    labels: dict[str, int]
    unknown_labels: int
    split: int
    rows: RowReport = NOTHING_AMISS

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        shares = ", ".join(f"{label} {count / max(1, self.words):.1%}" for label, count in self.labels.items())
        lines = [f"{self.name}: {self.sentences:,} sentences, {self.words:,} words ({shares})"]
        lines += self.rows.text()
        if self.annotators > 1:
            lines.append(f"  {self.annotators} annotators; a word is wrong where any of them says so")
        if self.split:
            lines.append(f"  {self.split:,} sentences are longer than data.max_length and are read in parts")
        if self.unknown_labels:
            lines.append(f"  {self.unknown_labels:,} words have a label that data.train has not")
        return "\n".join(lines)


class TokenCorpus:
    """Labelled sentences, split into windows.

    Args:
        name: the name of the corpus in the report.
        sentences: the sentences, each with the labels of its words for training.
        processor: the encoder's tokenizer.
        labels: all labels, in the order of their ids.
        longest: the maximum number of tokens of a window.
        rows: the report of unreadable rows.
    """

    def __init__(
        self,
        name: str,
        sentences: Sequence[tuple[Labelled, Sequence[str]]],
        processor: WordProcessor,
        labels: Sequence[str],
        longest: int,
        rows: RowReport = NOTHING_AMISS,
    ) -> None:
        self._padding = processor.padding
        ids = {label: number for number, label in enumerate(labels)}
        self._windows, self._labels, split, counts = list[Window](), list[list[int]](), 0, Counter[str]()
        for number, (sentence, wanted) in enumerate(sentences):
            parts = processor.windows(sentence.words, longest, number)
            split += len(parts) > 1
            counts.update(wanted)
            for part in parts:
                words = wanted[part.start : part.start + len(part.first)]
                self._windows.append(part)
                self._labels.append([ids.get(label, UNLABELLED) for label in words])
        self.lines = np.array([sentences[window.sentence][0].line for window in self._windows], dtype=np.int64)
        self._lengths = np.array([len(window.ids) for window in self._windows], dtype=np.int64)
        read = [sentence for sentence, _ in sentences]
        settings = [str(longest), *labels, *(str(window.ids) for window in self._windows)]
        self.fingerprint = fingerprint(read, settings)
        unknown = sum(count for label, count in counts.items() if label not in ids)
        self.report = TokenReport(
            name, len(read), sum(counts.values()), len(read[0].labels) if read else 0,
            {label: counts[label] for label in labels}, unknown, split, rows,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self._windows)

    def widths(self) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        return self._lengths, self._lengths

    def plan(self, seed: int, epoch: int, **sizes: Any) -> list[Indices]:
        return plan_epoch(*self.widths(), seed=seed, epoch=epoch, **sizes)

    def collate(
        self, indices: Indices, generator: torch.Generator | None = None, epoch: int | None = None
    ) -> TokenBatch:
        """The batch of the windows at `indices`. Draws no random numbers."""
        chosen = [int(index) for index in indices]
        labels = [self._labels[index] for index in chosen]
        return collate_windows([self._windows[index] for index in chosen], self._padding, labels, indices)
