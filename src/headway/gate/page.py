"""What a loop has come to: the page of a ledger, and the effects that are in its reach."""

import html
from importlib import resources
from pathlib import Path
from statistics import median
from typing import Any

from headway.core.tables import Cell, Column, Table
from headway.gate.ledger import Ledger
from headway.gate.loop import Baseline, Loop, interval
from headway.gate.rules import (
    ERROR,
    PUBLIC_SEEDS,
    SCREEN,
    SHARES,
    Evidence,
    confirmation_level,
    spent,
    squared_quantile,
)
from headway.grids.power import TYPICAL
from headway.pages.page import write_page

REACHED = 1, 10, 50  # confirmations
IDLE = {"small": 2.7, "usual": 3.2, "thorough": 3.8}  # seeds of a proposal without a gain, as simulated
PROMISE = "The seal is a promise: these scores were made outside of the gate."


def segment_variance(loop: Loop) -> tuple[int, float] | None:
    """N of the sealed set, and the variance of a difference that is due to it: as on the public set, or as is typical.

    None if neither is known.
    """
    metric, sizes = loop.settings.metrics[0], loop.settings.sizes
    seen = [trial.screened[metric] for trial in loop.trials.values() if trial.screened]
    size = sizes.get("sealed", seen[0].segments if seen else 0)
    if size < 2:
        return None
    if seen:
        return size, median(one.segment_variance * one.segments for one in seen) / size
    typical = TYPICAL.get(metric.partition(":")[0])
    return None if typical is None else (size, typical.segments**2 / size)


def plan_table(loop: Loop) -> Table:
    """By confirmation, the effect that no number of seeds can show, and the one that is shown if it is measured."""
    preset, known, metric = loop.preset, segment_variance(loop), loop.settings.metrics[0]
    pool = loop.pool(metric)
    rows: list[list[Cell]] = []
    for number in sorted({*REACHED, loop.confirmations + 1}):
        level = float(confirmation_level(number))
        tail = SHARES[-1] * level
        never = None if known is None else float((squared_quantile(known[0] - 1, tail) * known[1]) ** 0.5)
        shown = None
        if pool.degrees:
            size, variance = known or (1, 0.0)
            evidence = Evidence(0.0, preset.looks[-1], preset.bank, pool, 0.0, size, variance)
            shown = float(evidence.bound(tail))
        rows.append([number, level, never, shown])
    columns = [Column("confirmation"), Column("level", format=".5f")]
    columns += [Column("never kept, if smaller", metric, ".3g"), Column("kept, if measured", metric, ".3g")]
    runs = f"{PUBLIC_SEEDS} + {preset.bank} seeds of each baseline, about {IDLE[loop.settings.preset]} of a proposal"
    notes = [f"{runs} without a gain, and {len(SCREEN)} + {preset.looks[-1]} at most."]
    notes += (
        ["Without proposals, the variance of segments is that of other pairs of systems."] if not pool.degrees else []
    )
    return Table(columns, rows, title="Effects in reach", notes=notes)


def proposal_table(loop: Loop) -> Table:
    """A row for each proposal. Numbers of the sealed set are those of kept proposals."""
    rows: list[list[Cell]] = []
    for trial in loop.trials.values():
        answer = trial.answer
        kept = f"{answer['sealed_difference']:+.3g} > {_bound(answer):.3g}" if trial.word == "keep" else ""
        looks = f"{trial.looks} of {len(loop.preset.looks)}" if trial.confirmation else ""
        screen = answer.get("difference")
        rows.append([
            trial.name, trial.word or "unfinished", screen, trial.confirmation or None, looks, kept, trial.runs,
            str(answer.get("reason", "")),
        ])  # fmt: skip
    columns = [
        Column("proposal"), Column("word"), Column("screen", loop.settings.metrics[0], "+.3g"), Column("confirmation"),
        Column("looks"), Column("gain > bound"), Column("seeds"), Column("because"),
    ]  # fmt: skip
    return Table(columns, rows, title="Proposals")


def _bound(answer: Any) -> float:
    """The bound that a kept gain has exceeded."""
    return float(answer["bound"])


def baseline_table(loop: Loop) -> Table:
    """A row for each baseline: its gain as it was kept, which is selected, and that of its new seeds."""
    least = loop.settings.least
    rows: list[list[Cell]] = []
    for baseline in loop.baselines:
        kept = None if baseline.kept is None else interval(baseline.kept, least)[0]
        anew = "" if baseline.kept is None else "not trained yet"
        if baseline.anew is not None:
            gain, low, high = interval(baseline.anew, least)
            anew = f"{gain:+.3g} [{low:.3g}, {high:.3g}]"
        rows.append([baseline.name, kept, anew])
    columns = [Column("baseline"), Column("as kept (selected)", format="+.3g"), Column("anew")]
    return Table(columns, rows, title="Baselines")


def charts(ledger: Ledger) -> list[tuple[str, list[tuple[float, ...]]]]:
    """The level of the baseline on the public set, in steps with intervals, and the error spent, by proposals."""
    loop, metric = Loop(ledger), Loop(ledger).settings.metrics[0]
    ended = [trial for trial in loop.trials.values() if trial.word]
    kept = [index for index, trial in enumerate(ended, start=1) if trial.word == "keep"]
    ends = [0, *kept, len(ended)]
    level = list[tuple[float, ...]]()
    for baseline, begin, end in zip(loop.baselines, ends, ends[1:], strict=False):
        level += [(at, *interval_of) for at in (begin, end) if (interval_of := _level(loop, baseline, metric))]
    error = [
        (index, spent(max((one.confirmation for one in ended[:index]), default=0))) for index in range(len(ended) + 1)
    ]
    return [(f"{metric} of the baseline, public set", level), (f"error spent, of {ERROR}", [*error])]


def _level(loop: Loop, baseline: Baseline, metric: str) -> tuple[float, float, float] | None:
    """The mean of a baseline's public seeds with its 95 % interval over seeds; None before they are trained."""
    if "public" not in baseline.banks:
        return None
    scores, pool = baseline.banks["public"][metric].scores, loop.pool(metric)
    mean = sum(scores) / len(scores)
    half = float((squared_quantile(pool.degrees, 0.025) * pool.variance / len(scores)) ** 0.5)
    return mean, mean - half, mean + half


def write_gate_page(ledger: Ledger, path: Path) -> None:
    """Write the page of a ledger."""
    loop = Loop(ledger)
    tables = [proposal_table(loop), baseline_table(loop), plan_table(loop)]
    parts = [f"<section>{table.html()}</section>" for table in tables]
    outside = any(
        "scores" in content for content in [loop.settings.content, *(one.content for one in loop.trials.values())]
    )
    error = f"{loop.runs} seeds, {loop.confirmations} confirmations: {spent(loop.confirmations):.4f} of {ERROR} spent."
    parts += [f"<p>{html.escape(text)}</p>" for text in [error, *([PROMISE] if outside else [])]]
    shown = [(title, points) for title, points in charts(ledger) if points]
    write_page(
        path, "gate.html", title=f"{loop.settings.baseline}, and {len(loop.trials)} proposals",
        styles=("palette.css", "report.css"), scripts=("elements.js", "charts.js", "gate.js"),
        data={"page": {"charts": shown}}, assets=resources.files(__package__).joinpath("page"), elements=parts,
    )  # fmt: skip
