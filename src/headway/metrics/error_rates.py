"""Word and character error rates, with the alignments of jiwer."""

import unicodedata
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import jiwer
import numpy as np

from headway.core.languages import LanguageCode, has_no_spaces
from headway.core.log import warn
from headway.metrics.metric import (
    Metric,
    Signature,
    Statistics,
    check_segments,
    present,
    references_of_each,
    release,
    spelt,
    without_words,
)  # fmt: skip

CHUNKS = ("equal", "substitute", "delete", "insert")  # jiwer's names of the chunks of an alignment


class ErrorRate(Metric):
    """100 (S + D + I) / (H + S + D): substitutions, deletions and insertions over the length of the reference.

    With several references, each segment is compared with the nearest one; among equally near ones with the longest,
    whatever their order. Leading, trailing and repeated white space is ignored.
    Statistics: hits, substitutions, deletions, insertions.

    Args:
        lowercase: compare without regard to case.
        punctuation: whether punctuation counts; otherwise every character of Unicode's punctuation categories is
            removed.
    """

    higher_is_better = False
    unit: str

    def __init__(self, *, lowercase: bool = False, punctuation: bool = True) -> None:
        self._lowercase, self._punctuation = lowercase, punctuation
        self._references: int | str | None = None

    @property
    def label(self) -> str:
        return self.name.upper()

    @abstractmethod
    def _align(self, references: list[str], hypotheses: list[str]) -> Any:
        """The alignments of all segments, as jiwer returns them."""

    def _normalise(self, text: str) -> str:
        text = text.lower() if self._lowercase else text
        if not self._punctuation:
            text = "".join(sign for sign in text if not unicodedata.category(sign).startswith("P"))
        return " ".join(text.split())

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        check_segments(hypotheses, references)
        there = present(references)
        self._references = references_of_each(there)
        outputs = [self._normalise(text) for text in hypotheses]
        counts = np.stack([self._counts([self._normalise(text) for text in texts], outputs) for texts in references])
        errors, lengths = counts[:, :, 1:].sum(axis=2), counts[:, :, :3].sum(axis=2)
        distances = errors - lengths / (1 + lengths.max(initial=0))  # integers minus a fraction below 1, to break ties
        nearest = np.where(there, distances, np.inf).argmin(axis=0)
        chosen: Statistics = counts[nearest, np.arange(len(outputs))]
        return chosen

    def _counts(self, references: list[str], hypotheses: list[str]) -> Statistics:
        counts = np.zeros((len(hypotheses), len(CHUNKS)))
        for row, chunks in zip(counts, self._align(references, hypotheses), strict=True):
            for chunk in chunks:
                length = max(chunk.ref_end_idx - chunk.ref_start_idx, chunk.hyp_end_idx - chunk.hyp_start_idx)
                row[CHUNKS.index(chunk.type)] += length
        return counts

    def aggregate(self, totals: Statistics) -> float:
        errors, length = float(totals[1:].sum()), float(totals[:3].sum())
        return 100 * errors / length if length else (100.0 if errors else 0.0)

    def notes(self, totals: Statistics) -> list[str]:
        hits, substitutions, deletions, insertions = map(int, totals)
        length = f"{hits + substitutions + deletions:,} {self.unit}"
        return [f"{substitutions:,} substitutions, {deletions:,} deletions, {insertions:,} insertions in {length}"]

    def signature(self) -> Signature:
        case, punctuation = "lc" if self._lowercase else "mixed", "yes" if self._punctuation else "no"
        return Signature.of(
            nrefs=self._references, case=case, punct=punctuation, space="collapsed", version=release("jiwer")
        )


class WordErrorRate(ErrorRate):
    """WER: the error rate over words separated by white space, or over characters in languages without spaces.

    Args:
        lowercase, punctuation: as `ErrorRate`.
        language: the language of the references.
    """

    name = "wer"
    unit = "words"

    def __init__(
        self, *, lowercase: bool = False, punctuation: bool = True, language: LanguageCode | None = None
    ) -> None:
        super().__init__(lowercase=lowercase, punctuation=punctuation)
        self._spelt = has_no_spaces(language)
        self._needs_spaces = not self._spelt
        self.unit = "characters" if self._spelt else "words"

    def _normalise(self, text: str) -> str:
        normalised = super()._normalise(text)
        return spelt(normalised) if self._spelt else normalised

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        if self._needs_spaces and (what := without_words(references)) is not None:
            self._needs_spaces = False  # warn only once
            warn(f"{self.label}: {what}")
        return super().statistics(hypotheses, references)

    def signature(self) -> Signature:
        known = super().signature().fields
        return Signature((*known[:-1], ("tok", "char"), known[-1])) if self._spelt else Signature(known)

    def _align(self, references: list[str], hypotheses: list[str]) -> Any:
        return jiwer.process_words(references, hypotheses).alignments


class CharacterErrorRate(ErrorRate):
    """CER: the error rate over characters, including the space between words."""

    name = "cer"
    unit = "characters"

    def _align(self, references: list[str], hypotheses: list[str]) -> Any:
        return jiwer.process_characters(references, hypotheses).alignments
