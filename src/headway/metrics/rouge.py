"""ROUGE (Lin 2004) with headway's metric interface, for English and other languages.

N-grams, tokens and stems are counted by rouge-score. Longest common subsequences have our own implementation with equal
results: rouge-score's tables of Python numbers take 3 GB for two texts of 20,000 words.

Shapes: N segments, R reference sets.
For common subsequences: R words of a reference, O words of an output.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import LCSseq
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.scoring import fmeasure
from rouge_score.tokenizers import DefaultTokenizer, Tokenizer

from headway.core.errors import UserError
from headway.core.languages import LanguageCode, has_no_spaces, language_name
from headway.core.log import warn
from headway.metrics.metric import Metric, Signature, Statistics, check_segments, present, references_of_each, release
from headway.processing.text.sentences import language_of_rules, sentences

MOST_CELLS = 10**9  # of a table of R x O words with one bit per cell: 125 MB, and five seconds
Tokenization = Literal["ascii", "words", "characters"]


class _Unicode(Tokenizer):  # type: ignore[misc]  # rouge-score has no types
    """Lower-cased words of letters, marks and digits of any script, or single characters with their marks."""

    def __init__(self, unit: Tokenization) -> None:
        self.unit = unit

    def tokenize(self, text: str) -> list[str]:
        words = "".join(sign if _kind(sign) in "LMN" else " " for sign in text.lower()).split()
        if self.unit == "words":
            return words
        letters: list[str] = []
        for word in words:
            for place, sign in enumerate(word):
                if place and _kind(sign) == "M":
                    letters[-1] += sign
                else:
                    letters.append(sign)
        return letters


@lru_cache(maxsize=1 << 16)
def _kind(character: str) -> str:
    return unicodedata.category(character)[0]


class Rouge(Metric):
    """ROUGE F1: the mean over segments, times 100, comparing the whole output with the whole reference.

    Statistics: a segment's F1, and 1.

    Args:
        tokenize: `ascii` is the original, with lower-cased letters a to z and digits, which leaves nothing of other
            scripts; `words` are letters of all scripts between white space and punctuation; `characters` are single
            letters, the default for languages without spaces between words.
        stem: Porter's stems of English words of more than three letters, with `ascii` (ROUGE-1.5.5's -m).
        jackknife: with several references, average the best score over leaving out one after another (Lin 2004, section
            2.1), instead of taking the highest F1.
        language: the language of the references; for ROUGE-Lsum also that of sentence segmentation, by default English.

    Raises:
        UserError: stemming of other than `ascii` tokens.
    """

    kind: ClassVar[str]  # the name in rouge-score
    sentence_rules: str | None = None  # the language of sentence segmentation, if any

    def __init__(
        self,
        *,
        tokenize: Tokenization | None = None,
        stem: bool = False,
        jackknife: bool = False,
        language: LanguageCode | None = None,
    ) -> None:
        tokenize = tokenize or ("characters" if has_no_spaces(language) else "ascii")
        if stem and tokenize != "ascii":
            raise UserError(
                "only English is stemmed", where=f"{self.name}.tokenize", received=tokenize, allowed="ascii"
            )
        self.tokenize, self.stem, self.jackknife = tokenize, stem, jackknife
        self._tokenizer = DefaultTokenizer(stem) if tokenize == "ascii" else _Unicode(tokenize)
        self.language = language or "en"
        self._references: int | str | None = None

    @property
    def label(self) -> str:
        return self.name.upper().replace("SUM", "sum")

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        check_segments(hypotheses, references)
        there = present(references)
        self._references = references_of_each(there)
        texts = [text for lines in references for text in lines]
        written = (text for text in texts if not text.isascii() and any(_kind(sign) == "L" for sign in text))
        if lost := sum(not self._tokenizer.tokenize(text) for text in written):  # they score 0 for any output
            share = f"{lost:,} of {len(texts):,} references"
            remedy = "tokenize words or characters, or name their language where it has no spaces"
            warn(f"{self.label}: {share} have no letter from a to z and count as empty; {remedy}")
        by_set = np.array([[*map(self._f1, hypotheses, lines)] for lines in references])
        scores = _jackknife(by_set, there) if self.jackknife else by_set.max(axis=0)
        return np.stack([scores, np.ones(len(scores))], axis=1)

    def _f1(self, hypothesis: str, reference: str) -> float:
        scorer = RougeScorer([self.kind], tokenizer=self._tokenizer)
        return float(scorer.score(reference, hypothesis)[self.kind].fmeasure)

    def aggregate(self, totals: Statistics) -> float:
        return float(100 * totals[0] / totals[1])

    def signature(self) -> Signature:
        choice = "jackknife" if self.jackknife else "best"
        return Signature.of(
            nrefs=self._references,
            refs=choice if self._references not in (None, 1) else None,
            f1=True,
            sentences=self.sentence_rules,
            case="lower",
            tok=self.tokenize,
            stem="porter" if self.stem else "no",
            version=f"{release('rouge-score')}+{release()}",
        )


def _jackknife(scores: NDArray[np.float64], there: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The mean (N,), over leaving out each of the references in turn, of the best score with the remaining ones.

    Args:
        scores: (R, N) the score with each reference alone; that of a single reference is unchanged.
        there: (R, N) a mask of the references that exist.
    """
    means = []
    for alone in (column[known] for column, known in zip(scores.T, there.T, strict=True)):
        best = [np.delete(alone, left_out).max() for left_out in range(len(alone))] if len(alone) > 1 else alone
        means.append(np.mean(best))
    return np.array(means)


class Rouge1(Rouge):
    """ROUGE-1: words. Options as `Rouge`."""

    name, kind = "rouge-1", "rouge1"


class Rouge2(Rouge):
    """ROUGE-2: pairs of words. Options as `Rouge`."""

    name, kind = "rouge-2", "rouge2"


class RougeL(Rouge):
    """ROUGE-L: the longest common subsequence of the whole texts. Options as `Rouge`."""

    name, kind = "rouge-l", "rougeL"

    def _f1(self, hypothesis: str, reference: str) -> float:
        output, target = self._tokenizer.tokenize(hypothesis), self._tokenizer.tokenize(reference)
        return _f1(common_length(target, output), len(output), len(target))


class RougeLsum(Rouge):
    """ROUGE-L of summaries of several sentences (Lin 2004, section 3.2).

    For each sentence of the reference, the union of its common subsequences with all sentences of the output counts.
    Sentences are split by `processing.text.sentences`.

    As in ROUGE-1.5.5, a word counts at most as often as it occurs in both texts. Options as `Rouge`.
    """

    name, kind = "rouge-lsum", "rougeLsum"

    _told_of_rules = False

    @property
    def sentence_rules(self) -> str:  # type: ignore[override]
        return f"headway-{language_of_rules(self.language) or 'en'}"

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        if language_of_rules(self.language) is None and not self._told_of_rules:
            self._told_of_rules = True
            where = f"the sentences of {language_name(self.language)} ({self.language})"
            warn(f"{self.label}: there are no rules for {where}, which end by those of English")
        return super().statistics(hypotheses, references)

    def _f1(self, hypothesis: str, reference: str) -> float:
        outputs, targets = (
            [self._tokenizer.tokenize(sentence) for sentence in sentences(text, self.language)]
            for text in (hypothesis, reference)
        )
        words = [Counter(word for sentence in text for word in sentence) for text in (outputs, targets)]
        both, matches = words[0] & words[1], 0
        for target in targets:
            for place in sorted({place for output in outputs for place in common_places(target, output)}):
                matches += both[target[place]] > 0
                both[target[place]] -= 1
        return _f1(matches, words[0].total(), words[1].total())


def _f1(matches: int, output: int, reference: int) -> float:
    return float(fmeasure(matches / output, matches / reference)) if output and reference else 0.0


def common_length(reference: Sequence[str], output: Sequence[str]) -> int:
    """The length of the longest common subsequence, in O(R + O) memory."""
    return LCSseq.similarity(reference, output)


def common_places(reference: Sequence[str], output: Sequence[str]) -> list[int]:
    """The positions in the reference, from its end, of a longest common subsequence.

    If there are several, it is the one that rouge-score reads from the table of lengths.

    Raises:
        UserError: the texts are too long for this table.
    """
    if len(reference) * len(output) > MOST_CELLS:
        received = f"{len(reference):,} and {len(output):,} words"
        raise UserError("these sentences are too long for rouge-lsum", received=received, allowed="rouge-l")
    known: dict[str, int] = {}
    rows, columns = (
        np.array([known.setdefault(word, len(known)) for word in words], np.int64) for words in (reference, output)
    )
    leftward, places = _leftward(rows, columns), list[int]()
    row, column = len(rows), len(columns)
    while row and column:
        if rows[row - 1] == columns[column - 1]:
            row, column = row - 1, column - 1
            places.append(row)
        elif leftward[row - 1, (column - 1) // 8] << (column - 1) % 8 & 128:
            column -= 1
        else:
            row -= 1
    return places


def _leftward(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.uint8]:
    """A bit per cell of the table of lengths (R, O/8): whether its left neighbour is larger than the cell above."""
    bits = np.empty((len(rows), (len(columns) + 7) // 8), np.uint8)
    above = np.zeros(len(columns) + 1, np.int64)
    for index, word in enumerate(rows):
        # length[r, o] = length[r-1, o-1] + 1 where the words are equal, else max(length[r-1, o], length[r, o-1]).
        lengths = np.zeros_like(above)
        np.maximum.accumulate(np.maximum(above[1:], (above[:-1] + 1) * (columns == word)), out=lengths[1:])
        bits[index] = np.packbits(lengths[:-1] > above[1:])
        above = lengths
    return bits
