"""How often a loop of proposals keeps what does not help, and which gains it keeps: by `headway gate`, and by p <= .05.

Loops are simulated by the rules of the gate (`headway.gate.simulation`), beside four other rules that are in use or
have been proposed: paired t-tests of each proposal at p <= .05, with three and five seeds; and the same levels as the
gate's, spent by proposals instead of confirmations, with the proposal's own variance, and with a variance of 40 degrees
of freedom. Effects are in standard deviations of seeds. Further rows leave the assumptions of the rules: sealed sets on
which differences vary, proposals whose seeds vary more or less than those of the baseline, heavy tails, and seeds that
fail.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import special

from headway.claims.reproduce import Figure, ResultRecord, measured_now, write_record
from headway.cli.console import show
from headway.core.log import Progress, progress
from headway.core.tables import Cell, Column, Table
from headway.gate.rules import PRESETS, confirmation_level
from headway.gate.simulation import EFFECTS, MOMENTS, Found, Loops, simulate, simulation_table
from headway.pages.charts import Panel, panel_chart

SEED = 1
DRAWN = (1, *range(5, 51, 5))  # numbers of proposals in the figure
TITLE = "Loops without any gain that keep something, by the number of proposals"
FAILING, FAR = 0.05, 5.0  # the share of seeds that fail, and how far below

Floats = NDArray[np.float64]


class OddLoops(Loops):
    """Loops whose seeds are not normal. `drawn` draws deviations of a shape."""

    def __init__(self, drawn: Callable[[np.random.Generator, tuple[int, ...]], Floats], count: int) -> None:
        self.drawn = drawn
        super().__init__(PRESETS["usual"], count, np.random.default_rng(SEED))

    def noise(self, shape: tuple[int, ...]) -> Floats:
        return self.drawn(self.rng, shape)


def heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Student's t with four degrees of freedom."""
    return rng.standard_t(4, size=shape) / np.sqrt(2)


def skewed(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """An exponential tail towards worse scores."""
    return 1 - rng.exponential(size=shape)


def failing(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Normal seeds of which one in twenty fails."""
    return rng.normal(size=shape) - FAR * (rng.random(shape) < FAILING)


def false_keeps(loops: Loops, moments: tuple[int, ...]) -> list[float]:
    """The share of idle loops that have kept something by some numbers of proposals, in percent."""
    ever, found = np.zeros(loops.count, bool), []
    for number in range(1, moments[-1] + 1):
        ever |= loops.propose()
        found += [100 * float(ever.mean())] if number in moments else []
    return found


@dataclass(frozen=True)
class TestedLoops:
    """A rule that tests every proposal with n paired seeds. `degrees`: of a pooled variance; None for its own."""

    seeds: int
    spends: bool
    degrees: int | None = None

    def found(self, count: int, moments: tuple[int, ...] = MOMENTS) -> Found:
        rng, ever, false = np.random.default_rng(SEED), np.zeros(count, bool), dict[int, float]()
        power: dict[float, dict[int, float]] = {effect: {} for effect in EFFECTS}
        base = rng.normal(size=(count, self.seeds))
        for number in range(1, moments[-1] + 1):
            tail = float(confirmation_level(number)) if self.spends else 0.025
            differences = rng.normal(size=(count, self.seeds)) - base
            variances = differences.var(axis=1, ddof=1)
            if self.degrees is not None:
                variances = 2 * rng.chisquare(self.degrees, size=count) / self.degrees
            bound = -special.stdtrit(self.degrees or self.seeds - 1, tail) * np.sqrt(variances / self.seeds)
            gain = differences.mean(axis=1)
            ever |= gain > bound
            if number in moments:
                false[number] = 100 * float(ever.mean())
                for effect in EFFECTS:
                    power[effect][number] = 100 * float((gain + effect > bound).mean())
        return Found(false, power, (self.seeds, self.seeds))


OTHERS = {
    "3 paired seeds, p <= .05 each": TestedLoops(3, spends=False),
    "5 paired seeds, p <= .05 each": TestedLoops(5, spends=False),
    "3 paired seeds, own variance, same levels": TestedLoops(3, spends=True),
    "5 paired seeds, 40 degrees of freedom, same levels": TestedLoops(5, spends=True, degrees=40),
}


def rows_of(count: int, bar: Progress) -> Iterator[tuple[str, Found]]:
    """The presets, the other rules, and worlds beside the assumptions."""

    def loops(preset: str, **world: float) -> Found:
        return simulate(Loops(PRESETS[preset], count, np.random.default_rng(SEED), **world))

    rows: dict[str, Callable[[], Found]] = {f"gate, {name}": partial(loops, name) for name in PRESETS}
    rows |= {name: partial(other.found, count) for name, other in OTHERS.items()}
    for sd in (0.3, 0.5, 1.0):
        rows[f"usual, {sd:g} sd by segments"] = partial(loops, "usual", of_segments=sd)
    for sd in (0.5, 2.0, 3.0):
        rows[f"usual, proposals vary {sd:g} times as much"] = partial(loops, "usual", deviation=sd)
    for name, found in rows.items():
        yield name, found()
        bar.update(bar.done + 1)


def odd_table(count: int, bar: Progress) -> Table:
    """False keeps where seeds are not normal."""
    rows = list[list[Cell]]()
    for name, noise in {"tails of t4": heavy, "skewed": skewed, "one seed in twenty fails": failing}.items():
        rows.append([name, *false_keeps(OddLoops(noise, count), MOMENTS)])
        bar.update(bar.done + 1)
    columns = [Column("seeds"), *(Column(f"false, {number}", "%", ".1f") for number in MOMENTS)]
    return Table(columns, rows, title=f"False keeps of the preset usual where seeds are not normal, {count:,} loops")


def draw(count: int, path: Path) -> None:
    """Draw the share of idle loops that have kept something, by the number of proposals."""
    loops = Loops(PRESETS["usual"], count, np.random.default_rng(SEED))
    shares = {name: [*OTHERS[name].found(count, DRAWN).false.values()] for name in list(OTHERS)[:2]}
    shares["headway gate"] = false_keeps(loops, DRAWN)
    lines = {name: [*zip(map(float, DRAWN), row, strict=True)] for name, row in shares.items()}
    panel = Panel("", "proposals, none of which helps", "loops that kept one (%)", lines, limits=(0.0, None))
    panel_chart([panel], path)


def main() -> None:
    """Simulate all rules and worlds, print the tables, and write the record and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", type=int, default=4000, help="of each row")
    parser.add_argument("--output", type=Path, help="the record, as JSON")
    parser.add_argument("--figure", type=Path, help="the figure")
    given = parser.parse_args()
    with show(), progress("simulating", len(PRESETS) + len(OTHERS) + 9, "rows") as bar:
        tables = [simulation_table(dict(rows_of(given.loops, bar)), given.loops), odd_table(given.loops, bar)]
    print("\n\n".join(table.text() for table in tables))
    if given.output is not None:
        text = (
            f"Each row simulates {given.loops:,} loops of proposals. False is the share of loops without any gain that "
            "keep something by proposal 1, 10, 50 and 200.",
            "The other columns are the share of loops that keep a gain of 2, 3 and 1 standard deviations of seeds as "
            "proposal 1, 10, 50 and 200, after proposals without a gain.",
            "The numbers of seeds are those of a proposal without a gain, and of a gain of 2 sd as the tenth; the "
            "baseline has 12, 16 and 20 by preset.",
        )
        made = tuple(table.to_json() for table in tables)
        figures = () if given.figure is None else (Figure(file=given.figure.name, title=TITLE),)
        measured = measured_now([" ".join(["python", *sys.argv])], [SEED])
        write_record(
            given.output,
            ResultRecord(title="Loops of proposals", measured=measured, text=text, tables=made, figures=figures),
        )
    if given.figure is not None:
        draw(given.loops, given.figure)


if __name__ == "__main__":
    main()
