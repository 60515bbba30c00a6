"""Cells of made systems: references with words lost at random."""

import random

from headway.comparison.cells import CellOutput, CellResult, EvaluationSet

REFERENCES = [
    "the cat sat on the mat , and the dog watched it",
    "a small house stands at the end of the long road",
    "she gave him the book that he had asked for",
    "we will meet again when the rain has stopped",
    "nobody knows where the old man keeps his boat",
    "two birds in a tree sang all day and all night",
    "the train to the coast leaves at seven in the morning",
    "if you see my brother , tell him that I am here",
]
LINES = [
    "the cat sat on a mat , and the dog watched",
    "a house stands at the end of the road",
    "she gave him a book he asked for",
    "we will meet when the rain stopped",
    "nobody knows where the man keeps a boat",
    "two birds sang all day and night",
    "the train to the coast leaves at seven in the morning",
    "tell my brother that I am here",
]


def hypotheses(count: int, *, seed: int, kept: float = 0.8) -> list[str]:
    """References of which each word is kept with this probability, else another word."""
    drawn = random.Random(seed)
    lines = (REFERENCES * (count // len(REFERENCES) + 1))[:count]
    return [" ".join(word if drawn.random() < kept else "thing" for word in line.split()) for line in lines]


def evaluation_set(count: int = 160, name: str = "test") -> EvaluationSet:
    lines = tuple((REFERENCES * (count // len(REFERENCES) + 1))[:count])
    return EvaluationSet(name, (lines,), lines)


def cell(variant: str, seed: int, kept: float, test: EvaluationSet | None = None) -> CellResult:
    test = test or evaluation_set()
    number = sum(map(ord, variant)) * 100 + seed
    return CellResult(variant, seed, (CellOutput(test, tuple(hypotheses(len(test), seed=number, kept=kept))),))


def cells_of(**kept: float) -> list[CellResult]:
    """Three seeds of each variant, which keeps this share of the words."""
    test = evaluation_set()
    return [cell(variant, seed, share, test) for variant, share in kept.items() for seed in (1, 2, 3)]
