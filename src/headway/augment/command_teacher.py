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
from threading import Thread
from typing import IO, Any, NoReturn, cast

import psutil

from headway.augment.teacher import DecodedLine, Teacher, without_scores
from headway.core.errors import RunError, UserError, option
from headway.core.log import counted
from headway.core.processes import batched
from headway.core.system import kill_with_children
from headway.formats.lines import LONGEST_LINE, check_texts, line_place
from headway.processing.text.line_ends import on_one_line

GROUP = 1000  # lines between empty lines
WAITING = 10_000  # outputs in memory
PATIENCE = 10.0  # seconds for a program to tell its version, or to end
TAIL = 500  # bytes of standard error in messages


def program_of(command: str) -> list[str]:
    """The program and its arguments, as a shell would split the command. No shell runs it.

    Raises:
        UserError: the command is empty or has an open quote, or there is no such program.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(f"this is no command ({error})", where=option("teacher"), received=command) from error
    if not words or shutil.which(words[0]) is None:
        allowed = "a program and its arguments, such as apertium spa-ast"
        raise UserError("there is no such program", where=option("teacher"), received=command, allowed=allowed)
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
        self.words, self.silence = words, silence
        name, command = Path(words[0]).stem, shlex.join(words)
        if name == "apertium":
            self.marks, self.group = "apertium", 1
        self.identity = {
            "teacher": {"name": name, "licence": licence, "command": command, "version": _version(words[0])}
        }

    def check(self, chunks: Iterable[list[str]]) -> int:
        """Raise UserError if the first lines are rows of a table, and return the number of all lines."""
        total = 0
        for chunk in chunks:
            if not total:
                check_texts(chunk, frozenset(), line_place(1))
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
    try:
        told = subprocess.run(  # noqa: S603  # the user's own program
            [program, "-V"], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(told.stdout.decode(errors="replace").splitlines()), None)


class _Running:
    """A running program, which ends with this context.

    Attributes:
        lines: the range of the lines in the current chunk, for messages.
    """

    def __init__(self, teacher: CommandTeacher, chunks: Iterable[list[str]], first_line: int) -> None:
        self.words, self.group, self.silence, self.chunks = teacher.words, teacher.group, teacher.silence, chunks
        self.lines = range(first_line, first_line)
        self._sent: Queue[list[str] | BaseException | None] = Queue()
        self._written: Queue[bytes] = Queue(WAITING)  # empty bytes at the end
        self._errors = bytearray()

    def __enter__(self) -> _Running:
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(  # noqa: S603  # the user's own program
                self.words, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except OSError as error:
            what = f"this program cannot be started ({error.strerror})"
            raise UserError(what, where=option("teacher"), received=shlex.join(self.words)) from error
        context = copy_context()  # the feeding thread reads the input, with the pipes that are kept
        works = (lambda: context.run(self._feed)), self._collect, self._collect_errors
        self._threads = [Thread(target=work, daemon=True) for work in works]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            kill_with_children(self._process.pid)
        self._process.wait()
        while any(thread.is_alive() for thread in self._threads):
            with suppress(Empty):  # makes room for a thread that waits with an output
                self._written.get(timeout=0.01)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            with suppress(OSError):  # lines that the program has not read
                cast(IO[bytes], stream).close()

    def next_chunk(self) -> list[str] | None:
        """The next chunk that was begun to be sent; None after the last one."""
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

    def _groups(self, chunk: list[str]) -> Iterator[list[str]]:
        """The lines to be sent, each group before an empty line."""
        return batched((on_one_line(line) for line in chunk if line.strip()), self.group)

    def _outputs(self, count: int) -> list[str]:
        """The outputs for a group of lines. Raises RunError unless the output after them is empty."""
        written = list[str]()
        while len(written) <= count:
            if (output := self._output()) is None:
                ended = self._ended()
                self._fail(f"{ended} after {counted(len(written), 'output')} for {counted(count, 'line')}")
            written.append(output)
        if written.pop():
            what = "more" if all(written) else "fewer"  # if the empty output came early
            self._fail(f"it has written {what} lines than it has read, or a text for the empty line after these lines")
        return written

    def check_end(self) -> None:
        """Raise RunError if another output follows."""
        if self._output() is not None:
            self._fail("it has written more lines than it has read")
        self._ended()

    def _output(self) -> str | None:
        """The next output; None at the end."""
        try:
            raw = self._written.get(timeout=self.silence)
        except Empty:
            self._fail(f"it has written nothing for {self.silence:g} seconds")
        if not raw:
            return None
        try:
            return raw.decode().strip()
        except UnicodeDecodeError:
            self._fail("it has written bytes that are not UTF-8")

    def _ended(self) -> str:
        try:
            return f"it has ended with exit code {self._process.wait(PATIENCE)}"
        except subprocess.TimeoutExpired:
            return "it has closed its output"

    def _fail(self, what: str) -> NoReturn:
        self._threads[-1].join(0.2)
        errors = self._errors.decode(errors="replace").split("\n")
        last = next((f"; its last message: {line.strip()}" for line in reversed(errors) if line.strip()), "")
        where = f"{shlex.join(self.words)}: lines {self.lines.start:,} to {self.lines.stop - 1:,}"
        raise RunError(f"{where}: {what}{last}")

    def _feed(self) -> None:
        """Send all chunks, each followed by an empty line."""
        try:
            stream: Any = self._process.stdin
            for chunk in self.chunks:
                self._sent.put(chunk)
                for group in self._groups(chunk):
                    stream.write("".join(f"{line}\n" for line in (*group, "")).encode())
                stream.flush()
            stream.close()
            self._sent.put(None)
        except BaseException as error:  # raised by next_chunk, in the thread that waits for it
            self._sent.put(error)

    def _collect(self) -> None:
        stream: Any = self._process.stdout
        while raw := stream.readline(LONGEST_LINE):
            self._written.put(raw)
        self._written.put(b"")

    def _collect_errors(self) -> None:
        stream: Any = self._process.stderr
        while text := stream.read1(1 << 16):
            self._errors += text
            del self._errors[:-TAIL]
