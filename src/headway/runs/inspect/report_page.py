"""The report of a run: one HTML file that needs nothing else, with learning curves, tables and attention maps.

Python collects what is shown in a payload; `page/report.html`, its style sheets and its scripts show it.

Shapes: K heads, T target tokens, S source tokens, both with the end mark.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.errors import UserError
from headway.runs.inspect.pages import pack_integers, write_page
from headway.tasks.task import Example

STYLES = ("palette.css", "report.css")
SCRIPTS = ("elements.js", "report.js", "curves.js", "attention.js")

# A curve on a screen has no room for more points.
MOST_POINTS = 1000


@dataclass
class Table:
    """A table of texts, with what its caption says. Columns that hold numbers only are aligned to the right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


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
) -> None:
    """Write the report to `path`.

    Args:
        summary: facts about the run by name, shown at the top.
        metrics: the run's `metrics.jsonl`.
        examples: sentences to show, with their attention where they have it.

    Raises:
        UserError: the metrics cannot be read.
    """
    page = payload(title=title, summary=summary, metrics=metrics, examples=examples, tables=tables)
    write_page(path, "report.html", title=title, styles=STYLES, scripts=SCRIPTS, data={"payload": page})


def payload(
    *, title: str, summary: dict[str, str], metrics: Path, examples: Sequence[Example], tables: Sequence[Table]
) -> dict[str, Any]:
    """All that the page shows, as JSON can hold it."""
    return {
        "title": title,
        "summary": [[name, value] for name, value in summary.items()],
        "curves": {name: _thinned(points) for name, points in curves(read_metrics(metrics)).items()},
        "examples": [_example(example) for example in examples],
        "tables": [
            {
                "title": table.title,
                "note": table.note,
                "columns": list(table.columns),
                "rows": [list(row) for row in table.rows],
            }
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
            name: {"heads": len(weights), "data": pack_weights(weights)} for name, weights in example.attention.items()
        },
    }


def pack_weights(weights: npt.NDArray[np.floating[Any]]) -> str:
    """Weights between 0 and 1 as bytes (0 to 255), deflated, in base64: a tenth of their size as numbers in JSON."""
    quantised = np.rint(np.clip(np.nan_to_num(weights), 0, 1) * 255).astype(np.uint8)
    return pack_integers(quantised)
