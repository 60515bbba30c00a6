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
    "augment": Room(909, 15, 63, 4),  # + 416: teachers that are no runs, a file each; a program in a process
    "claims": Room(1288, 27, 74, 0),  # papers are packed and replayed; looks are counted; the unlearned decide nothing
    "cli": Room(3331, 69, 221, 10),  # + 95: students by one command, final evaluations; gate, data filter, teachers
    "comparison": Room(3300, 25, 76, 0),  # seeds that failed, two groups, documents, looks and Dunnett's method
    "core": Room(3040, 78, 0, 0),  # workers are threads of one core each; languages without spaces
    "corpora": Room(3288, 27, 105, 0),  # data filter; docstrings describe every key
    "experiments": Room(1164, 18, 74, 2),  # + 540: all steps to a student for browsers, which go on after a kill
    "export": Room(3881, 23, 157, 21),  # + 115: a page holds both directions, and says where its models are from
    "formats": Room(2676, 68, 34, 0),
    "gate": Room(1656, 41, 72, 0),  # a judge of loops: rules, ledger, three makers of cells, page, simulation
    "grids": Room(3014, 46, 165, 9),  # heads are judged by rank; looks are kept; documents are units
    "importing": Room(942, 33, 81, 1),  # checkpoints are compared with transformers
    "inspect": Room(3989, 27, 115, 8),  # + 13: options give leave where they open runs
    "lessons": Room(305, 2, 8, 0),
    "losses": Room(636, 6, 12, 0),  # + 5: docstrings describe every key
    "markup": Room(2635, 20, 14, 0),  # a segment is one text with marks; HTML, PO, XLIFF, encodings by standards
    "metrics": Room(2529, 29, 54, 0),  # + 136: final evaluations in another layout; sums over documents
    "mixers": Room(3851, 28, 25, 0),
    "models": Room(4242, 49, 57, 0),  # + 25: docstrings describe every key
    "optimizers": Room(490, 9, 9, 0),  # + 6: docstrings describe every key
    "pages": Room(1172, 2, 14, 0),
    "parses": Room(1364, 24, 44, 0),  # + 7: docstrings describe every key
    "predictors": Room(3368, 48, 113, 12),  # one loop over requests, whose batches workers decode
    "processing": Room(4380, 121, 50, 4),  # what is between sentences by language; docstrings describe every key
    "pytest_plugin": Room(76, 1, 5, 0),
    "recipe": Room(687, 25, 51, 0),  # + 16: docstrings describe every key
    "runs": Room(1387, 30, 63, 1),  # + 18: cards say where data and teacher are from; the number of workers
    "search": Room(775, 3, 17, 0),
    "serving": Room(1852, 38, 49, 4),  # requests are read as LibreTranslate reads them; characters are counted
    "tasks": Room(2056, 51, 152, 3),
    "tensors": Room(1367, 3, 0, 0),
    "training": Room(3546, 50, 172, 2),  # + 6: docstrings describe every key
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
