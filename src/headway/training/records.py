"""Records of a run during training: metrics.jsonl, loggers, and the values of updates that are not written yet."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from headway.core.system import sync
from headway.recipe import flatten
from headway.runs.metrics import add_line
from headway.runs.run_folder import RunFolder
from headway.training.checkpoints import TrainingState, UpdateWindow
from headway.training.loggers import build_loggers, survived
from headway.training.updates import Gradients, PlannedUpdate


@dataclass(frozen=True)
class Outcome:
    """The values of one update, read from the `Gradients` on the device."""

    plan: PlannedUpdate
    parts: Mapping[str, float]
    unsmoothed: float
    norm: float
    tokens: int

    @property
    def loss(self) -> float:
        return sum(self.parts.values())

    @property
    def finite(self) -> bool:
        """Whether the update was made."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)

    @property
    def fault(self) -> str:
        """The quantity that is not finite: the gradient or the loss."""
        return "gradient" if math.isfinite(self.loss) else "loss"


def add_to_window(window: UpdateWindow, outcome: Outcome) -> None:
    """Add an update to the sums of the window."""
    if not outcome.finite:
        window.skipped += 1
        return
    window.updates += 1
    window.tokens += outcome.tokens
    window.loss += outcome.loss
    window.unsmoothed += outcome.unsmoothed
    window.unsmoothed_tokens += outcome.tokens
    window.norm += outcome.norm
    for name, part in outcome.parts.items():
        window.parts[name] = window.parts.get(name, 0.0) + part


class Records:
    """The records of one run. Only a process with `write` writes them.

    Attributes:
        loss: the loss of the last line, for display; empty before the first line.
        speed: the speed of the last line, for display.
    """

    def __init__(self, folder: RunFolder, *, write: bool, loggers: Sequence[Mapping[str, Any]] = ()) -> None:
        self._file = folder.metrics if write else None
        self._loggers = build_loggers(loggers, folder.path) if write else []
        self._unread: list[tuple[PlannedUpdate, Gradients]] = []
        self.loss = self.speed = ""

    def add(self, plan: PlannedUpdate, gradients: Gradients) -> None:
        """Store an update, without reading its values from the device."""
        self._unread.append((plan, gradients))

    def read(self) -> list[Outcome]:
        """The outcomes of the updates since the last call. Waits for the device, once."""
        if not self._unread:
            return []
        numbers = [
            torch.cat([given.sums, torch.stack([given.unsmoothed, given.norm.to(given.sums)])])
            for _, given in self._unread
        ]
        outcomes = [
            Outcome(plan, dict(zip(given.names, sums, strict=True)), unsmoothed, norm, given.tokens)
            for (plan, given), (*sums, unsmoothed, norm) in zip(
                self._unread, torch.stack(numbers).tolist(), strict=True
            )
        ]
        self._unread = []
        return outcomes

    def write_window(self, state: TrainingState, rate: float) -> None:
        """Write a line about the updates in the window, if any, and begin a new window."""
        window = state.window
        if not (window.updates or window.skipped):
            return
        tokens, elapsed = window.tokens, max(state.seconds - window.began, 1e-9)
        loss = window.loss / tokens if tokens else None
        parts = window.parts if tokens and len(window.parts) > 1 else {}
        self.write(
            {
                "update": state.update,
                "epoch": state.epoch,
                "loss": loss,
                "unsmoothed_loss": window.unsmoothed / window.unsmoothed_tokens if window.unsmoothed_tokens else None,
                **{f"loss.{name}": part / tokens for name, part in parts.items()},
                "target_tokens": tokens,
                "target_tokens_per_second": tokens / elapsed,
                "learning_rate": rate,
                "gradient_norm": window.norm / window.updates if window.updates else None,
                "skipped": window.skipped,
                "seconds": state.seconds,
                "cpu_seconds": state.cpu_seconds,
            }
        )
        self.loss, self.speed = f"loss {loss or 0:.3f}", f"{tokens / elapsed:,.0f} tokens/s"
        state.window = UpdateWindow(began=state.seconds)

    def write(self, values: Mapping[str, Any]) -> None:
        """Write a line to metrics.jsonl, and its numbers to all loggers."""
        if self._file is None:
            return
        add_line(self._file, values)
        every = {key.removeprefix("dev."): value for key, value in flatten(dict(values)).items()}
        numbers = {key: value for key, value in every.items() if isinstance(value, int | float)}
        loggers, self._loggers = self._loggers, []
        for logger in loggers:
            with survived(type(logger).__name__):
                logger.write(values["update"], numbers)
                self._loggers.append(logger)

    def sync(self) -> None:
        """Flush the file to disk, so that it survives a power failure like the checkpoint that follows."""
        if self._file is not None and self._file.exists():
            sync(self._file)

    def close(self) -> None:
        """Close all loggers."""
        for logger in self._loggers:
            with survived(type(logger).__name__):
                logger.close()


def is_before(entry: Mapping[str, Any], state: TrainingState, evaluate_every: int) -> bool:
    """Whether a line of metrics.jsonl was written before the checkpoint of `state`."""
    # The checkpoint of the last update is rewritten at the end of training if its evaluation was not due.
    due = bool(state.stopped) or state.update % evaluate_every == 0
    is_later_evaluation = "dev_loss" in entry and (state.evaluation_pending or not due)
    same = entry["update"] == state.update > 0  # lines before the first update are rewritten
    return bool(entry["update"] < state.update or (same and not is_later_evaluation))
