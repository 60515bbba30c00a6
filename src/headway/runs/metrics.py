"""The training log of a run, metrics.jsonl, with a JSON object per line. All reading and writing is here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, FiniteFloat, TypeAdapter

from headway.core.documents import LARGEST_JSON, parse_json, read_text, shaped
from headway.core.errors import UserError
from headway.core.files import write_bytes
from headway.core.log import warn


class MetricsLine(BaseModel):
    """The types of the known values of a line. A line may have other values."""

    model_config = ConfigDict(extra="allow", strict=True)

    update: int
    seconds: FiniteFloat = 0.0
    cpu_seconds: FiniteFloat = 0.0
    dev_loss: float | None = None
    dev: dict[str, float] = {}


LINE = TypeAdapter(MetricsLine)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`.

    Raises:
        UserError: the file is missing, or a line is not a JSON object with an `update`.
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
        shaped(value, LINE, where, "this line")
        lines.append(value)
    return lines


def add_line(path: Path, values: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8", newline="\n") as file:
        file.write(json.dumps(values) + "\n")


def keep_lines(path: Path, kept: Callable[[Mapping[str, Any]], bool]) -> None:
    """Rewrite the file with the lines for which `kept` is true. Damaged lines are dropped with a warning."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    content, damaged = [], []
    for number, line in enumerate(lines, start=1):
        try:
            entry = parse_json(line.decode(), str(path), dict)
            shaped(entry, LINE, str(path))
        except (UserError, UnicodeDecodeError):
            if number < len(lines) or line.endswith(b"\n"):  # a killed process may leave an incomplete last line
                damaged.append(number)
            continue
        if kept(entry):
            content.append(line.rstrip(b"\r\n") + b"\n")
    if damaged:
        shown = ", ".join(map(str, damaged[:10])) + (" ..." if len(damaged) > 10 else "")
        warn(f"{path}: {len(damaged)} damaged lines were left out (lines {shown})")
    write_bytes(path, b"".join(content))
