"""Sorting: items -> the same in ascending order. A length is the number of items."""

from random import Random

from headway.corpora.generated.length_tasks.length_task import LengthTask

ALPHABET = tuple(f"k{number:02}" for number in range(50))


def _sort_tokens(random: Random, length: int) -> tuple[str, str]:
    tokens = random.choices(ALPHABET, k=length)
    return " ".join(tokens), " ".join(sorted(tokens))


def _sort_numbers(random: Random, length: int) -> tuple[str, str]:
    """Numbers of two to four digits; each number of digits is as frequent as the others."""
    numbers = [random.randrange(10 ** (digits - 1), 10**digits) for digits in random.choices((2, 3, 4), k=length)]
    return _written(numbers), _written(sorted(numbers))


def _written(numbers: list[int]) -> str:
    return " , ".join(" ".join(str(number)) for number in numbers)


SORTING = LengthTask("sorting", {"tokens": _sort_tokens, "numbers": _sort_numbers}, 8, 16)
