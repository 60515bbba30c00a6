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
    "augment": Room(912, 15, 63, 4),  # + 416: teachers that are no runs, a file each; a program in a process
    "claims": Room(1547, 30, 85, 0),  # published metrics; papers are packed and shown; looks; falls
    "cli": Room(3379, 71, 224, 10),  # gate, filter, teachers, papers, records, students; leave for commands
    "comparison": Room(3330, 27, 80, 0),  # seeds that failed, two groups, documents, looks and Dunnett's method
    "core": Room(3209, 80, 0, 0),  # + 167: workers are copies of a process, or threads; languages without spaces
    "corpora": Room(3339, 27, 105, 0),  # data filter; docstrings describe every key; PCFG SET
    "experiments": Room(1171, 17, 74, 2),  # + 540: all steps to a student for browsers, which go on after a kill
    "export": Room(4164, 24, 172, 21),  # two vocabularies, records; causes of differences; pages of both directions
    "formats": Room(2676, 68, 34, 0),
    "gate": Room(1662, 41, 73, 0),  # a judge of loops: rules, ledger, three makers of cells, page, simulation; asks
    "grids": Room(3244, 46, 166, 9),  # tuned values are checked; heads are judged by rank; documents are units
    "importing": Room(956, 33, 84, 1),  # checkpoints are compared with transformers; factors are kept
    "inspect": Room(3989, 27, 115, 8),  # + 13: options give leave where they open runs
    "lessons": Room(305, 2, 8, 0),
    "losses": Room(636, 6, 12, 0),  # + 5: docstrings describe every key
    "markup": Room(2665, 20, 14, 0),  # a segment is one text; formulas of Markdown, labels of Qt, subtitles by length
    "metrics": Room(2556, 29, 56, 0),  # split compounds; unpaired seeds; sums over documents; final evaluations
    "mixers": Room(3851, 28, 25, 0),
    "models": Room(4261, 49, 58, 0),  # every key; Mozilla's sizes; the cache of frozen layers; log softmax in place
    "optimizers": Room(490, 9, 9, 0),  # + 6: docstrings describe every key
    "pages": Room(1172, 2, 14, 0),
    "parses": Room(1364, 24, 44, 0),  # + 7: docstrings describe every key
    "predictors": Room(3378, 48, 114, 12),  # one loop over requests; sentences are as long as those of training
    "processing": Room(4650, 130, 50, 4),  # what is between sentences by language; every key; records of Firefox
    "pytest_plugin": Room(76, 1, 5, 0),
    "recipe": Room(693, 27, 51, 0),  # + 6: int8_rounding: fixed
    "runs": Room(1403, 30, 66, 1),  # + 7: loaded on one thread, so that workers can be copies; factors; origins
    "search": Room(782, 3, 17, 0),  # + 7: candidates by blocks of a sentence
    "serving": Room(1977, 43, 54, 4),  # requests and errors as LibreTranslate has them; characters are counted; records
    "tasks": Room(2247, 52, 163, 3),  # two embeddings, statistics, kept factors; cached layers of frozen encoders
    "tensors": Room(1489, 3, 0, 0),  # ranges of inputs; saturation, from export; rows of 8-bit products in place
    "training": Room(3679, 51, 184, 2),  # docstrings describe every key; fixed ranges are measured, and move
    "trees": Room(418, 0, 0, 0),
}
# Functions and files of the package that run for plain commands, in their main process.
PLAIN = {"train": (936, 119), "predict": (467, 78), "compare": (576, 88)}  # + 13: looks, missing cells; + 3: forks
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
