"""Python without what Unix alone has, as far as headway and its tests see it; Python imports this by its name.

Libraries keep all: by the name of the system they would ask Windows for other things. Files that this process has open
can neither be removed nor renamed by headway, as on Windows.
"""

import builtins
import multiprocessing
import os
import select
import signal
import socket
import sys
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from unix_names import MODULES, SIGNALS, SYSTEM  # beside this file

OURS = ("headway", "tests", "tools", "benchmarks")


def only_sockets(readers: Any, writers: Any, errors: Any, timeout: float | None = None) -> Any:
    """`select`, which knows no other files on Windows."""
    if not all(isinstance(each, socket.socket) for each in (*readers, *writers, *errors)):
        raise OSError("an operation was attempted on something that is not a socket")
    return select.select(readers, writers, errors, timeout)


def only_spawn(method: str | None = None) -> Any:
    """`get_context` where a process cannot be forked."""
    if method not in (None, "spawn"):
        raise ValueError(f"cannot find context for {method!r}")
    return multiprocessing.get_context("spawn")


class Without(ModuleType):
    """A module without some of its names, and with others in place of its own."""

    def __init__(self, module: ModuleType, names: tuple[str, ...], **instead: Any) -> None:
        super().__init__(module.__name__)
        vars(self).update(_module=module, _names=names, _first=dict(vars(module)), **instead)

    def __getattr__(self, name: str) -> Any:
        if name in self._names:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self)
        return getattr(self._module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)

    def __delattr__(self, name: str) -> None:
        setattr(self._module, name, self._first[name])  # which undoes what a test has set


LESS = {
    "os": Without(os, SYSTEM, name="nt"),
    "signal": Without(signal, SIGNALS),
    "select": Without(select, ("epoll", "kqueue", "poll"), select=only_sockets),
    "multiprocessing": Without(
        multiprocessing, (), get_context=only_spawn, get_all_start_methods=lambda: ["spawn"]
    ),
}  # fmt: skip
whole_import = builtins.__import__


def less_import(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    """`__import__` of what Windows has."""
    importer = str((globals or {}).get("__name__"))
    if importer.partition(".")[0] not in OURS:
        return whole_import(name, globals, locals, fromlist, level)
    if name in MODULES:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    module = whole_import(name, globals, locals, fromlist, level)
    return LESS.get(module.__name__, module)


def by_headway(frame: FrameType | None) -> bool:
    """Whether a call comes from headway."""
    while frame is not None and not str(frame.f_globals.get("__name__")).startswith("headway."):
        frame = frame.f_back
    return frame is not None


def open_files() -> set[str]:
    """The paths of all files that this process has open or mapped."""
    links = list(Path("/proc/self/fd").iterdir())
    mapped = {
        line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text("utf-8").splitlines() if "/" in line
    }
    return mapped | {str(link.readlink()) for link in links if link.is_file()}


def refuse_open_files(event: str, arguments: tuple[Any, ...]) -> None:
    """Raise PermissionError where headway removes or renames a file that is open, or a folder that has one."""
    if event not in ("os.remove", "os.rename") or not by_headway(sys._getframe()):
        return
    count = len(arguments) // 2
    for path, folder in zip(arguments[:count], arguments[count:], strict=True):
        above = Path(f"/proc/self/fd/{folder}").readlink() if folder not in (None, -1) else Path.cwd()
        touched = str(above / os.fsdecode(path))
        if any(each == touched or each.startswith(f"{touched}/") for each in open_files()):
            raise PermissionError(13, "another program has this file open", touched)


builtins.__import__ = less_import
if Path("/proc/self/maps").exists():
    sys.addaudithook(refuse_open_files)
