"""The data of claims, which the commands of their file make."""

from __future__ import annotations

import hashlib
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO

from headway.comparison.claims import ClaimData
from headway.comparison.grid_run import CELLS
from headway.errors import RunError, UserError, option
from headway.files import sha256, write_text
from headway.log import duration, progress
from headway.storage import locked

DATA, PREPARED, LOG = "data", ".prepared", "prepare.txt"
NAMES_DATA = re.compile(r"\$\{?DATA\b")  # commands that read the user's folder
TAIL = 4096  # bytes in which the last line is looked for
LINE_ENDS = re.compile(r"[\r\n]+")  # a bar of progress ends each of its lines with a carriage return


def prepare(data: ClaimData, folder: Path, given: Path | None, beside: Path) -> Path:
    """Run the commands that make the data, unless these are there already; gives their folder, whole.

    Args:
        data: the commands, and the files that they need.
        folder: in which `data` is made, and `prepare.txt` with what the commands say, as they say it.
        given: the folder of what the user has.
        beside: where the commands run.

    Raises:
        UserError: no folder was given to commands that name it, or files that they need are not there; there are cells
            of other data than the commands make.
        RunError: a command failed, or another process is at work there.
    """
    output = (folder / DATA).absolute()
    if is_prepared(data, output, given):
        return output
    check_given(data, folder, given)
    with locked(folder / ".lock"):
        if not is_prepared(data, output, given):  # by another process, since it was looked at
            _make(data, folder, output, given, beside)
    return output


def _make(data: ClaimData, folder: Path, output: Path, given: Path | None, beside: Path) -> None:
    """Run the commands; what they make becomes `output` whole."""
    unfinished = output.with_name(f".{DATA}.tmp")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path, "OUTPUT": str(unfinished)}
    if given is not None:
        environment["DATA"] = str(given.absolute())
    log = folder / LOG
    code, error = _run(data.prepare, beside, environment, log, f"preparing {output}")
    if code:
        raise RunError(f"the data could not be prepared (exit code {code}): {error or 'no message'}; {log}")
    write_text(unfinished / PREPARED, f"{_stamp(data)}\n{_sizes(data, given)}\n")
    _check_cells(folder, output, unfinished)
    shutil.rmtree(output, ignore_errors=True)
    unfinished.rename(output)


def _check_cells(folder: Path, before: Path, now: Path) -> None:
    """Raise UserError where cells were made of data that the new ones would replace."""
    cells = folder / CELLS
    if before.is_dir() and cells.is_dir() and any(cells.iterdir()) and _content(before) != _content(now):
        what = f"the cells in {cells} were made of other data than the commands make now"
        raise UserError(what, where=option("output"), received=str(folder.parent), allowed="another folder")


def _content(folder: Path) -> dict[Path, str]:
    """The hashes of all files, by their paths in the folder, but for the mark of what made them."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != PREPARED)
    return {path.relative_to(folder): sha256(path) for path in files}


def check_given(data: ClaimData, folder: Path, given: Path | None) -> None:
    """Raise UserError where data are to be prepared in a folder, and the user's do not have what that needs."""
    if is_prepared(data, folder / DATA, given):
        return
    missing = [name for name in data.needs if given is None or not (given / name).exists()]
    if missing or (given is None and NAMES_DATA.search(data.prepare)):
        received = "no folder" if given is None else f"{given}, without {', '.join(missing)}"
        raise UserError(f"these claims need {data.about}", where=option("data"), received=received)


def is_prepared(data: ClaimData, output: Path, given: Path | None) -> bool:
    """Whether the data are there, made by these commands of what the user's folder has now, where one is given."""
    mark = output / PREPARED
    if not mark.is_file():
        return False
    stamp, _, sizes = mark.read_text(encoding="utf-8").strip().partition("\n")
    return stamp == _stamp(data) and (given is None or sizes == _sizes(data, given))


def _stamp(data: ClaimData) -> str:
    return hashlib.sha256(data.prepare.encode()).hexdigest()


def _sizes(data: ClaimData, given: Path | None) -> str:
    """A hash of the sizes of the files that the commands need: content of gigabytes would take long to read."""
    files = [path for name in data.needs if given is not None for path in _files(given / name)]
    return hashlib.sha256("\n".join(str(path.stat().st_size) for path in files).encode()).hexdigest()


def _files(path: Path) -> list[Path]:
    """A file, or all below a folder, in the order of their paths."""
    return [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())


def _run(commands: str, beside: Path, environment: Mapping[str, str], log: Path, title: str) -> tuple[int, str]:
    """Run shell commands, and show their last line as they work; gives the exit code, and the last line of errors."""
    shell, pipe = ["bash", "-euo", "pipefail", "-c", commands], subprocess.PIPE
    began, said, errors = time.monotonic(), b"", b""
    with (
        log.open("wb") as kept,
        progress(title, long=True) as work,
        _ended_by_signals(),
        subprocess.Popen(  # noqa: S603
            shell, cwd=beside, env=environment, stdout=pipe, stderr=pipe, start_new_session=True
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            for stream, text in _read(process.stdout, process.stderr):
                kept.write(text)
                kept.flush()
                said = (said + text)[-TAIL:]
                if stream is process.stderr:
                    errors = (errors + text)[-TAIL:]
                parts = duration(time.monotonic() - began), _last_line(said)
                work.update(0, " · ".join(filter(None, parts)))
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with all that the shell has begun
            raise
    return process.returncode, _last_line(errors)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Within this context SIGTERM and SIGHUP raise SystemExit where they would end the process, in the main thread."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    try:
        ending = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]
        before = {number: signal.signal(number, end) for number in ending}
    except ValueError:  # not the main thread
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _read(*streams: IO[bytes]) -> Iterator[tuple[IO[bytes] | None, bytes]]:
    """Read bytes as they come from any of the streams, with their stream; none, once a second, where nothing comes."""
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ, stream)
        while selector.get_map():
            ready = selector.select(timeout=1)
            if not ready:
                yield None, b""
            for key, _ in ready:
                text = os.read(key.fd, 1 << 16)
                if text:
                    yield key.data, text
                else:
                    selector.unregister(key.fileobj)


def _last_line(text: bytes) -> str:
    lines = [line.strip() for line in LINE_ENDS.split(text.decode(errors="replace"))]
    return next((line for line in reversed(lines) if line), "")
