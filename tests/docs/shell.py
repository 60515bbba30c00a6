"""An interactive shell at a pseudo-terminal, in which the commands of a page are typed one after the other."""

import os
import re
import select
import subprocess
from pathlib import Path
from typing import Self

from tests.command_server import commands_path
from tests.conftest import plain

PROMPT, MORE = re.compile("\x1e(\\d+)\x1e$"), re.compile("\x1f$")  # of the next command, and of a line that goes on
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")
READY = "for n in $(seq 600); do curl -sfo ready.json http://127.0.0.1:{}/ready && break; sleep .2; done; rm ready.json"
LIMIT = 800.0  # seconds of silence after which a command is ended


class Shell:
    """Bash, whose standard streams are terminals: one for input and errors, another one for output.

    Attributes:
        printed: all that went to standard output.
        drawn: what went to standard error since the last line was typed.
    """

    def __init__(self, folder: Path) -> None:
        import termios  # which Windows lacks: there, other tests read the pages

        (self.keys, slave), (self.out, out) = os.openpty(), os.openpty()
        for end in (slave, out):
            settings = termios.tcgetattr(end)
            settings[1] &= ~termios.OPOST
            settings[3] &= ~termios.ECHO
            termios.tcsetattr(end, termios.TCSANOW, settings)
            termios.tcsetwinsize(end, (40, 120))
        marks = {"PS1": "\x1e$?\x1e", "PS2": "\x1f", "TERM": "xterm", "PATH": commands_path(), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            ["setsid", "--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"],
            cwd=folder, env=os.environ | marks, stdin=slave, stdout=out, stderr=slave,
        )  # fmt: skip
        os.close(slave)
        os.close(out)
        self.printed, self.drawn = "", ""
        self.wait(PROMPT)
        self.type("set +H -uo pipefail")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.keys)
        os.close(self.out)

    def wait(self, *wanted: re.Pattern[str]) -> re.Match[str]:
        """Wait until what is drawn has one of the patterns, and give its match."""
        while not (found := next(filter(None, (each.search(self.drawn) for each in wanted)), None)):
            ready = select.select([self.keys, self.out], [], [], LIMIT)[0]
            assert ready, f"silence after {self.drawn[-2000:]}"
            self._read(ready)
        while ready := select.select([self.out], [], [], 0)[0]:  # what the command has printed by then
            self._read(ready)
        return found

    def _read(self, ready: list[int]) -> None:
        if self.keys in ready:
            self.drawn += os.read(self.keys, 1 << 16).decode("utf-8", "replace")
        if self.out in ready:
            self.printed += os.read(self.out, 1 << 16).decode("utf-8", "replace")

    def begin(self, line: str) -> None:
        """Type a line."""
        self.drawn = ""
        os.write(self.keys, f"{line}\n".encode())

    def type(self, line: str) -> None:
        """Type a line, and wait for the end of the command, if it is whole, which has to end well."""
        self.begin(line)
        if self.wait(PROMPT, MORE).re is PROMPT:
            self.check(line)

    def check(self, line: str, code: str = "0") -> None:
        """Fail if the last command has ended with another code."""
        assert self.wait(PROMPT)[1] == code, f"{line}\n{self.printed[-1000:]}\n{self.drawn[-3000:]}"


def type_lines(lines: list[str], folder: Path) -> str:
    """Type the lines, and give what their commands printed.

    A server gets a free port in the place of 5000. It is waited for, and the next lines are typed at another terminal.
    At the end, Ctrl-C ends it.
    """
    port, shells = "5000", [Shell(folder)]
    try:
        for line in lines:
            if not line.startswith("headway serve"):
                shells[-1].type(line.replace(":5000", f":{port}"))
                continue
            shells[-1].begin(line.replace("headway serve", "headway serve --port 0"))
            port = shells[-1].wait(ADDRESS, PROMPT)[1]
            shells.append(Shell(folder))
            shells[-1].type(READY.format(port))
        for shell in shells[:-1]:
            os.write(shell.keys, b"\x03")
            shell.check("Ctrl-C", "130")
        return plain("".join(shell.printed for shell in shells))
    finally:
        for shell in shells:
            shell.__exit__()
