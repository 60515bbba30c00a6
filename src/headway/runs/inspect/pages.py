"""HTML pages that need nothing else, and the report of a run: its result, learning curves, tables, attention on dev.

A page is a template of `page/` with its styles, scripts and data in it. All text goes into it as data and is set as
text there, never as markup.

Shapes: K heads, T target tokens, S source tokens, both with the end mark.
"""

from __future__ import annotations

import base64
import html
import json
import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, FiniteFloat, TypeAdapter

from headway.documents import LARGEST_JSON, read_text, shaped
from headway.errors import UserError
from headway.files import write_bytes, write_text
from headway.log import counted
from headway.predictors.captured_attention import END, AttentionName
from headway.predictors.input_account import InputAccount, accounted
from headway.predictors.output import Output
from headway.recipe import Recipe
from headway.registry import foreign_code
from headway.runs.load import load
from headway.runs.run_folder import RunFolder
from headway.tables import Column, Table
from headway.tasks import build_task, dev_metrics


def write_page(
    path: Path,
    template: str,
    *,
    title: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    data: Mapping[str, Any],
    assets: Traversable | None = None,
) -> None:
    """Write a page whole.

    Args:
        path: the page.
        template: the name of its HTML file, with places for `{{title}}`, `{{style}}`, `{{data}}` and `{{script}}`.
        title: its title, as text.
        styles: names of style sheets, in their order.
        scripts: names of scripts, in their order.
        data: values that JSON can hold, each in an element of its own with that id, so that a script reads what it
            needs when it needs it.
        assets: a folder of files that are not in `page/`.
    """
    folders = [resources.files(__package__).joinpath("page"), *([] if assets is None else [assets])]

    def read(name: str) -> str:
        return next(file for folder in folders if (file := folder.joinpath(name)).is_file()).read_text("utf-8")

    parts = {
        "title": html.escape(title),
        "style": "\n".join(map(read, styles)),
        "data": "\n".join(data_element(name, value) for name, value in data.items()),
        "script": "\n".join(map(read, scripts)),
    }
    # In one pass, so that text that looks like a placeholder stays text.
    write_text(path, re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], read(template)))


def data_element(name: str, value: Any) -> str:
    """The element of a page that holds a value as JSON, under an id."""
    content = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Within a script element only `<` could end it (</script>) or change how it is read (<!--).
    content = content.replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{content}</script>'


def packed_weights(weights: npt.NDArray[np.floating[Any]], bits: int, *, signed: bool) -> dict[str, Any]:
    """The weights (K, T, S) of a layer for JSON: the bytes of integers, little end first, deflated, in base64."""
    most = float(np.abs(weights).max(initial=0))
    integers = quantise(weights, most, bits, signed)
    little = integers.astype(integers.dtype.newbyteorder("<"), copy=False)
    data = base64.b64encode(zlib.compress(little.tobytes(), level=6)).decode()
    return {"heads": len(weights), "most": most, "data": data}


def quantise(
    values: npt.NDArray[np.floating[Any]], most: float, bits: int, signed: bool
) -> npt.NDArray[np.integer[Any]]:
    """Values as integers: the square root of their share of `most`, with the sign where there are signs.

    A value v comes back within sqrt(v * most) / (2^bits - 1), twice that with signs; 8 or 16 bits.
    """
    steps = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    roots = np.sign(values) * np.sqrt(np.abs(values) / (most or 1.0))
    integers: npt.NDArray[np.integer[Any]] = np.rint(roots * steps).astype(f"{'' if signed else 'u'}int{bits}")
    return integers


STYLES = ("palette.css", "report.css", "heatmap.css")
SCRIPTS = (
    "elements.js", "charts.js", "save.js", "weights.js", "heatmap.js", "report.js", "curves.js", "attention.js"
)  # fmt: skip
INSIDE = "inside.html"  # the page of `headway inspect` in a run folder
BITS = 8  # of a weight
MOST_POINTS = 1000  # a curve on a screen has no room for more
SENTENCES = 12  # of dev, in the report


class MetricsLine(BaseModel):
    """The types of what a line of `metrics.jsonl` may have besides other values."""

    model_config = ConfigDict(extra="allow", strict=True)

    update: int
    seconds: FiniteFloat = 0.0
    cpu_seconds: FiniteFloat = 0.0
    dev_loss: float | None = None
    dev: dict[str, float] = {}


METRICS_LINE = TypeAdapter(MetricsLine)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`.

    Raises:
        UserError: there is no such file, or a line is not a JSON object with an `update`.
    """
    if not path.is_file():
        raise UserError("there are no metrics; is this a run folder?", where=str(path))
    lines = []
    for number, line in enumerate(read_text(path, LARGEST_JSON, "metrics").splitlines(), start=1):
        where = f"{path}:{number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"is not JSON ({getattr(error, 'msg', error)})", where=where, received=line) from None
        shaped(value, METRICS_LINE, where, "this line")
        lines.append(value)
    return lines


def curves(lines: Sequence[dict[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """The (update, value) points of every quantity in the lines of `read_metrics`, in their order.

    Metrics on dev are named `dev.exact_match`. Values that are not finite are left out: a curve has a gap there.
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
    """Write the report to `path`, with a link to the page of `headway inspect` where that stands beside it.

    Args:
        headline: the result in a line, above all else.
        summary: facts about the run by name, shown at the top.
        metrics: the run's `metrics.jsonl`.
        drawings: gives pictures of an output made of characters, by name.
        examples: sentences to show, with their attention where they have it; those that are wrong come first.
        tables: the first is shown, the others are folded.

    Raises:
        UserError: the metrics cannot be read.
    """
    points = curves(read_metrics(metrics))
    # The loss on dev has no label smoothing, and beside it stands the loss of training that has none either. Runs of
    # older versions have no such curve; theirs is of what training minimises.
    training = ("training", "unsmoothed_loss") if "unsmoothed_loss" in points else ("objective", "loss")
    page = {
        "title": title,
        "headline": headline,
        "summary": list(summary.items()),
        "curves": {name: line[: -1 : math.ceil(len(line) / MOST_POINTS)] + line[-1:] for name, line in points.items()},
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
                    {"title": AttentionName.parse(name).title}
                    | packed_weights(np.nan_to_num(weights), BITS, signed=False)
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
    inside = INSIDE if path.with_name(INSIDE).is_file() else None
    data = {"payload": page, "inside": inside}
    write_page(path, "report.html", title=title, styles=STYLES, scripts=SCRIPTS, data=data)


def link_inside(report: Path) -> None:
    """Let a report that was written before the page of `headway inspect` beside it have a link to that page."""
    before, after = (data_element("inside", name).encode() for name in (None, INSIDE))
    if report.is_file() and before in (content := report.read_bytes()):
        write_bytes(report, content.replace(before, after))


def summary_of(folder: RunFolder) -> dict[str, str]:
    """The facts at the top of the page, as far as the manifest has them."""
    manifest, recipe = folder.read_manifest(), folder.read_recipe()
    machine = manifest.get("machine", {})
    computer = [machine[key] for key in ("processor", "instruction_set") if machine.get(key)]
    computer += [counted(machine["threads"], "thread")] if machine.get("threads") else []
    precision = manifest.get("precision", recipe.training.precision)
    size = [f"{manifest['parameters']:,} parameters"] if "parameters" in manifest else []
    return {
        "task": recipe.task,
        "model": ", ".join([recipe.model.kind, *size]),
        "updates": f"{manifest.get('updates', 0):,}",
        **({"weights": shown} if (shown := weights_shown(folder, recipe)) else {}),
        "training": f"{manifest.get('seconds', 0) / 60:.1f} minutes, {precision}",
        "machine": ", ".join(computer),
        "seed": str(manifest.get("seed", recipe.training.seed)),
        "headway": f"{manifest.get('headway', '')}, torch {machine.get('torch', '')}",
    }


def kept_evaluations(folder: RunFolder) -> list[dict[str, Any]]:
    """The evaluations on dev of the checkpoint that a run's weights are, or of those that they are the mean of."""
    kept = folder.read_manifest().get("averaged_updates", [])
    return [line for line in read_metrics(folder.metrics) if line.get("dev") and line["update"] in kept]


def weights_shown(folder: RunFolder, recipe: Recipe) -> str:
    """The updates that a run's weights are of, and by what they were chosen, in words; empty where not known."""
    updates = folder.read_manifest().get("averaged_updates", [])
    if not updates:
        return ""
    of = "the mean of those after updates" if len(updates) > 1 else "those after update"
    of = f"{of} {', '.join(f'{update:,}' for update in updates)}"
    if recipe.data.dev is None or recipe.training.average.of == "last":
        return of
    by = recipe.training.best_by or next((metric.name for metric in dev_metrics(recipe)), "loss")
    scores = {line["update"]: line["dev"][by] for line in read_metrics(folder.metrics) if by in line.get("dev", {})}
    equal = [update for update, score in scores.items() if score == scores.get(updates[-1])]
    tied = f", of {len(equal)} evaluations with {scores[equal[0]]:.2f} the lowest loss" if len(equal) > 1 else ""
    return f"{of}: best on dev by {by}{tied}"


def baseline_tables(folder: RunFolder) -> list[Table]:
    """The model's scores on dev beside those of outputs that need no model; no table where there are none.

    The scores are those of the checkpoint that the weights are, or of the last of those that they are the mean of.
    """
    evaluated = [line for line in kept_evaluations(folder) if line.get("baselines")]
    if not evaluated:
        return []
    last = evaluated[-1]
    systems = {f"the model after {last['update']:,} updates": last["dev"], **last["baselines"]}
    rows = [[name, *(scores[metric] for metric in last["dev"])] for name, scores in systems.items()]
    columns = [Column(""), *(Column(metric, format=".2f") for metric in last["dev"])]
    return [Table(columns, rows, title="Scores on dev", notes=["What needs no model stands below it."])]


def scores_shown(folder: RunFolder) -> str:
    """The scores on dev of the run's weights in a line; empty without a dev set.

    Of a mean of checkpoints they are those of the last of them, which is said.
    """
    evaluated = kept_evaluations(folder)
    if not evaluated:
        return ""
    last, count = evaluated[-1], len(folder.read_manifest()["averaged_updates"])
    scores = ", ".join(f"{name.replace('_', ' ')} {value:.1f}" for name, value in last["dev"].items())
    of = f" after update {last['update']:,}, the last of {count} averaged checkpoints" if count > 1 else ""
    return f"{scores} on dev{of}"


def write_run_report(
    run: Path, tables: Sequence[Table] = (), examples: Sequence[Output] | None = None, headline: str | None = None
) -> Path:
    """Write `report.html` into a finished run's folder.

    The examples are by default the first of dev, and the headline the scores of the weights. It belongs to
    training, so that the code which the run names is imported.
    """
    folder = RunFolder(run)
    with foreign_code(True):
        task = build_task(folder.read_recipe().task)
        if examples is None:
            with accounted(InputAccount()):  # the account of the data has told what there is to tell
                examples = task.examples(load(run, allow_code=True), SENTENCES)
            if (config := task.written(folder.read_recipe())) is not None:  # which outputs are right is by these
                examples = [replace(output, example=output.example.as_written(config)) for output in examples]
        write_report(
            folder.report,
            title=f"headway · {run.name}",
            summary=summary_of(folder),
            metrics=folder.metrics,
            examples=examples,
            drawings=task.drawings,
            tables=[*tables, *baseline_tables(folder)],
            headline=scores_shown(folder) if headline is None else headline,
        )
    return folder.report
