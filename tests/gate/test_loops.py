"""Whole loops through the real code, on scores that are drawn: false keeps, and power beside the simulation's."""

from pathlib import Path

import numpy as np
import pytest

from headway.gate.judge import judging
from headway.gate.ledger import Ledger
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
