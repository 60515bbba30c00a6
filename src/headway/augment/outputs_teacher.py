"""A teacher whose outputs are in a file: those of any system, such as a large language model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from headway.augment.teacher import DecodedLine, Teacher, without_scores
from headway.core.errors import UserError, option
from headway.core.files import sha256
from headway.core.log import counted
from headway.formats.lines import check_file, read_lines


class OutputsTeacher(Teacher):
    """Another system that wrote an output for each line.

    Args:
        outputs: the file of its outputs.
        name: its name in the provenance.
        licence: the terms under which its outputs may be used.

    Raises:
        UserError: the file is missing or empty.
    """

    def __init__(self, outputs: Path, name: str, licence: str) -> None:
        check_file(outputs, option("outputs"))
        self.outputs = outputs
        self.identity = {
            "teacher": {"name": name, "licence": licence},
            "outputs": {"file": str(outputs.absolute()), "sha256": sha256(outputs)},
        }

    def check(self, chunks: Iterable[list[str]]) -> int:
        lines, outputs = sum(map(len, chunks)), sum(1 for _ in read_lines(self.outputs))
        if lines != outputs:
            received = f"{counted(lines, 'line')} and {counted(outputs, 'output')}"
            raise UserError("each line needs one output", where=str(self.outputs), received=received)
        return lines

    def write(self, chunks: Iterable[list[str]], first_line: int) -> Iterator[list[DecodedLine]]:
        outputs = islice(read_lines(self.outputs), first_line - 1, None)
        for chunk in chunks:
            yield without_scores(chunk, list(islice(outputs, len(chunk))))
