"""The sizes of the rooms and of their doors, as a ratchet: a value may fall, and rises only with a line that says why.

`python tools/measure_house.py --rooms` prints the table of today. Lower it where the house has become smaller.
"""

from pathlib import Path

import pytest

from tools.measure_house import Room, functions, rooms

# Lines, `raise` statements, names of other rooms, questions of kind. Why a value rose stands behind it.
HOUSE = {
    "__init__": Room(45, 1, 10, 0),
    "__main__": Room(5, 0, 1, 0),
    "augment": Room(492, 9, 55, 4),
    "claims": Room(997, 18, 52, 0),
    "cli": Room(2841, 55, 191, 10),  # + 13: a signal waits for the end of an import, which it could abort
    "comparison": Room(3140, 22, 70, 0),
    "core": Room(2953, 78, 0, 0),
    "corpora": Room(3008, 24, 96, 0),
    "experiments": Room(638, 9, 57, 2),
    "export": Room(3775, 22, 156, 21),
    "formats": Room(2676, 68, 34, 0),
    "grids": Room(2849, 45, 161, 10),
    "importing": Room(855, 31, 76, 0),
    "inspect": Room(3988, 27, 115, 8),
    "lessons": Room(305, 2, 8, 0),
    "losses": Room(631, 6, 12, 0),
    "markup": Room(1670, 18, 8, 0),
    "metrics": Room(2315, 27, 50, 0),
    "mixers": Room(3851, 28, 25, 0),
    "models": Room(4217, 49, 57, 0),
    "optimizers": Room(484, 9, 9, 0),
    "pages": Room(1173, 2, 14, 0),
    "parses": Room(1357, 24, 44, 0),
    "predictors": Room(
        3267, 48, 110, 12
    ),  # + 120: rows, and searches around a search, which the plain one does not enter
    "processing": Room(4340, 121, 49, 4),
    "pytest_plugin": Room(76, 1, 5, 0),
    "recipe": Room(671, 25, 51, 0),
    "runs": Room(1362, 29, 62, 1),
    "search": Room(788, 3, 17, 0),
    "serving": Room(1791, 38, 45, 4),
    "tasks": Room(2062, 51, 154, 3),
    "tensors": Room(1367, 3, 0, 0),
    "training": Room(3549, 50, 172, 2),
    "trees": Room(418, 0, 0, 0),
}
# Functions and files of the package that run for plain commands, in their main process.
# Training enters one file more: a page and the report of a run are two.
PLAIN = {"train": (938, 121), "predict": (467, 81), "compare": (567, 89)}
SLACK = 3  # functions that run on some machines alone


def test_no_room_has_grown() -> None:
    sizes = rooms()
    grown = {
        room: (size, HOUSE.get(room))
        for room, size in sizes.items()
        if any(now > most for now, most in zip(size, HOUSE.get(room, Room(0, 0, 0, 0)), strict=True))
    }
    assert grown == {}, "make it smaller, or raise the value in HOUSE with a line that says why"
    assert HOUSE.keys() == sizes.keys()


@pytest.mark.slow
def test_a_plain_command_enters_no_more_than_before(tmp_path: Path) -> None:
    """What a feature adds is entered by the commands that ask for it."""
    for verb, (number, files) in functions(tmp_path).items():
        most, most_files = PLAIN[verb]
        assert number <= most + SLACK, f"{verb} runs {number} functions, not {most}"
        assert files <= most_files, f"{verb} enters {files} files, not {most_files}"
