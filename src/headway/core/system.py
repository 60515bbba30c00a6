"""The differences between Linux, macOS and Windows. No other module uses features that one of them lacks."""

import errno
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

try:
    import resource

    _limits: Any = resource
except ImportError:  # Windows
    _limits = None

WINDOWS = os.name == "nt"
STANDARD_INPUT = "/dev/stdin for standard input" if not WINDOWS else "no name for standard input"
# The errors of file systems without locks.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
PATIENCE = 3.0  # seconds after which a virus scanner or an indexer has closed a file


def take_lock(descriptor: int) -> bool | None:
    """Lock an open file until it is closed or its process ends for any reason.

    On Windows, other processes cannot read the first byte meanwhile.

    Returns:
        Whether the lock was free; None if the file system has no locks.
    """
    from filelock import lock_descriptor

    try:
        return lock_descriptor(descriptor, blocking=False)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return None
        raise


def open_no_link(path: Path) -> BinaryIO:
    """Open a file to read and write, and create it if missing. Raises OSError for a link: its target would change."""
    no_link = 0 if WINDOWS else getattr(os, "O_NOFOLLOW", 0)
    if not no_link and path.is_symlink():
        raise OSError(errno.ELOOP, "this is a link", str(path))
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | no_link, 0o666), "r+b", buffering=0)


def open_unnamed(folder: Path) -> BinaryIO | None:
    """A new file without a name in `folder`, which vanishes if the process is killed; None if this is not supported."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        return os.fdopen(os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o666), "w+b")
    except OSError:  # the file system does not support such files
        return None


def give_name(file: BinaryIO, path: Path) -> None:
    """Name a file of `open_unnamed`, by a link or, without /proc, by a copy. The name must be new."""
    try:
        os.link(f"/proc/self/fd/{file.fileno()}", path, src_dir_fd=file.fileno())  # src_dir_fd makes it follow the link
    except OSError:
        file.seek(0)
        with path.open("xb") as copy:
            shutil.copyfileobj(file, copy)
        sync(path)


def move(path: Path, target: Path) -> None:
    """Rename a file or folder, and replace a file that has this name.

    Windows refuses this while a program has one of the files open, so it is retried for some seconds.
    """
    until = time.monotonic() + PATIENCE
    while True:
        try:
            path.replace(target)
            return
        except PermissionError:
            if not WINDOWS or time.monotonic() > until or target.is_dir():
                raise
            time.sleep(0.05)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk, to survive a power failure. Windows syncs no folders."""
    if WINDOWS and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if WINDOWS else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def usable_cores() -> int:
    """The number of processor cores that the system lets this process use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def native_threads() -> int:
    """The number of threads of this process, with those of libraries; 0 if the system does not list them as Linux."""
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:
        return 0


def forked(work: Callable[[], None]) -> Any:
    """Call `work` in a copy of this process, which Ctrl-C does not reach. Only on Unix."""
    context: Any = multiprocessing.get_context("fork")
    process = context.Process(target=work, daemon=True)
    with interrupts_held(spawned=False):
        process.start()
    return process


def peak_resident_memory() -> int:
    """The peak resident memory of this process, in bytes."""
    import psutil

    if _limits is None:
        known = psutil.Process().memory_info()
        return int(getattr(known, "peak_wset", known.rss))
    return int(_limits.getrusage(_limits.RUSAGE_SELF).ru_maxrss) * (1 if psutil.MACOS else 1024)


@contextmanager
def file_size_limited(most: int) -> Iterator[None]:
    """Within this context, files cannot grow beyond `most` bytes (OSError). Windows has no such limit."""
    if _limits is None:
        yield
        return
    soft, hard = _limits.getrlimit(_limits.RLIMIT_FSIZE)
    least = min(limit for limit in (most, soft, hard) if limit != _limits.RLIM_INFINITY)
    _limits.setrlimit(_limits.RLIMIT_FSIZE, (least, hard))
    try:
        yield
    finally:
        _limits.setrlimit(_limits.RLIMIT_FSIZE, (soft, hard))


def leave_terminal() -> None:
    """Detach from the terminal, so Ctrl-C only reaches the parent process. On Windows it reaches both."""
    if hasattr(os, "setsid"):
        os.setsid()


@contextmanager
def interrupts_held(*, spawned: bool = True) -> Iterator[None]:
    """Within this context Ctrl-C is blocked, also in processes that start here. On Windows it reaches all of them."""
    from multiprocessing import resource_tracker

    masks: Any = signal
    if hasattr(signal, "pthread_sigmask"):
        if spawned:
            resource_tracker.ensure_running()  # when it starts, it unblocks the signal
        before = masks.pthread_sigmask(masks.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        if hasattr(signal, "pthread_sigmask"):
            masks.pthread_sigmask(masks.SIG_SETMASK, before)


def kill_with_children(process: int) -> None:
    """Kill the leader of a session and all of its processes."""
    if hasattr(os, "killpg") and hasattr(signal, "SIGKILL"):
        os.killpg(process, signal.SIGKILL)
        return
    import psutil

    for each in [*psutil.Process(process).children(recursive=True), psutil.Process(process)]:
        each.kill()
