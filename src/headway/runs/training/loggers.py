"""Loggers: programs that get the numbers of a run beside metrics.jsonl, as they are written."""

import importlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from headway.core.errors import not_installed
from headway.core.registry import Registry
from headway.core.storage import fingerprint

WHERE = "training.loggers"


class Logger(ABC):
    """Gets the numbers of one run, whose folder it is made with, besides options of its own.

    Attributes:
        package: its library, which an extra of the same name installs.
    """

    package: ClassVar[str | None] = None

    @abstractmethod
    def write(self, update: int, numbers: Mapping[str, float]) -> None:
        """Write numbers by name."""

    @abstractmethod
    def close(self) -> None:
        """End what is written."""


class TensorBoard(Logger):
    """Files of TensorBoard, in `tensorboard` of the run folder."""

    package = "tensorboard"

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"))

    def write(self, update: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, update)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases(Logger):
    """A run of Weights & Biases, which a resumed run goes on with; WANDB_MODE=offline keeps it here."""

    package = "wandb"

    def __init__(self, folder: Path, *, project: str = "headway") -> None:
        wandb: Any = importlib.import_module("wandb")
        identity = fingerprint(str(folder.absolute()))[:16]
        self._run = wandb.init(project=project, name=folder.name, id=identity, resume="allow", dir=str(folder))

    def write(self, update: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=update)

    def close(self) -> None:
        self._run.finish()


class MLflow(Logger):
    """A run of MLflow, which a resumed run goes on with; MLFLOW_TRACKING_URI says where."""

    package = "mlflow"

    def __init__(self, folder: Path, *, experiment: str = "headway") -> None:
        mlflow: Any = importlib.import_module("mlflow")
        self._client, identity = mlflow.MlflowClient(), fingerprint(str(folder.absolute()))
        known = self._client.get_experiment_by_name(experiment)
        number = known.experiment_id if known else self._client.create_experiment(experiment)
        runs = self._client.search_runs([number], f"tags.headway = '{identity}'")
        run = runs[0] if runs else self._client.create_run(number, tags={"headway": identity}, run_name=folder.name)
        self._run = run.info.run_id

    def write(self, update: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._client.log_metric(self._run, name, value, step=update)

    def close(self) -> None:
        self._client.set_terminated(self._run)


LOGGERS: Registry[Logger] = Registry(
    "logger",
    f"{__name__}:Logger",
    {"tensorboard": f"{__name__}:TensorBoard", "wandb": f"{__name__}:WeightsAndBiases", "mlflow": f"{__name__}:MLflow"},
)


def check_loggers(entries: Sequence[Mapping[str, Any]]) -> None:
    """Raise UserError for a logger that there is not, or whose library is not installed."""
    for entry in entries:
        name = LOGGERS.get(entry.get("kind"), WHERE).package
        if name is not None and importlib.util.find_spec(name) is None:
            raise not_installed("this logger", [name], name, WHERE)


def build_loggers(entries: Sequence[Mapping[str, Any]], folder: Path) -> list[Logger]:
    """The loggers of a run. Raises UserError as `Registry.build`."""
    return [LOGGERS.build(entry, folder, where=WHERE) for entry in entries]
