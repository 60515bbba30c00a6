"""The lessons' exercises, which grade themselves: an answer in a notebook, or the files of a class."""

import traceback
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from headway.core.documents import parse_json, read_text
from headway.core.errors import UserError, in_one_line
from headway.lessons.exercises import EXERCISES
from headway.mixers.conformance import ConformanceError

LARGEST = 100_000_000  # bytes of a notebook, whose pictures are large
TAG = "exercise"  # of the cells of a notebook that hold the answer


@dataclass(frozen=True)
class Checked:
    """The result of a check, as a notebook shows it."""

    right: bool
    said: str

    def __repr__(self) -> str:
        return self.said


def exercise_name(lesson: int) -> str:
    """The name of the function or class that a lesson asks for. Raises UserError for a lesson that is not there."""
    if not 1 <= lesson <= len(EXERCISES):
        raise UserError("there is no such lesson", where="LESSON", received=lesson, allowed=f"1 to {len(EXERCISES)}")
    return [*EXERCISES][lesson - 1]


def check(lesson: int, answer: Any) -> Checked:
    """Compare the answer to a lesson's exercise with its equation on random inputs, and say which property broke."""
    name = exercise_name(lesson)
    try:
        EXERCISES[name](answer)
    except ConformanceError as error:
        return Checked(False, str(error))
    except NotImplementedError:
        return Checked(False, f"{name} is not written yet: fill in its cell, run that, and check again")
    except (Exception, SystemExit) as error:  # of code that is not ours
        file = getattr(getattr(answer, "__code__", None), "co_filename", None)
        lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == file]
        where = f" in line {lines[-1]}" if lines else ""
        return Checked(False, f"{name} fails{where}: {type(error).__name__}: {in_one_line(str(error))}")
    return Checked(True, "right")


def check_file(lesson: int, path: Path) -> Checked:
    """Run a Python file, or the cells of a notebook that are tagged as the exercise, and check the answer in it."""
    name, names = exercise_name(lesson), dict[str, Any](__name__="answer")
    with redirect_stdout(StringIO()), chdir("."):  # an answer may go to another folder
        try:
            text = read_text(path, LARGEST)
            if path.suffix == ".ipynb":
                cells = [cell for cell in parse_json(text, str(path), dict)["cells"] if TAG in str(cell["metadata"])]
                text = "\n\n".join("".join(cell["source"]) for cell in cells)
            exec(compile(text, str(path), "exec"), names)  # noqa: S102
        except (Exception, SystemExit) as error:  # of code that is not ours
            kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            return Checked(False, f"the file cannot be run: {kind}{in_one_line(str(error))}")
        return check(lesson, names[name]) if name in names else Checked(False, f"{name} is not defined in this file")
