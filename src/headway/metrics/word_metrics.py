"""Metrics of segments with a value per word: links, heads and numbers."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headway.core.errors import UserError, option
from headway.core.log import warn
from headway.formats.alignments import FIRST_WORD, parse_pharaoh, read_alignments
from headway.formats.conllu import is_conllu, read_sentences
from headway.formats.lines import read_lines
from headway.metrics.metric import Metric, Signature, Statistics, check_one_reference, release, share

UNKNOWN = "_"  # the head of a word if it is not known
MOST_DIGITS = 9  # of a head's number


class AlignmentErrorRate(Metric):
    """AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), times 100, over lines of Pharaoh links.

    A are the links of the hypothesis, S the sure ones of the reference, P all of the reference. Two empty alignments
    have no error. Statistics: |A ∩ S|, |A ∩ P|, |A|, |S|.
    """

    name = "aer"
    higher_is_better = False
    kinds = ("links",)

    @property
    def label(self) -> str:
        return "AER"

    def read(self, path: Path) -> list[str]:
        return read_alignments(path, self.links_from)

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        check_one_reference("AER", hypotheses, references)
        rows = []
        for segment, (hypothesis, reference) in enumerate(zip(hypotheses, references[0], strict=True), start=1):
            links = parse_pharaoh(hypothesis, f"hypotheses, segment {segment}").possible
            sure, possible = parse_pharaoh(reference, f"references, segment {segment}")
            rows.append([len(links & sure), len(links & possible), len(links), len(sure)])
        from_0, gold = (sum(bool(FIRST_WORD.search(line)) for line in lines) for lines in (hypotheses, references[0]))
        if self.links_from is None and from_0 > 1 and not gold:
            what = f"{from_0:,} hypotheses link a word 0, and no reference does: if the references count from 1, say so"
            warn(f"AER: {what} ({option('links_from')} 1)")
        return np.array(rows, dtype=np.float64)

    def aggregate(self, totals: Statistics) -> float:
        sure, possible, links, gold = totals
        return float(100 * (1 - (sure + possible) / (links + gold))) if links + gold else 0.0

    def signature(self) -> Signature:
        return Signature.of(links="words", version=release())


class UnlabelledAttachment(Metric):
    """UAS: the share of correct heads among the words that have a head in the reference, times 100.

    A segment has the head of each word, as in CoNLL-U: words are counted from 1, 0 is a root, `_` an unknown head.
    Files have such lines, or are CoNLL-U. Statistics: right words, words.
    """

    name = "uas"
    kinds = ("heads",)

    @property
    def label(self) -> str:
        return "UAS"

    def read(self, path: Path) -> list[str]:
        if not is_conllu(path):
            return list(read_lines(path))
        sentences = ([word.head for word in sentence.words()] for sentence in read_sentences(path))
        return [" ".join(UNKNOWN if head is None else str(head) for head in heads) for heads in sentences]

    def read_words(self, path: Path) -> list[tuple[str, ...]] | None:
        if not is_conllu(path):
            return None
        return [tuple(word.form for word in sentence.words()) for sentence in read_sentences(path)]

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        check_one_reference("UAS", hypotheses, references)
        rows = []
        for segment, (hypothesis, reference) in enumerate(zip(hypotheses, references[0], strict=True), start=1):
            heads = _heads(hypothesis, f"hypotheses, segment {segment}")
            gold = _heads(reference, f"references, segment {segment}")
            if len(heads) != len(gold):
                raise UserError(
                    "a sentence has one head a word", where=f"segment {segment}", received=f"{len(heads)} heads",
                    allowed=f"{len(gold)}, as in the reference",
                )  # fmt: skip
            known = [pair for pair in zip(heads, gold, strict=True) if pair[1] != UNKNOWN]
            rows.append([sum(head == wanted for head, wanted in known), len(known)])
        return np.array(rows, dtype=np.float64)

    def aggregate(self, totals: Statistics) -> float:
        return share(*totals)

    def signature(self) -> Signature:
        return Signature.of(words="all", version=release())


def _heads(line: str, where: str) -> list[str]:
    """The heads of a line, with numbers in a unique spelling."""
    heads = line.split()
    for index, head in enumerate(heads):
        if head == UNKNOWN:
            continue
        if not (head.isascii() and head.isdecimal() and len(head) <= MOST_DIGITS and int(head) <= len(heads)):
            allowed = f"0 to {len(heads)}, or {UNKNOWN}"
            raise UserError("this is no head of a word", where=where, received=head, allowed=allowed)
        heads[index] = str(int(head))
    return heads


class Deviation(Metric):
    """The mean of numbers, one per word, times 1,000: how far the weights of self-attention deviate from a word's mean.

    Smaller values are more even. Segments are lines of numbers; a reference has a 0 for each word.
    Statistics: the sum of the numbers, and their count.
    """

    name = "deviation"
    higher_is_better = False
    kinds = ("numbers",)

    @property
    def label(self) -> str:
        return "deviation (1/1,000)"

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        check_one_reference("deviation", hypotheses, references)
        rows = []
        for segment, (hypothesis, reference) in enumerate(zip(hypotheses, references[0], strict=True), start=1):
            where = f"hypotheses, segment {segment}"
            try:
                numbers = [float(number) for number in hypothesis.split()]
            except ValueError:
                numbers = [math.nan]
            if not all(0 <= number < math.inf for number in numbers):
                raise UserError("a line has numbers from 0 on, one a word", where=where, received=hypothesis)
            if len(numbers) != len(reference.split()):
                what = f"{len(numbers)} numbers for {len(reference.split())} words"
                raise UserError(what, where=where)
            rows.append([sum(numbers), len(numbers)])
        return np.array(rows, dtype=np.float64)

    def aggregate(self, totals: Statistics) -> float:
        return float(1000 * totals[0] / totals[1]) if totals[1] else 0.0

    def signature(self) -> Signature:
        return Signature.of(numbers="words", version=release())
