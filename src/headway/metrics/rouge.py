"""ROUGE (Lin 2004) behind headway's Metric contract, for English and for other languages.

Counts of n-grams, tokens and stems are rouge-score's. Common subsequences are our own, and equal to its: its tables of
Python numbers take 3 GB for two texts of 20,000 words.

Shapes: N segments, R reference sets.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.scoring import fmeasure
from rouge_score.tokenizers import DefaultTokenizer, Tokenizer

from headway.errors import UserError
from headway.languages import LanguageCode, has_no_spaces, language_name
from headway.log import warn
from headway.metrics.metric import Metric, Statistics, check_segments, present, references_of_each
from headway.metrics.signature import Signature
from headway.metrics.subsequences import common_length, common_places
from headway.processing.text.sentences import language_of_rules, sentences

Tokenization = Literal["ascii", "words", "characters"]


class _Unicode(Tokenizer):  # type: ignore[misc]  # rouge-score has no types
    """Lower-cased words of letters, marks and digits of any script, or these one by one with their marks."""

    def __init__(self, unit: Tokenization) -> None:
        self.unit = unit

    def tokenize(self, text: str) -> list[str]:
        """The tokens of a text."""
        words = "".join(sign if _kind(sign) in "LMN" else " " for sign in text.lower()).split()
        return words if self.unit == "words" else [letter for word in words for letter in _letters(word)]


@lru_cache(maxsize=1 << 16)
def _kind(character: str) -> str:
    return unicodedata.category(character)[0]


def _letters(word: str) -> list[str]:
    letters: list[str] = []
    for sign in word:
        if letters and _kind(sign) == "M":
            letters[-1] += sign
        else:
            letters.append(sign)
    return letters


class Rouge(Metric):
    """ROUGE F1: the mean over the segments, times 100, of all of an output against all of a reference.

    Statistics: a segment's F1, and 1.

    Args:
        tokenize: `ascii` is ROUGE's own, lower-cased letters a to z and digits, to which text in other scripts is
            empty; `words` takes letters of all scripts between white space and punctuation; `characters` every one of
            them for itself, for languages that put no spaces between words, where it is the default.
        stem: Porter's stems of English words of more than three letters, with `ascii` (ROUGE-1.5.5's -m).
        jackknife: of several references take the mean, over leaving out one after another, of the best of the others
            (Lin 2004, section 2.1), instead of the one with the highest F1.
        language: that of the references.

    Raises:
        UserError: stemming of other than `ascii` tokens.
    """

    kind: ClassVar[str]  # as rouge-score names it
    sentence_rules: str | None = None  # by which a text is cut into sentences, where that is done

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
        self._references: int | str | None = None

    @property
    def label(self) -> str:
        return self.name.upper().replace("SUM", "sum")

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        check_segments(hypotheses, references)
        there = present(references)
        self._references = references_of_each(there)
        self._check_script(references)
        by_set = np.array([self._scores(hypotheses, lines) for lines in references])
        scores = _jackknife(by_set, there) if self.jackknife else by_set.max(axis=0)
        return np.stack([scores, np.ones(len(scores))], axis=1)

    def _scores(self, hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
        """F1 of each segment against one set of references."""
        return [self._f1(*pair) for pair in zip(hypotheses, references, strict=True)]

    def _f1(self, hypothesis: str, reference: str) -> float:
        scorer = RougeScorer([self.kind], tokenizer=self._tokenizer)
        return float(scorer.score(reference, hypothesis)[self.kind].fmeasure)

    def _check_script(self, references: Sequence[Sequence[str]]) -> None:
        """Warn of references that have letters but, to this tokenizer, no tokens: whatever the output, they score 0."""
        texts = [text for lines in references for text in lines]
        written = (text for text in texts if not text.isascii() and any(_kind(sign) == "L" for sign in text))
        if lost := sum(not self._tokenizer.tokenize(text) for text in written):
            share = f"{lost:,} of {len(texts):,} references"
            remedy = "tokenize words or characters, or name their language where it has no spaces"
            warn(f"{self.label}: {share} have no letter from a to z and count as empty; {remedy}")

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
            version=f"rouge-score-{version('rouge-score')}+headway-{version('headway')}",
        )


def _jackknife(scores: NDArray[np.float64], there: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The mean (N,), over leaving out one reference after another, of the best score by the others.

    Args:
        scores: (R, N) by each reference alone; that of a single reference stays as it is.
        there: (R, N) the references that there are.
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
    """ROUGE-L of summaries of several sentences: for each sentence of the reference, the union of what it has in common
    with each sentence of the output (Lin 2004, section 3.2). Sentences are those of `processing.text.sentences`.

    As in ROUGE-1.5.5, a word counts as often as both texts have it, at most.

    Args:
        tokenize, stem, jackknife: as `Rouge`.
        language: that of the references, whose rules say where sentences end; English without any.

    Raises:
        UserError: as `Rouge`.
    """

    name, kind = "rouge-lsum", "rougeLsum"

    def __init__(
        self,
        *,
        tokenize: Tokenization | None = None,
        stem: bool = False,
        jackknife: bool = False,
        language: LanguageCode | None = None,
    ) -> None:
        super().__init__(tokenize=tokenize, stem=stem, jackknife=jackknife, language=language)
        self.language = language or "en"
        self.sentence_rules = f"headway-{language_of_rules(self.language) or 'en'}"
        self._has_rules = language_of_rules(self.language) is not None

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        if not self._has_rules:
            self._has_rules = True
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
    """F1 of as many matching words of an output and of a reference."""
    return float(fmeasure(matches / output, matches / reference)) if output and reference else 0.0
