"""Loops of proposals simulated by the rules of the gate, many at once. Effects are in standard deviations of seeds.

Shapes: L loops.
"""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.core.tables import Cell, Column, Table
from headway.gate.rules import PRESETS, PUBLIC_SEEDS, SCREEN, Evidence, Pool, Preset, is_futile, is_kept

MOMENTS = 1, 10, 50, 200  # numbers of proposals
EFFECTS = 2.0, 3.0, 1.0
SEGMENTS = 500

Floats = NDArray[np.float64]


def squares_of(scores: Floats) -> Any:
    """The sums of squares (L,) of scores (L, n) about their means."""
    return ((scores - scores.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)


class Loops:
    """The state of L loops.

    Args:
        preset: the numbers of seeds.
        count: L.
        rng: draws the scores.
        deviation: the standard deviation of a proposal's seeds; 1 for those of the baseline.
        of_segments: the standard deviation of a difference that is due to the segments of a set.
    """

    def __init__(
        self, preset: Preset, count: int, rng: np.random.Generator, deviation: float = 1.0, of_segments: float = 0.0
    ) -> None:
        self.preset, self.count, self.rng, self.deviation, self.of_segments = preset, count, rng, deviation, of_segments
        public, sealed = (self.noise((count, seeds)) for seeds in (PUBLIC_SEEDS, preset.bank))
        self.public, self.sealed, self.bank_squares = public.mean(axis=1), sealed.mean(axis=1), squares_of(sealed)
        self.squares, self.degrees = squares_of(public), np.full(count, PUBLIC_SEEDS - 1)
        self.confirmations, self.runs = np.zeros(count, int), np.zeros(count)

    def noise(self, shape: tuple[int, ...]) -> Floats:
        """Deviations of seeds, with the variance 1."""
        return self.rng.normal(size=shape)

    def _draw(self, count: int, seeds: int, effect: float) -> Floats:
        """The scores of the seeds of a proposal on one set."""
        of_set = self.of_segments * self.rng.normal(size=(count, 1))
        return effect + of_set + self.deviation * self.noise((count, seeds))

    def propose(self, effect: float = 0.0) -> NDArray[np.bool_]:
        """Judge a proposal with a true effect in every loop. Returns whether it is kept (L,)."""
        rows, screened = np.arange(self.count), self._draw(self.count, len(SCREEN), effect)
        for seeds in range(1, len(SCREEN) + 1):
            own = screened[rows, :seeds]
            self.runs[rows] += 1
            self.squares[rows] += squares_of(own)
            self.degrees[rows] += seeds - 1
            pool = Pool(self.squares[rows], self.degrees[rows])
            evidence = Evidence(own.mean(axis=1) - self.public[rows], seeds, PUBLIC_SEEDS, pool, 0.0)
            rows = rows[~evidence.is_screened_out]
        first = rows[self.confirmations[rows] == 0]
        self.squares[first] += self.bank_squares[first]
        self.degrees[first] += self.preset.bank - 1
        self.confirmations[rows] += 1
        return self._confirm(rows, squares_of(screened), effect)

    def _confirm(self, rows: NDArray[np.int64], of_screen: Floats, effect: float) -> NDArray[np.bool_]:
        kept, fresh = np.zeros(self.count, bool), np.empty((self.count, self.preset.looks[-1]))
        fresh[rows] = self._draw(len(rows), self.preset.looks[-1], effect)
        before, seen = (self.squares.copy(), self.degrees.copy()), 0
        for look, seeds in enumerate(self.preset.looks):
            own, gain = squares_of(fresh[rows, :seeds]), fresh[rows, :seeds].mean(axis=1) - self.sealed[rows]
            self.runs[rows] += seeds - seen
            self.squares[rows], self.degrees[rows] = before[0][rows] + own, before[1][rows] + seeds - 1
            pool, variance = Pool(before[0][rows], before[1][rows]), (own + of_screen[rows]) / seeds
            evidence = Evidence(gain, seeds, self.preset.bank, pool, variance, SEGMENTS, self.of_segments**2)
            won, seen = is_kept(look, self.confirmations[rows], [evidence]), seeds
            kept[rows[won]] = True
            rows = rows[~(won | (is_futile(look, [evidence]) if look < 2 else True))]
        return kept


class Found(NamedTuple):
    """The result of a simulation: shares of loops in percent, by the number of proposals.

    Attributes:
        false: of loops without a gain that kept something.
        power: by effect, of loops that keep a proposal with this effect after others without a gain.
        runs: of an idle proposal, and of a gain of 2 sd as the tenth proposal, without those of the baseline.
    """

    false: dict[int, float]
    power: dict[float, dict[int, float]]
    runs: tuple[float, float]


def simulate(state: Loops, moments: Sequence[int] = MOMENTS) -> Found:
    """Simulate loops without gains, and what a gain would have met at some moments of each."""
    ever, of_gain, false = np.zeros(state.count, bool), 0.0, dict[int, float]()
    power: dict[float, dict[int, float]] = {effect: {} for effect in EFFECTS}
    for number in range(1, moments[-1] + 1):
        for effect in EFFECTS if number in moments else ():
            tried = copy.deepcopy(state)
            power[effect][number] = 100 * float(tried.propose(effect).mean())
            if effect == EFFECTS[0] and number == moments[1]:
                of_gain = float((tried.runs - state.runs).mean())
        ever |= state.propose()
        if number in moments:
            false[number] = 100 * float(ever.mean())
    return Found(false, power, (float(state.runs.mean()) / moments[-1], of_gain))


def simulation_table(found: dict[str, Found], loops: int) -> Table:
    """A row for each rule, by its name."""
    columns = [Column("rule"), *(Column(f"false, {number}", "%", ".1f") for number in MOMENTS)]
    columns += [Column(f"{effect:g} sd, {number}", "%", ".0f") for effect in EFFECTS for number in MOMENTS]
    columns += [Column("seeds, idle", format=".1f"), Column("seeds, gain", format=".1f")]
    rows = list[list[Cell]]()
    for name, one in found.items():
        rows.append(
            [name, *one.false.values(), *(share for row in one.power.values() for share in row.values()), *one.runs]
        )
    return Table(columns, rows, title=f"{loops:,} loops a row")


def simulated(loops: int, of_segments: float, seed: int = 1) -> Table:
    """A table with a row for each preset."""
    found = {
        f"gate, {name}": simulate(Loops(preset, loops, np.random.default_rng(seed), of_segments=of_segments))
        for name, preset in PRESETS.items()
    }
    return simulation_table(found, loops)
