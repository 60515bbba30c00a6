"""A disk that forgets what was not synced: the states in which power cuts may leave a folder.

Content is durable once its file was synced, and a name once its folder was. `forgetful` is a disk on which nothing else
lasts. `careless` is one that writes names at once and content late, as file systems with delayed allocation do.
"""

import os
import random
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

CHANGES = ("rename", "replace", "unlink", "rmdir", "mkdir")
KINDS = ("forgetful", "careless", "mixed")


class Disk:
    """What is durable in a folder, noted while this process writes there.

    Args:
        root: the folder, which is durable itself and empty.
        at_change: called before each change of a name and after each sync, with the number of changes so far.
    """

    def __init__(self, root: Path, at_change: "Callable[[Disk, int], None]") -> None:
        self.root, self.at_change, self.changes = root, at_change, 0
        self.contents: dict[int, bytes] = {}
        self.names: dict[int, dict[str, int]] = {}
        self.held: dict[int, int] = {}  # open, so that no other file gets their numbers

    def synced(self, descriptor: int) -> None:
        """Note that a file or a folder is durable."""
        status, path = os.fstat(descriptor), Path(f"/proc/self/fd/{descriptor}").readlink()
        if self.root not in (path, *path.parents):
            return
        if status.st_ino not in self.held:
            self.held[status.st_ino] = os.dup(descriptor)
        if stat.S_ISDIR(status.st_mode):
            self.names[status.st_ino] = {entry.name: entry.inode() for entry in os.scandir(path)}
        else:
            self.contents[status.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()  # it may have no name yet
        self.changed()

    def changed(self) -> None:
        """Count a change."""
        self.changes += 1
        self.at_change(self, self.changes)

    def after_a_cut(self, kind: str, copy: Path, seed: int = 1) -> None:
        """Write what a power cut may leave of the folder now to a new folder."""
        draw = random.Random(seed)
        copy.mkdir()
        if kind == "forgetful":
            self._durable(self.root.stat().st_ino, copy)
        else:
            self._named(self.root, copy, lambda: kind == "mixed" and draw.random() < 0.5)

    def _durable(self, folder: int, copy: Path) -> None:
        for name, number in self.names.get(folder, {}).items():
            if number in self.contents:
                (copy / name).write_bytes(self.contents[number])
            elif number in self.names:
                (copy / name).mkdir()
                self._durable(number, copy / name)

    def _named(self, folder: Path, copy: Path, lasts: Callable[[], bool]) -> None:
        for path in folder.iterdir():
            if path.is_dir():
                (copy / path.name).mkdir()
                self._named(path, copy / path.name, lasts)
            else:
                durable = self.contents.get(path.stat().st_ino, b"")
                (copy / path.name).write_bytes(path.read_bytes() if lasts() else durable)


@contextmanager
def noted(root: Path, at_change: Callable[[Disk, int], None]) -> Iterator[Disk]:
    """A disk that notes what this process does within this context."""
    disk, fsync = Disk(root, at_change), os.fsync
    whole = {name: getattr(os, name) for name in CHANGES}

    def note_sync(descriptor: int) -> None:
        fsync(descriptor)
        disk.synced(descriptor)

    def note_change(name: str) -> Callable[..., object]:
        def change(*arguments: object, **options: object) -> object:
            if str(arguments[0]).startswith(str(root)):
                disk.changed()
            return whole[name](*arguments, **options)

        return change

    os.fsync = note_sync
    for name in CHANGES:
        setattr(os, name, note_change(name))
    try:
        descriptor = os.open(root, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        yield disk
    finally:
        os.fsync = fsync
        for name, function in whole.items():
            setattr(os, name, function)
        for descriptor in disk.held.values():
            os.close(descriptor)
