"""The results of a loop: the page of a ledger, and the effects that are in reach."""

import html
from importlib import resources
from pathlib import Path
from statistics import fmean, median

from headway.core.tables import Cell, Column, Table
from headway.gate import rules
from headway.gate.loop import Loop, interval
from headway.gate.rules import ERROR, Evidence, confirmation_level, spent, squared_quantile
from headway.grids.power import TYPICAL
from headway.pages.page import write_page

REACHED = 1, 10, 50  # confirmations
IDLE = {"small": 2.7, "usual": 3.3, "thorough": 3.8}  # seeds of a proposal without a gain, as simulated
PROMISE = "The seal is a promise: some scores were made outside of the gate."

Points = list[tuple[float, ...]]


def of_segments(loop: Loop) -> tuple[int, float] | None:
    """N of the sealed set, and the variance of a difference that is due to it: as on the public set, or as is typical.

    None if neither is known.
    """
    metric = loop.settings.metrics[0]
    seen = [trial.screened[metric] for trial in loop.trials.values() if trial.screened]
    size = loop.settings.sizes.get("sealed", seen[0].segments if seen else 0)
    if seen and size > 1:
        return size, median(one.segment_variance * one.segments for one in seen) / size
    typical = TYPICAL.get(metric.partition(":")[0])
    return None if typical is None or size < 2 else (size, typical.segments**2 / size)


def plan_table(loop: Loop) -> Table:
    """By confirmation, the effect that no number of seeds can show, and the one that is shown if it is measured."""
    preset, segments, metric = loop.preset, of_segments(loop), loop.settings.metrics[0]
    pool, rows = loop.pool(metric), list[list[Cell]]()
    for number in sorted({*REACHED, loop.confirmations + 1}):
        level, never, shown = float(confirmation_level(number)), None, None
        tail, (size, variance) = rules.SHARES[-1] * level, segments or (1, 0.0)
        if segments is not None:
            never = float(squared_quantile(size - 1, tail) * variance) ** 0.5
        if pool.degrees:
            shown = float(Evidence(0.0, preset.looks[-1], preset.bank, pool, 0.0, size, variance).bound(tail))
        rows.append([number, level, never, shown])
    columns = [Column("confirmation"), Column("level", format=".5f")]
    columns += [Column("never kept below", metric, ".3g"), Column("kept if measured", metric, ".3g")]
    banks, idle = f"{rules.PUBLIC_SEEDS} + {preset.bank} seeds of each baseline", IDLE[loop.settings.preset]
    most = len(rules.SCREEN) + preset.looks[-1]
    notes = [f"{banks}; about {idle} of a proposal without a gain, and {most} at most."]
    notes += (
        [] if pool.degrees else ["Before the first proposal, segments vary as in other comparisons by this metric."]
    )
    return Table(columns, rows, title="Effects in reach", notes=notes)


def proposal_table(loop: Loop) -> Table:
    """A row for each proposal. Numbers of the sealed set are those of kept proposals alone."""
    rows: list[list[Cell]] = []
    for trial in loop.trials.values():
        answer, looks = trial.answer, f"{trial.looks} of {len(loop.preset.looks)}" if trial.confirmation else ""
        kept = f"{answer['sealed_difference']:+.3g} > {answer['bound']:.3g}" if trial.word == "keep" else ""
        word, reason = trial.word or "unfinished", str(answer.get("reason", ""))
        screen, confirmation = answer.get("difference"), trial.confirmation or None
        rows.append([trial.name, word, screen, confirmation, looks, kept, trial.runs, reason])
    screen_of = Column("screen", loop.settings.metrics[0], "+.3g")
    names = "confirmation", "looks", "gain > bound", "seeds", "reason"
    return Table([Column("proposal"), Column("word"), screen_of, *map(Column, names)], rows, title="Proposals")


def baseline_table(loop: Loop) -> Table:
    """A row for each baseline: its gain as it was kept, which is selected, and that of its new seeds."""
    rows, least = list[list[Cell]](), loop.settings.least
    for baseline in loop.baselines:
        kept = None if baseline.kept is None else interval(baseline.kept, least)[0]
        anew = "" if baseline.kept is None else "not trained yet"
        if baseline.anew is not None:
            anew = "{:+.3g} [{:.3g}, {:.3g}]".format(*interval(baseline.anew, least))
        rows.append([baseline.name, kept, anew])
    columns = [Column("baseline"), Column("as kept (selected)", format="+.3g"), Column("anew")]
    return Table(columns, rows, title="Baselines")


def charts(loop: Loop) -> list[tuple[str, Points]]:
    """The level of the baseline on the public set, in steps with intervals, and the error spent, by proposals."""
    metric, level, error = loop.settings.metrics[0], Points(), Points([(0, 0.0)])
    ended, pool = [trial for trial in loop.trials.values() if trial.word], loop.pool(metric)
    ends = [0, *(index for index, trial in enumerate(ended, start=1) if trial.word == "keep"), len(ended)]
    for baseline, begin, end in zip(loop.baselines, ends, ends[1:], strict=False):
        if "public" in baseline.banks:
            scores = baseline.banks["public"][metric].scores
            mean, squared = fmean(scores), squared_quantile(pool.degrees, rules.TAIL) * pool.variance / len(scores)
            level += [(at, mean, mean - float(squared) ** 0.5, mean + float(squared) ** 0.5) for at in (begin, end)]
    for index, trial in enumerate(ended, start=1):
        error.append((index, max(error[-1][1], spent(trial.confirmation))))
    return [(f"{metric} of the baseline, public set", level), (f"error spent, of {ERROR}", error)]


def write_gate_page(loop: Loop, path: Path) -> None:
    """Write the page of a loop."""
    parts = [f"<section>{table(loop).html()}</section>" for table in (proposal_table, baseline_table, plan_table)]
    error = f"{loop.runs} seeds, {loop.confirmations} confirmations: {spent(loop.confirmations):.4f} of {ERROR} spent."
    contents = [loop.settings.content, *(trial.content for trial in loop.trials.values())]
    notes = [error, *([PROMISE] if any("scores" in content or "runs" in content for content in contents) else [])]
    write_page(
        path, "gate.html", title=f"{loop.settings.baseline}, and {len(loop.trials)} proposals",
        styles=("palette.css", "report.css"), scripts=("elements.js", "charts.js", "gate.js"),
        data={"page": {"charts": [[title, points] for title, points in charts(loop) if points]}},
        assets=resources.files(__package__).joinpath("page"),
        elements=[*(f"<p>{html.escape(note)}</p>" for note in notes), *parts],
    )  # fmt: skip
