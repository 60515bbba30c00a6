"""Loops of proposals simulated by the rules of the gate, many at once: false keeps, power, and the runs that they cost.

Effects are in standard deviations of seeds. Shapes: L loops.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.core.tables import Cell, Column, Table
from headway.gate.rules import PRESETS, PUBLIC_SEEDS, SCREEN, Evidence, Pool, Preset, is_futile, is_kept

MOMENTS = 1, 10, 50, 200  # numbers of proposals
EFFECTS = 1.0, 2.0, 3.0

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class World:
    """What proposals are like.

    Args:
        preset: the numbers of seeds.
        deviation: the standard deviation of a proposal's seeds; 1 for those of the baseline.
        of_segments: the standard deviation of a difference that is due to the segments of a set.
        segments: N.
    """

    preset: Preset
    deviation: float = 1.0
    of_segments: float = 0.0
    segments: int = 500


def _squares(scores: Floats) -> Floats:
    """The sums of squares (L,) of scores (L, n) about their means."""
    squares: Floats = ((scores - scores.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    return squares


@dataclass
class Loops:
    """The state of L loops: means of the baseline, the pooled squares of seeds, confirmations, and runs so far."""

    world: World
    count: int
    rng: np.random.Generator
    confirmations: NDArray[np.int64] = field(init=False)
    runs: Floats = field(init=False)

    def __post_init__(self) -> None:
        public, sealed = (self.rng.normal(size=(self.count, n)) for n in (PUBLIC_SEEDS, self.world.preset.bank))
        self.public, self.sealed, self.bank_squares = public.mean(axis=1), sealed.mean(axis=1), _squares(sealed)
        self.squares, self.degrees = _squares(public), np.full(self.count, PUBLIC_SEEDS - 1)
        self.confirmations, self.runs = np.zeros(self.count, int), np.zeros(self.count)

    def copied(self) -> "Loops":
        """Independent loops in the same state, with the same random numbers ahead."""
        return copy.deepcopy(self)

    def _draw(self, rows: NDArray[np.int64], seeds: int, effect: float) -> Floats:
        """The scores (L, n) of the seeds of a proposal on one set."""
        of_set = self.world.of_segments * self.rng.normal(size=(len(rows), 1))
        return effect + of_set + self.world.deviation * self.rng.normal(size=(len(rows), seeds))

    def propose(self, effect: float) -> NDArray[np.bool_]:
        """Judge a proposal with a true effect in every loop. Returns whether it is kept (L,)."""
        rows, kept = np.arange(self.count), np.zeros(self.count, bool)
        screened = self._draw(rows, len(SCREEN), effect)
        for seeds in range(1, len(SCREEN) + 1):
            own = screened[rows, :seeds]
            self.runs[rows] += 1
            self.squares[rows] += _squares(own)
            self.degrees[rows] += seeds - 1
            pool = Pool(self.squares[rows], self.degrees[rows])
            gain = own.mean(axis=1) - self.public[rows]
            rows = rows[~Evidence(gain, seeds, PUBLIC_SEEDS, pool, 0.0).is_screened_out]
        first = rows[self.confirmations[rows] == 0]
        self.squares[first] += self.bank_squares[first]
        self.degrees[first] += self.world.preset.bank - 1
        self.confirmations[rows] += 1
        self._confirm(rows, screened, effect, kept)
        return kept

    def _confirm(self, rows: NDArray[np.int64], screened: Floats, effect: float, kept: NDArray[np.bool_]) -> None:
        bank, looks = self.world.preset
        fresh = np.full((self.count, looks[-1]), np.nan)
        fresh[rows] = self._draw(rows, looks[-1], effect)
        before = self.squares.copy(), self.degrees.copy()
        for look, seeds in enumerate(looks):
            own = _squares(fresh[rows, :seeds])
            self.runs[rows] += seeds - (looks[look - 1] if look else 0)
            self.squares[rows], self.degrees[rows] = before[0][rows] + own, before[1][rows] + seeds - 1
            evidence = Evidence(
                fresh[rows, :seeds].mean(axis=1) - self.sealed[rows], seeds, bank,
                Pool(before[0][rows], before[1][rows]), (own + _squares(screened[rows])) / seeds,
                self.world.segments, self.world.of_segments**2,
            )  # fmt: skip
            won = is_kept(look, self.confirmations[rows], [evidence])
            kept[rows[won]] = True
            rows = rows[~(won | (is_futile(look, [evidence]) if look < len(looks) - 1 else True))]


@dataclass(frozen=True)
class Found:
    """What was simulated: shares of loops in percent, by the number of proposals.

    Args:
        false: of loops without a gain that kept something.
        power: by effect, of loops that keep a proposal with this effect after others without a gain.
        runs: of an idle proposal, and of a gain of 2 sd as the tenth proposal, without those of the baseline.
    """

    false: dict[int, float]
    power: dict[float, dict[int, float]]
    runs: tuple[float, float]


def simulate(world: World, loops: int, seed: int = 1, moments: Sequence[int] = MOMENTS) -> Found:
    """Simulate loops without gains, and what a gain would have met at some moments of each."""
    state = Loops(world, loops, np.random.default_rng(seed))
    ever, false = np.zeros(loops, bool), dict[int, float]()
    power: dict[float, dict[int, float]] = {effect: {} for effect in EFFECTS}
    of_gain = 0.0
    for number in range(1, moments[-1] + 1):
        if number in moments:
            for effect in EFFECTS:
                tried = state.copied()
                power[effect][number] = 100 * float(tried.propose(effect).mean())
                if effect == 2 and number == moments[min(1, len(moments) - 1)]:
                    of_gain = float((tried.runs - state.runs).mean())
        ever |= state.propose(0.0)
        if number in moments:
            false[number] = 100 * float(ever.mean())
    return Found(false, power, (float(state.runs.mean()) / moments[-1], of_gain))


def simulation_table(found: dict[str, Found], title: str) -> Table:
    """A row for each simulated world, by its name."""
    columns = [Column("loops"), *(Column(f"false keep by {number}", "%", ".1f") for number in MOMENTS)]
    columns += [Column(f"power {effect:g} sd, {number}", "%", ".0f") for effect in EFFECTS for number in MOMENTS]
    columns += [Column("runs, idle", format=".1f"), Column("runs, gain", format=".1f")]
    rows: list[list[Cell]] = []
    for name, one in found.items():
        shares: list[Any] = [*one.false.values(), *(share for row in one.power.values() for share in row.values())]
        rows.append([name, *shares, *one.runs])
    return Table(columns, rows, title=title)


def simulated(loops: int, of_segments: float) -> Table:
    """A table with a row for each preset."""
    worlds = {name: World(preset, of_segments=of_segments) for name, preset in PRESETS.items()}
    found = {name: simulate(world, loops) for name, world in worlds.items()}
    return simulation_table(found, f"{loops:,} loops a row; effects in standard deviations of seeds")
