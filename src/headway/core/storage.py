"""The cache of prepared data: its folder, locks, checked entries, and arrays that grow on disk."""

import hashlib
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from headway.core.errors import RunError, UserError, option
from headway.core.files import named_in_errors, sha256, write_json
from headway.core.log import warn
from headway.core.system import move, open_no_link, sync, take_lock

Kept = TypeVar("Kept")

HASHES = "hashes.json"  # the hashes of the other files in a folder of the cache
SETTLED = 2.0  # seconds after which a modification changes the time of a file, on any file system
WAIT = 3600.0  # seconds to wait while another process handles a damaged entry
DAMAGED = (OSError, ValueError, KeyError, TypeError, UserError)


def cache_folder() -> Path:
    """The folder in the environment variable HEADWAY_CACHE, or else ~/.cache/headway.

    Raises UserError if the user has no home folder.
    """
    if named := os.environ.get("HEADWAY_CACHE"):
        return Path(named)
    try:
        return Path.home() / ".cache" / "headway"
    except RuntimeError as error:
        what, allowed = "this user has no home folder to keep encoded corpora in", "HEADWAY_CACHE=FOLDER"
        raise UserError(what, where="HOME", allowed=allowed) from error


@contextmanager
def workspace(folder: Path, output: Path | None = None) -> Iterator[Path]:
    """A new temporary folder in `folder`, as an absolute path, removed at the end.

    Leftovers of killed processes of this machine are removed as well: folder names have the machine and the process.
    OSErrors name `output`, the final folder, or else `folder`.
    """
    import psutil

    folder.mkdir(parents=True, exist_ok=True)
    machine = socket.gethostname()
    for left in folder.glob(f"{machine}@*.tmp"):
        if not psutil.pid_exists(int(left.name.split("@")[1])):
            shutil.rmtree(left, ignore_errors=True)
    path = Path(tempfile.mkdtemp(prefix=f"{machine}@{os.getpid()}@", suffix=".tmp", dir=folder.absolute()))
    try:
        with named_in_errors(output or folder, path):
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def locked(path: Path, wait: float = 0.0) -> Iterator[None]:
    """Hold a file lock, which is released when its process ends for any reason.

    It works between machines if the file system supports `flock` across them (NFS, CephFS, and Lustre and GPFS if
    configured). Otherwise the note in the file, after its first byte, names the last process that worked here.

    Args:
        path: the lock file, which is created if missing and never removed; not a link, whose target would be emptied.
        wait: seconds to wait for another process to release the lock.

    Raises:
        UserError: another process holds the lock.
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_no_link(path) as file:
        until = time.monotonic() + wait
        while (free := take_lock(file.fileno())) is False and time.monotonic() < until:
            time.sleep(0.1)
        note: Any = None
        file.seek(1 if free is False else 0)
        with suppress(ValueError, RecursionError):  # the file has no note
            note = json.loads(file.read(1000))
        holder = f"process {note.get('process')} of {note.get('machine')}" if note and isinstance(note, dict) else None
        if free is False:
            raise UserError("another process is at work here", where=str(path.parent), received=holder)
        if free is None:
            warn(f"{path.parent}: this file system has no locks; see that no other process works here")
        elif not wait and holder and note["machine"] != socket.gethostname():
            warn(f"{path.parent}: {holder} worked here and did not end by itself; see that it does not work any more")
        file.truncate(0)
        file.seek(0)
        file.write(b"\n" + json.dumps({"machine": socket.gethostname(), "process": os.getpid()}).encode())
        try:
            yield
        finally:
            file.truncate(0)


def check_new(path: Path, name: str) -> None:
    """Raise UserError if the path of the option `name`, which is to be created, exists, even as a broken link."""
    if os.path.lexists(path):
        raise UserError("there is something there already", where=option(name), received=str(path))


def put_in_place(built: Path, folder: Path) -> None:
    """Rename a folder that was built in a workspace. Raises UserError if `folder` exists by now."""
    if not _renamed(built, folder):
        what = "something was made there while this worked; nothing is overwritten"
        raise UserError(what, where=str(folder), allowed="a new name")


def keep_first(built: Path, folder: Path) -> None:
    """As `put_in_place`, for a folder named by its content: one that another process has created meanwhile is kept."""
    if not _renamed(built, folder) and not folder.is_dir():
        raise UserError("a folder is needed there, and there is something else", where=str(folder))


@contextmanager
def unfinished(folder: Path) -> Iterator[Path]:
    """A folder for building `folder`. If the process is killed, the next process continues in it.

    If another process is already using it, a separate folder is used. A deterministic error removes it.
    """
    work = folder.with_name(f"{folder.name}.unfinished")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder.with_name(f".{folder.name}.lock")))
        except UserError:
            work = stack.enter_context(workspace(folder.parent))
        work.mkdir(exist_ok=True)
        try:
            yield work
        except RunError:  # a process died, for instance without memory
            raise
        except Exception:
            shutil.rmtree(work, ignore_errors=True)
            raise
        shutil.rmtree(work, ignore_errors=True)


def kept_folder(
    folder: Path, make: Callable[[Path], object], read: Callable[[Path], Kept], *, resumable: bool = False
) -> Kept:
    """Read a folder of the cache with `read`. If it is missing or damaged, `make` fills it first.

    Args:
        folder: the folder, named by a hash of everything that determines its content.
        make: fills an empty folder, which is renamed when it is complete and has the hashes of its files.
        read: reads the folder; raises if a file is missing or truncated.
        resumable: whether `make` can continue with a folder that a killed process has partly filled.

    Raises:
        RunError: the cache cannot be written. Errors of `make` are raised as well.
    """
    if (kept := _open_kept(folder, read)) is not None:
        return kept
    with cache_named(folder.parent), unfinished(folder) if resumable else workspace(folder.parent) as work:
        (built := work / "kept").mkdir(exist_ok=True)
        make(built)
        write_json(built / HASHES, file_hashes(built))
        keep_first(built, folder)
    return read(folder)


@contextmanager
def cache_named(folder: Path) -> Iterator[None]:
    """Within this context, OSErrors become RunErrors that name the folder of the cache."""
    try:
        yield
    except OSError as error:
        what = f"cannot keep what was prepared in {folder} ({error}); HEADWAY_CACHE names another folder"
        raise RunError(what) from error


def _open_kept(folder: Path, read: Callable[[Path], Kept]) -> Kept | None:
    """Read a folder of the cache. None if it is missing or damaged; a damaged folder is removed.

    Another process may create the folder at any time, so a folder that was missing at first is not removed.
    """

    def checked() -> Kept:
        if json.loads((folder / HASHES).read_text(encoding="utf-8")) != file_hashes(folder):
            raise ValueError("a file is not the one that was written")
        return read(folder)

    if not folder.is_dir():
        return None
    with suppress(*DAMAGED):
        return checked()
    with locked(folder.parent / ".lock", wait=WAIT):
        try:  # another process may have rebuilt it by now
            return checked() if folder.is_dir() else None
        except DAMAGED as error:
            warn(f"{folder} is damaged, or of an older version ({error}); it is made again")
            shutil.rmtree(folder, ignore_errors=True)
            if folder.exists():  # Windows does not remove open files
                what = "this is damaged, and a program has it open; end what uses it, and begin again"
                raise UserError(what, where=str(folder)) from error
            return None


def file_hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 hashes of all files in a folder, except the file of hashes, by relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != HASHES)
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}


def kept_value(path: Path, make: Callable[[], Any]) -> Any:
    """A JSON value that is computed once and cached in a file, if the cache can be written."""
    if (value := _read_value(path)) is None:
        value = make()
        _write_value(path, value)
    return value


def _read_value(path: Path) -> Any:
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        if entry["sha256"] != fingerprint(entry["value"]):
            raise ValueError("it is not what was written")
        return entry["value"]
    except FileNotFoundError:
        return None
    except DAMAGED as error:
        warn(f"{path} is damaged ({error}); it is made again")
        return None


def _write_value(path: Path, value: Any) -> None:
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"value": value, "sha256": fingerprint(value)})


def fingerprint(content: Any) -> str:
    """A hash of a JSON value."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def hashes_of(files: Sequence[Path], digest: Callable[[Path], str] = sha256) -> list[str]:
    """The hash of each file's content. Files with unchanged size, times and inode are not read again.

    A file that was modified a moment ago could change again with the same time, so its hash is not cached.
    """
    before = [_identity(path) for path in files]
    kept = cache_folder() / "hashes" / f"{fingerprint([digest.__qualname__, list(map(str, files)), before])}.json"
    if None not in before and (hashes := _read_value(kept)) is not None:
        return list(hashes)
    hashes, now = [digest(path) for path in files], time.time_ns()
    known = [times for times in before if times is not None and now - max(times[1:3]) > SETTLED * 1e9]
    if len(known) == len(files) and before == [_identity(path) for path in files]:
        _write_value(kept, hashes)
    return hashes


def _identity(path: Path) -> list[int] | None:
    """A fingerprint of a file (size, times, inode), which changes with the file. None if there is no file."""
    try:
        known = path.absolute().stat()
    except (OSError, ValueError):
        return None
    return [known.st_size, known.st_mtime_ns, known.st_ctime_ns, known.st_ino]


@cache
def software() -> str:
    """A hash of headway's code and of the versions of Python and all packages, on which results may depend."""
    own = sorted(Path(__file__).parents[1].rglob("*.py"))
    packages = sorted({path.name for place in sys.path for path in Path(place or ".").glob("*.dist-info")})
    return fingerprint([sys.version, packages, [[str(path), sha256(path)] for path in own]])


def _renamed(built: Path, folder: Path) -> bool:
    """Rename a complete folder. Returns False if the new name exists."""
    _settle(built)
    try:
        move(built, folder)
    except OSError:
        if not os.path.lexists(folder):
            raise
        return False
    sync(folder.parent)
    return True


def keep_folder(folder: Path, save: Callable[[Path], None]) -> None:
    """Store what `save` writes to a folder atomically: the process may be killed, or the power fail, at any moment."""
    unfinished = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        save(unfinished)
        _settle(unfinished)
        move(unfinished, folder)
    except BaseException:
        # The disk may be full, or the process interrupted.
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    sync(folder.parent)


def _settle(folder: Path) -> None:
    """Flush a folder with all its files to disk, and make the files as readable as the folder.

    Libraries create files that only their owner can read, regardless of the umask.
    """
    readable = folder.stat().st_mode & 0o666
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(path.stat().st_mode | readable)
        sync(path)
    sync(folder)


class GrowingArray:
    """A one-dimensional .npy file that is written in parts, and valid once the context ends.

    A file that an earlier process began is continued after its first `length` values, which have been synced.
    """

    def __init__(self, path: Path, dtype: DTypeLike, length: int = 0) -> None:
        self.file, self.dtype, self.length = path.open("r+b" if length else "wb"), np.dtype(dtype), length

    def __enter__(self) -> "GrowingArray":
        self._write_header()
        self.file.truncate(self.file.seek(self.length * self.dtype.itemsize, os.SEEK_CUR))
        return self

    def append(self, values: NDArray[Any]) -> None:
        self.file.write(values.astype(self.dtype, copy=False).data)
        self.length += len(values)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.file:
            if kind is None:
                self._write_header()
                self.sync()

    def sync(self) -> None:
        """Flush the values so far to disk."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def _write_header(self) -> None:
        # numpy pads the header, so its size does not depend on the length.
        self.file.seek(0)
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self.file, header)


def read_array(path: Path) -> NDArray[Any]:
    """The array in a .npy file, memory-mapped and read-only.

    Raises:
        OSError, ValueError: the file is missing, or not a complete .npy file.
    """
    # A plain view: slicing numpy's own memmap class is ten times slower.
    return np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)  # type: ignore[no-any-return]
