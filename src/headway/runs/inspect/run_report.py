"""The report page of a run: its learning curve, its settings, and what it attends to in a few dev sentences."""

from collections.abc import Sequence
from pathlib import Path

from headway.runs.inspect.report_page import Table, read_metrics, write_report
from headway.runs.load import load
from headway.runs.run_folder import RunFolder
from headway.tasks import build_task
from headway.tasks.task import Example

SENTENCES = 12


def summary_of(folder: RunFolder) -> dict[str, str]:
    """The facts at the top of the page."""
    manifest, recipe = folder.read_manifest(), folder.read_recipe()
    machine = manifest.get("machine", {})
    return {
        "task": recipe.task,
        "model": f"{recipe.model.kind}, {manifest['parameters']:,} parameters",
        "updates": f"{manifest.get('updates', 0):,}",
        "training": f"{manifest.get('seconds', 0) / 60:.1f} minutes, {recipe.training.precision}",
        "machine": f"{machine.get('processor', '')}, {machine.get('threads', '')} threads",
        "seed": str(manifest["seed"]),
        "headway": f"{manifest['headway']}, torch {machine.get('torch', '')}",
    }


def baseline_tables(folder: RunFolder) -> list[Table]:
    """The model's last scores on dev beside those of what needs no model; no table where there is no such."""
    evaluated = [line for line in read_metrics(folder.metrics) if line.get("baselines")]
    if not evaluated:
        return []
    last = evaluated[-1]
    systems = {f"the model after {last['update']:,} updates": last["dev"], **last["baselines"]}
    rows = [[name, *(f"{scores[metric]:.2f}" for metric in last["dev"])] for name, scores in systems.items()]
    return [Table("Scores on dev", ["", *last["dev"]], rows, "What needs no model stands below it.")]


def write_run_report(run: Path, tables: Sequence[Table] = (), examples: Sequence[Example] | None = None) -> Path:
    """Write `report.html` into a finished run's folder, with these examples or, by default, the first of dev."""
    folder = RunFolder(run)
    if examples is None:
        predictor = load(run, allow_code=True)
        examples = build_task(predictor.recipe.task).examples(predictor, SENTENCES)
    write_report(
        folder.report,
        title=f"headway · {run.name}",
        summary=summary_of(folder),
        metrics=folder.metrics,
        examples=examples,
        tables=[*tables, *baseline_tables(folder)],
    )
    return folder.report
