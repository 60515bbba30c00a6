"""A program as a teacher, such as Apertium: it reads lines from standard input, and writes a line for each.

The program is started once. Since it may hold back outputs until it has read more, one thread writes lines as fast as
the program reads them, and another thread collects its outputs. An empty line follows each `GROUP` of lines. Its output
must be empty as well, so that a missing or surplus line is noticed in its group. Blank lines of the input are not sent.

Apertium translates words across the end of a line together, but not across an empty line, so it gets an empty line
after every line.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from contextvars import copy_context
from itertools import chain
from pathlib import Path
from queue import Empty, Queue
from tempfile import TemporaryFile
from threading import Thread
from typing import IO, NoReturn, cast

import psutil

from headway.augment.teacher import DecodedLine, Teacher, without_scores
from headway.core.errors import RunError, UserError, option
from headway.core.log import counted
from headway.core.processes import batched
from headway.core.system import kill_with_children
from headway.formats.lines import LONGEST_LINE, check_texts
from headway.processing.text.line_ends import on_one_line

GROUP = 1000  # lines between empty lines
WAITING = 10_000  # outputs in memory
PATIENCE = 10.0  # seconds for a program to tell its version, or to end
TAIL = 500  # bytes of standard error in messages


def program_of(command: str) -> list[str]:
    """The program and its arguments, split as by a shell. Raises UserError if there is no such program."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(f"this is no command ({error})", where=option("teacher"), received=command) from error
    if not words or shutil.which(words[0]) is None:
        raise UserError("there is no such program", where=option("teacher"), received=command)
    return words


class CommandTeacher(Teacher):
    """A program that translates lines. Creating the teacher already runs the program, to ask for its version.

    Args:
        words: the program and its arguments.
        licence: the terms under which its outputs may be used.
        silence: the longest time without an output, in seconds.
    """

    group = GROUP

    def __init__(self, words: list[str], licence: str, silence: float = 60) -> None:
        self.words, self.silence, name = words, silence, Path(words[0]).stem
        if name == "apertium":
            self.marks, self.group = "apertium", 1
        teacher = {"name": name, "licence": licence, "command": shlex.join(words), "version": _version(words[0])}
        self.identity = {"teacher": teacher}

    def check(self, chunks: Iterable[list[str]]) -> int:
        """Raise UserError if the first lines are rows of a table, and return the number of all lines."""
        total = 0
        for chunk in chunks:
            if not total:
                check_texts(chunk, frozenset(), option("input"))
            total += len(chunk)
        return total

    def write(self, chunks: Iterable[list[str]], first_line: int) -> Iterator[list[DecodedLine]]:
        with _Running(self, chunks, first_line) as program:
            chunk = program.next_chunk()
            while chunk is not None:
                written = program.outputs(chunk)
                following = program.next_chunk()
                if following is None:
                    program.check_end()
                yield without_scores(chunk, written)
                chunk = following


def _version(program: str) -> str | None:
    """The first line that the program prints for `-V`, or None if it fails."""
    command, nothing = [program, "-V"], subprocess.DEVNULL
    try:
        told = subprocess.run(command, stdin=nothing, capture_output=True, timeout=PATIENCE, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(told.stdout.decode(errors="replace").splitlines()), None)


class _Running:
    """A running program, which ends with this context. `lines` is the range of the current chunk, for messages."""

    def __init__(self, teacher: CommandTeacher, chunks: Iterable[list[str]], first_line: int) -> None:
        self.words, self.group, self.silence, self.chunks = teacher.words, teacher.group, teacher.silence, chunks
        self.lines = range(first_line, first_line)
        self._sent: Queue[list[str] | BaseException | None] = Queue()
        self._written: Queue[bytes] = Queue(WAITING)  # empty bytes at the end
        self._errors = TemporaryFile()  # noqa: SIM115  # closed by __exit__

    def __enter__(self) -> _Running:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(  # noqa: S603  # the user's own program
            self.words, stdin=pipe, stdout=pipe, stderr=self._errors, start_new_session=True
        )
        self._input, self._output = cast(IO[bytes], self._process.stdin), cast(IO[bytes], self._process.stdout)
        # The feeding thread reads the input, with the pipes that are kept in this context.
        feed, collect = Thread(target=copy_context().run, args=(self._feed,)), Thread(target=self._collect)
        self._threads = (feed, collect)
        for thread in self._threads:
            thread.daemon = True
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            kill_with_children(self._process.pid)
        self._process.wait()
        while any(thread.is_alive() for thread in self._threads):
            with suppress(Empty):  # makes room for a thread that waits with an output
                self._written.get(timeout=0.01)
        for stream in (self._input, self._output, self._errors):
            with suppress(OSError):  # lines that the program has not read
                stream.close()

    def next_chunk(self) -> list[str] | None:
        """The next chunk that the feeding thread has begun to send; None after the last one."""
        sent = self._sent.get()
        if isinstance(sent, OSError):
            self._fail("it has stopped reading")
        if isinstance(sent, BaseException):
            raise sent
        if sent is not None:
            self.lines = range(self.lines.stop, self.lines.stop + len(sent))
        return sent

    def outputs(self, chunk: list[str]) -> list[str]:
        """The outputs for a chunk, empty for blank lines. Raises RunError unless each line has one output."""
        written = chain.from_iterable(self._outputs(len(group)) for group in self._groups(chunk))
        return [next(written) if line.strip() else "" for line in chunk]

    def check_end(self) -> None:
        """Raise RunError if another output follows."""
        if self._next_output() is not None:
            self._fail("it has written more lines than it has read")
        self._ended()

    def _groups(self, chunk: list[str]) -> Iterator[list[str]]:
        """The lines to be sent, each group before an empty line."""
        return batched((on_one_line(line) for line in chunk if line.strip()), self.group)

    def _outputs(self, count: int) -> list[str]:
        """The outputs for a group of lines. Raises RunError unless the output after them is empty."""
        written = list[str]()
        while len(written) <= count:
            if (output := self._next_output()) is None:
                outputs, lines = counted(len(written), "output"), counted(count, "line")
                self._fail(f"{self._ended()} after {outputs} for {lines}")
            written.append(output)
        if written.pop():
            what = "more" if all(written) else "fewer"  # if the empty output came early
            self._fail(f"it has written {what} lines than it has read, or a text for the empty line after these lines")
        return written

    def _next_output(self) -> str | None:
        """The next output; None at the end."""
        try:
            return raw.decode().strip() if (raw := self._written.get(timeout=self.silence)) else None
        except Empty:
            self._fail(f"it has written nothing for {self.silence:g} seconds")
        except UnicodeDecodeError:
            self._fail("it has written bytes that are not UTF-8")

    def _ended(self) -> str:
        try:
            return f"it has ended with exit code {self._process.wait(PATIENCE)}"
        except subprocess.TimeoutExpired:
            return "it has closed its output"

    def _fail(self, what: str) -> NoReturn:
        self._errors.seek(max(0, self._errors.seek(0, 2) - TAIL))
        told = self._errors.read().decode(errors="replace").strip().split("\n")[-1]
        where = f"{shlex.join(self.words)}: lines {self.lines.start:,} to {self.lines.stop - 1:,}"
        raise RunError(f"{where}: {what}" + (f"; its last message: {told}" if told else ""))

    def _feed(self) -> None:
        """Send all chunks, with an empty line after each group."""
        try:
            for chunk in self.chunks:
                self._sent.put(chunk)
                for group in self._groups(chunk):
                    self._input.write("".join(f"{line}\n" for line in (*group, "")).encode())
                self._input.flush()
            self._input.close()
            self._sent.put(None)
        except BaseException as error:  # raised by next_chunk, in the thread that waits for it
            self._sent.put(error)

    def _collect(self) -> None:
        while raw := self._output.readline(LONGEST_LINE):
            self._written.put(raw)
        self._written.put(b"")
