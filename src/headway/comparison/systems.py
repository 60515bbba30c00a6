"""`headway.compare`: one function for all that can be compared, and grids from their file to their comparison."""

import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from headway.comparison.cells import CellResult
from headway.comparison.comparison import Comparison, compare_cells
from headway.comparison.existing_results import Existing, compare_existing
from headway.comparison.grid import Grid
from headway.comparison.grid_file import check_corpora, load_grid
from headway.comparison.grid_run import GridResult, GridRun, expected
from headway.comparison.options import CompareOptions, ExistingOptions, GridOptions, is_grid
from headway.comparison.report import draw_figures, write_report
from headway.comparison.run_results import read_test_set
from headway.comparison.statistics import SIGNIFICANT
from headway.comparison.workers import CELLS, TUNING, LocalWorkers, RayWorkers, Workers, room_here
from headway.config import validated_options
from headway.device import threads_set
from headway.errors import RunError, UserError, option
from headway.files import check_output_folder
from headway.log import counted, duration, progress, say, silenced, warn
from headway.metrics import Metric, as_metrics
from headway.runs.training.trained import dry_run
from headway.tables import Cell, Column, Table

SEVERAL = ("hypotheses", "references", "test")  # options that take one or several

Path_ = str | Path
Systems = Path_ | CellResult | Sequence[Path_ | CellResult] | Mapping[str, Path_ | Sequence[Path_]]


@dataclass(frozen=True)
class GridComparison:
    """A grid that was made.

    Attributes:
        comparison: of the cells that can be compared; None where these are fewer than two variants.
        result: all cells.
        code: the exit code: 0, 1 where a cell failed or nothing can be compared, 128 + the signal's number where one
            stopped the work.
    """

    comparison: Comparison | None
    result: GridResult
    code: int


def compare_grid(grid: Grid, output: Path, options: GridOptions) -> GridComparison:
    """Make what is missing of a grid, and compare its cells.

    Args:
        grid: what is compared.
        output: the folder of all runs; what is finished there is not made again.
        options: the workers, or that nothing more is to be made.

    Raises:
        UserError: corpora that cannot be read, test sets that are too small, or runs that were made with other recipes.
        RunError: another call is at work in the folder.
    """
    check_sets(grid)
    run = GridRun(grid, output, options.threads)
    if run.is_done() or options.only_finished:
        result = run.result()
    else:
        check_corpora(grid)
        if options.ray is None:
            workers: Workers = LocalWorkers(options.workers or room_here(options.threads), options.threads)
        else:
            workers = RayWorkers(options.ray, options.workers, options.threads)
        result = run.run(workers)
    if result.stopped:
        by = f"{signal.Signals(result.stopped).name} with {counted(len(result.cells), 'finished cell')}"
        say(f"stopped by {by}; the same command goes on")
        return GridComparison(None, result, 128 + result.stopped)
    for failure in result.failed:
        say(f"failed: {failure}")
    comparison = comparison_of(grid, result)
    return GridComparison(comparison, result, 1 if result.failed or comparison is None else 0)


def check_sets(grid: Grid) -> None:
    """Read all test sets, and score their own references.

    Raises:
        UserError: a set that cannot be scored, or one whose sources are all tuned on.
    """
    recipe, sources = grid.variants[0].recipe, dict[str, tuple[str, ...]]()
    for test in (*grid.tests, *([grid.tuning_set] if grid.tuning_set else [])):
        scored = read_test_set(recipe, test)
        for metric in grid.metrics_of(test):
            metric.counted(scored.references[0], scored.references)
        sources[test.where] = scored.sources
    if grid.tuning_set is not None:
        tuned = set(sources[grid.tuning_set.where])
        for test in grid.tests:
            every = sources[test.where]
            known = sum(source in tuned for source in every)
            if known == len(every):
                what = f"the test set {test.name} reports these sources, so that nothing can be tuned on them"
                raise UserError(what, where="tune.on", received=f"{known:,} of {len(every):,}")
            if known:
                warn(f"{test.where}: {known:,} of {len(every):,} sources are tuned on, too")


def comparison_of(grid: Grid, result: GridResult) -> Comparison | None:
    """The comparison of the variants that have cells, over the seeds that all of these have."""
    seeds: dict[str, set[int]] = {}
    for cell in result.cells:
        seeds.setdefault(cell.variant, set()).add(cell.seed)
    shared = set.intersection(*seeds.values()) if seeds else set()
    if len(seeds) < 2 or not shared:
        few, apart = "fewer than two variants have cells", "no seed has cells of all variants that have any"
        left = counted(len(result.unfinished), "cell")
        why = f"; not finished, or decoded for other sets or with other options: {left}" if result.unfinished else ""
        warn(f"{few if len(seeds) < 2 else apart}: nothing is compared{why}")
        return None
    missing = [variant.name for variant in grid.variants if variant.name not in seeds]
    left_out = [str(cell.name) for cell in result.cells if cell.seed not in shared]
    for name in missing:
        warn(f"{name} has no cells, and is left out of the comparison")
    for name in left_out:
        warn(f"{name} is left out of the comparison, for want of other cells")
    config, baseline = grid.config, grid.config.baseline
    cells = [cell for cell in result.cells if cell.seed in shared]
    own = {test.name: grid.metrics_of(test) for test in grid.tests if test.metrics is not None}
    absent = baseline if baseline in missing else None
    found = compare_cells(
        cells, grid.metrics_of(), config.margin, None if absent else baseline,
        own_metrics=own, any_tokenization=config.any_tokenization,
    )  # fmt: skip
    return replace(found, notes=tuple(_notes(grid, result, left_out, absent)))


def _notes(grid: Grid, result: GridResult, without_others: Sequence[str], baseline: str | None) -> Iterator[str]:
    """Notes on cells that are not there, on a baseline that has none, on norms, and on the choice of the tuned key."""
    if result.failed:
        yield f"Failed: {'; '.join(result.failed)}."
    if result.unfinished:
        yield f"Not finished: {'; '.join(result.unfinished)}."
    if without_others:
        yield f"Left out for want of these: {'; '.join(without_others)}."
    if baseline is not None:
        yield f"The baseline {baseline} has no cells, so that every pair is compared."
    norms: dict[str, list[str]] = {}
    for variant in grid.variants:
        if norm := getattr(variant.recipe.model, "norm", None):
            norms.setdefault(norm, []).append(variant.name)
    if len(norms) == 1:
        yield f"Transformers are {next(iter(norms))}-norm."
    elif norms:
        parts = (f"{norm}-norm for {', '.join(names)}" for norm, names in norms.items())
        yield f"Transformers: {'; '.join(parts)}."
    if (tune := grid.config.tune) is None:
        return
    longest = max(variant.recipe.training.updates or 0 for variant in grid.variants)
    if 2 * tune.updates < longest:  # what is best there need not be best at the end
        chosen = f"chosen after {tune.updates:,} of {longest:,} updates"
        yield f"{tune.key}: {chosen}; another value may be the best after all of them"
    if all(type(value) in (int, float) for value in tune.values):  # a better one may lie beyond the edge
        for word, edge in (("lowest", min(tune.values)), ("highest", max(tune.values))):
            if names := [name for name, value in result.tuned.items() if value == edge]:
                yield f"{tune.key}: the best for {', '.join(names)} is the {word} that was tried, {edge:g}"
    if result.by_chance:  # another value may be better by much
        apart = f"do not tell its values apart after {tune.updates:,} updates (p > {SIGNIFICANT})"
        yield f"{tune.key}: the short runs of {', '.join(result.by_chance)} {apart}; the choice is by chance"


def plan_of(grid: Grid, output: Path, options: GridOptions) -> Table:
    """The runs of a grid with the time that each will take, by runs that are there or by a few updates.

    Raises:
        UserError: data that cannot be read, or runs that were made with other recipes.
    """
    check_sets(grid)
    run = GridRun(grid, output, options.threads)
    known = run.known_seconds()
    with progress("trying a few updates", len(grid.variants), "variants", long=True) as line:
        for count, variant in enumerate(grid.variants, start=1):
            if variant.name not in known:
                try:
                    with silenced(), threads_set(options.threads):
                        known[variant.name] = [dry_run(variant.recipe).seconds]
                except RunError as error:
                    warn(f"{variant.name} fails in its first updates, and its time is that of the others: {error}")
            line.update(count)
    rows: list[list[Cell]] = []
    left = 0.0
    for kind, planned, finished in run.planned():
        seconds = expected(planned.variant, known) or 0.0
        if kind == TUNING and grid.config.tune is not None:
            updates = next(each for each in grid.variants if each.name == planned.variant).recipe.training.updates
            seconds *= grid.config.tune.updates / updates if updates else 1.0
        left += 0.0 if finished else seconds
        what, state = "cell" if kind == CELLS else "tuning", "finished" if finished else ""
        rows.append([planned.name, what, planned.recipe.training.updates, state, duration(seconds)])
    slots = options.workers or room_here(options.threads)
    columns: list[Column | str] = [
        "run",
        "kind",
        Column("updates", format=","),
        "state",
        Column("training", align="right"),
    ]
    with_workers = f"{duration(left / slots)} with {slots} workers of {options.threads} threads"
    return Table(columns, rows, notes=[f"{duration(left)} of training are left, {with_workers}."])


def compare(
    systems: Systems = (),
    metrics: Metric | str | Sequence[Metric | str] | None = None,
    margin: Mapping[str, float] = MappingProxyType({}),
    baseline: str | None = None,
    *,
    output: Path_ | None = None,
    **options: Any,
) -> Comparison:
    """Compare systems over seeds and test sets.

        headway.compare("grid.yaml", output="comparison")
        headway.compare({"attention": ["runs/a1", "runs/a2"], "ngram": ["runs/n1", "runs/n2"]}, ["bleu"])
        headway.compare(hypotheses=["ours=ours.txt", "theirs=theirs.txt"], references=["references.txt"])

    Args:
        systems: run folders, of which those of one recipe are the seeds of one variant, or run folders by the name of
            their variant; a grid file; or cells.
        metrics: metrics or their names, one or several; by default those of the runs, else BLEU and chrF. A grid has
            its own.
        margin: by the name of a metric, the difference up to which systems are even.
        baseline: the system that all others are compared with; by default every pair is compared.
        output: a folder for the report; a grid needs it for its runs.
        options: others of `headway compare`, such as `hypotheses`, `references`, `source`, `test` and `training`; for a
            grid `workers`, `threads` and `ray`.

    Returns:
        The comparison. It shows itself in notebooks, `plot()` draws it, and `to_pandas()` gives its tables.

    Raises:
        UserError: what cannot be compared, or an option that there is not.
        RunError: a grid of which no cells can be compared.
    """
    try:
        folder = check_output_folder(None if output is None else Path(output))
    except ValueError as error:
        raise UserError(str(error), where=option("output"), received=str(output)) from error
    given = [systems] if isinstance(systems, str | Path | CellResult) else systems
    if isinstance(given, Sequence) and len(given) == 1 and is_grid(str(given[0])):
        told = {"metrics": metrics, "margin": margin, "baseline": baseline}
        return _of_grid(Path(str(given[0])), folder, options, [name for name, value in told.items() if value])
    chosen = _options(CompareOptions if folder else ExistingOptions, options | {"baseline": baseline})
    built = None if metrics is None else as_metrics(metrics)
    cells = [one for one in given if isinstance(one, CellResult)]
    if cells:
        if len(cells) < len(given) or built is None:
            raise UserError("cells are compared with cells, by metrics", where="systems", allowed="cells and metrics")
        comparison = compare_cells(cells, built, margin, baseline, any_tokenization=chosen.any_tokenization)
    else:
        comparison = compare_existing(list(_runs(given)), chosen, folder, metrics=built, margin=margin)
    if folder is not None and isinstance(chosen, CompareOptions):
        write_report(comparison, folder, chosen)
        draw_figures(comparison, chosen)
    return comparison


def _runs(systems: Any) -> Iterator[Existing]:
    """Runs, with the names of their variants where these were given."""
    if not isinstance(systems, Mapping):
        yield from (Existing.parse(str(run), "systems") for run in systems)
        return
    for name, runs in systems.items():
        for run in [runs] if isinstance(runs, str | Path) else runs:
            yield Existing(Existing.parse(str(run), f"systems[{name!r}]").path, name)


def _options(section: type[ExistingOptions], given: Mapping[str, Any]) -> ExistingOptions:
    """Validated options; those that are None are left out."""
    known = {name: value for name, value in given.items() if value is not None}
    alone = {name: (known[name],) for name in SEVERAL if isinstance(known.get(name), str | Path)}
    return validated_options(section, known | alone)


def _of_grid(path: Path, folder: Path | None, options: Mapping[str, Any], told: Sequence[str]) -> Comparison:
    """The comparison of a grid; `told` are the arguments that it says itself."""
    if told:
        raise UserError("a grid says this itself", where=told[0], allowed="a key of the grid")
    grid = load_grid(path)
    if folder is None:
        raise UserError("the runs of a grid need a folder", where=option("output"))
    workers = validated_options(GridOptions, options)
    if workers.dry_run:
        raise UserError(
            "only the command line lists the cells", where=option("dry_run"), allowed="headway compare GRID"
        )
    made = compare_grid(grid, folder, workers)
    if made.comparison is None:
        raise RunError(f"{path}: no two variants could be compared")
    write_report(made.comparison, folder, CompareOptions(allow_code=True))
    return made.comparison
