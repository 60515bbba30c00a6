"""HTML pages that need nothing else, and the report of a run: learning curves, tables, attention in dev sentences.

A page is a template of `page/` with its styles, scripts and data in it. All text goes into a page as data and is set as
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
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.errors import UserError
from headway.files import write_text
from headway.predictors.captured_attention import AttentionName
from headway.registry import foreign_code
from headway.runs.load import load
from headway.runs.run_folder import RunFolder
from headway.tables import Column, Table
from headway.tasks import build_task
from headway.tasks.task import Example

STYLES = ("palette.css", "report.css")
SCRIPTS = ("elements.js", "charts.js", "save.js", "report.js", "curves.js", "attention.js")
MOST_POINTS = 1000  # a curve on a screen has no room for more
SENTENCES = 12  # of dev, in the report


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
    parts = {
        "title": html.escape(title),
        "style": _joined(styles, folders),
        "data": "\n".join(_data(name, value) for name, value in data.items()),
        "script": _joined(scripts, folders),
    }
    # In one pass, so that text that looks like a placeholder stays text.
    write_text(path, re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read(template, folders)))


def _data(name: str, value: Any) -> str:
    content = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Within a script element only `<` could end it (</script>) or change how it is read (<!--).
    content = content.replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{content}</script>'


def _joined(names: Iterable[str], folders: Sequence[Traversable]) -> str:
    return "\n".join(_read(name, folders) for name in names)


def _read(name: str, folders: Sequence[Traversable]) -> str:
    found = next(folder.joinpath(name) for folder in folders if folder.joinpath(name).is_file())
    return found.read_text(encoding="utf-8")


def pack_integers(values: npt.NDArray[np.integer[Any]]) -> str:
    """The bytes of integers, little end first, deflated, in base64."""
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return base64.b64encode(zlib.compress(little.tobytes(), level=6)).decode()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`.

    Raises:
        UserError: there is no such file, or a line is not a JSON object with an `update`.
    """
    if not path.is_file():
        raise UserError("there are no metrics; is this a run folder?", where=str(path))
    lines = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"is not JSON ({error.msg})", where=f"{path}:{number}", received=line) from None
        if not isinstance(value, dict) or not isinstance(value.get("update"), int):
            raise UserError("is not an object with the number of an update", where=f"{path}:{number}", received=line)
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
    examples: Sequence[Example] = (),
    tables: Sequence[Table] = (),
    headline: str = "",
) -> None:
    """Write the report to `path`.

    Args:
        headline: the result in a line, above all else.
        summary: facts about the run by name, shown at the top.
        metrics: the run's `metrics.jsonl`.
        examples: sentences to show, with their attention where they have it; those that are wrong come first.
        tables: the first is shown, the others are folded.

    Raises:
        UserError: the metrics cannot be read.
    """
    page = payload(
        title=title,
        headline=headline,
        summary=summary,
        metrics=metrics,
        examples=mistakes_first(examples),
        tables=tables,
    )
    write_page(path, "report.html", title=title, styles=STYLES, scripts=SCRIPTS, data={"payload": page})


def mistakes_first(examples: Sequence[Example]) -> list[Example]:
    """The examples whose output is not the reference, then the others, each in their order."""
    return sorted(examples, key=lambda example: example.hypothesis == example.reference)


def payload(
    *,
    title: str,
    headline: str,
    summary: dict[str, str],
    metrics: Path,
    examples: Sequence[Example],
    tables: Sequence[Table],
) -> dict[str, Any]:
    """The content of the page as values that JSON can hold."""
    return {
        "title": title,
        "headline": headline,
        "summary": [[name, value] for name, value in summary.items()],
        "curves": {name: _thinned(points) for name, points in curves(read_metrics(metrics)).items()},
        "examples": [_example(example) for example in examples],
        "tables": [
            {"title": table.title, "note": " ".join(table.notes), "columns": table.headings(), "rows": table.cells()}
            for table in tables
        ],
    }


def _thinned(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    stride = math.ceil(len(points) / MOST_POINTS)
    return points[:-1:stride] + points[-1:]


def _example(example: Example) -> dict[str, Any]:
    return {
        "source": example.source,
        "hypothesis": example.hypothesis,
        "reference": example.reference,
        "score": example.score if example.score is not None and math.isfinite(example.score) else None,
        "sourceTokens": example.source_tokens,
        "targetTokens": example.target_tokens,
        "drawings": example.drawings,
        "attention": {
            name: {"title": AttentionName.parse(name).title, "heads": len(weights), "data": pack_weights(weights)}
            for name, weights in example.attention.items()
        },
    }


def pack_weights(weights: npt.NDArray[np.floating[Any]]) -> str:
    """Weights between 0 and 1 as bytes (0 to 255), deflated, in base64: a tenth of their size as numbers in JSON."""
    quantised = np.rint(np.clip(np.nan_to_num(weights), 0, 1) * 255).astype(np.uint8)
    return pack_integers(quantised)


def summary_of(folder: RunFolder) -> dict[str, str]:
    """The facts at the top of the page."""
    manifest, recipe = folder.read_manifest(), folder.read_recipe()
    machine = manifest.get("machine", {})
    computer = [machine[key] for key in ("processor", "instruction_set") if machine.get(key)]
    precision = manifest.get("precision", recipe.training.precision)
    return {
        "task": recipe.task,
        "model": f"{recipe.model.kind}, {manifest['parameters']:,} parameters",
        "updates": f"{manifest.get('updates', 0):,}",
        "training": f"{manifest.get('seconds', 0) / 60:.1f} minutes, {precision}",
        "machine": ", ".join([*computer, f"{machine.get('threads', '')} threads"]),
        "seed": str(manifest["seed"]),
        "headway": f"{manifest['headway']}, torch {machine.get('torch', '')}",
    }


def baseline_tables(folder: RunFolder) -> list[Table]:
    """The model's last scores on dev beside those of outputs that need no model; no table where there are none."""
    evaluated = [line for line in read_metrics(folder.metrics) if line.get("baselines")]
    if not evaluated:
        return []
    last = evaluated[-1]
    systems = {f"the model after {last['update']:,} updates": last["dev"], **last["baselines"]}
    rows = [[name, *(scores[metric] for metric in last["dev"])] for name, scores in systems.items()]
    columns = [Column(""), *(Column(metric, format=".2f") for metric in last["dev"])]
    return [Table(columns, rows, title="Scores on dev", notes=["What needs no model stands below it."])]


def last_scores(folder: RunFolder) -> str:
    """The scores of the last evaluation in a line; empty without a dev set."""
    evaluated = [line for line in read_metrics(folder.metrics) if line.get("dev")]
    scores = evaluated[-1]["dev"] if evaluated else {}
    return ", ".join(f"{name.replace('_', ' ')} {value:.1f}" for name, value in scores.items()) + (
        " on dev" if scores else ""
    )


def write_run_report(
    run: Path, tables: Sequence[Table] = (), examples: Sequence[Example] | None = None, headline: str | None = None
) -> Path:
    """Write `report.html` into a finished run's folder.

    The examples are by default the first of dev, and the headline the scores of the last evaluation. It belongs to
    training, so that the code which the run names is imported.
    """
    folder = RunFolder(run)
    with foreign_code(True):
        if examples is None:
            task = build_task(folder.read_recipe().task)
            examples = task.examples(load(run, allow_code=True), SENTENCES)
        write_report(
            folder.report,
            title=f"headway · {run.name}",
            summary=summary_of(folder),
            metrics=folder.metrics,
            examples=examples,
            tables=[*tables, *baseline_tables(folder)],
            headline=last_scores(folder) if headline is None else headline,
        )
    return folder.report
