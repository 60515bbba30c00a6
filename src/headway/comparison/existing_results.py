"""Results of what exists already: run folders, and files of outputs, also those of other systems."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from headway.comparison.cells import (
    CellName,
    CellOutput,
    CellResult,
    EvaluationSet,
    check_lines,
    check_margin,
    check_names,
    check_same_data,
    check_set,
    read_result,
    write_result,
)
from headway.comparison.comparison import Comparison, compare_cells
from headway.comparison.grid import (
    NamedCorpus,
    content,
    corpus_files,
    differ_in_nothing,
    file_name,
    name_of_corpus,
    shared_references,
)
from headway.comparison.options import ExistingOptions
from headway.comparison.run_results import learning_curve, read_test_set, result_of_run
from headway.documents import parse_yaml
from headway.errors import UserError, option
from headway.files import exists, write_text
from headway.formats.corpus_config import AnyCorpus, parse_corpus, paths_resolved
from headway.formats.lines import check_file, read_lines
from headway.log import progress, warn
from headway.metrics import Metric, build_metrics, check_kind
from headway.metrics.metric import check_alike, check_words
from headway.processing.text.text_processor import PreparationConfig
from headway.recipe import Recipe
from headway.registry import foreign_code
from headway.runs.run import open_run
from headway.runs.training.arithmetic import with_precision
from headway.tasks import build_task, dev_metrics

CELLS = "cells"  # results of runs, in the folder of a comparison
DEFAULT_METRICS = ("bleu", "chrf")
AS_IT_IS = PreparationConfig()  # files of outputs may hold any text


@dataclass(frozen=True)
class Existing:
    """A run or a file of outputs, with the name and the seed that were given for it."""

    path: Path
    name: str | None = None
    seed: int | None = None

    @classmethod
    def parse(cls, text: str, where: str) -> "Existing":
        """`PATH`, `NAME=PATH` or `NAME:SEED=PATH`. Raises UserError where nothing is there."""
        name, equals, path = text.partition("=")
        if not equals or exists(Path(text)):
            name, path = "", text
        seed = re.fullmatch(r"(.*):(\d{1,18})", name)
        if not exists(Path(path)):
            raise UserError("there is no such file or folder", where=where, received=path)
        return cls(Path(path), (seed[1] if seed else name) or None, int(seed[2]) if seed else None)


def compare_existing(
    runs: Sequence[Existing],
    options: ExistingOptions,
    folder: Path | None = None,
    *,
    metrics: Sequence[Metric] | None = None,
    margin: Mapping[str, float] = MappingProxyType({}),
) -> Comparison:
    """Compare runs, and outputs of other systems.

    Runs whose recipes differ in nothing but the seed are one variant. Everything is checked before anything is
    decoded.

    Args:
        runs: run folders.
        options: outputs, test sets, metrics, margins.
        folder: where results of runs are kept, so that they are not decoded again.
        metrics: in the place of those that the options name.
        margin: further margins.

    Raises:
        UserError: what cannot be compared.
    """
    files = [Existing.parse(text, option("hypotheses")) for text in options.hypotheses]
    planned = name_runs(runs, allow_code=options.allow_code)
    # By default the variant of a file of outputs is its name without a suffix, and its seed 1.
    seeds = [1 if file.seed is None else file.seed for file in files]
    outputs = [CellName(file.name or file.path.stem, seed, file.path) for file, seed in zip(files, seeds, strict=True)]
    named = [*planned, *outputs]
    check_names(named, options.baseline)
    margin = margins(options.margin) | dict(margin)
    opened = [open_run(run.path, options.allow_code) for run in planned if run.path is not None]
    recipes = {run.path: run.recipe for run in opened}
    with foreign_code(options.allow_code):
        if recipes:
            _check_alike(planned, recipes, own_dev=not (options.test or options.references))
    for run in opened:
        tuple(learning_curve(run.path))
    recipe = next(iter(recipes.values()), None)
    chosen = chosen_metrics(options, recipe) if metrics is None else metrics
    check_margin(margin, chosen)
    with foreign_code(options.allow_code):
        if recipe is None:
            tests, scored = [], [evaluation_set(options, chosen)]
        else:
            tests, writes = _tests_of_runs(options, recipes), build_task(recipe.task).writes
            for test in tests:
                check_kind(chosen, test.kind(writes), option("metric") if metrics is None else "metrics")
            scored = [read_test_set(recipe, test) for test in tests]
    _check_copies(named)
    results = [results_of_file(name, scored, chosen) for name in outputs]
    if results:
        check_words(chosen[0], [*options.references, *(file.path for file in files)])
    with progress("decoding", len(planned), "runs") as bar:
        cells = [_result_of_run(name, tests, options, folder) for name in bar.over(planned)]
    return compare_cells(
        [*cells, *results], chosen, margin, options.baseline, any_tokenization=options.any_tokenization
    )


def _tests_of_runs(options: ExistingOptions, recipes: Mapping[Path, Recipe]) -> list[NamedCorpus]:
    """The test sets of runs, with the references that all systems are scored by. Raises UserError as `test_sets`."""
    systems = {str(path): build_task(recipe.task).written(recipe) for path, recipe in recipes.items()}
    shared = shared_references(systems | dict.fromkeys(options.hypotheses, AS_IT_IS))
    tests = test_sets(options, next(iter(recipes.values())))
    return [replace(test, written=None if options.hypotheses else shared) for test in tests]


def _check_copies(systems: Sequence[CellName]) -> None:
    """Raise UserError where two seeds of a variant are one training. Whatever else is the same is only told.

    A copy is no seed: it agrees with the first in everything, so that any difference would be a significant one.
    """
    trainings: dict[str, CellName] = {}
    outputs: dict[str, CellName] = {}
    for system in systems:
        assert system.path is not None
        is_run = system.path.is_dir()
        weights = open_run(system.path).manifest.get("model_sha256") if is_run else None
        first = trainings.setdefault(weights or str(system.path.resolve()), system)
        if first is not system and first.variant == system.variant:
            what = f"this is seed {first.seed} of {first.variant} again; a seed is a training of its own"
            raise UserError(what, where=str(system.path), received=f"seed {system.seed}")
        if first is system and not is_run:
            first = outputs.setdefault(content(system.path), system)
        if first is not system:
            warn(f"{system.path}: the same as {first.variant}, seed {first.seed}")


def _check_alike(runs: Sequence[CellName], recipes: Mapping[Path, Recipe], *, own_dev: bool) -> None:
    """Raise UserError where runs cannot be compared, or are no seeds of one variant.

    All have one task and, where they are compared on their own dev, one dev set; those of a variant one training set.
    """
    first_path, first = next(iter(recipes.items()))
    for path, recipe in recipes.items():
        if recipe.task != first.task:
            what = "runs of one task are compared"
            raise UserError(what, where=str(path), received=recipe.task, allowed=first.task)
        files = corpus_files(recipe.data.dev) if own_dev and recipe.data.dev is not None else ()
        if recipe is not first and (missing := next((str(file) for file in files if not exists(file)), None)):
            what = "the dev set of this run is not here"
            raise UserError(what, where=str(path), received=missing, allowed=f"{option('test')} CORPUS, for all runs")
        if own_dev and not _same_corpus(recipe.data.dev, first.data.dev):
            what = f"this run has another dev set than {first_path}"
            raise UserError(what, where=str(path), allowed=f"{option('test')} CORPUS, for all runs")
    by_variant: dict[str, list[tuple[Path, Recipe]]] = {}
    for run in runs:
        if run.path is not None:
            by_variant.setdefault(run.variant, []).append((run.path, recipes[run.path]))
    for seeds in by_variant.values():
        check_same_data(seeds, "runs of one training set, or a name of its own, NAME=RUN, for one of the two")


def _same_corpus(one: AnyCorpus | None, other: AnyCorpus | None) -> bool:
    if one == other or one is None or other is None:
        return one == other
    files, others = ([content(path) for path in corpus_files(corpus)] for corpus in (one, other))
    return bool(files) and files == others


def name_runs(runs: Sequence[Existing], *, allow_code: bool = False) -> list[CellName]:
    """The variants of runs: as given, or what the names of all runs of one recipe begin with.

    Raises:
        UserError: a folder that is no run, or whose recipe names code that may not be imported.
    """
    recipes = [open_run(run.path, allow_code).recipe for run in runs]
    computed = []  # with the precision that was chosen, where a recipe left that open
    for run, recipe in zip(runs, recipes, strict=True):
        precision = open_run(run.path).manifest.get("precision", recipe.training.precision)
        computed.append(with_precision(recipe, precision))
    groups: list[list[int]] = []
    for index, recipe in enumerate(computed):
        if runs[index].name is not None:
            continue
        same = [group for group in groups if differ_in_nothing(computed[group[0]], recipe)]
        if same:
            same[0].append(index)
        else:
            groups.append([index])
    names = _names([[(runs[index].path, recipes[index].training.seed) for index in group] for group in groups])
    by_run = {index: name for group, name in zip(groups, names, strict=True) for index in group}
    return [
        CellName(run.name or by_run[index], recipe.training.seed if run.seed is None else run.seed, run.path)
        for index, (run, recipe) in enumerate(zip(runs, recipes, strict=True))
    ]


def _names(groups: Sequence[Sequence[tuple[Path, int]]]) -> list[str]:
    """A name for each group of folders with their seeds: their own name where there is one, else that without the seed.

    Where two groups would have one name, it is the path of the first folder.
    """
    names = []
    for group in groups:
        folders = [path.resolve() for path, _ in group]
        if len(folders) == 1:
            names.append(folders[0].name)
            continue
        seeds = [seed for _, seed in group]
        ends = {
            re.sub(rf"[-_.]?(seed)?[-_.]?{seed}$", "", path.name) for path, seed in zip(folders, seeds, strict=True)
        }
        parents = {path.parent.name for path in folders}
        shared = [found.pop() for found in (ends, parents) if len(found) == 1 and found != {""}]
        names.append(shared[0] if shared else str(group[0][0]))
    return [name if names.count(name) == 1 else str(group[0][0]) for name, group in zip(names, groups, strict=True)]


def margins(given: Sequence[str]) -> dict[str, float]:
    """`METRIC=NUMBER` as a mapping. Raises UserError for anything else."""
    found = dict[str, float]()
    for text in given:
        name, _, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            name = ""
        if not name:
            raise UserError("a margin is METRIC=NUMBER", where=option("margin"), received=text)
        if name in found:
            raise UserError(f"two margins of {name}", where=option("margin"), received=list(given))
        found[name] = value
    return found


def chosen_metrics(options: ExistingOptions, recipe: Recipe | None) -> list[Metric]:
    """The metrics that were asked for, else AER of alignments, those of a run, or BLEU and chrF. Raises UserError."""
    if options.alignments is not None and not options.metric:
        return build_metrics(("aer",), options.given())
    if recipe is not None and not options.metric and not options.given():
        with foreign_code(options.allow_code):
            return list(dev_metrics(recipe))
    language = None if recipe is None else recipe.text.target.language
    return build_metrics(options.metric or DEFAULT_METRICS, options.given(), language)


def test_sets(options: ExistingOptions, recipe: Recipe) -> list[NamedCorpus]:
    """The test sets of runs: those that were given, else the dev of their recipe. Raises UserError."""
    groups, alignments = (path and path.absolute() for path in (options.by, options.alignments))
    corpora: list[tuple[str, AnyCorpus]] = []
    for text in options.test:
        value = parse_yaml(text, option("test"), "this corpus", numbered=False)
        corpora.append((option("test"), parse_corpus(value, option("test"))))
    if options.references:
        if options.source is None:
            what, beside = "runs need the sources of the references", f"{option('source')} FILE beside it"
            raise UserError(what, where=option("references"), allowed=beside)
        for path, name in ((options.source, "source"), *((path, "references") for path in options.references)):
            check_file(path, option(name))
        pair = {"source": options.source, "references": options.references}
        corpora.append((option("references"), parse_corpus(pair, option("references"))))
    elif options.source is not None:
        what, beside = "these sources have no references", f"{option('references')} FILE beside it"
        raise UserError(what, where=option("source"), allowed=beside)
    if not corpora:
        if recipe.data.dev is None:
            what = "the runs have no dev, so that there is no test set"
            raise UserError(what, where="data.dev", allowed=f"{option('test')} CORPUS")
        return [NamedCorpus("dev", recipe.data.dev, groups, alignments, key="data.dev")]
    resolved = [(key, paths_resolved(corpus, Path.absolute)) for key, corpus in corpora]
    names = [name_of_corpus(corpus) for _, corpus in resolved]
    if len(set(names)) < len(names):
        names = [f"{name} {index}" for index, name in enumerate(names, start=1)]
    named = zip(names, resolved, strict=True)
    return [NamedCorpus(name, corpus, groups, alignments, key=key) for name, (key, corpus) in named]


def evaluation_set(options: ExistingOptions, metrics: Sequence[Metric]) -> EvaluationSet:
    """The test set of files. Raises UserError where references are missing or too few, or are not one a source."""
    if options.test:
        what, allowed = "files of outputs are scored by references", f"{option('references')} FILE"
        raise UserError(what, where=option("test"), allowed=allowed)
    if not options.references:
        allowed = f"{option('references')} FILE"
        raise UserError("outputs are scored by references", where=option("hypotheses"), allowed=allowed)
    if options.alignments is not None:
        what, allowed = "only runs are aligned; files of links have links for references", option("references")
        raise UserError(what, where=option("alignments"), allowed=allowed)
    references = tuple(tuple(_read(metrics, path)) for path in options.references)
    sources = () if options.source is None else tuple(read_lines(options.source))
    groups = () if options.by is None else tuple(read_lines(options.by))
    given = [*zip(options.references, references, strict=True), (options.source, sources), (options.by, groups)]
    for path, lines in given:
        if path is not None and len(lines) != len(references[0]):
            what = f"{len(lines):,} lines for {len(references[0]):,} references; there must be one a segment"
            raise UserError(what, where=str(path))
    test = EvaluationSet(options.references[0].name.split(".")[0] or "test", references, sources, groups)
    check_set(test, option("references"), option("by"))
    return test


def results_of_file(name: CellName, tests: Sequence[EvaluationSet], metrics: Sequence[Metric]) -> CellResult:
    """The result of a file of outputs. Raises UserError where it has not one output a segment."""
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
    """The segments of a file, by the metrics' way of reading. Raises UserError where they have several."""
    if len({type(metric).read for metric in metrics}) > 1:
        received = ", ".join(metric.name for metric in metrics)
        raise UserError("these metrics read files in different ways", where=option("metric"), received=received)
    return metrics[0].read(path)


def _result_of_run(
    name: CellName, tests: Sequence[NamedCorpus], options: ExistingOptions, folder: Path | None
) -> CellResult:
    """The result of a run, read where it was kept."""
    assert name.path is not None
    manifest = open_run(name.path).manifest
    if manifest.get("status") != "finished":
        warn(f"{name.path}: training is not complete; its best weights so far are compared")
    decoding = open_run(name.path, options.allow_code).recipe.decoding.model_dump(mode="json")
    stamp: Mapping[str, Any] = {
        "run": str(name.path.resolve()),
        "weights": manifest.get("model_sha256"),
        "updates": manifest.get("updates"),  # costs and curves are of these
        "decoding": decoding,
        "tests": [test.fingerprint() for test in tests],
    }
    path = None if folder is None else folder / CELLS / f"{file_name(name.variant)}-{name.seed}.json"
    known = None if path is None else read_result(path, stamp)
    if known is not None:
        return replace(known, variant=name.variant, seed=name.seed)  # it may have been kept by another name
    result = result_of_run(
        name.path, name.variant, name.seed, tests, device=options.device, allow_code=options.allow_code
    )  # fmt: skip
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        for output in result.outputs:  # before the result, with which they count as written
            lines = path.with_name(f"{path.stem}.{file_name(output.test.name)}.txt")
            write_text(lines, "".join(f"{line}\n" for line in output.hypotheses))
        write_result(path, result, stamp)
    return result
