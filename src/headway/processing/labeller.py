"""Labels of tokens: what objectives learn from beside the text, made while a corpus is encoded.

Shapes: N lines, L tokens of a line.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from headway.processing.text.text_processor import TextProcessor


class Labeller(ABC):
    """Labels the tokens of one side of a corpus. Can be sent to another process.

    Attributes:
        name: what the labels are called; it begins with the side, `source_` or `target_`.
        counted: what is counted of each line, for the report.
    """

    name: str
    counted: ClassVar[tuple[str, ...]]

    @property
    def side(self) -> int:
        """0 for the source, 1 for the target."""
        return ("source", "target").index(self.name.partition("_")[0])

    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of all that decides the labels of a line, besides the line and the side."""

    @abstractmethod
    def label(self, line: str, processor: TextProcessor) -> tuple[NDArray[np.integer], Sequence[int]]:
        """The labels (L,) of a raw line's tokens, -1 for none, and a number for each of `counted`."""
