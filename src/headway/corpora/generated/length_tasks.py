"""Length generalisation tasks, with longer examples in the test than in training (Kazemnejad et al. 2023).

The tasks include those of recall_tasks.py and pcfg_task.py. Each task draws prompts of any length with their answers,
in tokens separated by white space. Lengths are uniform, and no prompt is in two parts: whether a prompt of a trained
length belongs to training, dev or the test is a function of the prompt and the seed. Every part and length has its own
random numbers, so asking for more training examples does not change the test.
"""

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from string import ascii_lowercase
from typing import Literal, NamedTuple

from headway.core.errors import UserError, nearest, option
from headway.core.files import write_json, write_new_texts
from headway.corpora.generated.pcfg_task import pcfg
from headway.corpora.generated.recall_tasks import (
    FEW,
    KEYS,
    induction,
    permutations,
    recall,
    recall_chain,
    selective_copy,
)
from headway.formats.lines import read_lines

Part = Literal["train", "dev", "test"]
DEV_SHARE, TEST_SHARE = 0.02, 0.05  # shares of all prompts of the trained lengths

# Short lengths have few prompts, possibly none of a part. Give up after this many draws without a new prompt.
PATIENCE = 2000

SYMBOLS = tuple(f"s{number:02}" for number in range(100))  # for copy and reverse
ALPHABET = tuple(f"k{number:02}" for number in range(50))  # for sorting

# SCAN's files, and the format of a line.
TRAIN, TEST = "tasks_train_length.txt", "tasks_test_length.txt"
LINE = re.compile(r"IN: (\S.*?) OUT: (\S.*?)\s*")


class LengthExample(NamedTuple):
    """A prompt and its answer, with tokens separated by spaces, and the length by which results are grouped."""

    prompt: str
    answer: str
    length: int


Draw = Callable[[Random, int], tuple[str, str]]


@dataclass(frozen=True)
class LengthTask:
    """A family of examples.

    Args:
        name: the name on the command line.
        variants: by name, the functions that draw a prompt and an answer of a given length; the first is the default.
        trained: the default maximum length in training.
        tested: the default maximum length in the test.
        longest: the maximum length of an example, if there is a limit.
        first: the minimum length.
        doubling: whether lengths double from `first` on, instead of increasing by one.
    """

    name: str
    variants: Mapping[str, Draw]
    trained: int
    tested: int
    longest: int | None = None
    first: int = 1
    doubling: bool = False

    def lengths(self, longest: int) -> list[int]:
        """The lengths of examples, up to `longest`."""
        if not self.doubling:
            return list(range(self.first, longest + 1))
        return [
            length for length in (self.first << power for power in range(longest.bit_length())) if length <= longest
        ]


@dataclass(frozen=True)
class Sizes:
    """The number of examples: `train` and `dev` in total, and `test` for each length."""

    train: int = 20_000
    dev: int = 500
    test: int = 100


DEFAULT_SIZES = Sizes()


@dataclass(frozen=True)
class LengthData:
    """The parts, which share no prompt, and the maximum length in training."""

    train: list[LengthExample]
    dev: list[LengthExample]
    test: list[LengthExample]
    trained: int


def _copy(random: Random, length: int, times: int = 1) -> tuple[str, str]:
    tokens = " ".join(random.choices(SYMBOLS, k=length))
    return tokens, " ".join([tokens] * times)


def _copy_repeated(random: Random, length: int) -> tuple[str, str]:
    tokens = " ".join([random.choice(SYMBOLS)] * length)
    return tokens, tokens


def _reverse(random: Random, length: int) -> tuple[str, str]:
    tokens = random.choices(SYMBOLS, k=length)
    return " ".join(tokens), " ".join(reversed(tokens))


def _reverse_twice(random: Random, length: int) -> tuple[str, str]:
    prompt, answer = _reverse(random, length)
    return prompt, f"{answer} next {answer}"


def _digits(number: int) -> str:
    return " ".join(str(number))


def _addition(random: Random, length: int) -> tuple[str, str]:
    """Two numbers, the longer with `length` digits. All such pairs of lengths are equally probable."""
    pairs = [(length, other) for other in range(1, length + 1)] + [(other, length) for other in range(1, length)]
    first, second = (
        random.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits) for digits in random.choice(pairs)
    )
    return f"{_digits(first)} + {_digits(second)}", _digits(first + second)


def _summation(random: Random, length: int) -> tuple[str, str]:
    digits = random.choices(range(1, 10), k=length)
    return " ".join(map(str, digits)), str(sum(digits) % 10)


def _parity(random: Random, length: int) -> tuple[str, str]:
    bits = random.choices((0, 1), k=length)
    return " ".join(map(str, bits)), "odd" if sum(bits) % 2 else "even"


def _polynomial(random: Random, length: int) -> tuple[str, str]:
    """`length` terms c x^e with c in -3 .. 3 and e in 0 .. 3, at an x in -2 .. 2; the value is taken modulo 10."""
    x = random.randint(-2, 2)
    terms = [(random.randint(-3, 3), random.randint(0, 3)) for _ in range(length)]
    written = " + ".join(f"{coefficient} x ^ {exponent}" for coefficient, exponent in terms)
    value = sum(coefficient * x**exponent for coefficient, exponent in terms)
    return f"x = {x} ; {written}", str(value % 10)


def _sort_tokens(random: Random, length: int) -> tuple[str, str]:
    tokens = random.choices(ALPHABET, k=length)
    return " ".join(tokens), " ".join(sorted(tokens))


def _sort_numbers(random: Random, length: int) -> tuple[str, str]:
    """Numbers of two to four digits; each number of digits is equally probable."""
    numbers = [random.randrange(10 ** (digits - 1), 10**digits) for digits in random.choices((2, 3, 4), k=length)]
    prompt, answer = (" , ".join(map(_digits, each)) for each in (numbers, sorted(numbers)))
    return prompt, answer


def _lego(random: Random, length: int) -> tuple[str, str]:
    """A chain of assignments, each of which copies or negates the preceding variable (Zhang et al. 2022).

        a = + 1 ; q = - a ; c = + q ; ? q  ->  -1

    The queried variable is assigned in the second half.
    """
    names = random.sample(ascii_lowercase, length)
    signs = random.choices((1, -1), k=length)
    asked = random.randrange(length // 2, length)
    links = zip(names, ["1", *names], signs, strict=False)
    clauses = [f"{name} = {'+' if sign > 0 else '-'} {before} ;" for name, before, sign in links]
    return f"{' '.join(clauses)} ? {names[asked]}", f"{math.prod(signs[: asked + 1]):+d}"


LENGTH_TASKS: dict[str, LengthTask] = {
    task.name: task
    for task in (
        LengthTask("copy", {"random": _copy, "repeated": _copy_repeated, "twice": partial(_copy, times=2)}, 20, 40),
        LengthTask("reverse", {"plain": _reverse, "twice": _reverse_twice}, 20, 40),
        LengthTask("addition", {"plain": _addition}, 8, 16),
        LengthTask("summation", {"plain": _summation}, 8, 16),
        LengthTask("parity", {"plain": _parity}, 8, 16),
        LengthTask("sorting", {"tokens": _sort_tokens, "numbers": _sort_numbers}, 8, 16),
        LengthTask("polynomial", {"plain": _polynomial}, 8, 16),
        LengthTask("lego", {"plain": _lego}, 8, 16, longest=len(ascii_lowercase)),
        LengthTask("pcfg", {"plain": pcfg}, 5, 10),  # the length is the number of functions
        # The length is the number of pairs in recall, of tokens to copy or search, or of permutations.
        LengthTask(
            "recall",
            {
                "queries": recall,
                "one": partial(recall, asked=1),
                "noisy": partial(recall, fillers=1),
                "chain": recall_chain,
            },
            64,
            256,
            longest=len(KEYS),
            first=4,
            doubling=True,
        ),
        LengthTask(
            "short_recall", {"one": partial(recall, asked=1, names=FEW)}, 8, 32, longest=FEW, first=4, doubling=True
        ),
        LengthTask("selective_copy", {"plain": selective_copy}, 16, 32, first=2, doubling=True),
        LengthTask("induction", {"plain": induction}, 64, 256, first=4, doubling=True),
        LengthTask("permutations", {"five": permutations, "three": partial(permutations, moved=3)}, 8, 16),
    )
}


def part_of(prompt: str, seed: int) -> Part:
    """The part that a prompt of a trained length belongs to."""
    digest = hashlib.blake2b(f"{seed}\t{prompt}".encode(), digest_size=8).digest()
    position = int.from_bytes(digest, "big") / 2**64
    return "test" if position < TEST_SHARE else "dev" if position < TEST_SHARE + DEV_SHARE else "train"


def _generate(
    task: LengthTask, variant: str | None, seed: int, sizes: Sizes, trained: int | None, tested: int | None
) -> LengthData:
    name = variant or next(iter(task.variants))
    if name not in task.variants:
        what = f"{task.name} has no such variant"
        raise UserError(what, where=option("variant"), received=name, allowed=task.variants)
    trained, tested = trained or task.trained, tested or task.tested
    if tested < trained or (task.longest is not None and tested > task.longest):
        limit = "" if task.longest is None else f", and at most {task.longest}"
        allowed = f"at least the training length, {trained}{limit}"
        raise UserError("no such test length", where=option("test_length"), received=tested, allowed=allowed)
    examples = partial(_examples, task.variants[name], seed=seed, name=f"{task.name} {name}")
    lengths = task.lengths(trained)
    return LengthData(
        train=_in_turn([examples("train", length, repeat=True) for length in lengths], sizes.train),
        dev=_in_turn([examples("dev", length) for length in lengths], sizes.dev),
        test=[
            example
            for length in task.lengths(tested)
            for example in islice(examples("test" if length <= trained else None, length), sizes.test)
        ],
        trained=trained,
    )


def _examples(
    draw: Draw, part: Part | None, length: int, seed: int, name: str, *, repeat: bool = False
) -> Iterator[LengthExample]:
    """Yield examples of a length until new ones become rare. Prompts repeat only with `repeat`.

    `part` None means that all prompts of this length belong to the test.
    """
    random, seen, in_vain = Random(f"{seed} {name} {part} {length}"), set[str](), 0
    while in_vain < PATIENCE:
        prompt, answer = draw(random, length)
        in_vain += 1
        if prompt in seen or (part is not None and part_of(prompt, seed) != part):
            continue
        in_vain = 0
        if not repeat:
            seen.add(prompt)
        yield LengthExample(prompt, answer, length)


def _in_turn(sources: list[Iterator[LengthExample]], count: int) -> list[LengthExample]:
    """`count` examples, taken from the sources in turn; fewer if all sources end."""
    examples: list[LengthExample] = []
    while sources and len(examples) < count:
        drawn = [(source, next(source, None)) for source in sources[: count - len(examples)]]
        examples += [example for _, example in drawn if example is not None]
        ended = [source for source, example in drawn if example is None]
        sources = [source for source in sources if source not in ended]
    return examples


def write_lengths(data: LengthData, folder: Path, facts: dict[str, str | int]) -> None:
    """Write `train.tsv`, `dev.tsv` and `test.tsv` (prompt TAB answer), `test.lengths` and `lengths.json`.

    `test.lengths` has the length of each test example, `lengths.json` the maximum length in training, and `facts`.
    Raises UserError, before anything is written, if a file already exists with a different text.
    """
    parts = {"train": data.train, "dev": data.dev, "test": data.test}
    texts = {
        folder / f"{name}.tsv": "".join(f"{example.prompt}\t{example.answer}\n" for example in part)
        for name, part in parts.items()
    }
    write_new_texts(texts | {folder / "test.lengths": "".join(f"{example.length}\n" for example in data.test)})
    write_json(folder / "lengths.json", facts | {"trained": data.trained})


def read_scan(folder: Path, *, seed: int = 1, sizes: Sizes = DEFAULT_SIZES, trained: int | None = None) -> LengthData:
    """Read the length split of SCAN from `folder`.

    Some commands of the trained lengths are held out as dev, and as the test of these lengths. `sizes.train` does not
    apply: all other commands are training examples.

    Args:
        folder: the folder with the two files.
        seed: the seed of the held-out commands.
        sizes: the number of examples.
        trained: the maximum length in training, by default that of the training file. Kazemnejad et al. (2023) join
            both files, and train on up to 25 actions.

    Raises:
        UserError: a file is missing, a line is not `IN: ... OUT: ...`, or there are no trained or no longer lengths.
    """
    known, others = list(_read(folder / TRAIN)), list(_read(folder / TEST))
    longest = max((example.length for example in known), default=0) if trained is None else trained
    parts: dict[str, list[LengthExample]] = {"train": [], "dev": [], "test": []}
    for example in known if trained is None else [*known, *others]:
        if example.length <= longest:
            parts[part_of(example.prompt, seed)].append(example)
    unseen = [example for example in [*known, *others] if example.length > longest]
    if not (parts["train"] and unseen):
        lengths = sorted({example.length for example in [*known, *others]})
        what = f"the lengths of actions, {lengths}, do not go on both sides of that"
        raise UserError(what, where=option("train_length"), received=longest)
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


def lengths_data(
    name: str,
    variant: str | None = None,
    *,
    seed: int = 1,
    sizes: Sizes = DEFAULT_SIZES,
    trained: int | None = None,
    tested: int | None = None,
    scan: Path | None = None,
) -> LengthData:
    """Draw the data of a task, or read that of `scan`.

    Training has the same number of examples of each length, and repeats prompts of lengths that have too few. Dev and
    test contain no prompt twice, and fewer examples than requested if a length has too few; the test also has the
    trained lengths.

    Args:
        name: a name in `LENGTH_TASKS`, or `scan`.
        variant: a variant of the task, by default the first.
        seed: the seed of all random draws.
        sizes: the number of examples.
        trained: the maximum length in training, by default the task's.
        tested: the maximum length in the test, by default the task's.
        scan: the folder with the length split of SCAN.

    Raises:
        UserError: the task or variant is unknown; lengths are invalid, or leave training or dev without examples;
            SCAN's folder is not given.
    """
    if name == "scan":
        if scan is None:
            raise UserError("the length split of SCAN is read from files", where=option("scan"), allowed="their folder")
        data = read_scan(scan, seed=seed, sizes=sizes, trained=trained)
    elif name in LENGTH_TASKS:
        data = _generate(LENGTH_TASKS[name], variant, seed, sizes, trained, tested)
    else:
        allowed = [*LENGTH_TASKS, "scan"]
        raise UserError(f"unknown task{nearest(name, allowed)}", where="the task", received=name, allowed=allowed)
    for part, examples in (("training", data.train), ("dev", data.dev)):
        if not examples:
            what = f"prompts of the trained lengths are so few that none is left for {part}"
            where, remedy = option("train_length"), f"a greater one, or another {option('seed')}"
            raise UserError(what, where=where, received=data.trained, allowed=remedy)
    return data
