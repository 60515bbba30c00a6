"""Files that are written whole or not at all, and the hash that recognises a changed one."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any


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
    sync_folder(path.parent)


def write_text(path: Path, content: str) -> None:
    """`write_bytes` for UTF-8 text."""
    write_bytes(path, content.encode())


def write_json(path: Path, content: Any) -> None:
    """`write_bytes` for a value that JSON can hold."""
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files and folders (`.NAME.tmp`) in `folder` that a killed process left there."""
    for left in folder.glob(".*.tmp"):
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()


def sync_folder(folder: Path) -> None:
    """Make a rename within `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
