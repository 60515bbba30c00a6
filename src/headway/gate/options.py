"""The options of `headway gate`, as Python keywords and command-line flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from headway.comparison.options import METRIC_NAMES, MetricNumbers, Workers, numbers_by_metric
from headway.core.config import Score, Section


def _option(description: str, default: Any = None, /, **shown: Any) -> Any:
    """A field with its help text; `shown` is further information for the command line."""
    return Field(default, description=description, json_schema_extra=shown)


class NewOptions(Section):
    """The rules and the sets of a loop."""

    baseline: tuple[str, ...] = _option(
        "A recipe, NAME:SEED=RUN for each run, a folder of a program, or a name for a file of scores.", ...
    )
    public: str | None = _option("The public set: a .tsv file, or as a recipe names a corpus.")
    sealed: str | None = _option("The sealed set.", default_text="the public set is halved")
    metric: str | None = _option(f"The metric that decides: {METRIC_NAMES}")
    preset: Literal["small", "usual", "thorough"] = _option("How many seeds confirm a proposal.", "usual")
    least: Score = _option("The effect that must be exceeded; below 0 for what simplifies.", 0.0)
    not_worse: MetricNumbers = _option("METRIC=NUMBER: what a further metric may lose at most.", ())
    run: str | None = _option(
        "The command of programs, in their folders, with {seed} and {scores}: 'python train.py {seed} {scores}'."
    )
    scores: Path | None = _option("The scores of the baseline, of which lines are added as the gate asks for seeds.")
    lower: bool = _option("Less is better, in the scores of programs.", False)

    @property
    def margins(self) -> dict[str, float]:
        return numbers_by_metric(self.not_worse)


class GateOptions(Section):
    """How cells are made, and a proposal."""

    propose: tuple[str, ...] = _option(
        "A recipe, [NAME=]FILE; NAME, with changes to the recipe of the baseline; NAME:SEED=RUN for each run; a folder "
        "of a program; or a name for a file of scores.",
        (),
    )
    scores: Path | None = _option("The scores of the proposal: seed, segment, score, and set, separated by tabs.")
    baseline: tuple[str, ...] = _option("NAME:SEED=RUN: further runs of the baseline.", ())
    yes: bool = _option("Run the command of the loop without being asked.", False)
    withdraw: bool = _option("Drop the proposal; what its confirmation has spent stays spent.", False)
    workers: Workers | None = _option(
        "Cells that are made at a time.", default_text="models: what there is room for; programs: 1"
    )
    threads: Workers = _option("Threads of each cell.", 1)
    wait: Annotated[float, Field(ge=0, le=86_400)] | None = _option(
        "Seconds to wait for another process that writes this ledger.", default_text="as long as it takes"
    )
