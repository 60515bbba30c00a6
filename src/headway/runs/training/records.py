"""Records of a run while it trains: metrics.jsonl, TensorBoard, and the numbers of updates not yet in either."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from headway.files import write_text
from headway.runs.run_folder import RunFolder
from headway.runs.training.batches import PlannedUpdate
from headway.runs.training.checkpoints import TrainingState
from headway.runs.training.updates import Gradients

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


@dataclass(frozen=True)
class Outcome:
    """One update in numbers.

    Attributes:
        plan: which examples it was made of.
        parts: of the loss, each summed over all target tokens.
        norm: of the gradients, unclipped.
        tokens: all target tokens.
    """

    plan: PlannedUpdate
    parts: Mapping[str, float]
    norm: float
    tokens: int

    @property
    def loss(self) -> float:
        """The sum of all parts."""
        return sum(self.parts.values())

    @property
    def finite(self) -> bool:
        """Whether the update was made."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)

    @property
    def fault(self) -> str:
        """The first thing that is not finite."""
        return "gradient" if math.isfinite(self.loss) else "loss"


class Records:
    """The records of one run.

    Args:
        folder: the run folder.
        write: whether this process writes.
        tensorboard: whether it writes for TensorBoard, too.

    Attributes:
        shown: loss and speed of the last line, for people.
    """

    def __init__(self, folder: RunFolder, *, write: bool, tensorboard: bool) -> None:
        self._file = folder.metrics if write else None
        self._board = _summary_writer(folder.path / "tensorboard") if write and tensorboard else None
        self._unread: list[tuple[PlannedUpdate, Gradients]] = []
        self._window: list[Outcome] = []
        self._began = 0.0
        self.shown = ""

    def add(self, plan: PlannedUpdate, gradients: Gradients, seconds: float) -> None:
        """Remember an update, `seconds` after training began; waits for no numbers."""
        if not (self._unread or self._window):
            self._began = self._began or seconds
        self._unread.append((plan, gradients))

    def read(self) -> list[Outcome]:
        """The updates since the last call, in numbers; waits for the device, once."""
        if not self._unread:
            return []
        numbers = [torch.cat([given.sums, given.norm.to(given.sums).view(1)]) for _, given in self._unread]
        outcomes = [
            Outcome(plan, dict(zip(given.names, sums, strict=True)), norm, given.tokens)
            for (plan, given), (*sums, norm) in zip(self._unread, torch.stack(numbers).tolist(), strict=True)
        ]
        self._unread = []
        self._window += outcomes
        return outcomes

    def write_window(self, state: TrainingState, rate: float) -> None:
        """Write a line on the updates that were read since the last line, where there are any."""
        if not self._window:
            return
        good = [outcome for outcome in self._window if outcome.finite]
        tokens = sum(outcome.tokens for outcome in good)
        elapsed = max(state.seconds - self._began, 1e-9)
        loss = sum(outcome.loss for outcome in good) / tokens if tokens else None
        parts = good[0].parts if good and len(good[0].parts) > 1 else ()
        self.write(
            {
                "update": state.update,
                "epoch": state.epoch,
                "loss": loss,
                **{f"loss.{name}": sum(outcome.parts[name] for outcome in good) / tokens for name in parts},
                "target_tokens": tokens,
                "target_tokens_per_second": tokens / elapsed,
                "learning_rate": rate,
                "gradient_norm": sum(outcome.norm for outcome in good) / len(good) if good else None,
                "skipped": len(self._window) - len(good),
                "seconds": state.seconds,
                "cpu_seconds": state.cpu_seconds,
            }
        )
        self.shown = f"loss {loss or 0:.3f} · {tokens / elapsed:,.0f} tokens/s"
        self._window, self._began = [], state.seconds

    def write(self, values: Mapping[str, Any]) -> None:
        """Write one line of metrics.jsonl, and its numbers for TensorBoard."""
        if self._file is None:
            return
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")
        if self._board is not None:
            numbers = {key: value for key, value in values.items() if isinstance(value, int | float)}
            for name, value in (numbers | values.get("dev", {})).items():
                self._board.add_scalar(name, value, values["update"])

    def close(self) -> None:
        """End what is written for TensorBoard."""
        if self._board is not None:
            self._board.close()


def _summary_writer(folder: Path) -> "SummaryWriter":
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder))


def trim_metrics(folder: RunFolder, state: TrainingState, evaluate_every: int) -> None:
    """Leave out of metrics.jsonl what came after the checkpoint that training goes on from."""
    lines: Sequence[str] = folder.metrics.read_text(encoding="utf-8").splitlines() if folder.metrics.exists() else []
    kept = [line for line in lines if _is_before(line, state, evaluate_every)]
    write_text(folder.metrics, "".join(f"{line}\n" for line in kept))


def _is_before(line: str, state: TrainingState, evaluate_every: int) -> bool:
    """Whether a line of metrics.jsonl is whole and was written before the checkpoint that `state` was read from."""
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    # The last update's checkpoint is written anew once training ends, where its evaluation was not due before.
    due = bool(state.stopped) or state.update % evaluate_every == 0
    is_later_evaluation = "dev_loss" in entry and (state.evaluation_pending or not due)
    return bool(entry["update"] < state.update or (entry["update"] == state.update and not is_later_evaluation))
