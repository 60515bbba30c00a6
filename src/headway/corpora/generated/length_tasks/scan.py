"""SCAN (Lake and Baroni 2018): commands -> actions, by the length split. A length is the number of actions."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random

from headway.corpora.generated.length_tasks.length_task import DEFAULT_SIZES, LengthData, LengthExample, Sizes
from headway.corpora.generated.length_tasks.splits import part_of
from headway.errors import UserError, option
from headway.formats.lines import read_lines

TRAIN, TEST = "tasks_train_length.txt", "tasks_test_length.txt"
LINE = re.compile(r"IN: (\S.*?) OUT: (\S.*?)\s*")


def read_scan(folder: Path, *, seed: int = 1, sizes: Sizes = DEFAULT_SIZES, trained: int | None = None) -> LengthData:
    """The length split of SCAN, whose files are read from `folder`.

    Of the trained lengths a few commands are held out as dev, and as the test of these lengths. `sizes.train` does
    not bind: all of the others are training.

    Args:
        folder: of the two files.
        seed: of what is held out.
        sizes: how many examples.
        trained: the longest length in training, by default that of the training file. Kazemnejad et al. (2023) join
            both files, and train on up to 25 actions.

    Raises:
        UserError: a file that is not there, a line that is not `IN: ... OUT: ...`, or no longer and no trained length.
    """
    known, others = list(_read(folder / TRAIN)), list(_read(folder / TEST))
    if not known:
        raise UserError("this file has no command", where=str(folder / TRAIN), allowed="IN: command OUT: actions")
    longest = max(example.length for example in known) if trained is None else trained
    parts: dict[str, list[LengthExample]] = {"train": [], "dev": [], "test": []}
    for example in known if trained is None else [*known, *others]:
        if example.length <= longest:
            parts[part_of(example.prompt, seed)].append(example)
    unseen = [example for example in [*known, *others] if example.length > longest]
    if not (parts["train"] and unseen):
        lengths = sorted({example.length for example in [*known, *others]})
        allowed = f"{lengths[0]} to {lengths[-1] - 1}"
        raise UserError("no actions of such a length", where=option("train_length"), received=longest, allowed=allowed)
    random = Random(f"{seed} scan")
    dev = random.sample(parts["dev"], min(sizes.dev, len(parts["dev"])))
    by_length: dict[int, list[LengthExample]] = defaultdict(list)
    for example in [*parts["test"], *unseen]:
        by_length[example.length].append(example)
    test = [
        example
        for _, examples in sorted(by_length.items())
        for example in random.sample(examples, min(sizes.test, len(examples)))
    ]
    return LengthData(parts["train"], dev, test, longest)


def _read(path: Path) -> Iterator[LengthExample]:
    seen: set[str] = set()
    for number, line in enumerate(read_lines(path), start=1):
        match = LINE.fullmatch(line)
        if match is None:
            raise UserError("this line is not of SCAN", where=f"{path}:{number}", allowed="IN: command OUT: actions")
        prompt, answer = match.groups()
        if prompt not in seen:
            seen.add(prompt)
            yield LengthExample(prompt, answer, len(answer.split()))
