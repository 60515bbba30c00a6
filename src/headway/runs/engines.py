"""Engines: libraries that decode with a run's weights, in an export that is made in the cache at first use."""

from __future__ import annotations

import hashlib
import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from headway.documents import read_json
from headway.errors import UserError, not_installed, option
from headway.files import sha256, write_json
from headway.log import say
from headway.predictors.backend import Backend
from headway.predictors.predictor import Run
from headway.recipe import read_tree
from headway.registry import Registry
from headway.runs.own_code import code_hashes
from headway.runs.run_folder import RunFolder
from headway.storage import cache_folder, locked, put_in_place, workspace

HASHES = "files.json"  # the SHA-256 of each file of an export
LONGEST_WAIT = 3600.0  # seconds, for another process that makes the same export


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
        """Write a run, weights loaded, into a new folder. Raises UserError where the engine cannot express it."""

    @abstractmethod
    def backend(self, folder: Path, run: Run) -> Backend:
        """The backend that reads what `export` wrote; the weights of `run` are not looked at."""


ENGINES: Registry[Engine] = Registry(
    "engine",
    "headway.runs.engines:Engine",
    {
        "ctranslate2": "headway.export.ctranslate2_export:CTranslate2Engine",
        "onnx": "headway.export.onnx_export:OnnxEngine",
    },
)


def build_engine(name: str) -> Engine:
    """An engine. Raises UserError for an unknown one, or one whose packages are not installed."""
    engine = ENGINES.get(name, option("engine"))()
    if missing := [package for package in engine.packages if find_spec(package) is None]:
        raise not_installed(f"the engine {name}", missing, engine.extra, option("engine"))
    return engine


def export_folder(engine: Engine, run: Path) -> Path:
    """The folder in the cache that has the export of a run, by all that it depends on."""
    folder = RunFolder(run)
    files = {name: sha256(path) for name, path in [("recipe", folder.recipe_file), ("weights", folder.weights)]}
    versions = {name: import_module(name).__version__ for name in ("headway", "torch", *engine.packages)}
    code = code_hashes(read_tree(folder.recipe_file, alone=True))
    parts = [files, folder.vocabulary_hashes(), folder.read_manifest().get("format"), code, versions]
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return cache_folder() / "engines" / f"{engine.name}-{key}"


def _is_whole(folder: Path) -> bool:
    """Whether the files of an export are those that were written."""
    try:
        return bool(read_json(folder / HASHES) == _hashes(folder))
    except (UserError, OSError):
        return False


def _hashes(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != HASHES)
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}


def kept_export(engine: Engine, path: Path, load: Callable[[], Run]) -> Path:
    """The export of a run for an engine, which is made at first use, and again where it was damaged.

    Nothing is read from the run's folder but the run: an export in it could be of another model. `load` gives the run
    with its weights, where these are needed.

    Raises:
        UserError: the engine cannot express the run, or nothing can be written to the cache.
    """
    RunFolder(path).check_has_weights()
    folder = export_folder(engine, path)
    if _is_whole(folder):
        return folder
    run = load()
    try:
        with locked(folder.with_suffix(".lock"), LONGEST_WAIT):
            if not _is_whole(folder):  # another process may have made it
                shutil.rmtree(folder, ignore_errors=True)
                with workspace(folder.parent) as space:
                    engine.export(run, space / "export")
                    write_json(space / "export" / HASHES, _hashes(space / "export"))
                    put_in_place(space / "export", folder)
                say(f"made for {engine.name}: {folder}")
    except OSError as error:
        what = f"the export for {engine.name} cannot be kept ({error}); HEADWAY_CACHE names another folder"
        raise UserError(what, where=option("engine"), received=str(folder)) from error
    return folder
