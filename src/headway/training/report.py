"""The HTML report of a run: scores, learning curves, tables, and attention on dev."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from headway.core.files import write_bytes
from headway.core.log import counted
from headway.core.tables import Column, Table
from headway.metrics import written
from headway.pages.page import data_element, packed_weights, write_page
from headway.predictors.captured_attention import END, AttentionName
from headway.predictors.input_account import InputAccount, accounted
from headway.predictors.output import Output
from headway.runs.load import load
from headway.runs.metrics import read_metrics
from headway.runs.run import StoredRun, open_run
from headway.runs.run_folder import precision_of

STYLES = ("palette.css", "report.css", "heatmap.css")
SCRIPTS = (
    "elements.js", "charts.js", "save.js", "weights.js", "heatmap.js", "report.js", "curves.js", "attention.js"
)  # fmt: skip
INSIDE = "inside.html"  # the page of `headway inspect` in a run folder
BITS = 8  # of a packed attention weight
MOST_POINTS = 1000  # of a curve
SENTENCES = 12  # of dev, in the report


def curves(lines: Sequence[dict[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """The (update, value) points of every quantity in the lines of `read_metrics`, in order.

    Dev metrics are named like `dev.exact_match`. Values that are not finite are left out, so a curve has a gap there.
    """
    points: dict[str, list[tuple[int, float]]] = {}
    for line in lines:
        values = {name: value for name, value in line.items() if name not in ("update", "dev")}
        values |= {f"dev.{name}": value for name, value in line.get("dev", {}).items()}
        for name, value in values.items():
            if isinstance(value, int | float) and math.isfinite(value):
                points.setdefault(name, []).append((line["update"], value))
    return points


def write_report(
    path: Path,
    *,
    title: str,
    summary: dict[str, str],
    metrics: Path,
    examples: Sequence[Output] = (),
    drawings: Callable[[Output], dict[str, str]] | None = None,
    tables: Sequence[Table] = (),
    headline: str = "",
) -> None:
    """Write the report to `path`, with a link to the page of `headway inspect` if that is in the same folder.

    Args:
        headline: the result in one line, at the top.
        summary: facts about the run by name, shown at the top.
        metrics: the run's `metrics.jsonl`.
        drawings: returns the text drawings of an output, by name.
        examples: outputs to show, with their attention if captured; wrong outputs come first.
        tables: tables; all but the first are collapsed.

    Raises:
        UserError: the metrics cannot be read.
    """
    points = curves(read_metrics(metrics))
    # The dev loss has no label smoothing, and is shown with the training loss without label smoothing. Runs of
    # older versions lack this curve, and show the objective instead.
    training = ("training", "unsmoothed_loss") if "unsmoothed_loss" in points else ("objective", "loss")
    page = {
        "title": title,
        "headline": headline,
        "summary": list(summary.items()),
        "curves": {name: line[: -1 : math.ceil(len(line) / MOST_POINTS)] + line[-1:] for name, line in points.items()},
        "metrics": {name: written(name.removeprefix("dev.")) for name in points if name.startswith("dev.")},
        "losses": [pair for pair in (training, ("dev", "dev_loss")) if pair[1] in points],
        "examples": [
            {
                "source": example.source,
                "hypothesis": example.text,
                "reference": next(iter(example.example.references), None),
                "score": example.score if math.isfinite(example.score) else None,
                "sourceTokens": next(iter(example.attention.columns.values()), example.attended),
                "targetTokens": next(iter(example.attention.rows.values()), [*example.tokens, END]),
                "drawings": drawings(example) if drawings is not None else {},
                "attention": [
                    {"title": AttentionName.parse(name).title, "signed": (signed := bool((weights < 0).any()))}
                    | packed_weights(np.nan_to_num(weights), BITS, signed=signed)
                    for name, weights in example.attention.items()
                ],
            }
            for example in sorted(examples, key=lambda example: example.text in example.example.references[:1])
        ],
        "tables": [
            {"title": table.title, "note": " ".join(table.notes), "columns": table.headings(), "rows": table.cells()}
            for table in tables
        ],
    }
    data = {"payload": page, "inside": INSIDE if path.with_name(INSIDE).is_file() else None}
    assets = resources.files(__package__).joinpath("page")
    write_page(path, "report.html", title=title, styles=STYLES, scripts=SCRIPTS, data=data, assets=assets)


def link_inside(report: Path) -> None:
    """Add the link to the page of `headway inspect` to a report that was written before that page."""
    before, after = (data_element("inside", name).encode() for name in (None, INSIDE))
    if report.is_file() and before in (content := report.read_bytes()):
        write_bytes(report, content.replace(before, after))


def summary_of(run: StoredRun) -> dict[str, str]:
    """The facts at the top of the page, from the manifest."""
    manifest, recipe = run.manifest, run.recipe
    machine = manifest.get("machine", {})
    computer = [machine[key] for key in ("processor", "instruction_set") if machine.get(key)]
    computer += [counted(machine["threads"], "thread")] if machine.get("threads") else []
    size = f", {manifest['parameters']:,} parameters" if "parameters" in manifest else ""
    facts = {
        "task": recipe.task,
        "model": f"{recipe.model.kind}{size}",
        "updates": f"{manifest.get('updates', 0):,}",
        "weights": run.weights_shown(),
        "training": f"{manifest.get('seconds', 0) / 60:.1f} minutes, "
        + (precision_of(manifest) or recipe.training.precision),
        "machine": ", ".join(computer),
        "seed": str(manifest.get("seed", recipe.training.seed)),
        "headway": f"{manifest.get('headway', '')}, torch {machine.get('torch', '')}",
    }
    return {name: fact for name, fact in facts.items() if fact or name != "weights"}


def baseline_tables(run: StoredRun) -> list[Table]:
    """The dev scores of the model and of outputs that need no model. An empty list if there are no such outputs.

    The scores belong to the checkpoint of the weights, or to the last of the checkpoints that were averaged.
    """
    if not (evaluated := [line for line in run.kept_evaluations() if line.get("baselines")]):
        return []
    last = evaluated[-1]
    systems = {f"the model after {last['update']:,} updates": last["dev"], **last["baselines"]}
    rows = [[name, *(scores[metric] for metric in last["dev"])] for name, scores in systems.items()]
    columns = [Column(""), *(Column(written(metric), format=".2f") for metric in last["dev"])]
    return [Table(columns, rows, title="Scores on dev", notes=["What needs no model stands below it."])]


def scores_shown(run: StoredRun) -> str:
    """The dev scores of the run's weights in one line. Empty without a dev set.

    For averaged weights, they are the scores of the last of the checkpoints, which the line says.
    """
    if not (evaluated := run.kept_evaluations()):
        return ""
    last, count = evaluated[-1], len(run.manifest["averaged_updates"])
    scores = ", ".join(f"{written(name)} {value:.1f}" for name, value in last["dev"].items())
    of = f" after update {last['update']:,}, the last of {count} averaged checkpoints" if count > 1 else ""
    return f"{scores} on dev{of}"


def write_run_report(
    run: Path, tables: Sequence[Table] = (), examples: Sequence[Output] | None = None, headline: str | None = None
) -> Path:
    """Write `report.html` into a finished run's folder.

    The examples are by default the first of dev, and the headline the scores of the weights.
    """
    opened = open_run(run)
    folder, task = opened.folder, opened.task
    with opened.trusted():
        if examples is None:
            with accounted(InputAccount()):  # training has logged these warnings already
                examples = task.examples(load(run), SENTENCES)
            if (config := task.written(opened.recipe)) is not None:  # to compare the outputs with these
                examples = [replace(output, example=output.example.as_written(config)) for output in examples]
        write_report(
            folder.report,
            title=f"headway · {run.name}",
            summary=summary_of(opened),
            metrics=folder.metrics,
            examples=examples,
            drawings=task.drawings,
            tables=[*tables, *baseline_tables(opened)],
            headline=scores_shown(opened) if headline is None else headline,
        )
    return folder.report
