"""Commands at a pseudo-terminal: it is their standard error and, where that is asked for, the other two streams."""

import os
import re
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Literal, NamedTuple, TextIO

PROMPT = "> "
END = "\x04"  # Ctrl-D
LIMIT = 60.0  # seconds of silence after which a command is ended

Kind = Literal["file", "pipe", "terminal"]
KINDS: tuple[Kind, ...] = ("file", "pipe", "terminal")


class Session(NamedTuple):
    """How a command at a terminal ended.

    Attributes:
        out: what its standard output got, where that is no terminal.
        drawn: all that the terminal got.
    """

    code: int
    out: str
    drawn: str

    @property
    def screen(self) -> list[str]:
        """The lines that stand on the terminal at the end."""
        return on_screen(self.drawn)


def on_screen(drawn: str) -> list[str]:
    """The lines that a terminal shows; colours and the cursor's visibility aside, rich moves up and erases lines."""
    lines, row, column = [""], 0, 0
    for sign in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|.", drawn, re.DOTALL):
        if sign == "\r":
            column = 0
        elif sign == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif sign == "\x1b[2K":
            lines[row] = ""
        elif sign.endswith("A") and len(sign) > 1:
            row = max(0, row - int(sign[2:-1]))
        elif not sign.startswith("\x1b"):
            lines[row] = f"{lines[row][:column]:{column}}{sign}{lines[row][column + 1 :]}"
            column += 1
    return "\n".join(line.rstrip() for line in lines).rstrip("\n").splitlines()


def at_terminal(
    *arguments: str | Path, out: Kind, folder: Path, stdin: str = "", typed: tuple[str, ...] | None = None
) -> Session:
    """Runs `python -m headway` in a process of its own.

    Args:
        arguments: of the command.
        out: standard output.
        folder: where standard output is kept, if it is a file.
        stdin: standard input, a file.
        typed: lines that are typed where the command asks for one, and then Ctrl-D.
    """
    master, slave = os.openpty()
    (folder / "in").write_text(stdin, encoding="utf-8")
    with (folder / "in").open("rb") as given, (folder / "out").open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "headway", *map(str, arguments)],
            stdin=given if typed is None else slave,
            stdout={"file": file, "pipe": subprocess.PIPE, "terminal": slave}[out],
            stderr=slave, start_new_session=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    os.close(slave)
    piped: list[bytes] = []
    reader = Thread(target=lambda: piped.append(process.stdout.read() if process.stdout else b""))
    reader.start()
    drawn, waiting = b"", [*(f"{line}\n" for line in typed or ()), END]
    while select.select([master], [], [], LIMIT)[0] and (part := available(master)):
        drawn += part
        if typed is not None and waiting and drawn.endswith(PROMPT.encode()):
            os.write(master, waiting.pop(0).encode())
    process.kill()  # where it has fallen silent; what has ended is not there any more
    reader.join()
    os.close(master)
    if process.stdout:
        process.stdout.close()
    written = piped[0] if out == "pipe" else (folder / "out").read_bytes()
    return Session(process.wait(), written.decode(), drawn.decode())


def available(master: int) -> bytes:
    """What there is; nothing, or an error, where all who could write have gone."""
    try:
        return os.read(master, 1 << 16)
    except OSError:
        return b""


@contextmanager
def received(ends: tuple[int, int]) -> Iterator[tuple[TextIO, Callable[[], str]]]:
    """A file of this process that writes to a terminal or a pipe, and what closes it and gives all that came out."""
    reading, writing = ends
    parts: list[bytes] = []
    file = os.fdopen(writing, "w", encoding="utf-8")

    def read() -> None:
        while part := available(reading):
            parts.append(part)

    reader = Thread(target=read)
    reader.start()

    def written() -> str:
        file.close()
        reader.join()
        return b"".join(parts).decode()

    try:
        yield file, written
    finally:
        written()
        os.close(reading)
