"""The seam between a task's lines and the text of its model."""


class Form:
    """How a task's lines stand to the text of its model; by default they are that text."""

    def source(self, line: str) -> str:
        """What the model reads of a line. Raises UserError for a line that is none of the task's."""
        return line

    def output(self, line: str, text: str) -> str:
        """What is made, for a line, of the text that the model writes."""
        return text

    def notes(self) -> list[str]:
        """What is to be said of the lines so far."""
        return []
