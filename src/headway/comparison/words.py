"""Words of texts as a comparison counts them: runs of letters and digits, punctuation marks, and wide characters.

Text that is tokenised already has the same words, and so has text in scripts without spaces: a word there is a
character.

Shapes: N segments, C classes of words.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import numpy as np

from headway.languages import WIDE
from headway.metrics.metric import Metric, Signature, Statistics, check_segments

ClassOf = Callable[[int, str], int]


@cache
def _pattern() -> re.Pattern[str]:
    """A word. Combining characters, which `re` takes for no letters, belong to the letter before them."""
    marks = "".join(sign for sign in map(chr, range(0x300, 0x10000)) if unicodedata.category(sign)[0] == "M")
    return re.compile(rf"[{WIDE}][{marks}]*|(?:[^\W{WIDE}][{marks}]*)+|[^\w\s]")


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return _pattern().findall(text.lower())


def word_counts(texts: Iterable[str]) -> Counter[str]:
    """The number of times that each word occurs."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(words_of(text))
    return counts


def ngrams_of(text: str, longest: int) -> Counter[tuple[str, ...]]:
    """The n-grams of words of a text, up to a length."""
    words = words_of(text)
    return Counter(
        tuple(words[start : start + length])
        for length in range(1, longest + 1)
        for start in range(len(words) - length + 1)
    )


class WordF1(Metric):
    """2 P R / (P + R) of words as multisets, times 100, by the first set of references.

    Statistics: words in both, words of the hypothesis, words of the reference.
    """

    name = "word-f1"

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        check_segments(hypotheses, references)
        of_all: Statistics = self.by_class(hypotheses, references[0], lambda segment, word: 0, 1)[0]
        return of_all

    def by_class(
        self, hypotheses: Sequence[str], references: Sequence[str], class_of: ClassOf, classes: int
    ) -> Statistics:
        """Statistics (C, N, 3) of each class of words; `class_of` tells that of a segment's word, below 0 for none."""
        rows = np.zeros((classes, len(hypotheses), 3))
        for segment, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True)):
            output, wanted = Counter(words_of(hypothesis)), Counter(words_of(reference))
            for column, counts in enumerate((output & wanted, output, wanted)):
                for word, count in counts.items():
                    if (index := class_of(segment, word)) >= 0:
                        rows[index, segment, column] += count
        return rows

    def aggregate(self, totals: Statistics) -> float:
        return float(self.aggregate_all(totals[None])[0])

    def aggregate_all(self, totals: Statistics) -> Statistics:
        both, output, wanted = totals.T
        # An F1 of no words at all is 0, as in most papers.
        scores: Statistics = 200 * both / np.maximum(output + wanted, 1)
        return scores

    def signature(self) -> Signature:
        return Signature.of(words="lower-cased", references="first")
