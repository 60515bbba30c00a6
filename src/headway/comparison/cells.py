"""Cells of a comparison: what one variant did with one seed.

Shapes: N segments, R sets of references.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import FiniteFloat, TypeAdapter

from headway.documents import read_json, shaped
from headway.errors import UserError, nearest, option
from headway.files import write_json
from headway.languages import BETWEEN_CHARACTERS
from headway.metrics import Metric
from headway.recipe import Recipe
from headway.runs.run import open_run

SURE = 0.9  # the share from which on outputs are called tokenised; below 1 - SURE they are not
LEAST = 10  # places that must be seen before anything is said
MOST_GROUPS = 500  # of a test set: each is a row of a table, with an interval of its own

PUNCTUATION = re.compile(r"(?<=\w)( ?)[.,!?;:](?=\s|$)")
PIECES = re.compile(r"@@(?=\s|$)|▁")


@dataclass(frozen=True)
class EvaluationSet:
    """A test set, the same for all cells.

    Args:
        name: tells it apart from others.
        references: R sets of N texts each.
        sources: N texts; none where they are not known.
        groups: N names of groups, such as lengths or languages, that are scored apart; none without groups.
        steps: those that normalised the references, separated by commas.
    """

    name: str
    references: tuple[tuple[str, ...], ...]
    sources: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    steps: str = ""

    def __len__(self) -> int:
        return len(self.references[0])


@dataclass(frozen=True)
class CellOutput:
    """The N hypotheses of a cell for a test set."""

    test: EvaluationSet
    hypotheses: tuple[str, ...]


@dataclass(frozen=True)
class Costs:
    """The price of a cell; None where it is not known.

    Args:
        parameters: of the model.
        flops_per_token: forward, a target token.
        cpu_seconds: processor time of training, over all its threads.
        gpu_seconds: time of an accelerator in training.
        training_tokens_per_second: target tokens.
        decoding_tokens_per_second: target tokens.
        peak_memory: of training, in bytes.
        decoding_state: bytes that decoding keeps for a sentence.
        learning_rate: the best that tuning found, or that of the recipe.
    """

    parameters: int | None = None
    flops_per_token: FiniteFloat | None = None
    cpu_seconds: FiniteFloat | None = None
    gpu_seconds: FiniteFloat | None = None
    training_tokens_per_second: FiniteFloat | None = None
    decoding_tokens_per_second: FiniteFloat | None = None
    peak_memory: int | None = None
    decoding_state: int | None = None
    learning_rate: FiniteFloat | None = None

    def known(self) -> dict[str, int | float]:
        """Those that are known, by name."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class CurvePoint:
    """An evaluation on dev in training.

    Args:
        update: the number of updates before it.
        seconds: processor time of training before it; wall-clock time where an accelerator trained, or no other is
            known.
        scores: by the name of a metric; `loss` is the cross-entropy a token.
    """

    update: int
    seconds: FiniteFloat
    scores: Mapping[str, float]


class CellName(NamedTuple):
    """A variant with its seed, and where they are from."""

    variant: str
    seed: int
    path: Path | None = None

    def __str__(self) -> str:
        return f"{self.variant}, seed {self.seed}"


@dataclass(frozen=True)
class CellResult:
    """One variant with one seed.

    Args:
        variant: its name.
        seed: pairs it with the cells of other variants.
        outputs: for each test set, in the order that all cells have.
        path: the run folder, or the file of the hypotheses.
        costs: the price of it.
        curve: the evaluations on dev, in their order.
        precision: of training, `float32` or `bf16`; empty where it is not known.
        dev_steps: those that normalised the references of dev, separated by commas.
    """

    variant: str
    seed: int
    outputs: tuple[CellOutput, ...]
    path: Path | None = None
    costs: Costs = Costs()
    curve: tuple[CurvePoint, ...] = field(default=(), repr=False)
    precision: str = ""
    dev_steps: str = ""

    @property
    def name(self) -> CellName:
        """The variant with its seed."""
        return CellName(self.variant, self.seed, self.path)

    def to_json(self) -> dict[str, Any]:
        """All of it as values that JSON can hold."""
        values: dict[str, Any] = _CELL.dump_python(self, mode="json")
        return values

    @classmethod
    def from_json(cls, values: Any, where: str = "result") -> CellResult:
        """The cell that `to_json` gave these values of. Raises UserError for others, with their file `where`."""
        return shaped(values, _CELL, where, "the result of this cell")


_CELL = TypeAdapter(CellResult)


def write_result(path: Path, result: CellResult, of: Mapping[str, Any]) -> None:
    """Write a result whole, with a stamp of all that it was made from."""
    write_json(path, {"of": of, "result": result.to_json()})


def read_result(path: Path, of: Mapping[str, Any]) -> CellResult | None:
    """A result that was written with this stamp; None where there is none, or one with another stamp.

    Raises:
        UserError: a damaged file.
    """
    if not path.is_file():
        return None
    content = read_json(path, what="result of this cell")
    if content.keys() != {"of", "result"}:
        raise UserError(
            "the result of this cell is damaged", where=str(path), received=list(content), allowed="of, result"
        )
    if content["of"] != of:
        return None
    return CellResult.from_json(content["result"], str(path))


def check_cells(cells: Sequence[CellResult], baseline: str | None = None, *, any_tokenization: bool = False) -> None:
    """See that cells can be compared.

    Args:
        cells: of all variants.
        baseline: the variant that the others are compared with.
        any_tokenization: allow hypotheses of which some look tokenised and others do not.

    Raises:
        UserError: as `check_names`; test sets that are not the same, hypotheses that are not one a segment, or of
            different tokenisation.
    """
    check_names([cell.name for cell in cells], baseline)
    _check_tests(cells)
    if not any_tokenization:
        _check_tokenization(cells)


def check_names(cells: Sequence[CellName], baseline: str | None = None) -> None:
    """See that cells make a table, before any work.

    Raises:
        UserError: fewer than two variants, two cells of one name, a seed that a variant has not, or no such baseline.
    """
    variants = list(dict.fromkeys(cell.variant for cell in cells))
    for (variant, seed), count in Counter((cell.variant, cell.seed) for cell in cells).items():
        if count > 1:
            paths = [str(cell.path) for cell in cells if (cell.variant, cell.seed) == (variant, seed) and cell.path]
            what, where = "two cells of one name", f"{variant}, seed {seed}"
            raise UserError(
                what, where=where, received=", ".join(paths), allowed="another one for each: NAME:SEED=PATH"
            )
    if len(variants) < 2:
        raise UserError("a comparison needs two variants or more", where="variants", received=", ".join(variants))
    if baseline is not None and baseline not in variants:
        what = f"no such variant{nearest(baseline, variants)}"
        raise UserError(what, where=option("baseline"), received=baseline, allowed=variants)
    _check_seeds(cells, variants)


def _check_seeds(cells: Sequence[CellName], variants: Sequence[str]) -> None:
    """Raise UserError where a variant has a seed that another has not; a seed alone is paired with any."""
    seeds = {name: sorted(cell.seed for cell in cells if cell.variant == name) for name in variants}
    if all(len(row) == 1 for row in seeds.values()):
        return
    every = sorted(set().union(*seeds.values()))
    for name, row in seeds.items():
        missing = [str(seed) for seed in every if seed not in row]
        if missing:
            what = f"seed {', '.join(missing)} is missing; seeds are paired by their number"
            received, allowed = ", ".join(map(str, row)), ", ".join(map(str, every))
            raise UserError(what, where=name, received=received, allowed=f"the seeds of all variants: {allowed}")


def _check_tests(cells: Sequence[CellResult]) -> None:
    first = cells[0]
    names = [output.test.name for output in first.outputs]
    for cell in cells:
        tests = [output.test.name for output in cell.outputs]
        if tests != names:
            what, allowed = "variants are compared on the same test sets", f"those of {first.name}: {', '.join(names)}"
            raise UserError(what, where=str(cell.name), received=", ".join(tests), allowed=allowed)
        for output, other in zip(cell.outputs, first.outputs, strict=True):
            if output.test is not other.test and output.test.references != other.test.references:
                what = f"the references of {output.test.name} are not those of {first.name}"
                raise UserError(what, where=str(cell.name), allowed="the same test set for all variants")
            check_lines(output, str(cell.name))


def check_set(test: EvaluationSet, where: str, where_groups: str) -> None:
    """Raise UserError where a test set is too small for an interval, or has more groups than a table can show."""
    if len(test) < 2:
        raise UserError("an interval needs two segments or more", where=where, received=len(test))
    if (count := len(set(test.groups))) > MOST_GROUPS:
        allowed = f"up to {MOST_GROUPS}, each with a score of its own"
        raise UserError("these are too many groups", where=where_groups, received=count, allowed=allowed)


def check_lines(output: CellOutput, where: str) -> None:
    """Raise UserError unless there is a hypothesis, a source and a group, where there are any, for each reference."""
    test = output.test
    given = {"hypotheses": output.hypotheses, "sources": test.sources, "groups": test.groups}
    for name, lines in [*given.items(), *(("references", lines) for lines in test.references)]:
        if len(lines) != len(test) and (lines or name == "hypotheses"):
            what = f"{len(lines):,} {name} for {len(test):,} references; there must be one a segment"
            raise UserError(what, where=f"{where}, {test.name}")


def check_margin(margin: Mapping[str, float], metrics: Sequence[Metric]) -> None:
    """Raise UserError for a margin that is no finite number from 0, of no metric by name or label, or a second one."""
    names = {name for metric in metrics for name in (metric.name, metric.label)}
    for name, value in margin.items():
        if name not in names:
            raise UserError(f"no such metric here{nearest(name, names)}", where=f"margin.{name}", allowed=sorted(names))
        if not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise UserError("a margin is a finite number, not below 0", where=f"margin.{name}", received=value)
    for metric in metrics:
        if metric.name != metric.label and {metric.name, metric.label} <= margin.keys():
            what, received = "a metric has one margin", f"{metric.name} and {metric.label}"
            raise UserError(what, where="margin", received=received)


def _share(places: re.Pattern[str], text: str) -> float | None:
    """The share of places at which a blank stands, where there are enough of them."""
    found = [bool(blank) for blank in places.findall(text)]
    return sum(found) / len(found) if len(found) >= LEAST else None


def _check_tokenization(cells: Sequence[CellResult]) -> None:
    """Raise UserError where the hypotheses of one cell look tokenised and those of another do not."""
    for outputs in zip(*(cell.outputs for cell in cells), strict=True):
        texts = ["\n".join(output.hypotheses) for output in outputs]
        for kind, shares in (
            ("punctuation stands apart", [_share(PUNCTUATION, text) for text in texts]),
            ("characters stand apart", [_share(BETWEEN_CHARACTERS, text) for text in texts]),
            ("pieces are not joined", [float(len(PIECES.findall(text)) >= LEAST) for text in texts]),
        ):
            known = [(share, cell) for share, cell in zip(shares, cells, strict=True) if share is not None]
            apart = [str(cell.name) for share, cell in known if share >= SURE]
            joined = [str(cell.name) for share, cell in known if share <= 1 - SURE]
            if apart and joined:
                what = f"these hypotheses are tokenised ({kind}), and those of {joined[0]} are not"
                allowed = f"the same tokenisation for all, or {option('any_tokenization')}"
                raise UserError(what, where=apart[0], allowed=allowed)


def check_same_data(runs: Iterable[tuple[Path, Recipe]], allowed: str) -> None:
    """Raise UserError where the training data of a variant changed between two of its runs.

    Runs that are not complete notice by themselves when they go on.

    Args:
        runs: folders of the runs of one variant, with their recipes.
        allowed: what to do about it, for the error.
    """
    known: dict[str, tuple[Path, str]] = {}
    for path, recipe in runs:
        trained = open_run(path).manifest.get("data", {}).get("train")
        if trained is None:
            continue
        # All of a recipe that may decide what is read of its training data, and how.
        read = recipe.model_dump(mode="json", exclude={"training", "optimizer", "decoding"})
        ground = json.dumps(read, sort_keys=True)
        first, before = known.setdefault(ground, (path, trained))
        if trained != before:
            what = f"this run was trained on other data than {first.parent.name}/{first.name}"
            raise UserError(what, where=str(path), allowed=allowed)
