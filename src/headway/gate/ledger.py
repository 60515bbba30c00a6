"""The ledger of a loop: JSON lines that are only appended, each with the hash of the line before.

A line is flushed to disk before anything follows from it. A process that is killed leaves an unfinished last line at
most, which the next process cuts off. Beside the ledger, a folder holds the cells, and the hash of the last line, by
which lines are missed that somebody has removed from the end.
"""

import base64
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

from headway.core.errors import UserError
from headway.core.files import json_line, write_text
from headway.core.storage import locked

Line = Mapping[str, Any]


def sealed(numbers: Any) -> str:
    """Numbers of the sealed set as a text that nobody reads by accident."""
    return base64.b64encode(json.dumps(numbers).encode()).decode()


def unsealed(text: str) -> Any:
    return json.loads(base64.b64decode(text, validate=True))


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


class Ledger:
    """The lines of a ledger.

    Args:
        path: the file, which need not exist.

    Raises:
        UserError: a line is not what was written; the message has its number.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.cells = path, path.with_name(f"{path.name}.cells")
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        self.is_cut, self._end, self.hashes = len(whole) < len(content), len(whole), [""]
        self.lines = [self._read(number, line) for number, line in enumerate(whole.split(b"\n")[:-1], start=1)]
        witness = self.cells / "last"
        if witness.is_file() and witness.read_text(encoding="utf-8") not in self.hashes:
            raise self.fault(len(self.lines) + 1, "this line has been written, and is missing")

    def _read(self, number: int, line: bytes) -> Line:
        try:
            read = json.loads(line)
            previous = read["previous"]
        except (ValueError, RecursionError, KeyError, TypeError):
            raise self.fault(number, "this is no line of a ledger") from None
        if previous != self.hashes[-1]:
            raise self.fault(number, "the line before is not the one that was written")
        self.hashes.append(_hash(line))
        return dict(read)

    def fault(self, number: int, what: str) -> UserError:
        """The error for a line."""
        return UserError(what, where=f"{self.path}:{number}")

    def append(self, kind: str, fields: Line) -> Line:
        """Write a line, and return it. It is on the disk afterwards."""
        stamp = {"kind": kind, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "previous": self.hashes[-1]}
        line = json_line(stamp | dict(fields)).encode()
        with self.path.open("r+b" if self.path.exists() else "xb") as file:
            file.truncate(self._end)
            file.seek(self._end)
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._end += len(line) + 1
        self.hashes.append(_hash(line))
        self.lines.append(json.loads(line))
        self.cells.mkdir(exist_ok=True)
        write_text(self.cells / "last", self.hashes[-1])
        return self.lines[-1]


def existing(path: Path) -> Ledger:
    """The ledger of a loop that has begun. Raises UserError."""
    if not path.is_file():
        raise UserError("there is no such ledger", where=str(path), allowed="one that headway gate new has begun")
    return Ledger(path)


@contextmanager
def opened(path: Path, wait: float | None = None) -> Iterator[Ledger]:
    """The ledger, which no other process writes within this context; waits for it for `wait` seconds, or any time.

    Raises:
        UserError: another process writes it still; or as `Ledger`.
    """
    with locked(path.with_name(f".{path.name}.lock"), inf if wait is None else wait):
        yield Ledger(path)
