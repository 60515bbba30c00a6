"""Where encoded corpora are kept: the cache folder, work in progress in it, and arrays that grow on disk."""

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from headway.errors import RunError, UserError, option
from headway.files import sync, take_lock
from headway.log import warn

Kept = TypeVar("Kept")


def cache_folder() -> Path:
    """The folder named by the environment variable HEADWAY_CACHE, else ~/.cache/headway.

    Raises UserError for a user without a home folder.
    """
    if named := os.environ.get("HEADWAY_CACHE"):
        return Path(named)
    try:
        return Path.home() / ".cache" / "headway"
    except RuntimeError as error:
        what, allowed = "this user has no home folder to keep encoded corpora in", "HEADWAY_CACHE=FOLDER"
        raise UserError(what, where="HOME", allowed=allowed) from error


@contextmanager
def workspace(folder: Path) -> Iterator[Path]:
    """A new folder below `folder` for work in progress, removed at the end.

    What killed processes of this machine left behind is removed as well: the folders carry machine and process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    machine = socket.gethostname()
    for left in folder.glob(f"{machine}@*.tmp"):
        if not _runs(int(left.name.split("@")[1])):
            shutil.rmtree(left, ignore_errors=True)
    path = Path(tempfile.mkdtemp(prefix=f"{machine}@{os.getpid()}@", suffix=".tmp", dir=folder))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def locked(path: Path, wait: float = 0.0) -> Iterator[None]:
    """Hold a lock that ends with the process that holds it, however that ends.

    Args:
        path: a file that is made where there is none, and stays.
        wait: seconds to wait for another process to let go of it.

    Raises:
        RunError: another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        until = time.monotonic() + wait
        while (free := take_lock(file.fileno())) is False:
            if time.monotonic() >= until:
                raise RunError(f"{path.parent}: another process is at work here")
            time.sleep(0.1)
        if free is None:
            warn(f"{path.parent}: this file system has no locks; see that no other process works here")
        yield


def check_new(path: Path, name: str) -> None:
    """Raise UserError where there is something, if only a link, at a path that an option, by its key, says to make."""
    if os.path.lexists(path):
        raise UserError("there is something there already", where=option(name), received=str(path))


def put_in_place(built: Path, folder: Path) -> None:
    """Give a folder that was made in a workspace its name. Raises UserError where there is something by now."""
    if not _renamed(built, folder):
        what = "something was made there while this worked; nothing is overwritten"
        raise UserError(what, where=str(folder), allowed="a new name")


def keep_first(built: Path, folder: Path) -> None:
    """`put_in_place` for a folder that is named by its content: another process may have made the same."""
    if not _renamed(built, folder) and not folder.is_dir():
        raise UserError("a folder is needed there, and there is something else", where=str(folder))


def open_kept(folder: Path, read: Callable[[Path], Kept]) -> Kept | None:
    """Read a folder by `read`; gives None where there is none, or where it was cut off, and then removes it.

    Another process may put it there at any moment: what was not there at first stays.
    """
    if not folder.is_dir():
        return None
    try:
        return read(folder)
    except (OSError, ValueError, KeyError, TypeError, UserError):
        shutil.rmtree(folder, ignore_errors=True)
        return None


def _renamed(built: Path, folder: Path) -> bool:
    """Whether there was nothing by that name."""
    _settle(built)
    try:
        built.rename(folder)
    except OSError:
        if not os.path.lexists(folder):
            raise
        return False
    sync(folder.parent)
    return True


def keep_folder(folder: Path, save: Callable[[Path], None]) -> None:
    """Store what `save` writes into a folder whole or not at all: a run may be killed, or lose power, at any moment."""
    unfinished = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        save(unfinished)
        _settle(unfinished)
        unfinished.rename(folder)
    except OSError:
        # A full disk has no room for what is of no use.
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    sync(folder.parent)


def _settle(folder: Path) -> None:
    """Make a folder with all that is in it survive a power cut, its files as readable as the folder.

    Libraries make files that only their owner can read, whatever the user's mask says.
    """
    readable = folder.stat().st_mode & 0o666
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(path.stat().st_mode | readable)
        sync(path)
    sync(folder)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


class GrowingArray:
    """A one-dimensional .npy file that is written piece by piece and whole once the context ends."""

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        self.file, self.dtype, self.length = path.open("wb"), np.dtype(dtype), 0

    def __enter__(self) -> "GrowingArray":
        self._write_header()
        return self

    def append(self, values: NDArray[Any]) -> None:
        """Add `values` at the end."""
        self.file.write(values.astype(self.dtype, copy=False).data)
        self.length += len(values)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.file:
            if kind is None:
                self._write_header()
                self.file.flush()
                os.fsync(self.file.fileno())

    def _write_header(self) -> None:
        # numpy pads the header such that its size does not depend on the length, for files that grow.
        self.file.seek(0)
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self.file, header)


def read_array(path: Path) -> NDArray[Any]:
    """A .npy file, memory-mapped, read only.

    Raises:
        OSError, ValueError: no such file, or not a whole .npy file.
    """
    # A plain view: slicing numpy's own memmap class is ten times slower.
    return np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)  # type: ignore[no-any-return]
