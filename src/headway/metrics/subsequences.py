"""Longest common subsequences of words, for long texts too (see ROUGE-L).

Shapes: R words of a reference, O words of an output.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import LCSseq

from headway.errors import UserError

MOST_CELLS = 10**9  # of a table of R x O, which takes a bit for each: 125 MB, and five seconds


def common_length(reference: Sequence[str], output: Sequence[str]) -> int:
    """The length of the longest subsequence that both have, in memory of R + O."""
    return LCSseq.similarity(reference, output)


def common_places(reference: Sequence[str], output: Sequence[str]) -> list[int]:
    """Where in the reference, from its end, the words of one of the longest common subsequences stand.

    Of several, it is the one that rouge-score reads from the whole table of lengths.

    Raises:
        UserError: texts too long for that table.
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
    """(R, O/8): a bit a cell of the table of lengths, whether its left neighbour is larger than the one above it."""
    bits = np.empty((len(rows), (len(columns) + 7) // 8), np.uint8)
    above = np.zeros(len(columns) + 1, np.int64)
    for index, word in enumerate(rows):
        # length[r, o] = length[r-1, o-1] + 1 where the words are equal, else max(length[r-1, o], length[r, o-1]).
        lengths = np.zeros_like(above)
        np.maximum.accumulate(np.maximum(above[1:], (above[:-1] + 1) * (columns == word)), out=lengths[1:])
        bits[index] = np.packbits(lengths[:-1] > above[1:])
        above = lengths
    return bits
