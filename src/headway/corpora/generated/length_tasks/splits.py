"""Training, dev and test parts of a task: lengths are uniform, and no prompt is in two parts.

Whether a prompt of a trained length belongs to training, dev or the test is a function of the prompt and the seed, so
parts of any size never meet. Every part and length has random numbers of its own: asking for more training examples
leaves the test as it was.
"""

import hashlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Literal

from headway.corpora.generated.length_tasks.length_task import (
    DEFAULT_SIZES,
    Draw,
    LengthData,
    LengthExample,
    LengthTask,
    Sizes,
)
from headway.errors import UserError, option
from headway.files import write_json, write_new_texts

Part = Literal["train", "dev", "test"]
DEV_SHARE, TEST_SHARE = 0.02, 0.05  # of all prompts of the trained lengths

# Short lengths have few prompts, and there may be none of a part: this many draws in vain are enough to give up.
PATIENCE = 2000


def part_of(prompt: str, seed: int) -> Part:
    """The part that a prompt of a trained length is in."""
    digest = hashlib.blake2b(f"{seed}\t{prompt}".encode(), digest_size=8).digest()
    position = int.from_bytes(digest, "big") / 2**64
    return "test" if position < TEST_SHARE else "dev" if position < TEST_SHARE + DEV_SHARE else "train"


def generate(
    task: LengthTask,
    variant: str | None = None,
    *,
    seed: int = 1,
    sizes: Sizes = DEFAULT_SIZES,
    trained: int | None = None,
    tested: int | None = None,
) -> LengthData:
    """Draw the data of a task.

    Training holds as many examples of each length (and the same prompt again where a length has few). Dev and test
    hold no prompt twice, and fewer than asked for where a length has no more; the test has the trained lengths, too.

    Args:
        task: the task.
        variant: one of its variants, by default the first.
        seed: of all random draws.
        sizes: how many examples.
        trained: the longest length in training, by default the task's.
        tested: the longest length in the test, by default the task's.

    Raises:
        UserError: an unknown variant, or lengths that cannot be.
    """
    name = variant or next(iter(task.variants))
    if name not in task.variants:
        what = f"{task.name} has no such variant"
        raise UserError(what, where=option("variant"), received=name, allowed=task.variants)
    trained, tested = trained or task.trained, tested or task.tested
    if tested < trained or (task.longest is not None and tested > task.longest):
        limit = "" if task.longest is None else f", and at most {task.longest}"
        allowed = f"at least the training length, {trained}{limit}"
        raise UserError("no such test length", where=option("test_length"), received=tested, allowed=allowed)
    source = _Source(task.name, name, task.variants[name], seed)
    return LengthData(
        train=_in_turn(
            [source.examples(length, "train", repeat=True) for length in range(1, trained + 1)], sizes.train
        ),
        dev=_in_turn([source.examples(length, "dev") for length in range(1, trained + 1)], sizes.dev),
        test=[
            example
            for length in range(1, tested + 1)
            for example in islice(source.examples(length, "test" if length <= trained else None), sizes.test)
        ],
        trained=trained,
    )


class _Source:
    """Endless examples of a length and part; of no part (None) where all prompts of that length are the test's."""

    def __init__(self, task: str, variant: str, draw: Draw, seed: int) -> None:
        self.name, self.draw, self.seed = f"{task} {variant}", draw, seed

    def examples(self, length: int, part: Part | None, *, repeat: bool = False) -> Iterator[LengthExample]:
        """Examples until there seem to be no more of so short a length; only with `repeat` a prompt comes again."""
        random, seen, in_vain = Random(f"{self.seed} {self.name} {part} {length}"), set[str](), 0
        while in_vain < PATIENCE:
            prompt, answer = self.draw(random, length)
            in_vain += 1
            if prompt in seen or (part is not None and part_of(prompt, self.seed) != part):
                continue
            in_vain = 0
            if not repeat:
                seen.add(prompt)
            yield LengthExample(prompt, answer, length)


def _in_turn(sources: list[Iterator[LengthExample]], count: int) -> list[LengthExample]:
    """`count` examples, one from each source after the other; fewer where all of them end."""
    examples: list[LengthExample] = []
    while sources and len(examples) < count:
        drawn = [(source, next(source, None)) for source in sources[: count - len(examples)]]
        examples += [example for _, example in drawn if example is not None]
        ended = [source for source, example in drawn if example is None]
        sources = [source for source in sources if source not in ended]
    return examples


def write_lengths(data: LengthData, folder: Path, facts: dict[str, str | int]) -> None:
    """Write `train.tsv`, `dev.tsv` and `test.tsv` (prompt TAB answer), `test.lengths` and `lengths.json`.

    `test.lengths` has the length of each line of the test; `lengths.json` the longest trained one, and `facts`. Raises
    UserError, before any is written, where a file is there already with another text.
    """
    parts = {"train": data.train, "dev": data.dev, "test": data.test}
    texts = {
        folder / f"{name}.tsv": "".join(f"{example.prompt}\t{example.answer}\n" for example in part)
        for name, part in parts.items()
    }
    write_new_texts(texts | {folder / "test.lengths": "".join(f"{example.length}\n" for example in data.test)})
    write_json(folder / "lengths.json", facts | {"trained": data.trained})
