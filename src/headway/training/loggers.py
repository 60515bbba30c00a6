"""Loggers: experiment trackers that receive the lines of metrics.jsonl while they are written."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from headway.core.config import validated
from headway.core.errors import require_installed
from headway.core.files import write_text
from headway.core.log import warn
from headway.core.registry import Registry, config_of

WHERE = "training.loggers"


class Logger(ABC):
    """The base class of loggers. A logger is built with the run folder and its options.

    Attributes:
        package: the library that it needs, installed by the extra of the same name.
    """

    package: ClassVar[str | None] = None

    @abstractmethod
    def write(self, update: int, numbers: Mapping[str, float]) -> None:
        """Log numbers by name."""

    @abstractmethod
    def close(self) -> None:
        """Flush and close the log."""


class TensorBoard(Logger):
    """Event files of TensorBoard, in the folder `tensorboard` of the run."""

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
    """A run of Weights & Biases, which a resumed run continues; WANDB_MODE=offline stores it locally.

    `project`: the project of the run.
    """

    package = "wandb"

    def __init__(self, folder: Path, *, project: str = "headway") -> None:
        wandb: Any = importlib.import_module("wandb")
        given = {"name": folder.name, "id": identity(folder), "resume": "allow", "dir": str(folder)}
        self._run = wandb.init(project=project, **given)
        # The built-in step counter only grows, and would drop updates that a resumed run repeats.
        self._run.define_metric("*", step_metric="update")

    def write(self, update: int, numbers: Mapping[str, float]) -> None:
        self._run.log({**numbers, "update": update})

    def close(self) -> None:
        self._run.finish()


class MLflow(Logger):
    """A run of MLflow, which a resumed run continues; MLFLOW_TRACKING_URI sets the server.

    `experiment`: the experiment of the run.
    """

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
    """The identifier of a run in trackers. It is stored in the run folder, so it follows the folder when this moves."""
    file = folder / "identity"
    if not file.exists():
        write_text(file, uuid4().hex)
    return file.read_text(encoding="utf-8")


def check_loggers(entries: Sequence[Mapping[str, Any]]) -> None:
    """Raise UserError if a logger or its option does not exist, or if its library is not installed."""
    for entry in entries:
        logger = LOGGERS.get(entry.get("kind"), WHERE)
        validated(config_of(logger), {key: value for key, value in entry.items() if key != "kind"}, WHERE)
        if (name := logger.package) is not None:
            require_installed("this logger", [name], name, WHERE)


@contextmanager
def survived(name: str) -> Iterator[None]:
    """Within this context, errors become warnings, so that a failing logger never ends training."""
    try:
        yield
    except Exception as error:  # whatever its library raises
        why = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        warn(f"{WHERE}: {name} failed, and gets nothing more of this training; metrics.jsonl has all ({why})")


def build_loggers(entries: Sequence[Mapping[str, Any]], folder: Path) -> list[Logger]:
    """Build the loggers of a run. A logger that cannot be built is left out with a warning."""
    made = list[Logger]()
    for entry in entries:
        with survived(entry["kind"]):
            made.append(LOGGERS.build(entry, folder, where=WHERE))
    return made
