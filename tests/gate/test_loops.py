"""Whole loops through the real code, on scores that are drawn: false keeps, and power beside the simulation's."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headway.gate.judge import judging
from headway.gate.ledger import Ledger, Line, sealed
from headway.gate.loop import Loop
from headway.gate.options import GateOptions
from headway.gate.rules import PRESETS
from headway.gate.simulation import Loops, simulate
from tests.gate.loops import asked, begun, write_scores

OWN = 1, 2, *range(101, 113)  # seeds of a proposal


def words_of(folder: Path, effects: list[float], name: str) -> list[str]:
    """The words of a loop of proposals with these effects."""
    folder.mkdir()
    path, words = begun(folder, name=f"{name}-base"), []
    with judging(path, GateOptions()) as judge:
        for number, effect in enumerate(effects):
            words.append(asked(judge, write_scores(folder / f"{name}-{number}.tsv", effect, OWN))["word"])
    assert Loop(Ledger(path)).trials.keys() == {f"{name}-{number}" for number in range(len(effects))}
    return words


def shares(folder: Path, loops: int, idle: int) -> tuple[float, float]:
    """In percent, the loops that keep any of the idle proposals, and those that keep the gain of 2 sd after them."""
    every = [words_of(folder / str(loop), [0.0] * idle + [2.0], f"loop{loop}") for loop in range(loops)]
    false = [words for words in every if "keep" in words[:idle]]
    gained = [words for words in every if words[-1] == "keep" and words not in false]
    return 100 * len(false) / loops, 100 * len(gained) / (loops - len(false))


def test_short_loops_keep_gains(tmp_path: Path) -> None:
    false, power = shares(tmp_path, 12, 4)
    assert false <= 10
    assert power >= 70  # of 90: four of twelve are missed with a probability of less than one in a hundred


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_loops_of_fifty_keep_what_helps(tmp_path: Path) -> None:
    """False keeps are at most 4 %, and power is that of the simulation within what 400 loops let one see."""
    false, power = shares(tmp_path, 400, 49)
    simulated = simulate(Loops(PRESETS["usual"], 4000, np.random.default_rng(1)), (1, 10, 50)).power[2.0][50]
    assert false <= 4
    assert power == pytest.approx(simulated, abs=4)


class InMemory(Ledger):
    """A ledger without a file."""

    def __init__(self) -> None:
        self.path, self.lines = Path("loop.jsonl"), []

    def append(self, kind: str, fields: Line) -> Line:
        self.lines.append({"kind": kind, **fields})
        return self.lines[-1]


def judged(loop: Loop, name: str, score: Callable[[str, int], float]) -> str:
    """The word of the rules on a proposal, whose seeds and those of the baseline have these scores."""
    loop.append("proposal", {"name": name, "identity": name, "content": {}})
    while (due := loop.due(loop.trials[name])) is not None:
        scores = [score("base" if due.kind == "bank" else name, seed) for seed in due.seeds]
        found = {"measures": {"score": {"scores": scores}}, "outputs": [repr(each) for each in scores]}
        measured = {"sealed": sealed(found)} if due.part == "sealed" else found
        loop.append(due.kind, {"name": name, **due.fields, **(measured if due.seeds else {})})
    return str(loop.trials[name].word)


def begun_in_memory() -> Loop:
    ledger = InMemory()
    settings = {"metrics": ["score"], "higher": ["score"], "baseline": "base", "identity": "", "content": {}}
    ledger.append("settings", settings)
    return Loop(ledger)


def test_a_thousand_copies_are_the_same_and_spend_nothing() -> None:
    loop = begun_in_memory()
    words = {
        judged(loop, f"copy{number}", lambda name, seed: random.Random(seed).gauss(0, 1)) for number in range(1000)
    }
    assert (words, loop.confirmations) == ({"same"}, 0)


@pytest.mark.slow
def test_the_rules_line_by_line_keep_as_seldom_as_many_loops_at_once() -> None:
    """Of 400 loops of fifty, 1.6 % are expected to keep an idle proposal: with 13 or more, a factor is lost."""

    kept = 0
    for number in range(400):
        loop = begun_in_memory()

        def score(name: str, seed: int, number: int = number) -> float:
            return random.Random(f"{number}-{name}-{seed}").gauss(0, 1)

        kept += "keep" in {judged(loop, f"p{proposal}", score) for proposal in range(50)}
    assert 1 <= kept <= 13  # each end is left with a probability of about one in a hundred
