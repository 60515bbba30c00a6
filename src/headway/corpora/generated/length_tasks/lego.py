"""LEGO: a chain of assignments, each of which copies or negates the one before (Zhang et al. 2022).

    a = + 1 ; q = - a ; c = + q ; ? q  ->  -1

A length is the number of assignments; the variable that is asked for is assigned in the second half.
"""

from random import Random
from string import ascii_lowercase

from headway.corpora.generated.length_tasks.length_task import LengthTask


def _lego(random: Random, length: int) -> tuple[str, str]:
    names = random.sample(ascii_lowercase, length)
    signs = random.choices((1, -1), k=length)
    asked = random.randrange(length // 2, length)
    value = 1
    clauses = []
    for name, before, sign in zip(names, ["1", *names], signs, strict=False):
        clauses.append(f"{name} = {'+' if sign > 0 else '-'} {before} ;")
    for sign in signs[: asked + 1]:
        value *= sign
    return f"{' '.join(clauses)} ? {names[asked]}", f"{value:+d}"


LEGO = LengthTask("lego", {"plain": _lego}, 8, 16, longest=len(ascii_lowercase))
