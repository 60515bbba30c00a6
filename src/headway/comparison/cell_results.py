"""Cells of a comparison: what one variant did with one seed.

Shapes: N segments, R sets of references.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import FiniteFloat, TypeAdapter

from headway.documents import read_json, shaped
from headway.errors import UserError
from headway.files import write_json


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
