"""The wrong words of a sentence, found by comparing it with a corrected one."""

from collections.abc import Sequence

CORRECT, INCORRECT = "c", "i"


def wrong_words(source: Sequence[str], corrected: Sequence[str]) -> list[str]:
    """A label for each source word: `i` where it must change to become `corrected`, else `c`.

    The alignment has the least edit distance (Levenshtein; a substitution, a surplus and a missing word cost 1 each;
    of equally good ones, that which keeps or substitutes words as far to the right as can be). Substituted and surplus
    words are wrong; a missing word marks the word after it, or the last one where the sentence ends.
    """
    table = _distances(source, corrected)
    labels = [CORRECT] * len(source)
    row, column = len(source), len(corrected)
    while row or column:
        here = table[row][column]
        if row and column and here == table[row - 1][column - 1] + (source[row - 1] != corrected[column - 1]):
            row, column = row - 1, column - 1
            if source[row] != corrected[column]:
                labels[row] = INCORRECT
        elif row and here == table[row - 1][column] + 1:
            row -= 1
            labels[row] = INCORRECT
        else:
            column -= 1
            mark_missing(labels, row)
    return labels


def mark_missing(labels: list[str], index: int) -> None:
    """Note that a word is missing before word `index`, which may be one past the last."""
    if labels:
        labels[min(index, len(labels) - 1)] = INCORRECT


def union(sets: Sequence[Sequence[str]]) -> list[str]:
    """Of several labellings of one sentence, `i` where any has it."""
    return [INCORRECT if INCORRECT in labels else CORRECT for labels in zip(*sets, strict=True)]


def _distances(source: Sequence[str], corrected: Sequence[str]) -> list[list[int]]:
    """table[m][n]: the edit distance of the first m and the first n words."""
    table = [list(range(len(corrected) + 1))]
    for row, word in enumerate(source, start=1):
        above, line = table[-1], [row]
        for column, other in enumerate(corrected, start=1):
            line.append(min(above[column - 1] + (word != other), above[column] + 1, line[-1] + 1))
        table.append(line)
    return table
