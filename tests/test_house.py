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
    "augment": Room(928, 16, 66, 4),  # + 16: links of characters, which a teacher does not have
    "claims": Room(1573, 30, 85, 0),  # + 10: the rate of the variant that a finding depends on
    "cli": Room(3414, 71, 224, 10),  # + 35: imports where they are used, for the start; gate, filter, teachers, papers
    "comparison": Room(3344, 27, 80, 0),  # + 11: doubts of each variant, and those that a verdict needs
    "core": Room(3231, 81, 0, 0),  # + 15: what is installed is asked here alone; workers; languages without spaces
    "corpora": Room(3350, 26, 105, 0),  # short recall
    "experiments": Room(1196, 17, 76, 2),  # + 17: exit codes after a kill; vocabularies without spaces
    "export": Room(4185, 23, 175, 21),  # + 12: what is not installed, in the list of formats; positions
    "formats": Room(2676, 68, 34, 0),
    "gate": Room(1662, 41, 73, 0),  # a judge of loops: rules, ledger, three makers of cells, page, simulation; asks
    "grids": Room(3255, 46, 166, 9),  # + 7: a check doubts the variant that it trained; FLOPs of training
    "importing": Room(1001, 34, 88, 1),  # checkpoints beside transformers; factors; languages; browsers' metadata
    "inspect": Room(3989, 27, 115, 8),  # + 13: options give leave where they open runs
    "lessons": Room(305, 2, 8, 0),
    "losses": Room(636, 6, 12, 0),  # + 5: docstrings describe every key
    "markup": Room(2665, 20, 15, 0),  # a segment is one text; formulas, labels, subtitles by length; counted characters
    "metrics": Room(2556, 29, 56, 0),  # split compounds; unpaired seeds; sums over documents; final evaluations
    "mixers": Room(3851, 28, 25, 0),
    "models": Room(4350, 50, 59, 0),  # recurrent taggers; every key; Mozilla's sizes; the cache of frozen layers
    "optimizers": Room(490, 9, 9, 0),  # + 6: docstrings describe every key
    "pages": Room(1172, 2, 14, 0),
    "parses": Room(1410, 24, 48, 0),  # + 46: links of characters where words have no spaces between them
    "predictors": Room(3386, 49, 114, 12),  # self-attention that a model lacks is refused
    "processing": Room(4653, 129, 51, 4),  # + 2: frequent target pieces in shortlists; what is between sentences
    "pytest_plugin": Room(76, 1, 5, 0),
    "recipe": Room(706, 27, 51, 0),  # fixed rounding; packs and models of others are explained
    "runs": Room(1442, 29, 69, 1),  # licences of imports; trials of products are kept; workers, which may be copies
    "search": Room(782, 3, 17, 0),  # + 7: candidates by blocks of a sentence
    "serving": Room(1973, 41, 54, 4),  # requests and errors as LibreTranslate has them; characters are counted; records
    "tasks": Room(2361, 52, 168, 3),  # sources of encoders: pretrained or recurrent; two embeddings, statistics
    "tensors": Room(1500, 3, 0, 0),  # + 11: known results of trials; ranges of inputs; saturation, from export
    "training": Room(3677, 50, 183, 2),  # docstrings describe every key; fixed ranges are measured, and move
    "trees": Room(418, 0, 0, 0),
}
# Functions and files of the package that run for plain commands, in their main process.
PLAIN = {"train": (936, 119), "predict": (467, 79), "compare": (576, 88)}  # + 13: looks, missing cells; + 3: forks
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
