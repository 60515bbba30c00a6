"""Engines: libraries that decode with a run's weights, in an export that is made beside the run at first use."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from headway.documents import read_json
from headway.errors import UserError, not_installed, option
from headway.files import sha256, write_json
from headway.log import say
from headway.predictors.backend import Backend
from headway.predictors.run import Run
from headway.registry import Registry
from headway.runs.run_folder import RunFolder
from headway.storage import keep_first, workspace

FOLDER = "engines"  # in the folder of a run
HASHES = "files.json"  # the SHA-256 of each file of an export


class Engine(ABC):
    """A library that runs exported models.

    Attributes:
        name: its name in `ENGINES`.
        packages: the packages that it needs.
        extra: the extra of headway that has them.
    """

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    extra: ClassVar[str] = "export"

    @abstractmethod
    def export(self, run: Run, folder: Path) -> None:
        """Write a run, weights loaded, for this engine. Raises UserError where the engine cannot express it.

        Args:
            run: the run.
            folder: a folder that does not exist yet.
        """

    @abstractmethod
    def backend(self, folder: Path, run: Run) -> Backend:
        """The backend that reads what `export` wrote; the weights of `run` are not looked at."""


ENGINES: Registry[Engine] = Registry(
    "engine",
    "headway.runs.engines:Engine",
    {
        "ctranslate2": "headway.export.ctranslate2_engine:CTranslate2Engine",
        "onnx": "headway.export.onnx_engine:OnnxEngine",
    },
)


def build_engine(name: str) -> Engine:
    """An engine. Raises UserError for an unknown one, or one whose packages are not installed."""
    engine = ENGINES.get(name, option("engine"))()
    if missing := [package for package in engine.packages if find_spec(package) is None]:
        raise not_installed(f"the engine {name}", missing, engine.extra, option("engine"))
    return engine


def export_folder(engine: Engine, run: Path) -> Path:
    """The folder beside a run's weights that an engine's export of just these weights has."""
    return run / FOLDER / f"{engine.name}-{sha256(RunFolder(run).weights)[:16]}"


def check_export(folder: Path) -> None:
    """Raise UserError where the files of an export are not those that were written."""
    known = read_json(folder / HASHES)
    if known != _hashes(folder):
        raise UserError("its files are not those that were written", where=str(folder / HASHES))


def _hashes(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != HASHES)
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}


def keep_export(engine: Engine, run: Run) -> Path:
    """Make the export of a run for an engine, in the place of those of other weights.

    Raises:
        UserError: the engine cannot express the run, or nothing can be written there.
    """
    assert run.path is not None
    folder = export_folder(engine, run.path)
    try:
        with workspace(folder.parent) as space:
            engine.export(run, space / "export")
            write_json(space / "export" / HASHES, _hashes(space / "export"))
            keep_first(space / "export", folder)
        for old in folder.parent.glob(f"{engine.name}-*"):
            if old != folder:
                shutil.rmtree(old)
    except OSError as error:
        what = f"the export for {engine.name} cannot be kept beside the run ({error})"
        raise UserError(what, where=option("engine"), received=str(folder)) from error
    say(f"made for {engine.name}: {folder}")
    return folder
