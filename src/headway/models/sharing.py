"""Hypotheses of one sentence share what they see of its source.

Shapes: N sentences, W hypotheses of a sentence.
"""

from torch import Tensor


def sentences_of(index: Tensor, width: int, count: int) -> tuple[int, Tensor | None]:
    """The sentences whose hypotheses the rows `index` of a state are; no value of `index` is looked at.

    Args:
        index: rows; two axes (N', W') say that the W' entries of each line belong to one sentence, and, where N' is
            `count`, that line i belongs to sentence i.
        width: how many consecutive rows of the state belong to one sentence.
        count: the sentences of the state.

    Returns:
        How many consecutive entries of `index` belong to one sentence, and the sentences in their order, or None where
        these are those of the state as they are.
    """
    if index.dim() == 2:
        return index.shape[1], None if index.shape[0] == count else index[:, 0] // width
    return 1, index // width
