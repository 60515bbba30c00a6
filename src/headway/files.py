"""Files that are written whole or not at all, read with clear errors, locked, and recognised by their hash."""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from headway.errors import UserError

Value = TypeVar("Value")

# What flock answers on file systems that have no locks.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` so that a reader, or a crash at any moment, finds the old file or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def write_text(path: Path, content: str) -> None:
    """`write_bytes` for UTF-8 text."""
    write_bytes(path, content.encode())


def write_json(path: Path, content: Any) -> None:
    """`write_bytes` for a value that JSON can hold."""
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def read_json(path: Path, shape: TypeAdapter[Value]) -> Value:
    """The value that a JSON file holds.

    Args:
        path: the file.
        shape: the type of the value.

    Raises:
        UserError: the file cannot be read, is not JSON, or holds a value of another type.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"this file cannot be read ({error.strerror})", where=str(path)) from error
    return parse_json(content, shape, str(path))


def parse_json(content: bytes, shape: TypeAdapter[Value], where: str) -> Value:
    """The value of JSON text from the file `where`. Raises UserError: not JSON, or a value of another type."""
    try:
        return shape.validate_python(json.loads(content))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        what = f"{key}: {first['msg']}" if key else first["msg"]
        raise UserError(f"this file is damaged ({what})", where=where) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"this file is damaged: it is not JSON ({error})", where=where) from error


def remove_leftovers(folder: Path, names: str) -> None:
    """Remove the temporary files and folders in `folder` that a killed process left there, and nothing else.

    Args:
        folder: where they are.
        names: a regular expression for the names that headway gives here; only `.NAME.tmp` and `.NAME.PROCESS.tmp` go.
    """
    temporary = re.compile(rf"\.(?:{names})(?:\.\d+)?\.tmp")
    for path in folder.iterdir():
        if temporary.fullmatch(path.name):
            remove(path)


def remove(path: Path) -> None:
    """Remove a file, a folder with all that is in it, or a link alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def take_lock(descriptor: int) -> bool | None:
    """Lock an open file until it is closed or its process ends, in whatever way that happens.

    Returns:
        Whether the lock was free; None where the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return None
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def sync(path: Path) -> None:
    """Make what was written to a file, or renamed within a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        # Not from a memory map: that is no faster, and ends the process where another one shortens the file.
        return hashlib.file_digest(file, "sha256").hexdigest()
