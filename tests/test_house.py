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
    "augment": Room(493, 9, 56, 4),  # + 2: a teacher of links is refused, whatever leave training has
    "claims": Room(1032, 18, 57, 0),  # + 39: seeds in two groups decide by a permutation, and scores have a floor
    "cli": Room(2902, 55, 191, 10),  # + 80: a file a group of verbs, imported when called; signals wait for imports
    "comparison": Room(3292, 25, 76, 0),  # + 145: two groups, documents, looks, missing trainings, a floor of scores
    "core": Room(2964, 78, 0, 0),  # + 11: leave for code is a context, which 60 arguments were
    "corpora": Room(3008, 24, 96, 0),
    "experiments": Room(635, 9, 57, 2),
    "export": Room(3767, 22, 156, 21),
    "formats": Room(2676, 68, 34, 0),
    "grids": Room(3021, 45, 165, 10),  # + 175: heads by rank, one family of parts, looks, failed cells
    "importing": Room(852, 31, 76, 0),
    "inspect": Room(3989, 27, 115, 8),  # + 13: options give leave where they open runs
    "lessons": Room(305, 2, 8, 0),
    "losses": Room(631, 6, 12, 0),
    "markup": Room(1670, 18, 8, 0),
    "metrics": Room(2370, 27, 50, 0),  # + 55: Dunnett's method, sums over documents, p of a margin
    "mixers": Room(3851, 28, 25, 0),
    "models": Room(4217, 49, 57, 0),
    "optimizers": Room(484, 9, 9, 0),
    "pages": Room(1172, 2, 14, 0),
    "parses": Room(1357, 24, 44, 0),
    "predictors": Room(3267, 48, 110, 12),  # + 120: rows, and searches around a search
    "processing": Room(4340, 121, 49, 4),
    "pytest_plugin": Room(76, 1, 5, 0),
    "recipe": Room(671, 25, 51, 0),
    "runs": Room(1356, 29, 63, 1),  # + 1 name: a run keeps the leave with which it was opened
    "search": Room(788, 3, 17, 0),
    "serving": Room(1789, 38, 45, 4),
    "tasks": Room(2062, 51, 154, 3),
    "tensors": Room(1367, 3, 0, 0),
    "training": Room(3542, 50, 171, 2),
    "trees": Room(418, 0, 0, 0),
}
# Functions and files of the package that run for plain commands, in their main process.
PLAIN = {"train": (936, 119), "predict": (464, 78), "compare": (569, 88)}  # + 6: looks, floor, missing cells
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
