"""SCAN (Lake and Baroni 2018): commands -> actions, by the length split. A length is the number of actions."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random

from headway.corpora.generated.length_tasks.length_task import DEFAULT_SIZES, LengthData, LengthExample, Sizes
from headway.corpora.generated.length_tasks.splits import part_of
from headway.errors import UserError
from headway.formats.lines import read_lines

TRAIN, TEST = "tasks_train_length.txt", "tasks_test_length.txt"
LINE = re.compile(r"IN: (\S.*?) OUT: (\S.*?)\s*")


def read_scan(folder: Path, *, seed: int = 1, sizes: Sizes = DEFAULT_SIZES) -> LengthData:
    """The length split of SCAN, whose files are read from `folder`.

    Of the training file a few commands are held out as dev, and as the test of the trained lengths. `sizes.train` does
    not bind: all of the others are training.

    Raises:
        UserError: a file that is not there, or a line that is not `IN: ... OUT: ...`.
    """
    parts: dict[str, list[LengthExample]] = {"train": [], "dev": [], "test": []}
    for example in _read(folder / TRAIN):
        parts[part_of(example.prompt, seed)].append(example)
    trained = max(example.length for part in parts.values() for example in part)
    unseen = [example for example in _read(folder / TEST) if example.length > trained]
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
    return LengthData(parts["train"], dev, test, trained)


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
