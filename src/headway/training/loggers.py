"""Loggers: programs that get the numbers of a run beside metrics.jsonl, as they are written."""

import importlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from headway.core.config import validated
from headway.core.errors import not_installed
from headway.core.files import write_text
from headway.core.log import warn
from headway.core.registry import Registry, config_of

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
        given = {"name": folder.name, "id": identity(folder), "resume": "allow", "dir": str(folder)}
        self._run = wandb.init(project=project, **given)
        # Its own count of steps only grows, and drops what a resumed run writes of its last updates.
        self._run.define_metric("*", step_metric="update")

    def write(self, update: int, numbers: Mapping[str, float]) -> None:
        self._run.log({**numbers, "update": update})

    def close(self) -> None:
        self._run.finish()


class MLflow(Logger):
    """A run of MLflow, which a resumed run goes on with; MLFLOW_TRACKING_URI says where."""

    package = "mlflow"

    def __init__(self, folder: Path, *, experiment: str = "headway") -> None:
        mlflow: Any = importlib.import_module("mlflow")
        self._client, own = mlflow.MlflowClient(), identity(folder)
        known = self._client.get_experiment_by_name(experiment)
        number = known.experiment_id if known else self._client.create_experiment(experiment)
        runs = self._client.search_runs([number], f"tags.headway = '{own}'")
        run = runs[0] if runs else self._client.create_run(number, tags={"headway": own}, run_name=folder.name)
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


def identity(folder: Path) -> str:
    """The name of a run in other programs, which it keeps where its folder goes; another in its place has its own."""
    file = folder / "identity"
    if not file.exists():
        write_text(file, uuid4().hex)
    return file.read_text(encoding="utf-8")


def check_loggers(entries: Sequence[Mapping[str, Any]]) -> None:
    """Raise UserError for a logger that there is not, whose library is not installed, or that has no such option."""
    for entry in entries:
        logger = LOGGERS.get(entry.get("kind"), WHERE)
        validated(config_of(logger), {key: value for key, value in entry.items() if key != "kind"}, WHERE)
        if (name := logger.package) is not None and importlib.util.find_spec(name) is None:
            raise not_installed("this logger", [name], name, WHERE)


@contextmanager
def survived(name: str) -> Iterator[None]:
    """Within this context an error is a warning: no training ends with a logger that fails."""
    try:
        yield
    except Exception as error:  # whatever its library raises
        why = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        warn(f"{WHERE}: {name} failed, and gets nothing more of this training; metrics.jsonl has all ({why})")


def build_loggers(entries: Sequence[Mapping[str, Any]], folder: Path) -> list[Logger]:
    """The loggers of a run that can be made here."""
    made = list[Logger]()
    for entry in entries:
        with survived(entry["kind"]):
            made.append(LOGGERS.build(entry, folder, where=WHERE))
    return made
