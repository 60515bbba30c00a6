"""The cells of a proposal: trained from a recipe, decoded with run folders, or scored by any program."""

import csv
import hashlib
import re
import shlex
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
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
from headway.core.log import say
from headway.core.storage import file_hashes, fingerprint, software, workspace
from headway.gate.ledger import sealed, unsealed
from headway.gate.loop import Part
from headway.grids.grid import Grid, GridConfig, Variant, changed, counting_keys
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

    exit_code = 6

    def __init__(self, name: str, part: Part, seeds: Sequence[int]) -> None:
        self.system, self.part, self.seeds = name, part, tuple(seeds)
        super().__init__(f"{name}: seeds {', '.join(map(str, seeds))} on the {part} set are needed")


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
    """A hash of the outputs of a cell."""
    return fingerprint(cell.outputs[0].hypotheses)


def is_public(test: EvaluationSet) -> list[bool]:
    """Whether each segment of a set that is halved is in the public half, by a hash of its texts.

    Raises:
        UserError: the set is too small.
    """
    if len(test) < LEAST_HALVED:
        what = f"a set that is halved into a public and a sealed set has {LEAST_HALVED} segments or more"
        raise UserError(what, where=test.name, received=len(test), allowed=f"{option('sealed')}, a set of its own")
    texts = zip(test.sources or ("",) * len(test), test.references[0], strict=True)
    return [hashlib.sha256("\0".join(pair).encode()).digest()[0] % 2 == 0 for pair in texts]


def half(cell: CellResult, part: Part) -> CellResult:
    """The cell on one half of its test set."""
    output = cell.outputs[0]
    chosen = [index for index, public in enumerate(is_public(output.test)) if public is (part == "public")]
    test = output.test

    def of(texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(texts[index] for index in chosen) if texts else ()

    reduced = EvaluationSet(test.name, tuple(map(of, test.references)), of(test.sources), (), test.steps)
    return replace(cell, outputs=(CellOutput(reduced, of(output.hypotheses)),))


@dataclass(frozen=True)
class Bench:
    """Where cells are made: their folder, the test sets, and the workers.

    Args:
        folder: of all cells.
        corpora: the test sets by name; empty if programs write scores.
        halved: whether the public and the sealed set are halves of one.
        command: of programs, with `PLACES`.
        lower: whether less is better in the scores of programs.
        workers, threads: of training.
    """

    folder: Path
    corpora: Mapping[str, NamedCorpus] = field(default_factory=dict)
    halved: bool = False
    command: str | None = None
    workers: int | None = None
    threads: int = 1

    def reduced(self, cells: Iterable[CellResult], part: Part) -> list[CellResult]:
        return [half(cell, part) if self.halved and part != "test" else cell for cell in cells]


@dataclass(frozen=True)
class Proposal(ABC):
    """A system whose cells are made on demand.

    Args:
        name: of the system.
        content: all that is needed to make its cells again, for the ledger.
        identity: a hash of what determines its outputs, but for the seed.
    """

    name: str
    content: Mapping[str, Any]
    identity: str

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
        files = [file for corpus in recipe.data.corpora().values() for file in corpus_files(corpus)]
        identity = fingerprint([counting_keys(recipe), [sha256(file) for file in files if file.is_file()], software()])
        return cls(name, {"recipe": recipe.model_dump(mode="json")}, identity)

    def cells(self, part: Part, seeds: Sequence[int], bench: Bench) -> list[CellResult]:
        recipe = parse_recipe(dict(self.content["recipe"]))
        # A grid of one variant, which no grid file may be.
        config = GridConfig.model_construct(seeds=tuple(seeds))
        grid = Grid(config, (Variant(self.name, changed(recipe, {})),), (bench.corpora[part],), None, ())
        run = GridRun(grid, bench.folder.absolute(), bench.threads)
        result = run.result()
        if not run.is_done():
            result = run.run(executor_of(GridOptions(workers=bench.workers, threads=bench.threads)))
        if result.stopped:
            error = RunError(f"stopped by signal {result.stopped}; the same command goes on")
            error.exit_code = 128 + result.stopped
            raise error
        for state in run.all():
            if (
                state.status == "failed"
                and not state.signal
                and DIVERGED in state.job.log.read_text("utf-8", "replace")
            ):
                raise DivergedError(self.name, state.job.planned.seed)
        if result.failed:
            raise RunError("\n".join(result.failed))
        return bench.reduced(sorted(result.cells, key=lambda cell: cell.seed), part)


class RunsProposal(Proposal):
    """A proposal whose cells are run folders, by seed. Their outputs are kept beside the ledger."""

    @classmethod
    def of(cls, name: str, runs: Mapping[int, Path]) -> "RunsProposal":
        weights = {seed: str(open_run(path).manifest.get("model_sha256")) for seed, path in sorted(runs.items())}
        if len(set(weights.values())) < len(weights):
            what = "two seeds have the same weights; a seed is a training of its own"
            raise UserError(what, where=name, received=", ".join(map(str, runs)))
        content = {"runs": {str(seed): str(path.absolute()) for seed, path in runs.items()}}
        return cls(name, content, fingerprint([name, weights.get(min(runs))]))

    def cells(self, part: Part, seeds: Sequence[int], bench: Bench) -> list[CellResult]:
        from headway.grids.run import result_of_run

        cells, missing, corpus = list[CellResult](), list[int](), bench.corpora[part]
        for seed in seeds:
            kept, path = bench.folder / f"{self.name}-{seed}.json", self.content["runs"].get(str(seed))
            stamp = {"test": corpus.fingerprint()}
            if path and (weights := open_run(Path(path)).manifest.get("model_sha256")):
                stamp["weights"] = weights
            cell = read_result(kept, stamp)
            if cell is None and path is None:
                missing.append(seed)
                continue
            if cell is None:
                cell = result_of_run(CellName(self.name, seed, Path(path)), (corpus,))
                write_result(kept, cell, stamp)
            cells.append(cell)
        if missing:
            raise MissingError(self.name, part, missing)
        return bench.reduced(cells, part)


class Row(NamedTuple):
    """The score of a segment, in the set `part`; None if the file has no sets."""

    segment: str
    score: float
    part: str | None


def read_scores(path: Path) -> dict[int, list[Row]]:
    """Read `seed segment score [set]`, separated by tabs. Returns the rows by seed. Raises UserError."""
    found, seen = dict[int, list[Row]](), set[tuple[str, str, str | None]]()
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        names = reader.fieldnames or []
        if sorted(set(names) - {"set"}) != ["score", "seed", "segment"]:
            allowed = "seed, segment, score, and set (public or sealed), separated by tabs"
            raise UserError("the first line names the columns", where=f"{path}:1", received=names, allowed=allowed)
        for number, line in enumerate(reader, start=2):
            try:
                row = Row(line["segment"], float(line["score"]), line.get("set"))
                rows = found.setdefault(int(line["seed"]), [])
            except (TypeError, ValueError):
                received = "\t".join(str(value) for value in line.values())
                raise UserError(
                    "a line is a seed, a segment and a number", where=f"{path}:{number}", received=received
                ) from None
            if (key := (line["seed"], row.segment, row.part)) in seen:
                raise UserError("this segment has two scores", where=f"{path}:{number}", received=row.segment)
            seen.add(key)
            rows.append(row)
    return found


class ScoredProposal(Proposal):
    """A proposal whose scores a program has written, or writes in the folder of the proposal."""

    @classmethod
    def of_file(cls, name: str, path: Path) -> "ScoredProposal":
        return cls(name, {"scores": str(path.absolute())}, fingerprint(["scores", name]))

    @classmethod
    def of_folder(cls, name: str, folder: Path) -> "ScoredProposal":
        hidden = [part for part in folder.rglob("*") if part.name.startswith((".", "__pycache__"))]
        files = {
            path: digest
            for path, digest in file_hashes(folder).items()
            if not any((folder / path).is_relative_to(part) for part in hidden)
        }
        return cls(name, {"folder": str(folder.absolute()), "files": files}, fingerprint(files))

    def cells(self, part: Part, seeds: Sequence[int], bench: Bench) -> list[CellResult]:
        folder = bench.folder.absolute() / "scores"
        folder.mkdir(parents=True, exist_ok=True)
        if "folder" in self.content:
            self._check_files()
            wanted = [seed for seed in seeds if not self._kept(seed, folder).is_file()]
            with ThreadPoolExecutor(bench.workers or 1) as pool:
                list(pool.map(lambda seed: self._run(seed, part, bench, folder), wanted))
        else:
            given = read_scores(Path(self.content["scores"]))
            for seed in seeds:
                if seed in given:
                    self._keep(seed, self._rows_of(given[seed], part), folder)
        missing = [seed for seed in seeds if not self._kept(seed, folder).is_file()]
        if missing:
            raise MissingError(self.name, part, missing)
        return [self._cell(seed, folder) for seed in seeds]

    def _check_files(self) -> None:
        """Raise UserError if a file of the folder is not as it was proposed. New files are outputs of the program."""
        folder = Path(self.content["folder"])
        for path, digest in self.content["files"].items():
            if not (folder / path).is_file() or sha256(folder / path) != digest:
                what = "this file has changed since it was proposed; each proposal has a folder of its own"
                raise UserError(what, where=str(folder / path))

    def _run(self, seed: int, part: Part, bench: Bench, folder: Path) -> None:
        """Run the program for a seed. What it prints is kept for the public set alone."""
        assert bench.command is not None
        log = folder / f"{self.name}-{seed}.txt" if part == "public" else None
        with workspace(folder) as place:
            scores = place / "scores.tsv"
            values = dict(zip(PLACES, (str(seed), str(scores)), strict=True))
            words = shlex.split(bench.command)
            for name, value in values.items():
                words = [word.replace(name, value) for word in words]
            printed = place / "printed.txt"
            with printed.open("wb") as file:
                done = subprocess.run(  # noqa: S603  # the user's own program
                    words, cwd=self.content["folder"], stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
                )
            if log is not None:
                log.write_bytes(printed.read_bytes())
            if done.returncode or not scores.is_file():
                how = f"exit code {done.returncode}" if done.returncode else "no scores were written"
                shown = f"; {log}" if log else "; what it printed is sealed"
                raise RunError(f"{self.name}, seed {seed}: the program failed ({how}){shown}")
            found = read_scores(scores)
            if list(found) != [seed]:
                what = "the program writes the scores of the seed that it is asked for"
                raise UserError(what, where=f"{self.name}, seed {seed}", received=list(found))
            self._keep(seed, self._rows_of(found[seed], part), folder)
        say(f"{self.name}, seed {seed}: finished")

    def _kept(self, seed: int, folder: Path) -> Path:
        return folder / f"{self.name}-{seed}.json"

    def _keep(self, seed: int, rows: Sequence[Row], folder: Path) -> None:
        """Keep the scores of a seed. Raises UserError if others were kept before."""
        kept, content = self._kept(seed, folder), {"sealed": sealed([[row.segment, row.score] for row in rows])}
        if kept.is_file() and read_json(kept) != content:
            what = "the scores of this seed have changed since they were read; a changed proposal has a new name"
            raise UserError(what, where=f"{self.name}, seed {seed}")
        write_json(kept, content)

    def _rows_of(self, rows: Sequence[Row], part: Part) -> list[Row]:
        """The rows of a set: by the column `set`, or by halves; a single segment is in both sets."""
        if any(row.part for row in rows):
            chosen = [row for row in rows if row.part == part]
        elif [row.segment for row in rows] == [WHOLE] or part == "test":
            chosen = list(rows)
        else:
            names = EvaluationSet(self.name, (tuple(row.segment for row in rows),))
            chosen = [row for row, public in zip(rows, is_public(names), strict=True) if public is (part == "public")]
        if not chosen:
            raise UserError(f"there are no scores of the {part} set", where=self.name)
        return sorted(chosen)

    def _cell(self, seed: int, folder: Path) -> CellResult:
        rows = unsealed(read_json(self._kept(seed, folder))["sealed"])
        if not all(isfinite(score) for _, score in rows):
            raise DivergedError(self.name, seed)
        names, scores = tuple(name for name, _ in rows), tuple(repr(score) for _, score in rows)
        return CellResult(self.name, seed, (CellOutput(EvaluationSet("scores", (names,)), scores),))


def proposal_of(name: str, identity: str, content: Mapping[str, Any]) -> Proposal:
    """The proposal that a ledger has written."""
    if "recipe" in content:
        return TrainedProposal(name, content, identity)
    return (RunsProposal if "runs" in content else ScoredProposal)(name, content, identity)
