"""Training from Python in one call, and what it leaves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.recipe import Recipe, load_recipe
from headway.runs.load import AnyPredictor, load
from headway.runs.run import open_run
from headway.runs.training.loop import train as run_training
from headway.runs.training.parallel import told_once


@dataclass(frozen=True)
class Trained:
    """A run that training has left.

    Attributes:
        run: the run folder.
        code: 0 where training is complete, 128 + the signal's number where a signal stopped it.
    """

    run: Path
    code: int

    @property
    def complete(self) -> bool:
        """Whether training came to its end."""
        return self.code == 0

    @property
    def history(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`: training progress, and the scores of every evaluation under `dev`."""
        return open_run(self.run).metrics

    @property
    def scores(self) -> dict[str, float]:
        """The dev scores of the weights, by metric: of their checkpoint, or of the last of those that were averaged.

        They are empty without a dev set, and before the first checkpoint.
        """
        evaluated = open_run(self.run).kept_evaluations()
        return dict(evaluated[-1]["dev"]) if evaluated else {}

    @property
    def report(self) -> Path | None:
        """The report page, where there is one."""
        page = open_run(self.run).folder.report
        return page if page.is_file() else None

    def load(self, **options: Any) -> AnyPredictor:
        """The trained model; `options` are those of `headway.load`. The code that the run names is imported."""
        return load(self.run, **{"allow_code": True} | options)

    def __repr__(self) -> str:
        state = "complete" if self.complete else "stopped"
        scores = ", ".join(f"{name} {value:.4g}" for name, value in self.scores.items())
        return f"<Trained {self.run}: {state}{', ' if scores else ''}{scores}>"


def train(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    output: str | Path,
    overrides: Sequence[str] = (),
    *,
    resume: bool = False,
    report: bool = True,
) -> Trained:
    """Train what `recipe` describes into the run folder `output`.

    With `resume`, a run that was stopped continues from its last whole checkpoint. It ends, on the same machine
    with the same number of threads, with the same weights bit for bit as a run that was never interrupted.

    Args:
        recipe: a recipe file, its sections as a dict, or a Recipe.
        output: the run folder to make.
        overrides: changes to a recipe that is a file or a dict, such as `training.updates=2000`.
        resume: go on with the run that is there.
        report: write `report.html` where training is complete.

    Raises:
        UserError: a recipe, data or run folder that cannot be used.
        RunError: training diverged, memory or the disk ran out.
    """
    output = Path(output)
    with told_once():
        checked = recipe if isinstance(recipe, Recipe) else load_recipe(recipe, overrides)
    return Trained(output, run_training(checked, output, resume=resume, report=report))
