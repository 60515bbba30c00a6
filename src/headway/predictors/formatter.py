"""The seam between a task's lines and the text of its model."""

from collections.abc import Mapping
from typing import NamedTuple


class Formatted(NamedTuple):
    """An output as it is shown.

    Attributes:
        text: the output.
        repairs: how often what had to be repaired in the model's text, by kind; None where nothing can need repair.
    """

    text: str
    repairs: Mapping[str, int] | None = None


class Formatter:
    """The way from a task's lines to the text of its model, and back; by default they are the same.

    A formatter keeps nothing of the lines that it has seen, so threads may share it.

    Attributes:
        in_lines: whether every output is one line.
    """

    in_lines: bool = True

    def check(self, line: str, where: str) -> None:
        """Raise UserError, at `where`, for a line that is none of the task's."""

    def check_target(self, line: str, where: str) -> None:
        """Raise UserError, at `where`, for a line that is none of the model's text, of a target that is scored."""

    def source(self, line: str) -> str:
        """The text that the model reads for a line. Raises UserError as `check`."""
        return line

    def output(self, line: str, text: str) -> Formatted:
        """The output for a line that is made of the text which the model wrote."""
        return Formatted(text)
