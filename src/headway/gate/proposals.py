"""The cells of a proposal: trained from a recipe, decoded with run folders, or scored by any program."""

import csv
import hashlib
import re
import shlex
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from headway.comparison.cells import (
    CellName,
    CellOutput,
    CellResult,
    EvaluationSet,
    NamedCorpus,
    corpus_files,
    read_result,
    write_result,
)
from headway.comparison.executors import executor_of
from headway.comparison.options import GridOptions
from headway.core.documents import read_json
from headway.core.errors import DIVERGED, HeadwayError, RunError, UserError, option
from headway.core.files import sha256, write_json
from headway.core.storage import file_hashes, fingerprint, software, workspace
from headway.gate.ledger import sealed, unsealed
from headway.gate.loop import Part
from headway.grids.grid import Grid, GridConfig, Variant, counting_keys
from headway.grids.grid_run import GridRun
from headway.metrics import Metric
from headway.metrics.intervals import Linearised, linearise
from headway.metrics.metric import Signature, Statistics
from headway.recipe import Recipe, parse_recipe
from headway.runs.run import open_run

LEAST_HALVED = 400  # segments of a set that is halved
WHOLE = "all"  # the name of a single segment, for programs that only have a score of the whole set
NAME = re.compile(r"[\w.+=-]+")
PLACES = "{seed}", "{scores}"


class MissingError(HeadwayError):
    """Cells are needed that the gate cannot make."""

    def __init__(self, name: str, part: Part, seeds: Sequence[int]) -> None:
        self.system, self.part, self.seeds = name, part, seeds
        super().__init__(f"seeds {', '.join(map(str, seeds))} of {name} on the {part} set are missing")


class DivergedError(RunError):
    """The training of a seed diverged."""

    def __init__(self, name: str, seed: int) -> None:
        self.seed = seed
        super().__init__(f"{name}: seed {seed} diverged")


class GivenScore(Metric):
    """The mean of the scores of segments, which a program has written."""

    name = "score"
    kinds = ("numbers",)

    def __init__(self, *, lower: bool = False) -> None:
        self.higher_is_better = not lower

    @property
    def bounds(self) -> tuple[float, float]:
        return -np.inf, np.inf

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        return np.array([[float(score), 1.0] for score in hypotheses])

    def aggregate(self, totals: Statistics) -> float:
        return float(totals[0] / totals[1])

    def signature(self) -> Signature:
        return Signature.of(mean=True)


def linearised(metric: Metric, cells: Sequence[CellResult]) -> Linearised:
    """The scores of cells with the influence of each segment. The scores of programs range as far as they are seen."""
    rows = [metric.counted(*cell.outputs[0].scored) for cell in cells]
    found = linearise(metric, rows)
    return replace(found, span=float(np.ptp([row[:, 0] for row in rows]))) if isinstance(metric, GivenScore) else found


def outputs_hash(cell: CellResult) -> str:
    return fingerprint(cell.outputs[0].hypotheses)


def is_public(test: EvaluationSet) -> list[bool]:
    """Whether each segment of a set that is halved is in the public half, by a hash of its texts.

    Raises UserError if the set is too small.
    """
    if len(test) < LEAST_HALVED:
        what = f"a set that is halved into a public and a sealed set has {LEAST_HALVED} segments or more"
        raise UserError(what, where=test.name, received=len(test), allowed=f"{option('sealed')}, a set of its own")
    texts = zip(test.sources or ("",) * len(test), test.references[0], strict=True)
    return [hashlib.sha256("\0".join(pair).encode()).digest()[0] % 2 == 0 for pair in texts]


def half(cell: CellResult, part: Part) -> CellResult:
    """The cell on the public or the sealed half of its test set."""
    output, test = cell.outputs[0], cell.outputs[0].test
    chosen = [index for index, public in enumerate(is_public(test)) if public is (part == "public")]

    def of(texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(texts[index] for index in chosen) if texts else ()

    reduced = EvaluationSet(test.name, tuple(map(of, test.references)), of(test.sources), (), test.steps)
    return replace(cell, outputs=(CellOutput(reduced, of(output.hypotheses)),))


@dataclass(frozen=True)
class Bench:
    """Where and on what cells are made.

    Args:
        folder: of all cells.
        sets: the test sets by name; empty if programs write scores.
        halved: whether the public and the sealed set are halves of one.
        command: of programs, with `PLACES`.
        workers, threads: cells at a time, and threads of each.
    """

    folder: Path
    sets: Mapping[str, NamedCorpus]
    halved: bool
    command: str | None
    workers: int | None
    threads: int

    def reduced(self, cells: Iterable[CellResult], part: Part) -> list[CellResult]:
        return [half(cell, part) if self.halved and part != "test" else cell for cell in cells]


@dataclass(frozen=True)
class Proposal(ABC):
    """A system whose cells are made on demand.

    Args:
        name: of the system.
        content: all that is needed to make its cells again, for the ledger.
        identity: a hash of what determines its outputs, but for the seed; empty if the ledger knows it.
    """

    name: str
    content: Mapping[str, Any]
    identity: str = ""

    @property
    def recipe(self) -> Recipe | None:
        """The recipe; None for programs."""
        return None

    def continues(self, before: Mapping[str, Any]) -> bool:
        """Whether the content adds nothing to `before` but cells or outputs, although its hash differs."""
        return False

    @abstractmethod
    def cells(self, part: Part, seeds: Sequence[int], bench: Bench) -> list[CellResult]:
        """The cells of these seeds on a set.

        Raises:
            MissingError: they cannot be made here.
            DivergedError: the training of a seed diverged.
            RunError: a run failed; the next call goes on.
        """


class TrainedProposal(Proposal):
    """A proposal whose cells are trained from a recipe, and resumed if they were stopped."""

    @classmethod
    def of(cls, name: str, recipe: Recipe) -> "TrainedProposal":
        files = [sha256(file) for corpus in recipe.data.corpora().values() for file in corpus_files(corpus)]
        content = {"recipe": recipe.model_dump(mode="json")}
        return cls(name, content, fingerprint([counting_keys(recipe), files, software()]))

    @property
    def recipe(self) -> Recipe:
        return parse_recipe(dict(self.content["recipe"]))

    def cells(self, part: Part, seeds: Sequence[int], bench: Bench) -> list[CellResult]:
        config = GridConfig.model_construct(seeds=tuple(seeds))  # a grid of one variant, which no file may have
        grid = Grid(config, (Variant(self.name, self.recipe),), (bench.sets[part],), None, ())
        run = GridRun(grid, bench.folder.absolute(), bench.threads)
        options = GridOptions(workers=bench.workers, threads=bench.threads)
        result = run.result() if run.is_done() else run.run(executor_of(options))
        if result.stopped:
            error = RunError(f"stopped by signal {result.stopped}; the same command goes on")
            error.exit_code = 128 + result.stopped
            raise error
        for state in run.all():
            has_failed = state.status == "failed" and not state.signal
            if has_failed and DIVERGED in state.job.log.read_text("utf-8", "replace"):
                raise DivergedError(self.name, state.job.planned.seed)
        if result.failed:
            raise RunError("\n".join(result.failed))
        return bench.reduced(sorted(result.cells, key=lambda cell: cell.seed), part)


class RunsProposal(Proposal):
    """A proposal whose cells are run folders, by seed. Their outputs are kept beside the ledger."""

    @classmethod
    def of(cls, name: str, runs: Mapping[int, Path]) -> "RunsProposal":
        weights = {str(seed): open_run(path).manifest.get("model_sha256") for seed, path in sorted(runs.items())}
        if len(set(weights.values())) < len(weights):
            what = "two seeds have the same weights; a seed is a training of its own"
            raise UserError(what, where=name, received=", ".join(map(str, runs.values())))
        content = {"runs": {str(seed): str(path.absolute()) for seed, path in runs.items()}, "weights": weights}
        return cls(name, content, fingerprint(weights))

    @property
    def recipe(self) -> Recipe:
        return open_run(Path(next(iter(self.content["runs"].values())))).recipe

    def continues(self, before: Mapping[str, Any]) -> bool:
        known, weights = before.get("weights", {}), self.content["weights"]
        return all(weights.get(seed, digest) == digest for seed, digest in known.items())

    def cells(self, part: Part, seeds: Sequence[int], bench: Bench) -> list[CellResult]:
        from headway.grids.run import result_of_run

        cells, missing, corpus = list[CellResult](), list[int](), bench.sets[part]
        for seed in seeds:
            kept, path = bench.folder / f"{self.name}-{seed}.json", self.content["runs"].get(str(seed))
            cell = read_result(kept, {"test": corpus.fingerprint()})
            if cell is None and path is not None:
                cell = result_of_run(CellName(self.name, seed, Path(path)), (corpus,))
                write_result(kept, cell, {"test": corpus.fingerprint()})
            missing += [seed] if cell is None else []
            cells += [] if cell is None else [cell]
        if missing:
            raise MissingError(self.name, part, missing)
        return bench.reduced(cells, part)


class Row(NamedTuple):
    """The score of a segment, and its set; None if the file has no sets."""

    segment: str
    score: float
    part: str | None


def read_scores(path: Path) -> dict[int, list[Row]]:
    """Read `seed segment score [set]`, separated by tabs. Returns the rows by seed. Raises UserError."""
    found, seen = dict[int, list[Row]](), set[tuple[str, ...]]()
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        names = reader.fieldnames or []
        if sorted(set(names) - {"set"}) != ["score", "seed", "segment"]:
            allowed = "seed, segment, score, and set (public or sealed), separated by tabs"
            raise UserError("the first line names the columns", where=f"{path}:1", received=names, allowed=allowed)
        for number, line in enumerate(reader, start=2):
            where, key = f"{path}:{number}", tuple(value for name, value in line.items() if name != "score")
            try:
                found.setdefault(int(line["seed"]), []).append(
                    Row(line["segment"], float(line["score"]), line.get("set"))
                )
            except (TypeError, ValueError):
                what = "a line is a seed, a segment and a number"
                raise UserError(what, where=where, received=list(line.values())) from None
            if key in seen:
                raise UserError("this segment has two scores", where=where, received=line["segment"])
            seen.add(key)
    return found


class ScoredProposal(Proposal):
    """A proposal whose scores a program has written, or writes in the folder of the proposal."""

    @classmethod
    def of_file(cls, name: str, path: Path) -> "ScoredProposal":
        return cls(name, {"scores": str(path.absolute())}, fingerprint(["scores", name]))

    @classmethod
    def of_folder(cls, name: str, folder: Path) -> "ScoredProposal":
        hidden = re.compile(r"(^|/)(\.|__pycache__)")
        files = {path: digest for path, digest in file_hashes(folder).items() if not hidden.search(path)}
        return cls(name, {"folder": str(folder.absolute()), "files": files}, fingerprint(files))

    def continues(self, before: Mapping[str, Any]) -> bool:
        files = self.content.get("files")
        return files is not None and before.get("files", {"": ""}).items() <= files.items()

    def cells(self, part: Part, seeds: Sequence[int], bench: Bench) -> list[CellResult]:
        folder = bench.folder.absolute() / "scores"
        folder.mkdir(parents=True, exist_ok=True)
        kept = {seed: folder / f"{self.name}-{seed}.json" for seed in seeds}
        if "folder" in self.content:
            self._check_files()
            with ThreadPoolExecutor(bench.workers or 1) as pool:
                wanted = [(seed, path) for seed, path in kept.items() if not path.is_file()]
                list(pool.map(lambda pair: self._run(pair[0], pair[1], part, str(bench.command)), wanted))
        else:
            given = read_scores(Path(self.content["scores"]))
            for seed in given.keys() & kept.keys():
                self._keep(seed, given[seed], part, kept[seed])
        if missing := [seed for seed, path in kept.items() if not path.is_file()]:
            raise MissingError(self.name, part, missing)
        return [self._cell(seed, path) for seed, path in kept.items()]

    def _check_files(self) -> None:
        """Raise UserError if a file of the folder is not as it was proposed. New files are outputs of the program."""
        folder = Path(self.content["folder"])
        for path, digest in self.content["files"].items():
            if not (folder / path).is_file() or sha256(folder / path) != digest:
                what = "this file has changed since it was proposed; each proposal has a folder of its own"
                raise UserError(what, where=str(folder / path))

    def _run(self, seed: int, kept: Path, part: Part, command: str) -> None:
        """Run the program for a seed. What it prints is kept for the public set alone."""
        log = kept.with_suffix(".txt")
        with workspace(kept.parent) as place, (log if part == "public" else place / log.name).open("wb") as printed:
            scores = place / "scores.tsv"
            words = [
                word.replace(PLACES[0], str(seed)).replace(PLACES[1], str(scores)) for word in shlex.split(command)
            ]
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": printed, "stderr": subprocess.STDOUT}
            code = subprocess.run(words, cwd=self.content["folder"], **streams).returncode  # noqa: S603  # the user's own
            if code or not scores.is_file():
                how = f"exit code {code}" if code else "no scores were written"
                shown = str(log) if part == "public" else "what it printed is sealed"
                raise RunError(f"{self.name}, seed {seed}: the program failed ({how}); {shown}")
            found = read_scores(scores)
            if list(found) != [seed]:
                what = "the program writes the scores of the seed that it is asked for"
                raise UserError(what, where=f"{self.name}, seed {seed}", received=list(found))
            self._keep(seed, found[seed], part, kept)

    def _keep(self, seed: int, rows: Sequence[Row], part: Part, kept: Path) -> None:
        """Keep the scores of a seed on a set. Raises UserError if others were kept before."""
        chosen = [[row.segment, row.score] for row in sorted(self._rows_of(rows, part))]
        content = {"sealed": sealed(chosen)}
        if not kept.is_file():
            write_json(kept, content)
        elif read_json(kept) != content:
            what = "the scores of this seed have changed since they were read; a changed proposal has a new name"
            raise UserError(what, where=f"{self.name}, seed {seed}")

    def _rows_of(self, rows: Sequence[Row], part: Part) -> Sequence[Row]:
        """The rows of a set: by the column `set`, or by halves; a single segment is in both sets."""
        if any(row.part for row in rows):
            chosen = [row for row in rows if row.part == part]
            if not chosen:
                raise UserError(f"there are no scores of the {part} set", where=self.name)
            return chosen
        if part == "test" or [row.segment for row in rows] == [WHOLE]:
            return rows
        segments = EvaluationSet(self.name, (tuple(row.segment for row in rows),))
        return [row for row, public in zip(rows, is_public(segments), strict=True) if public is (part == "public")]

    def _cell(self, seed: int, kept: Path) -> CellResult:
        rows = unsealed(read_json(kept)["sealed"])
        if not all(isfinite(score) for _, score in rows):
            raise DivergedError(self.name, seed)
        test = EvaluationSet("scores", (tuple(name for name, _ in rows),))
        return CellResult(self.name, seed, (CellOutput(test, tuple(repr(score) for _, score in rows)),))


def proposal_of(name: str, content: Mapping[str, Any]) -> Proposal:
    """The proposal that a ledger has written."""
    if "recipe" in content:
        return TrainedProposal(name, content)
    return RunsProposal(name, content) if "runs" in content else ScoredProposal(name, content)
