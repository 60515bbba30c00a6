"""Copy and reverse: x1 .. xL -> the same, or xL .. x1. A length is L."""

from random import Random

from headway.corpora.generated.length_tasks.length_task import LengthTask

SYMBOLS = tuple(f"s{number:02}" for number in range(100))


def _random_tokens(random: Random, length: int) -> list[str]:
    return random.choices(SYMBOLS, k=length)


def _copy(random: Random, length: int) -> tuple[str, str]:
    tokens = " ".join(_random_tokens(random, length))
    return tokens, tokens


def _copy_repeated(random: Random, length: int) -> tuple[str, str]:
    tokens = " ".join([random.choice(SYMBOLS)] * length)
    return tokens, tokens


def _copy_twice(random: Random, length: int) -> tuple[str, str]:
    tokens = " ".join(_random_tokens(random, length))
    return tokens, f"{tokens} {tokens}"


def _reverse(random: Random, length: int) -> tuple[str, str]:
    tokens = _random_tokens(random, length)
    return " ".join(tokens), " ".join(reversed(tokens))


def _reverse_twice(random: Random, length: int) -> tuple[str, str]:
    prompt, answer = _reverse(random, length)
    return prompt, f"{answer} next {answer}"


COPY = LengthTask("copy", {"random": _copy, "repeated": _copy_repeated, "twice": _copy_twice}, 20, 40)
REVERSE = LengthTask("reverse", {"plain": _reverse, "twice": _reverse_twice}, 20, 40)
