"""`headway.compare`: turns runs, files of outputs and grids into cells, and compares the cells."""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter

from headway.comparison.cells import (
    CellName,
    CellOutput,
    CellResult,
    EvaluationSet,
    NamedCorpus,
    check_lines,
    check_margin,
    check_names,
    check_same_data,
    check_set,
    content,
    corpus_files,
    documents_of,
    learning_curve,
    name_of_corpus,
    read_kept,
    read_result,
    read_test_set,
    shared_references,
    write_result,
)
from headway.comparison.comparison import Comparison, compare_cells
from headway.comparison.differences import with_limits
from headway.comparison.executors import executor_of, room_here
from headway.comparison.options import OF_EXISTING, CompareOptions, GridOptions, is_grid
from headway.comparison.report import draw_figures, write_report
from headway.core.config import validated_options
from headway.core.device import threads_set
from headway.core.documents import parse_yaml, read_json, shaped
from headway.core.errors import RunError, UserError, option
from headway.core.files import check_apart, exists, write_json, write_text
from headway.core.log import counted, duration, progress, say, silenced, warn
from headway.core.registry import foreign_code
from headway.core.system import STANDARD_INPUT
from headway.core.tables import Cell, Column, Table
from headway.formats.corpus_config import parse_corpus, paths_resolved
from headway.formats.lines import check_file, kept_pipes, read_lines
from headway.grids.checks import Check, gains_of, with_checks
from headway.grids.grid import (
    CELL,
    CELLS,
    CHECKS,
    TUNING,
    Grid,
    check_corpora,
    counting_keys,
    file_name,
    load_grid,
)
from headway.grids.grid_run import Choice, GridResult, GridRun
from headway.grids.power import ANY_SEGMENTS, Sought, sought_of_grid
from headway.metrics import Metric, as_metrics, check_kind
from headway.metrics.intervals import SIGNIFICANT
from headway.metrics.metric import check_alike, check_words
from headway.processing.text.text_processor import PreparationConfig
from headway.recipe import Recipe, parse_lead
from headway.runs.run import open_run
from headway.tasks import build_task, dev_metrics
from headway.training.arithmetic import chosen, computing

DEFAULT_METRICS = ("bleu", "chrf")
AS_IT_IS = PreparationConfig()  # files of outputs may hold any text
NAMES = {CELLS: "cell", TUNING: "tuning", CHECKS: "check"}
LOOKS, _KEPT_LOOKS = "looks.json", TypeAdapter(list[dict[str, list[Any]]])
SEVERAL = ("hypotheses", "references", "test")  # options that take one value or several

Path_ = str | Path
Systems = Path_ | CellResult | Sequence[Path_ | CellResult] | Mapping[str, Path_ | Sequence[Path_]]


@dataclass(frozen=True)
class Existing:
    """A run or a file of outputs, with the name and the seed that the user has named, if any."""

    path: Path
    name: str | None = None
    seed: int | None = None

    @classmethod
    def parse(cls, text: str, where: str) -> Existing:
        """Parse `PATH`, `NAME=PATH` or `NAME:SEED=PATH`. Raises UserError if the path does not exist."""
        name, equals, path = text.partition("=")
        if not equals or exists(Path(text)):
            name, path = "", text
        seed = re.fullmatch(r"(.*):(\d{1,18})", name)
        if not exists(Path(path)):
            allowed = STANDARD_INPUT if path == "-" else None
            raise UserError("there is no such file or folder", where=where, received=path, allowed=allowed)
        return cls(Path(path), (seed[1] if seed else name) or None, int(seed[2]) if seed else None)


@kept_pipes()
def compare_existing(
    runs: Sequence[Existing], options: CompareOptions, metrics: Sequence[Metric] | None = None, *, least: int = 2
) -> Comparison:
    """Compare runs, and outputs of other systems.

    Runs whose recipes differ only in the seed are one variant. All inputs are checked before any are decoded.

    Args:
        runs: run folders.
        options: all other options. The results of runs are stored in the output folder, and reused.
        metrics: replace the metrics of the options.
        least: the fewest systems.

    Raises:
        UserError: the systems cannot be compared.
    """
    with foreign_code(options.allow_code or None):
        planned, outputs = name_runs(runs), name_files(options.hypotheses)
        check_apart({"html": options.html}, [name.path for name in outputs if name.path is not None])
        check_names([*planned, *outputs], None if options.lead else options.baseline, least=least)
        opened = [open_run(run.path) for run in planned if run.path is not None]
        recipes = {name.path: run.recipe for name, run in zip(runs, opened, strict=True)}  # a pack by its own path
        first = next(iter(opened), None)
        for run in opened:
            tuple(learning_curve(run.path))
        if first is not None:
            with first.trusted():
                _check_alike(planned, recipes, own_dev=not (options.test or options.references))
        recipe = None if first is None else first.recipe
        chosen = chosen_metrics(options, recipe) if metrics is None else metrics
        for metric in chosen if options.links_from is not None else ():
            metric.links_from = options.links_from
        check_margin(options.margins, chosen)
        if first is None:
            tests, scored = [], [evaluation_set(options, chosen, alone=len(outputs) + len(options.lead) < 2)]
        else:
            with first.trusted():
                tests, task = _tests_of_runs(options, recipes), first.task
                for test in tests:
                    where = option("metric") if metrics is None else "metrics"
                    check_kind(chosen, test.kind(task.writes), where, of_texts=task.reads_text)
                scored = [read_test_set(first.recipe, test) for test in tests]
        _check_copies(planned, outputs)
        from_files = [result_of_file(name, scored, chosen) for name in outputs]
        if from_files:
            check_words(chosen[0], [*options.references, *(name.path for name in outputs if name.path is not None)])
        leads = _leads(options, scored)
        with progress("decoding", len(planned), "runs") as bar:
            from_runs = [_result_of_run(name, tests, options) for name in bar.over(planned)]
        compared = _verdicts([*from_runs, *from_files, *leads], chosen, options, _unfinished(planned))
        tuned = all(map(_is_tuned, recipes))
        limited = with_limits(compared, tuned=tuned)
        return with_checks(limited) if tuned and recipes else limited


def _verdicts(
    cells: Sequence[CellResult],
    metrics: Sequence[Metric],
    options: CompareOptions,
    incomplete: Mapping[str, str] = MappingProxyType({}),
) -> Comparison:
    """Compare cells as the options say. Raises UserError as `compare_cells`."""
    return compare_cells(
        cells, metrics, options.margins, options.baseline, any_tokenization=options.any_tokenization,
        pooled_variance=options.pooled_variance, incomplete=incomplete, looks=looks_at(options.output, cells),
    )  # fmt: skip


def looks_at(folder: Path | None, cells: Sequence[CellResult]) -> int:
    """The number of this look at the variants of `cells`, which the folder keeps; 1 without a folder.

    Each set of seeds that two of the variants were compared with is a look. One seed has no verdict, and is none.
    """
    variants, seeds = {cell.variant for cell in cells}, sorted({cell.seed for cell in cells})
    if folder is None or len(seeds) < 2:
        return 1
    path, look = folder / LOOKS, {"variants": list[Any](sorted(variants)), "seeds": list[Any](seeds)}
    kept = shaped(read_json(path, list, what="looks"), _KEPT_LOOKS, str(path), "these looks") if path.is_file() else []
    if look not in kept:
        kept.append(look)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, kept)
    of_pairs = [each["seeds"] for each in kept if len(variants.intersection(each["variants"])) > 1]
    return [*map(list, dict.fromkeys(map(tuple, of_pairs)))].index(seeds) + 1


def _is_tuned(path: Path) -> bool:
    """Whether a run is a cell of a grid that chose its recipe by short runs."""
    folder = path.resolve().parent
    return folder.name == CELLS and (folder.parent / TUNING).is_dir()


def _unfinished(runs: Sequence[CellName]) -> dict[str, str]:
    """By variant, the runs whose training is not complete, in words. Warns of each."""
    found = dict[str, str]()
    for run in runs:
        assert run.path is not None
        if open_run(run.path).manifest.get("status") not in ("finished", "imported"):
            warn(f"{run.path}: training is not complete; its best weights so far are compared")
            found[run.variant] = f"the training of {run} is not complete"
    return found


def _tests_of_runs(options: CompareOptions, recipes: Mapping[Path, Recipe]) -> list[NamedCorpus]:
    """The test sets of runs, with the references that all systems share. Raises UserError as `test_sets`."""
    systems = {str(path): build_task(recipe.task).written(recipe) for path, recipe in recipes.items()}
    shared = shared_references(systems | dict.fromkeys(options.hypotheses, AS_IT_IS))
    tests = test_sets(options, next(iter(recipes.values())))
    return [replace(test, written=None if options.hypotheses else shared) for test in tests]


def _check_copies(runs: Sequence[CellName], outputs: Sequence[CellName]) -> None:
    """Raise UserError if two seeds of a variant are the same training. Warn of other copies.

    A copy agrees with the original in everything, so that any difference would be significant.
    """
    known: dict[str, CellName] = {}  # by the weights of runs; by the path and the content of other systems
    for system in [*runs, *outputs]:
        assert system.path is not None
        is_run = system in runs
        weights = open_run(system.path).manifest.get("model_sha256") if is_run else None
        first = known.setdefault(weights or str(system.path.resolve()), system)
        if first is not system and first.variant == system.variant:
            what = f"this is seed {first.seed} of {first.variant} again; a seed is a training of its own"
            raise UserError(what, where=str(system.path), received=f"seed {system.seed}")
        if first is system and not is_run:
            first = known.setdefault(content(system.path), system)
        if first is not system:
            warn(f"{system.path}: the same as {first.variant}, seed {first.seed}")


def _check_alike(runs: Sequence[CellName], recipes: Mapping[Path, Recipe], *, own_dev: bool) -> None:
    """Raise UserError if runs cannot be compared, or are not seeds of one variant.

    All runs need the same task and, with `own_dev`, the same dev set; those of a variant, the same training set.
    """
    first_path, first = next(iter(recipes.items()))
    for path, recipe in recipes.items():
        if recipe.task != first.task:
            raise UserError("runs of one task are compared", where=str(path), received=recipe.task, allowed=first.task)
        if not own_dev or recipe.data.dev == first.data.dev:
            continue
        files, others = ([] if dev is None else list(corpus_files(dev)) for dev in (recipe.data.dev, first.data.dev))
        gone = next((str(file) for file in files if not exists(file)), None)
        if gone or not files or [*map(content, files)] != [*map(content, others)]:
            what = "the dev set of this run is not here" if gone else f"this run has another dev set than {first_path}"
            raise UserError(what, where=str(path), received=gone, allowed=f"{option('test')} CORPUS, for all runs")
    for variant in {run.variant for run in runs}:
        seeds = [(run.path, recipes[run.path]) for run in runs if run.variant == variant and run.path is not None]
        check_same_data(seeds, "runs of one training set, or a name of its own, NAME=RUN, for one of the two")


def name_files(given: Sequence[str]) -> list[CellName]:
    """The names of files of outputs: as the user says, or the file name without suffix, or the path if names repeat.

    The seed is 1 by default. Raises UserError if a file does not exist.
    """
    files = [Existing.parse(text, option("hypotheses")) for text in given]
    stems = [file.path.stem for file in files if file.name is None]
    usual = {file.path: file.path.stem if stems.count(file.path.stem) == 1 else str(file.path) for file in files}
    return [CellName(file.name or usual[file.path], 1 if file.seed is None else file.seed, file.path) for file in files]


def name_runs(runs: Sequence[Existing]) -> list[CellName]:
    """The names of the variants of runs: as the user says, or the common name of all runs with the same recipe.

    Finished cells of one variant of a grid count as one recipe, although the grid tunes a key for each cell.

    Raises:
        UserError: a folder is not a run, or its recipe names code that may not be imported.
    """
    opened = [open_run(run.path) for run in runs]
    recipes = [run.recipe for run in opened]
    # With the settings that were chosen automatically, if a recipe left them open.
    computed = [computing(run.recipe, **chosen(run.manifest, run.recipe)) for run in opened]
    counting, of_variant = list[dict[str, Any]](), dict[tuple[Path, str], dict[str, Any]]()
    for run, recipe in zip(runs, computed, strict=True):
        folder = run.path.resolve().parent
        cell = read_kept(run.path / CELL) if folder.name == CELLS else None
        values = counting_keys(recipe)
        counting.append(of_variant.setdefault((folder, cell.result.variant), values) if cell else values)
    groups = dict[int, list[int]]()
    for index, values in enumerate(counting):
        if runs[index].name is None:
            groups.setdefault(counting.index(values), []).append(index)
    found = _names([[(runs[index].path, recipes[index].training.seed) for index in group] for group in groups.values()])
    names = {index: name for name, group in zip(found, groups.values(), strict=True) for index in group}
    return [
        CellName(run.name or names[index], recipe.training.seed if run.seed is None else run.seed, run.path)
        for index, (run, recipe) in enumerate(zip(runs, recipes, strict=True))
    ]


def _names(groups: Sequence[Sequence[tuple[Path, int]]]) -> list[str]:
    """A name for each group of folders and seeds: the folder's name, or the common part of the names without the seed.

    If two groups would have the same name, the name is the path of the first folder.
    """
    names = []
    for group in groups:
        folders = [(path.resolve(), seed) for path, seed in group]
        ends = {re.sub(rf"[-_.]?(seed)?[-_.]?{seed}$", "", path.name) for path, seed in folders}
        parents = {path.parent.name for path, _ in folders}
        shared = [found.pop() for found in (ends, parents) if len(found) == 1 and found != {""}]
        alone = folders[0][0].name if len(folders) == 1 else None
        names.append(alone or (shared[0] if shared else str(group[0][0])))
    return [name if names.count(name) == 1 else str(group[0][0]) for name, group in zip(names, groups, strict=True)]


def chosen_metrics(options: CompareOptions, recipe: Recipe | None) -> list[Metric]:
    """The metrics of the options, else AER for alignments, those of a run, or BLEU and chrF. Raises UserError."""
    if recipe is not None and not options.metric and options.alignments is None:
        with foreign_code(options.allow_code):
            return list(dev_metrics(recipe))
    usual = DEFAULT_METRICS if options.alignments is None else ("aer",)
    return as_metrics(options.metric or usual, None if recipe is None else recipe.text.target.language)


def test_sets(options: CompareOptions, recipe: Recipe) -> list[NamedCorpus]:
    """The test sets of runs: those of the options, else the dev set of the recipe. Raises UserError."""
    groups, alignments = (path and path.absolute() for path in (options.by, options.alignments))
    given = [("test", parse_yaml(text, option("test"), "this corpus", numbered=False)) for text in options.test]
    if bool(options.references) != (options.source is not None):
        one, missing = ("references", "source") if options.references else ("source", "references")
        what, allowed = "the test set of runs has sources and references", f"{option(missing)} FILE beside it"
        raise UserError(what, where=option(one), allowed=allowed)
    if options.source is not None:
        for path, name in ((options.source, "source"), *((path, "references") for path in options.references)):
            check_file(path, option(name))
        given.append(("references", {"source": options.source, "references": options.references}))
    if not given:
        if recipe.data.dev is None:
            what = "the runs have no dev, so that there is no test set"
            raise UserError(what, where="data.dev", allowed=f"{option('test')} CORPUS")
        corpora, names, keys = [recipe.data.dev], ["dev"], ["data.dev"]
    else:
        corpora = [paths_resolved(parse_corpus(value, option(key)), Path.absolute) for key, value in given]
        names, keys = list(map(name_of_corpus, corpora)), [option(key) for key, _ in given]
    if len(set(names)) < len(names):
        names = [f"{name} {index}" for index, name in enumerate(names, start=1)]
    return [
        NamedCorpus(
            name, corpus, groups, alignments, key=key, links_from=options.links_from, documents=options.documents
        )
        for name, corpus, key in zip(names, corpora, keys, strict=True)
    ]


def evaluation_set(options: CompareOptions, metrics: Sequence[Metric], *, alone: bool) -> EvaluationSet:
    """The test set for files of outputs. A single system (`alone`) needs only one segment. Raises UserError."""
    by_sources = options.source is not None and not any(metric.reads_references for metric in metrics)
    if options.test or options.alignments is not None or not (options.references or by_sources):
        where = "test" if options.test else "alignments" if options.alignments is not None else "hypotheses"
        what, allowed = "files of outputs are scored by references", f"{option('references')} FILE"
        raise UserError(what, where=option(where), allowed=allowed)
    references = tuple(tuple(_read(metrics, path)) for path in options.references)
    sources, groups = (() if path is None else tuple(read_lines(path)) for path in (options.source, options.by))
    first, *_ = [*options.references, *([options.source] if options.source else [])]
    wanted = references or (("",) * len(sources),)  # no metric reads these
    documents = documents_of(options.documents, sources or wanted[0], str(first))
    test = EvaluationSet(first.name.split(".")[0] or "test", wanted, sources, groups, documents=documents)
    if not alone or not len(test):
        check_set(test, option("references"))
    beside = [(options.source, sources), (options.by, groups), *zip(options.references, references, strict=True)]
    for path, lines in beside:
        if path is not None and len(lines) != len(test):
            what = f"{len(lines):,} lines for {len(test):,} references; there must be one a segment"
            raise UserError(what, where=str(path))
    return test


def _leads(options: CompareOptions, tests: Sequence[EvaluationSet]) -> Iterator[CellResult]:
    """The beginnings of the sources (lead baselines) as systems. Raises UserError if there are no sources."""
    if options.lead:
        from headway.corpora.lead import leads_of

        configs = [parse_lead(lead) for lead in options.lead]
        if not all(test.sources for test in tests):
            what, beside = "a lead is the beginning of a source", f"{option('source')} FILE beside it"
            raise UserError(what, where=option("lead"), allowed=beside)
        by_test = [leads_of(test.sources, configs) for test in tests]
        for config in configs:
            outputs = (CellOutput(test, tuple(of[config.name])) for test, of in zip(tests, by_test, strict=True))
            yield CellResult(config.name, 1, tuple(outputs))


def result_of_file(name: CellName, tests: Sequence[EvaluationSet], metrics: Sequence[Metric]) -> CellResult:
    """The result of a file of outputs. Raises UserError unless it has one output per segment."""
    assert name.path is not None
    if len(tests) > 1:
        received = ", ".join(test.name for test in tests)
        raise UserError("a file of outputs is of one test set", where=option("hypotheses"), received=received)
    output = CellOutput(tests[0], tuple(_read(metrics, name.path)))
    references = {option("references"): tests[0].references[0]}
    check_alike(metrics[0], references | {str(name.path): output.hypotheses})
    check_lines(output, str(name.path))
    return CellResult(name.variant, name.seed, (output,), name.path)


def _read(metrics: Sequence[Metric], path: Path) -> list[str]:
    """The segments of a file. Raises UserError if two metrics divide it differently, as into sentences and lines."""
    found = [metric.read(path) for metric in metrics]
    for metric, segments in zip(metrics, found, strict=True):
        if segments != found[0]:
            received, where = f"{metrics[0].name}, {metric.name}", option("metric")
            raise UserError(f"these metrics read {path} in different ways", where=where, received=received)
    return found[0]


def _result_of_run(name: CellName, tests: Sequence[NamedCorpus], options: CompareOptions) -> CellResult:
    """The result of a run, from the output folder if it is stored there."""
    from headway.grids.run import result_of_run

    assert name.path is not None
    manifest = open_run(name.path).manifest
    decoding = open_run(name.path).recipe.decoding.model_dump(mode="json")
    stamp: Mapping[str, Any] = {
        "run": str(name.path.resolve()),
        "weights": manifest.get("model_sha256"),
        "updates": manifest.get("updates"),  # costs and curves depend on the number of updates
        "decoding": decoding,
        "tests": [test.fingerprint() for test in tests],
    }
    path = options.output and options.output / CELLS / f"{file_name(name.variant)}-{name.seed}.json"
    if path is not None and (known := read_result(path, stamp)) is not None:
        return replace(known, variant=name.variant, seed=name.seed)  # it may have been stored under another name
    result = result_of_run(name, tests, device=options.device)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        for output in result.outputs:  # before the result, which marks them as written
            lines = path.with_name(f"{path.stem}.{file_name(output.test.name)}.txt")
            write_text(lines, "".join(f"{line}\n" for line in output.hypotheses))
        write_result(path, result, stamp)
    return result


@dataclass(frozen=True)
class GridComparison:
    """The result of a grid, and the comparison of its cells; None if fewer than two variants have cells.

    `code` is the exit code: 0, 1 if a cell failed or nothing can be compared, 128 + the signal's number if a signal
    stopped the work.
    """

    comparison: Comparison | None
    result: GridResult
    code: int


def compare_grid(
    grid: Grid, output: Path, options: GridOptions, sought: Iterable[Sought] | None = None
) -> GridComparison:
    """Run the missing cells of a grid in its folder, and compare its cells.

    Before the work begins, the user is warned of `sought` differences, by default margins, that the grid cannot detect.

    Raises:
        UserError: corpora cannot be read, test sets are too small, or runs were made with other recipes.
        RunError: another process is working in the folder.
    """
    sizes = check_sets(grid)
    run = GridRun(grid, output, options.threads)
    if run.is_done() or options.only_finished:
        result = run.result()
    else:
        check_corpora(grid)
        warn_of_reach(grid, sizes, sought)
        result = run.run(executor_of(options))
    if result.stopped:
        by = f"{signal.Signals(result.stopped).name} with {counted(len(result.cells), 'finished cell')}"
        say(f"stopped by {by}; the same command goes on")
        return GridComparison(None, result, 128 + result.stopped)
    for failure in result.failed:
        say(f"failed: {failure}")
    comparison = comparison_of(run.grid, result, output)
    return GridComparison(comparison, result, 1 if result.failed or comparison is None else 0)


def warn_of_reach(grid: Grid, sizes: Mapping[str, int], sought: Iterable[Sought] | None = None) -> None:
    """Warn of differences, by default margins, that the grid's seeds and segments would usually fail to detect."""
    for each in sought_of_grid(grid) if sought is None else sought:
        if beyond := each.beyond(len(grid.config.seeds), sizes.get(each.test, ANY_SEGMENTS)):
            warn(beyond)


def check_sets(grid: Grid) -> dict[str, int]:
    """Read all test sets, and score their own references. Returns the number of segments of each set, by name.

    Raises:
        UserError: a set cannot be scored, or all its sources are also in the tuning set.
    """
    recipe, sources, sizes = grid.variants[0].recipe, dict[str, tuple[str, ...]](), dict[str, int]()
    for test in (*grid.tests, *([grid.tuning_set] if grid.tuning_set else [])):
        scored = read_test_set(recipe, test)
        for metric in grid.metrics_of(test):
            metric.counted(scored.references[0], scored.references, scored.sources)
        sources[test.where], sizes[test.name] = scored.sources, len(scored)
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
    return sizes


def comparison_of(grid: Grid, result: GridResult, folder: Path | None = None) -> Comparison | None:
    """The comparison of the variants that have cells, over their common seeds. None if nothing can be compared.

    `folder`: counts the looks.
    """
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
    absent = baseline if baseline in missing else None
    choices = tuple(choice for choice in result.choices if shared.intersection(choice.seeds))
    found = compare_cells(
        cells, grid.metrics_of(), config.margin, None if absent else baseline,
        own_metrics=grid.own_metrics(), any_tokenization=config.any_tokenization,
        pooled_variance=config.pooled_variance, doubts=_doubts(grid, choices), incomplete=_lost(grid, result),
        looks=looks_at(folder, cells),
    )  # fmt: skip
    notes = (*found.notes, *_notes(grid, result, left_out, absent), *_notes_on_tuning(grid, choices))
    found = replace(found, notes=notes, tuning=_tuning(grid, choices, result.checks))
    if config.tune is None:
        return with_limits(found, tuned=False)
    return with_checks(with_limits(found, tuned=True), config.tune.key, result.checks, grid.metrics_of())


def _lost(grid: Grid, result: GridResult) -> dict[str, str]:
    """By variant, why its finished cells are a selection: cells failed or, for all variants, are not finished."""
    if result.unfinished:
        return dict.fromkeys((variant.name for variant in grid.variants), "cells of this grid are not finished")
    lost = {variant.name: {*grid.config.seeds} for variant in grid.variants}
    for cell in result.cells:
        lost[cell.variant].discard(cell.seed)
    named = {name: ", ".join(map(str, sorted(seeds))) for name, seeds in lost.items() if seeds}
    return {name: f"{name} failed with seed {seeds}" for name, seeds in named.items()}


def _notes(grid: Grid, result: GridResult, without_others: Sequence[str], baseline: str | None) -> Iterator[str]:
    """Notes on missing cells, on a baseline without cells, and on norms."""
    if result.failed:
        yield f"Failed: {'; '.join(result.failed)}."
    if result.unfinished:
        yield f"Not finished: {'; '.join(result.unfinished)}."
    if without_others:
        yield f"Left out for want of these: {'; '.join(without_others)}."
    if baseline is not None:
        yield f"The baseline {baseline} has no cells, so that every pair is compared."
    norms = defaultdict[str, list[str]](list)
    for variant in grid.variants:
        if norm := getattr(variant.recipe.model, "norm", None):
            norms[norm].append(variant.name)
    if len(norms) == 1:
        yield f"Transformers are {next(iter(norms))}-norm."
    elif norms:
        parts = (f"{norm}-norm for {', '.join(names)}" for norm, names in norms.items())
        yield f"Transformers: {'; '.join(parts)}."


def _notes_on_tuning(grid: Grid, choices: Sequence[Choice]) -> Iterator[str]:
    """Notes on the choice of the tuned key."""
    if (tune := grid.config.tune) is None:
        return
    longest = max(variant.recipe.training.updates or 0 for variant in grid.variants)
    if tune.updates is not None and 2 * tune.updates < longest:  # the best value may change later
        chosen = f"chosen after {tune.updates:,} of {longest:,} updates"
        yield f"{tune.key}: {chosen}; another value may be the best after all of them"
    values, grown, edges = (defaultdict[str, list[str]](list) for _ in range(3))
    for choice in choices:
        values[choice.variant].append(str(choice.value))
        whose = f"{choice.variant} with seed {choice.seeds[0]}" if tune.by == "seed" else choice.variant
        for value in choice.tried[len(tune.values) :]:
            grown[f"{value:g}"].append(whose)
        if choice.edge:
            edges[f"{choice.edge} that was tried, {choice.value:g}"].append(whose)
    if tune.by == "seed" and choices:
        yield f"{tune.key}, a value a seed: {'; '.join(f'{name} ' + ', '.join(row) for name, row in values.items())}"
    for value, names in grown.items():
        yield f"{tune.key}: {value}, beyond the values of the grid, was tried for {', '.join(names)}"
    for where, names in edges.items():  # a better value may lie beyond the edge
        yield f"{tune.key}: the best for {', '.join(names)} is the {where}"
    if by_chance := [choice.variant for choice in choices if choice.by_chance]:  # another value may be much better
        apart = f"do not tell its values apart (p > {SIGNIFICANT})"
        yield f"{tune.key}: the short runs of {', '.join(by_chance)} {apart}; the choice is by chance"


def _doubts(grid: Grid, choices: Sequence[Choice]) -> dict[str, str]:
    """By variant, the runs that are needed before verdicts no longer depend on the values of the tuned key."""
    doubts, tune = defaultdict[str, list[str]](list), grid.config.tune
    for edge, side, outermost in (("lowest", "lower", min), ("highest", "higher", max)):
        at_edge = defaultdict[str, list[float]](list)
        for choice in choices:
            if choice.edge == edge:
                at_edge[choice.variant].append(choice.value)
        for name, values in at_edge.items():
            assert tune is not None
            doubts[name].append(f"tune {name} with {side} values of {tune.key} than {outermost(values):g}")
    for choice in choices:
        if choice.by_chance and not choice.edge:
            doubts[choice.variant].append(f"tune {choice.variant} by seed (tune.by=seed)")
    return {name: f"{' and '.join(each)}, in another folder" for name, each in doubts.items()}


def _tuning(grid: Grid, choices: Sequence[Choice], checks: Sequence[Check]) -> dict[str, Any]:
    """The choices of the tuned key and their checks as a JSON object; empty without tuning."""
    tune, rows = grid.config.tune, dict[str, list[dict[str, Any]]]()
    if tune is None:
        return {}
    for choice in choices:
        found = {"seeds": list(choice.seeds), "value": choice.value, "tried": list(choice.tried), "edge": choice.edge}
        rows.setdefault(choice.variant, []).append(found | {"by_chance": choice.by_chance})
    checked = [
        {"variant": of.variant, "value": of.value, "neighbour": of.neighbour, "seed": of.seed}
        | {"gain": gain.value, "error": gain.error}
        for gain in gains_of(checks, grid.metrics_of()[0]) for of in [gain.check]
    ]  # fmt: skip
    return {"key": tune.key, "by": tune.by, "variants": rows} | ({"checks": checked} if checked else {})


def plan_of(grid: Grid, output: Path, options: GridOptions, sought: Iterable[Sought] | None = None) -> Table:
    """A table of the grid's runs and their estimated times, from existing runs or from trying a few updates.

    Raises:
        UserError: data cannot be read, or runs were made with other recipes.
    """
    from headway.training.trained import dry_run

    warn_of_reach(grid, check_sets(grid), sought)
    run = GridRun(grid, output, options.threads)
    known = run.known_seconds()
    with progress("trying a few updates", len(grid.variants), "variants", long=True) as line:
        for variant in line.over(grid.variants):
            if variant.name not in known:
                try:
                    with silenced(), threads_set(options.threads):
                        known[variant.name] = [dry_run(variant.recipe).seconds]
                except RunError as error:
                    warn(f"{variant.name} fails in its first updates, and its time is that of the others: {error}")
    rows: list[list[Cell]] = []
    left = 0.0
    for kind, planned, finished in run.planned():
        seconds = run.seconds_of(kind, planned.variant, known) or 0.0
        left += 0.0 if finished else seconds
        state = "finished" if finished else ""
        rows.append([planned.name, NAMES[kind], planned.recipe.training.updates, state, duration(seconds)])
    slots = options.workers or room_here(options.threads)
    with_workers = f"{duration(left / slots)} with {slots} workers of {options.threads} threads"
    notes = [f"{duration(left)} of training are left, {with_workers}."]
    if more := [(state.group.variant.name, count) for state in run.groups if (count := run.still_grows(state))]:
        longest = left + sum(count * (run.seconds_of(TUNING, name, known) or 0.0) for name, count in more)
        short = counted(sum(count for _, count in more), "short run")
        notes += [f"Where the best value is the lowest or the highest, up to {short} more: up to {duration(longest)}."]
    if checks := run.still_checks():
        seconds = run.seconds_of(CELLS, "", known) or 0.0
        more_cells = f"{counted(checks, 'more cell')}: {duration(checks * seconds)} (tune.check)"
        notes += [f"A neighbour of each chosen value is trained with one seed: up to {more_cells}."]
    return Table(
        ["run", "kind", Column("updates", format=","), "state", Column("training", align="right")], rows, notes=notes
    )


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
        systems: run folders (runs with the same recipe are seeds of one variant); run folders by the name of their
            variant; a grid file; or cells.
        metrics: one or several metrics or their names; by default those of the runs, else BLEU and chrF. A grid has its
            own.
        margin: by the name of a metric, the difference up to which systems are even.
        baseline: the system that all others are compared with; by default every pair is compared.
        output: a folder for the report; a grid needs it for its runs.
        options: other options of `headway compare`, such as `hypotheses`, `references`, `source`, `test` and
            `training`; for a grid `workers`, `threads` and `ray`.

    Returns:
        The comparison. It displays itself in notebooks, `plot()` draws it, and `to_pandas()` returns its tables.

    Raises:
        UserError: the systems cannot be compared, or an option does not exist.
        RunError: no cells of the grid can be compared.
    """
    margins = tuple(f"{name}={number}" for name, number in margin.items())
    asked = options | {"margin": margins or None, "baseline": baseline, "output": output}
    known = {name: value for name, value in asked.items() if value is not None}
    known |= {name: (known[name],) for name in SEVERAL if isinstance(known.get(name), str | Path)}
    chosen = validated_options(CompareOptions, known)
    given = [systems] if isinstance(systems, str | Path | CellResult) else systems
    if cells := [one for one in given if isinstance(one, CellResult)]:
        if len(cells) < len(given) or metrics is None:
            raise UserError("cells are compared with cells, by metrics", where="systems", allowed="cells and metrics")
        check_names([cell.name for cell in cells], least=2)
        comparison: Comparison | None = _verdicts(cells, as_metrics(metrics), chosen)
    elif isinstance(given, Sequence) and len(given) == 1 and is_grid(str(given[0])):
        if metrics is not None or chosen.dry_run:
            what = "only the command line lists the cells" if chosen.dry_run else "a grid says this itself"
            raise UserError(what, where="dry_run" if chosen.dry_run else "metrics")
        comparison = compare_grid(*grid_of_file(Path(str(given[0])), chosen), chosen).comparison
        chosen = chosen.model_copy(update={"allow_code": True})  # a grid's runs are from the user's own recipes
    else:
        comparison = compare_existing(list(_runs(given)), chosen, None if metrics is None else as_metrics(metrics))
    if comparison is None:
        raise RunError(f"{systems}: no two variants could be compared")
    if chosen.output is not None:
        write_report(comparison, chosen.output, chosen)
    draw_figures(comparison, chosen)
    return comparison


def grid_of_file(path: Path, options: CompareOptions, overrides: Sequence[str] = ()) -> tuple[Grid, Path]:
    """The grid of a file, and the folder of its runs.

    Raises:
        UserError: as `load_grid`; an option is one that the grid file sets itself; or there is no folder.
    """
    for name in sorted(options.model_fields_set & OF_EXISTING):
        raise UserError("a grid says this itself", where=option(name), allowed="a key of the grid")
    grid = load_grid(path, overrides)
    if options.output is None:
        raise UserError("the runs of a grid need a folder", where=option("output"))
    return grid, options.output


def _runs(systems: Any) -> Iterator[Existing]:
    """The runs of `systems`, with the names of their variants if `systems` is a mapping."""
    if not isinstance(systems, Mapping):
        yield from (Existing.parse(str(run), "systems") for run in systems)
        return
    for name, runs in systems.items():
        for run in [runs] if isinstance(runs, str | Path) else runs:
            yield Existing(Existing.parse(str(run), f"systems[{name!r}]").path, name)
