"""Addition, summation, parity and polynomials, digit by digit."""

from random import Random

from headway.corpora.generated.length_tasks.length_task import LengthTask


def _digits(number: int) -> str:
    return " ".join(str(number))


def _number(random: Random, digits: int) -> int:
    return random.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits)


def _addition(random: Random, length: int) -> tuple[str, str]:
    """Two numbers of which the longer has `length` digits; all pairs of lengths for which that holds are alike."""
    pairs = [(length, other) for other in range(1, length + 1)] + [(other, length) for other in range(1, length)]
    first, second = (_number(random, digits) for digits in random.choice(pairs))
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


ADDITION = LengthTask("addition", {"plain": _addition}, 8, 16)
SUMMATION = LengthTask("summation", {"plain": _summation}, 8, 16)
PARITY = LengthTask("parity", {"plain": _parity}, 8, 16)
POLYNOMIAL = LengthTask("polynomial", {"plain": _polynomial}, 8, 16)
