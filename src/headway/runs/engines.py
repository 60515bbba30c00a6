"""Engines: libraries that decode with a run's weights. They read an export that is made in the cache on first use."""

from __future__ import annotations

import hashlib
import json
import shutil
from abc import ABC, abstractmethod
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

from headway.core.documents import read_json
from headway.core.errors import UserError, option, require_installed
from headway.core.files import sha256, write_json
from headway.core.log import say
from headway.core.registry import Registry
from headway.core.storage import HASHES, cache_folder, file_hashes, locked, put_in_place, workspace
from headway.predictors.backend import Backend
from headway.predictors.predictor import Run
from headway.recipe import read_tree
from headway.runs.packing import code_hashes
from headway.runs.run import StoredRun

LONGEST_WAIT = 3600.0  # seconds to wait for another process that makes the same export


class Engine(ABC):
    """A library that runs exported models.

    Attributes:
        name: its name in `ENGINES`.
        packages: the packages that it needs.
        extra: the extra of headway that installs them.
        decodes: the class of its backends, which knows the features that they lack.
    """

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    extra: ClassVar[str] = "export"
    decodes: ClassVar[type[Backend]]

    @abstractmethod
    def export(self, run: Run, folder: Path) -> None:
        """Write a loaded run into a new folder. Raises UserError if the engine does not support the model."""

    @abstractmethod
    def backend(self, folder: Path, run: Run) -> Backend:
        """The backend that reads the output of `export`; the weights of `run` are not used."""


ENGINES: Registry[Engine] = Registry(
    "engine",
    "headway.runs.engines:Engine",
    {
        "ctranslate2": "headway.export.ctranslate2_export:CTranslate2Engine",
        "onnx": "headway.export.onnx_export:OnnxEngine",
        "firefox": "headway.export.firefox_engine:FirefoxEngine",
    },
)


def build_engine(name: str) -> Engine:
    """Build an engine. Raises UserError if it is unknown, or its packages are not installed."""
    engine = ENGINES.get(name, option("engine"))()
    require_installed(f"the engine {name}", engine.packages, engine.extra, option("engine"))
    return engine


def export_folder(engine: Engine, run: StoredRun) -> Path:
    """The cache folder of a run's export. Its name is a hash of everything that the export depends on."""
    folder = run.folder
    files = {name: sha256(path) for name, path in [("recipe", folder.recipe_file), ("weights", folder.weights)]}
    versions = {name: version(name) for name in ("headway", "torch", *engine.packages)}
    code = code_hashes(read_tree(folder.recipe_file, alone=True))
    parts = [files, folder.vocabulary_hashes(), run.manifest.get("format"), code, versions]
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return cache_folder() / "engines" / f"{engine.name}-{key}"


def kept_export(engine: Engine, run: StoredRun) -> Path:
    """The cached export of a run for an engine. It is made on first use, and again if it is damaged.

    Exports in the run's folder are ignored, because they could be of another model. The weights are read only if an
    export has to be made.

    Raises:
        UserError: the engine does not support the model, or the cache cannot be written.
    """
    run.folder.read_recipe()  # raises if this is not a run
    run.folder.check_has_weights()
    folder = export_folder(engine, run)

    def is_whole() -> bool:  # whether the files are unchanged
        with suppress(UserError, OSError):
            return bool(read_json(folder / HASHES) == file_hashes(folder))
        return False

    if is_whole():
        return folder
    run.loaded()  # damaged runs raise before the cache is used
    try:
        with locked(folder.with_suffix(".lock"), LONGEST_WAIT):
            if not is_whole():  # another process may have made it meanwhile
                shutil.rmtree(folder, ignore_errors=True)
                with workspace(folder.parent) as space:
                    engine.export(run, space / "export")
                    write_json(space / "export" / HASHES, file_hashes(space / "export"))
                    put_in_place(space / "export", folder)
                say(f"made for {engine.name}: {folder}")
    except OSError as error:
        what = f"the export for {engine.name} cannot be kept ({error}); HEADWAY_CACHE names another folder"
        raise UserError(what, where=option("engine"), received=str(folder)) from error
    return folder
