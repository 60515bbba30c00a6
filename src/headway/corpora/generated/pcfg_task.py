"""PCFG SET: nested functions that edit strings (Hupkes et al. 2020; Kazemnejad et al. 2023).

echo append shift A B C , reverse D E  ->  B C A E D D
"""

from collections.abc import Callable, Sequence
from random import Random
from string import ascii_uppercase

Letters = Sequence[str]

UNARY: dict[str, Callable[[Letters], Letters]] = {
    "copy": lambda x: x,
    "reverse": lambda x: x[::-1],
    "shift": lambda x: [*x[1:], x[0]],
    "swap_first_last": lambda x: [x[-1], *x[1:-1], x[0]],
    "repeat": lambda x: [*x, *x],
    "echo": lambda x: [*x, x[-1]],
}
BINARY: dict[str, Callable[[Letters, Letters], Letters]] = {
    "append": lambda x, y: [*x, *y],
    "prepend": lambda x, y: [*y, *x],
    "remove_first": lambda x, y: y,
    "remove_second": lambda x, y: x,
}
SHORTEST, LONGEST = 2, 5  # letters of an argument
LONGEST_ANSWER = 100  # letters


def pcfg(random: Random, length: int) -> tuple[str, str]:
    """An expression with `length` functions, and its value. Expressions with longer values are drawn again."""
    while True:
        prompt, answer = _expression(random, length)
        if len(answer) <= LONGEST_ANSWER:
            return prompt, " ".join(answer)


def _expression(random: Random, functions: int) -> tuple[str, Letters]:
    """An expression with this number of functions, which binary functions divide between their arguments at random."""
    if not functions:
        letters = random.choices(ascii_uppercase, k=random.randint(SHORTEST, LONGEST))
        return " ".join(letters), letters
    name = random.choice([*UNARY, *BINARY])
    if name in UNARY:
        written, value = _expression(random, functions - 1)
        return f"{name} {written}", UNARY[name](value)
    left = random.randint(0, functions - 1)
    (first, x), (second, y) = (_expression(random, count) for count in (left, functions - 1 - left))
    return f"{name} {first} , {second}", BINARY[name](x, y)
