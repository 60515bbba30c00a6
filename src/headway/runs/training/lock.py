"""The lock of a run folder: one training at a time.

The system lets go of the lock when its process ends, in whatever way, so that a killed run can be resumed at once. It
holds between machines where the file system carries `flock` between them (NFS, CephFS, and Lustre and
GPFS with their option for it); where it does not, the note in the file says what trained here last.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headway.errors import UserError
from headway.files import take_lock
from headway.log import warn

LOCK = ".lock"  # a file in the run folder that stays there; no link, whose file would be emptied


@contextmanager
def training_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder, which exists.

    Raises:
        UserError: another process trains there, or the folder cannot be written.
    """
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise UserError(f"the run folder cannot be written ({error.strerror})", where=str(folder)) from error
    try:
        _take(folder, descriptor)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"machine": socket.gethostname(), "process": os.getpid()}).encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _take(folder: Path, descriptor: int) -> None:
    free, holder = take_lock(descriptor), _holder(descriptor)
    named = f"process {holder.get('process')} of {holder.get('machine')}" if holder else ""
    if free is False:
        raise UserError("another process trains here", where=str(folder), received=named or None)
    if free is None:
        warn(f"{folder}: this file system has no locks; see that no other process trains here")
    elif holder and holder.get("machine") != socket.gethostname():
        warn(f"{folder}: {named} trained here and did not end by itself; see that it does not train any more")


def _holder(descriptor: int) -> dict[str, Any]:
    """The process that the file names, if it names one."""
    try:
        note = json.loads(os.pread(descriptor, 1000, 0))
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}
