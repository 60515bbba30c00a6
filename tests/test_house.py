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
    "claims": Room(993, 18, 53, 0),  # + 1 name: data are prepared in a workspace, which an interruption removes
    "cli": Room(2974, 57, 197, 10),  # + 35: `data filter`; a file a group of verbs; signals wait for imports
    "comparison": Room(3146, 22, 72, 0),  # + 10: executors hand on the leave for code
    "core": Room(2975, 78, 0, 0),  # + 11: the names of files tell languages to `new` and `data filter`
    "corpora": Room(3288, 27, 105, 0),  # + 276: rules that reject pairs, and their files
    "experiments": Room(624, 9, 57, 2),
    "export": Room(3767, 22, 156, 21),
    "formats": Room(2676, 68, 34, 0),
    "grids": Room(2846, 45, 161, 10),
    "importing": Room(852, 31, 76, 0),
    "inspect": Room(3989, 27, 115, 8),  # + 13: options give leave where they open runs
    "lessons": Room(305, 2, 8, 0),
    "losses": Room(636, 6, 12, 0),  # + 5: docstrings describe every key
    "markup": Room(1670, 18, 8, 0),
    "metrics": Room(2315, 27, 50, 0),
    "mixers": Room(3851, 28, 25, 0),
    "models": Room(4242, 49, 57, 0),  # + 25: docstrings describe every key
    "optimizers": Room(490, 9, 9, 0),  # + 6: docstrings describe every key
    "pages": Room(1172, 2, 14, 0),
    "parses": Room(1364, 24, 44, 0),  # + 7: docstrings describe every key
    "predictors": Room(3267, 48, 110, 12),  # + 120: rows, and searches around a search
    "processing": Room(4345, 121, 49, 4),  # + 5: docstrings describe every key
    "pytest_plugin": Room(76, 1, 5, 0),
    "recipe": Room(687, 25, 51, 0),  # + 16: docstrings describe every key
    "runs": Room(1356, 29, 63, 1),  # + 1 name: a run keeps the leave with which it was opened
    "search": Room(788, 3, 17, 0),
    "serving": Room(1789, 38, 45, 4),
    "tasks": Room(2062, 51, 154, 3),
    "tensors": Room(1367, 3, 0, 0),
    "training": Room(3548, 50, 171, 2),  # + 6: docstrings describe every key
    "trees": Room(418, 0, 0, 0),
}
# Functions and files of the package that run for plain commands, in their main process.
PLAIN = {"train": (936, 119), "predict": (464, 78), "compare": (563, 88)}
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
