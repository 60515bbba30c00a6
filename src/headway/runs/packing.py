"""A run packed in one portable file: everything that prediction needs, without paths of this machine.

A pack is a zip file of uncompressed files, so that it cannot grow when it is unpacked. Reading it writes files and
imports nothing. Code that the run names is not included.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import stat
import sysconfig
import unicodedata
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from headway.core.archives import opened_zip
from headway.core.documents import dump_yaml
from headway.core.errors import UserError, option
from headway.core.files import sha256, write_json, write_text
from headway.core.log import warn
from headway.core.registry import IMPORT_PATH
from headway.core.storage import cache_folder, check_new, keep_first, put_in_place, workspace
from headway.core.system import sync
from headway.formats.lines import check_file
from headway.recipe import read_tree
from headway.recipe.reading import check_run
from headway.runs.run_folder import RunFolder, portable

INIT = "__init__.py"


class Source(NamedTuple):
    """The source file of a module: its name relative to a folder of sources, and its path."""

    name: str
    path: Path

    @property
    def root(self) -> Path:
        """The folder on Python's path that contains the module."""
        return self.path.parents[self.name.count("/")]

    def is_installed(self) -> bool:
        """Whether the module is in the standard library or in an installed package."""
        installed = {Path(folder).resolve() for folder in sysconfig.get_paths().values()}
        return self.root.resolve() in installed or self.root.name in ("site-packages", "dist-packages")


def named_modules(tree: Any) -> list[str]:
    """The modules that a raw recipe names by import path."""
    return sorted(set(_modules(tree)))


def code_hashes(tree: Any) -> dict[str, str]:
    """The SHA-256 of each source file of the modules that a raw recipe names by import path.

    Names are relative to a folder of sources. For modules that are not installed, the files include their packages and
    their imports from the same package and folder. Modules without a file, such as a notebook's, are left out. Nothing
    is imported.
    """
    return {name: sha256(path) for name, path in _with_helpers(named_modules(tree)).items()}


def code_versions(tree: Any) -> dict[str, str]:
    """The versions of the installed packages with the modules that a raw recipe names by import path."""
    tops = {module.partition(".")[0] for module in named_modules(tree)}
    packages = metadata.packages_distributions() if tops else {}
    return {name: metadata.version(name) for top in sorted(tops) for name in packages.get(top, ())}


def changed_code(known: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The files in `known` whose hash in `now` differs or is missing."""
    return [name for name, expected in known.items() if now.get(name) != expected]


def find_source(module: str) -> Source | None:
    """The file that Python would import a module from, or None if there is none. Nothing is imported."""
    # The main module of a script or notebook cannot be imported.
    try:
        top = None if module == "__main__" else importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return None
    if top is None:
        return None
    stem, places = module.replace(".", "/"), [*(top.submodule_search_locations or ())]
    if not places and "." not in module:
        origin = Path(top.origin or "")
        return Source(f"{stem}.py", origin) if origin.suffix == ".py" else None  # others are compiled or built in
    for place in places:
        for name in (f"{stem}/{INIT}", f"{stem}.py"):
            path = Path(place).parent / name
            if path.is_file():
                return Source(name, path)
    return None


def _modules(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        # Columns are names of fields in a file, such as dc:title, not import paths.
        value = [below for key, below in value.items() if key != "columns"]
    if isinstance(value, list | tuple):
        for below in value:
            yield from _modules(below)
    elif isinstance(value, str) and IMPORT_PATH.fullmatch(value):
        yield value.partition(":")[0]


def _with_helpers(modules: Sequence[str]) -> dict[str, Path]:
    """The files of modules and, unless these are installed, of their packages and of their local imports."""
    found, waiting, known = dict[str, Path](), list(modules), set(modules)
    while waiting:
        module = waiting.pop()
        source = find_source(module)
        if source is None:
            continue
        found[source.name] = source.path
        if source.is_installed():
            continue
        above = [module.rpartition(".")[0]] if "." in module else []
        for other in (*above, *_imported(module, source)):
            if other in known:
                continue
            top = other.partition(".")[0]
            if top != module.partition(".")[0]:  # another package counts only if it is in the same folder
                beside = None if top == "headway" else find_source(top)
                if beside is None or beside.root != source.root:
                    continue
            known.add(other)
            waiting.append(other)
    return dict(sorted(found.items()))


def _imported(module: str, source: Source) -> Iterator[str]:
    """The modules that a file imports anywhere. Names imported from a module are included, as they may be modules."""
    try:
        tree = ast.parse(source.path.read_bytes())
    except (SyntaxError, ValueError):
        return
    package = module.split(".") if source.name.endswith(f"/{INIT}") else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *filter(None, [node.module])])
            yield from (origin, *(f"{origin}.{alias.name}" for alias in node.names))


FILES = re.compile(r"(recipe\.yaml|manifest\.json|metrics\.jsonl|model\.safetensors|README\.md|source\.json)")
SOURCE = "source"  # older packs include the code that they name
FOLDERS = ("vocabulary", SOURCE)
LONGEST_NAME = 255  # bytes
BLOCK = 1 << 20  # bytes copied at a time
SAME_TIME = (1980, 1, 1, 0, 0, 0)  # a fixed time, so that packing a run twice gives the same file


def pack_run(run: Path, output: Path) -> list[str]:
    """Write a run into a zip file atomically. Returns the names of the files in it.

    Raises:
        UserError: there is no trained run, its vocabulary was changed, or it has a link, which may lead to any file of
            this machine; `output` does not end in .zip, or exists and is no zip file.
    """
    folder = RunFolder(run)
    check_run(run)
    files = (folder.recipe_file, folder.manifest_file, folder.metrics, folder.weights, folder.card)
    for path in (*files, folder.vocabulary, *folder.vocabulary.rglob("*")):
        if path.is_symlink():  # may lead to any file of this machine
            raise UserError("a run that is packed has no links to other files", where=str(path))
    folder.check_has_weights()
    folder.check_vocabulary()
    for is_wrong, what, allowed in (
        (
            output.is_dir() or output.resolve().is_relative_to(run.resolve()),
            "a pack is no part of what it packs", "a file outside of the run",
        ),
        (output.suffix != ".zip", "a pack is a zip file", "a name.zip"),
        (
            os.path.lexists(output) and not (output.is_file() and zipfile.is_zipfile(output)),
            "there is something else there already", "a new file, or an older pack",
        ),
    ):  # fmt: skip
        if is_wrong:
            raise UserError(what, where=option("output"), received=str(output), allowed=allowed)
    tree = read_tree(folder.recipe_file, alone=True)
    if modules := named_modules(tree):
        warn(f"code that the run names is no part of the pack, and is needed where it is used: {', '.join(modules)}")
    _warn_of_files(tree.get("text"), "text")
    with workspace(output.absolute().parent, output) as place:
        packed = RunFolder(place)
        write_text(packed.recipe_file, dump_yaml(portable(tree)))
        write_json(packed.manifest_file, portable(folder.read_manifest()))
        members = {path.name: path for path in (packed.recipe_file, packed.manifest_file)}
        taken = (folder.metrics, folder.weights, folder.card, *sorted(folder.vocabulary.rglob("*")))
        members |= {path.relative_to(run).as_posix(): path for path in taken if path.is_file()}
        with zipfile.ZipFile(place / "pack.zip", "w", zipfile.ZIP_STORED) as archive:
            for name, path in members.items():
                entry = zipfile.ZipInfo(name, SAME_TIME)
                with path.open("rb") as source, archive.open(entry, "w", force_zip64=True) as target:
                    shutil.copyfileobj(source, target, BLOCK)
        sync(place / "pack.zip")
        (place / "pack.zip").replace(output)
        sync(output.absolute().parent)
    return list(members)


def unpack_run(file: Path, folder: Path) -> None:
    """Unpack a run into a new folder atomically.

    Raises:
        UserError: the file is missing or is not a pack, has unknown files, has weights or a vocabulary that do not
            belong to the run, or the folder exists.
    """
    check_file(file, option("file"))
    check_new(folder, "folder")
    with _extracted(file, folder) as built:
        put_in_place(built, folder.absolute())


@contextmanager
def _extracted(file: Path, folder: Path) -> Iterator[Path]:
    """Unpack a run beside `folder`, and remove it at the end unless it was moved. Raises UserError."""
    folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    with workspace(folder.absolute().parent) as place:
        built = place / "run"
        built.mkdir()
        _extract(file, built)
        try:
            RunFolder(built).check_vocabulary()
            RunFolder(built).read_weights()
        except UserError as error:
            name = str(error.where).removeprefix(f"{built}/")
            raise UserError(f"this is no pack of a whole run: {error.what}", where=f"{file}: {name}") from error
        yield built


def unpacked(path: Path) -> Path:
    """The run folder of a pack, which is unpacked into the cache on first use; any other path is returned unchanged."""
    if path.suffix != ".zip" or not path.is_file():
        return path
    folder = cache_folder() / "packs" / sha256(path) / path.stem  # cards and pages show this name as the run's
    if not folder.is_dir():
        with _extracted(path, folder) as built:
            keep_first(built, folder)
    return folder


def _warn_of_files(value: Any, key: str) -> None:
    """Warn of local files that the text preparation reads, such as a segmenter's model."""
    if isinstance(value, Mapping):
        for name, below in value.items():
            _warn_of_files(below, f"{key}.{name}")
    elif isinstance(value, str) and value.startswith("/"):
        name = value.rpartition("/")[2]
        warn(f"{key}: {value} is not in the pack; {name} has to lie in the folder in which the pack is used")


def _extract(file: Path, folder: Path) -> None:
    """Write the files of a pack. Raises UserError, before any is written, if it has files that packs do not have."""
    with opened_zip(file, "pack") as archive:
        entries = archive.infolist()
        for what, name in _problems(entries):
            raise UserError(what, where=str(file), received=name)
        for entry in entries:
            target = folder / entry.filename
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, target.open("wb") as written:
                shutil.copyfileobj(source, written, BLOCK)


def _problems(entries: Sequence[zipfile.ZipInfo]) -> Iterator[tuple[str, str | None]]:
    """The faults of a pack, each with the name of a file if it has one: unknown or repeated files."""
    names = dict[str, str]()
    for entry in entries:
        name, kind = entry.filename, stat.S_IFMT(entry.external_attr >> 16)
        if not _is_known(name) or kind not in (0, stat.S_IFREG):
            yield "a run has no such file", name
        folded = unicodedata.normalize("NFC", name).casefold()  # some file systems treat both names as the same
        if folded in names:
            yield "this pack has a file twice", name
        names[folded] = name
    for name in names:
        if any(str(above) in names for above in PurePosixPath(name).parents):
            yield "this pack has a file in a file", names[name]
    if "recipe.yaml" not in names:
        yield "this is no pack of a run: it has no recipe.yaml", None


def _is_known(name: str) -> bool:
    """Whether this is the name of a file that packs have, without any way out of the folder."""
    folder, *below = name.split("/")
    odd = {"", ".", ".."} & set(below) or re.search(r"[\\:]", name) or not name.isprintable()
    in_folder = folder in FOLDERS and below and not odd and len(name.encode()) <= LONGEST_NAME
    return bool(FILES.fullmatch(name) or (in_folder and (folder != SOURCE or name.endswith(".py"))))
