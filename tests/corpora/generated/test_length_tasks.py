"""Every answer is what somebody who reads the prompt would say; parts are apart, uniform in length, deterministic."""

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from headway.core.errors import UserError
from headway.corpora.generated.length_tasks import (
    LENGTH_TASKS,
    LengthData,
    Sizes,
    lengths_data,
    write_lengths,
)
from tests.conftest import Command


def number(digits: str) -> int:
    assert re.fullmatch(r"0|[1-9]( \d)*", digits), "digits, each a token, without leading zeros"
    return int(digits.replace(" ", ""))


def add(prompt: str) -> tuple[str, int]:
    first, second = prompt.split(" + ")
    return " ".join(str(number(first) + number(second))), max(len(first.split()), len(second.split()))


def evaluate(prompt: str) -> tuple[str, int]:
    given, terms = re.fullmatch(r"x = (-?\d) ; (.*)", prompt).groups()  # type: ignore[union-attr]
    assert int(given) in range(-2, 3)
    assert all(re.fullmatch(r"-?[0-3] x \^ [0-3]", term) for term in terms.split(" + "))
    value = eval(terms.replace(" x ", " * x ").replace("^", "**"), {"x": int(given)})
    return str(value % 10), terms.count("^")


def follow(prompt: str) -> tuple[str, int]:
    *clauses, question = prompt.split(" ; ")
    values = {"1": 1}
    for clause in clauses:
        name, sign, of = re.fullmatch(r"(\w) = ([+-]) (\w)", clause).groups()  # type: ignore[union-attr]
        assert name not in values
        values[name] = values[of] if sign == "+" else -values[of]
    asked = question.removeprefix("? ")
    assert 2 * list(values).index(asked) > len(clauses), "the second half"
    return f"{values[asked]:+d}", len(clauses)


def sort_numbers(prompt: str) -> tuple[str, int]:
    numbers = [number(item) for item in prompt.split(" , ")]
    assert all(10 <= item <= 9999 for item in numbers)
    return " , ".join(" ".join(str(item)) for item in sorted(numbers)), len(numbers)


def over_tokens(answer: Callable[[list[str]], list[str]]) -> Callable[[str], tuple[str, int]]:
    return lambda prompt: (" ".join(answer(prompt.split())), len(prompt.split()))


def look_up(prompt: str) -> tuple[str, int]:
    """The values of the keys that are asked for."""
    told, asked = (part.replace(" .", "").removeprefix(". ").split() for part in prompt.split(" ?"))
    values = dict(zip(told[::2], told[1::2], strict=True))
    assert len(values) == len(told) / 2, "each key has one value"
    return " ".join(values[key] for key in asked), len(values)


def walk(prompt: str) -> tuple[str, int]:
    """The keys that up to sixteen steps from the last one lead to."""
    told, asked = (part.split() for part in prompt.split(" ? "))
    values, way = dict(zip(told[::2], told[1::2], strict=True)), asked
    for _ in range(min(16, len(values) - 1)):
        way = [*way, values[way[-1]]]
    return " ".join(way[1:]), len(values)


def follow_last(tokens: list[str]) -> list[str]:
    assert tokens.count(tokens[-1]) == 2
    return [tokens[tokens.index(tokens[-1]) + 1]]


def arrange(tokens: list[str]) -> list[str]:
    """The product, by matrices of permutations."""
    size = len(tokens[0])
    product = [[int(row == column) for column in range(size)] for row in range(size)]
    for token in tokens:
        product = [product[int(place) - 1] for place in token]
    return ["".join(str(row.index(1) + 1) for row in product)]


def edit(prompt: str) -> tuple[str, int]:
    """The value of an expression, from its last token to its first: operands wait on a stack, nearest on top."""
    functions = {"copy", "reverse", "shift", "swap_first_last", "repeat", "echo"}
    joins = {"append", "prepend", "remove_first", "remove_second"}
    waiting, used = [""], 0
    for token in reversed(prompt.split()):
        if token == ",":
            waiting.append("")
        elif token in functions:
            x = waiting.pop()
            waiting.append(
                {
                    "copy": x,
                    "reverse": "".join(reversed(x)),
                    "shift": x[1:] + x[0],
                    "swap_first_last": x[-1] + x[1:-1] + x[:1],
                    "repeat": 2 * x,
                    "echo": x + x[-1],
                }[token]
            )
        elif token in joins:
            x, y = waiting.pop(), waiting.pop()
            waiting.append({"append": x + y, "prepend": y + x, "remove_first": y, "remove_second": x}[token])
        else:
            waiting[-1] = token + waiting[-1]
        used += token in functions | joins
    assert len(waiting) == 1
    return " ".join(waiting[0]), used


ORACLES: dict[tuple[str, str], Callable[[str], tuple[str, int]]] = {
    ("copy", "random"): over_tokens(lambda tokens: tokens),
    ("copy", "repeated"): over_tokens(lambda tokens: [tokens[-1]] * len(tokens)),
    ("copy", "twice"): over_tokens(lambda tokens: 2 * tokens),
    ("reverse", "plain"): over_tokens(lambda tokens: tokens[::-1]),
    ("reverse", "twice"): over_tokens(lambda tokens: [*tokens[::-1], "next", *tokens[::-1]]),
    ("addition", "plain"): add,
    ("summation", "plain"): over_tokens(lambda tokens: [str(sum(map(int, tokens)))[-1]]),
    ("parity", "plain"): over_tokens(lambda tokens: [("even", "odd")[Counter(tokens)["1"] % 2]]),
    ("sorting", "tokens"): over_tokens(lambda tokens: sorted(tokens, key=lambda token: int(token[1:]))),
    ("sorting", "numbers"): sort_numbers,
    ("polynomial", "plain"): evaluate,
    ("lego", "plain"): follow,
    ("pcfg", "plain"): edit,
    ("recall", "queries"): look_up,
    ("recall", "one"): look_up,
    ("recall", "noisy"): look_up,
    ("recall", "chain"): walk,
    ("short_recall", "one"): look_up,
    ("selective_copy", "plain"): lambda prompt: (
        (kept := " ".join(token for token in prompt.split() if token != ".")),
        len(kept.split()),
    ),
    ("induction", "plain"): lambda prompt: (" ".join(follow_last(prompt.split())), len(prompt.split()) - 1),
    ("permutations", "five"): over_tokens(arrange),
    ("permutations", "three"): over_tokens(arrange),
}
SMALL = Sizes(train=400, dev=40, test=6)


@cache
def small_data(task: str, variant: str) -> LengthData:
    return lengths_data(task, variant, seed=3, sizes=SMALL)


def test_every_variant_has_an_oracle() -> None:
    assert set(ORACLES) == {(task.name, variant) for task in LENGTH_TASKS.values() for variant in task.variants}


@pytest.mark.parametrize(("task", "variant"), ORACLES)
def test_answers_are_right_and_parts_apart(task: str, variant: str) -> None:
    data = small_data(task, variant)
    for example in [*data.train, *data.dev, *data.test]:
        assert (example.answer, example.length) == ORACLES[task, variant](example.prompt), example
    train, dev, test = ({example.prompt for example in part} for part in (data.train, data.dev, data.test))
    assert len(train | dev | test) == len(train) + len(data.dev) + len(data.test), "no prompt twice"


@pytest.mark.parametrize(("task", "variant"), ORACLES)
def test_lengths_are_uniform_and_the_test_goes_further(task: str, variant: str) -> None:
    data, spec = small_data(task, variant), LENGTH_TASKS[task]
    lengths = Counter(example.length for example in data.train)
    few = {1} if task in ("parity", "permutations") else set()  # of so short a length all prompts may be of one part
    assert set(lengths) | few == set(spec.lengths(spec.trained))
    assert max(lengths.values()) - min(lengths.values()) <= 1
    assert len(data.train) == SMALL.train
    tested = Counter(example.length for example in data.test)
    assert max(tested) == spec.tested >= 2 * spec.trained
    assert all(tested[length] == SMALL.test for length in spec.lengths(spec.tested) if length > spec.trained)
    assert data.trained == spec.trained


def test_test_prompts_of_trained_lengths_exist_where_there_are_enough() -> None:
    tested = Counter(example.length for example in lengths_data("copy", sizes=SMALL).test)
    assert all(tested[length] == SMALL.test for length in range(2, 41))


def test_addition_has_every_pair_of_lengths_and_then_a_longer_number() -> None:
    data = lengths_data("addition", sizes=Sizes(train=4000, dev=10, test=80))
    sizes = [
        [tuple(len(item.split()) for item in example.prompt.split(" + ")) for example in part]
        for part in (data.train, data.test)
    ]
    assert set(sizes[0]) == {(first, second) for first in range(1, 9) for second in range(1, 9)}
    longer = [pair for pair, example in zip(sizes[1], data.test, strict=True) if example.length > 8]
    assert all(max(pair) > 8 for pair in longer)
    assert any(min(pair) <= 8 for pair in longer)


def test_the_seed_decides_and_more_training_leaves_the_test_alone() -> None:
    task = "addition"
    first, again = lengths_data(task, seed=5, sizes=SMALL), lengths_data(task, seed=5, sizes=SMALL)
    assert first == again
    other, more = (
        lengths_data(task, seed=6, sizes=SMALL),
        lengths_data(task, seed=5, sizes=Sizes(train=800, dev=40, test=6)),
    )
    assert other.train != first.train
    assert (more.test, more.dev, len(more.train)) == (first.test, first.dev, 800)


def test_lengths_can_be_chosen() -> None:
    data = lengths_data("summation", sizes=SMALL, trained=3, tested=5)
    assert {example.length for example in data.train} == {1, 2, 3}
    assert {example.length for example in data.test} >= {3, 4, 5}
    assert data.trained == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["copi"], "unknown task; did you mean 'copy'"),
        (["copy", "variant=thrice"], "variant: copy has no such variant; received 'thrice'; allowed: random, "),
        (
            ["copy", "test_length=10"],
            "no such test length; received 10; allowed: at least the training length, 20",
        ),
        (["lego", "test_length=27"], "and at most 26"),
        (["scan"], "scan: the length split of SCAN is read from files"),
    ],
)
def test_mistakes_are_named(arguments: list[str], message: str, run_headway: Command, tmp_path: Path) -> None:
    ended = run_headway("data", "make", "lengths", *arguments, "--output", tmp_path / "data")
    assert ended.code == 2
    assert message in ended.err
    assert not (tmp_path / "data").exists()


def test_files_say_what_was_drawn(run_headway: Command, tmp_path: Path) -> None:
    sizes = ["train_size=40", "dev_size=5", "test_size=2"]
    ended = run_headway("data", "make", "lengths", "reverse", "variant=twice", "seed=4", *sizes, "--output", tmp_path)
    assert ended.code == 0
    data = lengths_data("reverse", "twice", seed=4, sizes=Sizes(40, 5, 2))
    for name, part in (("train", data.train), ("dev", data.dev), ("test", data.test)):
        rows = [tuple(line.split("\t")) for line in (tmp_path / f"{name}.tsv").read_text().splitlines()]
        assert rows == [(example.prompt, example.answer) for example in part]
    assert (tmp_path / "test.lengths").read_text().split() == [str(example.length) for example in data.test]
    facts = {"task": "reverse", "variant": "twice", "seed": 4, "trained": 20}
    assert json.loads((tmp_path / "lengths.json").read_text()) == facts


def write_scan(folder: Path, train: list[str], test: list[str]) -> Path:
    for name, lines in (("train", train), ("test", test)):
        (folder / f"tasks_{name}_length.txt").write_text("".join(f"{line}\n" for line in lines))
    return folder


def test_scan_is_read_as_it_is_split(tmp_path: Path) -> None:
    train = [f"IN: walk {index} OUT: {' '.join(['I_WALK'] * (1 + index % 5))}" for index in range(300)]
    test = [f"IN: run {index} OUT: {' '.join(['I_RUN'] * 7)} " for index in range(9)]
    data: LengthData = lengths_data(
        "scan", sizes=Sizes(dev=3, test=4), scan=write_scan(tmp_path, [*train, train[0]], test)
    )
    assert data.trained == 5
    tested = Counter(example.length for example in data.test)
    assert tested[7] == 4, "at most so many of a length"
    assert set(tested) <= {1, 2, 3, 4, 5, 7}
    assert 0 < sum(count for length, count in tested.items() if length <= 5) < 40
    prompts = [example.prompt for part in (data.train, data.dev, data.test) for example in part]
    assert len(prompts) == len(set(prompts))
    assert 260 < len(data.train) < 300
    assert len(data.dev) == 3
    lines = {f"IN: {item.prompt} OUT: {item.answer}" for part in (data.train, data.dev, data.test) for item in part}
    assert lines <= {line.strip() for line in [*train, *test]}


def test_scan_is_split_anew_at_a_length(tmp_path: Path) -> None:
    train = [f"IN: walk {index} OUT: {' '.join(['I_WALK'] * (1 + index % 5))}" for index in range(300)]
    test = [f"IN: run {index} OUT: {' '.join(['I_RUN'] * (7 + index % 2))}" for index in range(100)]
    folder = write_scan(tmp_path, train, test)
    data = lengths_data("scan", scan=folder, trained=7)
    assert data.trained == 7
    assert max(example.length for example in [*data.train, *data.dev]) == 7
    assert Counter(example.length for example in data.test)[8] == 50
    assert {example.length for example in lengths_data("scan", scan=folder, trained=3).test} >= {4, 5, 7, 8}
    for length in (0, 8):
        with pytest.raises(UserError, match=rf"actions, \[.*\], do not go on both sides of that; received {length}$"):
            lengths_data("scan", scan=folder, trained=length)


def test_a_line_that_is_not_of_scan_is_named(tmp_path: Path) -> None:
    write_scan(tmp_path, ["IN: walk OUT: I_WALK", "walk\tI_WALK"], [])
    with pytest.raises(UserError, match=r"tasks_train_length\.txt:2: this line is not of SCAN"):
        lengths_data("scan", scan=tmp_path)


def test_parts_are_written_whole(tmp_path: Path) -> None:
    write_lengths(lengths_data("parity", sizes=SMALL), tmp_path / "new" / "folder", {})
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == [
        "dev.tsv", "lengths.json", "test.lengths", "test.tsv", "train.tsv",
    ]  # fmt: skip
    facts = (tmp_path / "new" / "folder" / "lengths.json").read_bytes()
    with pytest.raises(UserError, match=r"output: there is a file .* with another text; received '.*train\.tsv'"):
        write_lengths(lengths_data("copy", sizes=SMALL), tmp_path / "new" / "folder", {"task": "copy"})
    assert (tmp_path / "new" / "folder" / "lengths.json").read_bytes() == facts


def test_a_file_without_commands_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the lengths of actions, \[1\], do not go on both sides of that; received 0"):
        lengths_data("scan", scan=write_scan(tmp_path, [], ["IN: walk OUT: I_WALK"]))


def test_no_part_is_empty() -> None:
    message = "train_length: prompts of the trained lengths are so few that none is left for dev; received 2"
    with pytest.raises(UserError, match=message):
        lengths_data("parity", trained=2)
    assert lengths_data("parity", trained=3).dev
