"""The threshold that was chosen for a run's weights, kept in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from headway.documents import read_json, shaped
from headway.files import sha256, write_json
from headway.predictors.run import WEIGHTS, Run

THRESHOLD = "threshold.json"


class _StoredThreshold(BaseModel):
    """The content of the file."""

    model_config = ConfigDict(strict=True, protected_namespaces=())

    model_sha256: str
    threshold: float = Field(ge=0, le=1)


STORED = TypeAdapter(_StoredThreshold)


def read_threshold(runs: Sequence[Run]) -> float | None:
    """The threshold that was kept for these weights. Raises UserError for a damaged file."""
    folder = _folder(runs)
    if folder is None or not (folder / THRESHOLD).is_file():
        return None
    stored = shaped(read_json(folder / THRESHOLD), STORED, str(folder / THRESHOLD))
    return stored.threshold if stored.model_sha256 == sha256(folder / WEIGHTS) else None


def keep_threshold(runs: Sequence[Run], threshold: float, score: float) -> None:
    """Keep a threshold, with the score that it has on dev, where it is one of a run's own weights."""
    folder = _folder(runs)
    if folder is not None:
        content = {"model_sha256": sha256(folder / WEIGHTS), "threshold": threshold, "dev_f0.5": score}
        write_json(folder / THRESHOLD, content)


def _folder(runs: Sequence[Run]) -> Path | None:
    """Where a threshold is kept: nowhere for several runs, averaged checkpoints or another precision."""
    return runs[0].path if len(runs) == 1 and runs[0].as_stored else None
