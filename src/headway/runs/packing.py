"""A run in one file that travels: what predicting needs, without the folders of a machine, with foreign code beside it.

A pack is a zip file of uncompressed files. It is as large as what it holds, so that none can grow on the way out.
Reading it writes files and imports nothing. Code in it is imported where the reader allows that, and only if it has the
hash that the pack says.
"""

from __future__ import annotations

import os
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from headway.documents import dump_yaml
from headway.errors import UserError, option
from headway.files import sha256, whole_file, write_json, write_text
from headway.formats.lines import check_file
from headway.log import warn
from headway.recipe import read_tree
from headway.runs.own_code import find_source, own_sources
from headway.runs.portable import portable
from headway.runs.run_folder import RunFolder
from headway.storage import cache_folder, check_new, keep_first, put_in_place, workspace

SOURCES, HASHES = "source", "source.json"
FILES = re.compile(r"(recipe\.yaml|manifest\.json|metrics\.jsonl|model\.safetensors|README\.md|source\.json)")
FOLDERS = ("vocabulary", SOURCES)
SAME_TIME = (1980, 1, 1, 0, 0, 0)  # so that packing a run twice gives the same file


def pack_run(run: Path, output: Path) -> list[str]:
    """Write a run into one zip file, whole or not at all, and give the names of the files in it.

    Raises:
        UserError: no trained run, or one whose vocabulary is not that of training; foreign code whose source is not
            found here; an output that does not end in .zip, or is there already and no zip file.
    """
    folder = RunFolder(run)
    if not folder.recipe_file.is_file():
        raise UserError("this is not a run folder: it has no recipe.yaml", where=str(run))
    folder.check_has_weights()
    folder.check_vocabulary()
    if not output.absolute().parent.is_dir():
        raise UserError("there is no such folder", where=option("output"), received=str(output.parent))
    if output.is_dir() or output.resolve().is_relative_to(run.resolve()):
        allowed = "a file outside of the run"
        raise UserError(
            "a pack is no part of what it packs", where=option("output"), received=str(output), allowed=allowed
        )
    if output.suffix != ".zip":
        raise UserError("a pack is a zip file", where=option("output"), received=str(output), allowed="a name.zip")
    if os.path.lexists(output) and not zipfile.is_zipfile(output):
        what = "there is something else there already"
        raise UserError(what, where=option("output"), received=str(output), allowed="a new file, or an older pack")
    tree = read_tree(folder.recipe_file, alone=True)
    sources = own_sources(tree)
    with workspace(output.absolute().parent) as place:
        packed = RunFolder(place)
        write_text(packed.recipe_file, dump_yaml(portable(tree)))
        write_json(packed.manifest_file, portable(folder.read_manifest()))
        _warn_of_files(tree.get("text"), "text")
        if sources:
            write_json(place / HASHES, {name: sha256(path) for name, path in sources.items()})
        made = (packed.recipe_file.name, packed.manifest_file.name, HASHES)
        members = {name: place / name for name in made if (place / name).is_file()}
        members |= {
            path.relative_to(run).as_posix(): path
            for path in (
                folder.metrics,
                folder.weights,
                run / "README.md",
                *_below(folder.vocabulary),
            )
            if path.is_file()
        }
        members |= {f"{SOURCES}/{name}": path for name, path in sources.items()}
        with whole_file(output) as file:
            _write(members, file)
    return list(members)


def unpack_run(file: Path, folder: Path) -> None:
    """Make a run folder of a pack, whole or not at all.

    Raises:
        UserError: a file that is not there or no pack, a file in it that no run has, weights or a vocabulary that are
            not those of the run, or a folder that is there already.
    """
    check_file(file, option("file"))
    check_new(folder, "folder")
    with _extracted(file, folder) as built:
        put_in_place(built, folder.absolute())


@contextmanager
def _extracted(file: Path, folder: Path) -> Iterator[Path]:
    """A whole run beside the folder that it is to become, removed at the end where it does not. Raises UserError."""
    folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    with workspace(folder.absolute().parent) as place:
        built = place / "run"
        built.mkdir()
        _extract(file, built)
        _check_whole(RunFolder(built), file)
        yield built


def _check_whole(run: RunFolder, file: Path) -> None:
    """Raise UserError where weights or vocabulary are missing in a pack, or are not those that its manifest knows."""
    try:
        run.check_vocabulary()
        run.read_weights()
    except UserError as error:
        name = str(error.where).removeprefix(f"{run.path}/")
        raise UserError(f"this is no pack of a whole run: {error.what}", where=f"{file}: {name}") from error


def unpacked(path: Path) -> Path:
    """The run folder of a pack, which is unpacked into the cache at its first use; any other path as it is."""
    if path.suffix != ".zip" or not path.is_file():
        return path
    folder = cache_folder() / "packs" / sha256(path) / path.stem  # whose name is that of the run in cards and pages
    if not folder.is_dir():
        with _extracted(path, folder) as built:
            keep_first(built, folder)
    return folder


def offer_sources(run: Path) -> None:
    """Let the code that came with a run be imported.

    Raises:
        UserError: it is not what the pack says, or this process has imported, or would import, other code by the name
            of a module.
    """
    hashes = run / HASHES
    if not hashes.is_file():
        return
    tree = read_tree(hashes, alone=True)
    for name, expected in tree.items():
        path = run / SOURCES / name
        if not path.is_file() or sha256(path) != expected:
            raise UserError("this code is not the code that was packed", where=str(path), allowed=f"SHA-256 {expected}")
        _check_name(name, expected, path)
    folder = str((run / SOURCES).absolute())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    for name, expected in tree.items():
        found = find_source(_module(name))
        if found is None or sha256(found.path) != expected:
            what, received = "another module of this name would be imported", found and str(found.path)
            raise UserError(what, where=str(run / SOURCES / name), received=received, allowed="the code of the pack")


def _module(name: str) -> str:
    """The module that a file below a folder of sources is."""
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _check_name(name: str, expected: str, path: Path) -> None:
    """Raise UserError where the module of a pack would be another one, which a process has by that name already."""
    module = sys.modules.get(_module(name))
    file = getattr(module, "__file__", None)
    if file is not None and Path(file).is_file() and sha256(Path(file)) != expected:
        what = "another module of this name is imported already, and its code would be used"
        raise UserError(what, where=str(path), received=file, allowed="a process for each of the two")


def _warn_of_files(value: Any, key: str) -> None:
    """Warn of files of this machine that the preparation of text reads, such as a segmenter's model."""
    if isinstance(value, Mapping):
        for name, below in value.items():
            _warn_of_files(below, f"{key}.{name}")
    elif isinstance(value, str) and value.startswith("/"):
        name = value.rpartition("/")[2]
        warn(f"{key}: {value} is not in the pack; {name} has to lie in the folder in which the pack is used")


def _below(folder: Path) -> list[Path]:
    """The files below a folder. Raises UserError for a link, which may lead to any file of this machine."""
    found = sorted(folder.rglob("*"))
    for path in found:
        if path.is_symlink():
            raise UserError("a run that is packed has no links to other files", where=str(path))
    return [path for path in found if path.is_file()]


def _write(members: Mapping[str, Path], file: BinaryIO) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, path in members.items():
            entry = zipfile.ZipInfo(name, SAME_TIME)
            with path.open("rb") as source, archive.open(entry, "w", force_zip64=True) as target:
                while block := source.read(1 << 20):
                    target.write(block)


def _extract(file: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            for entry in entries:
                _check(entry, file)
            if len({entry.filename for entry in entries}) != len(entries):
                raise UserError("this pack has a file twice", where=str(file))
            if "recipe.yaml" not in archive.namelist():
                raise UserError("this is no pack of a run: it has no recipe.yaml", where=str(file))
            for entry in entries:
                target = folder / entry.filename
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as source, target.open("wb") as written:
                    while block := source.read(1 << 20):
                        written.write(block)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise UserError(f"this pack cannot be read ({error})", where=str(file)) from error


def _check(entry: zipfile.ZipInfo, file: Path) -> None:
    """Raise UserError unless this is a file that a pack has, uncompressed."""
    path = PurePosixPath(entry.filename)
    below = path.parts[:-1]
    known = FILES.fullmatch(entry.filename) or (below and below[0] in FOLDERS and ".." not in below)
    if not known or path.is_absolute() or "\\" in entry.filename or path.as_posix() != entry.filename:
        raise UserError("a run has no such file", where=str(file), received=entry.filename)
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
        raise UserError("the files of a pack are not compressed", where=str(file), received=entry.filename)
