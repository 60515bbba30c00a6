"""Unlabelled attachment: the share of words that have the head of the reference."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

from headway.errors import UserError
from headway.formats.conllu import is_conllu, read_sentences
from headway.formats.lines import read_lines
from headway.metrics.metric import Metric, Statistics, check_one_reference
from headway.metrics.signature import Signature

UNKNOWN = "_"  # a word whose head is not known
MOST_DIGITS = 9  # of the number of a head


class UnlabelledAttachment(Metric):
    """UAS: of the words whose head the reference has, the share with that head, times 100.

    A segment is the head of each word, as CoNLL-U counts them: words from 1, 0 for a root, `_` where none is known.
    Files are such lines, or CoNLL-U. Statistics: right words, words.
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
        right, words = totals
        return float(100 * right / words) if words else 0.0

    def signature(self) -> Signature:
        return Signature.of(words="all", version=f"headway-{version('headway')}")


def _heads(line: str, where: str) -> list[str]:
    """The heads of a line, each number written in one way. Raises UserError."""
    heads = line.split()
    for index, head in enumerate(heads):
        if head == UNKNOWN:
            continue
        if not (head.isascii() and head.isdecimal() and len(head) <= MOST_DIGITS and int(head) <= len(heads)):
            allowed = f"0 to {len(heads)}, or {UNKNOWN}"
            raise UserError("this is no head of a word", where=where, received=head, allowed=allowed)
        heads[index] = str(int(head))
    return heads
