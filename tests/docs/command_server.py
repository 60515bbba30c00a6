"""`headway` for the pages of the documentation: every command is a copy of one process that has imported everything.

A page has a dozen commands, and each would import torch anew. The copies begin without threads and with the working
folder, environment, arguments and standard streams of the command, and end as it does.
"""

import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

from headway.cli import main

ROOT = Path(__file__).parents[2]
IMPORTED = ("runs.training.loop", "runs.load", "runs.inspect.pages", "comparison.compare", "predictors")
CLIENT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({path!r})
said = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(said).to_bytes(4, "big")], [0, 1, 2])
server.sendall(said)
sys.exit(int(server.recv(8) or 1))
"""


@contextmanager
def served(folder: Path) -> Iterator[Path]:
    """Within this context there is a command `headway` in the folder that is given, which is made."""
    folder.mkdir()
    path, client = folder / "socket", folder / "headway"
    client.write_text(CLIENT.format(python=sys.executable, path=str(path)), encoding="utf-8")
    client.chmod(0o755)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", __name__, str(path)]
    with Popen(command, cwd=ROOT, env=environment, stdin=DEVNULL, stdout=PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        try:
            yield folder
        finally:
            server.kill()


def serve(path: str) -> None:
    """Copy this process for each command, until it is killed."""
    for name in IMPORTED:
        importlib.import_module(f"headway.{name}")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                return _watch(connection)
            connection.close()


def _watch(connection: socket.socket) -> None:
    """Run one command in another copy, and tell how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(connection, 4, 3)
    said = b""
    while len(said) < int.from_bytes(size, "big"):
        said += connection.recv(1 << 16)
    worker = os.fork()
    if worker == 0:
        connection.close()
        return _run(streams, *json.loads(said))
    for stream in streams:
        os.close(stream)
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    connection.sendall(str(code if code >= 0 else 128 - code).encode())
    os._exit(0)


def _run(streams: list[int], arguments: list[str], folder: str, environment: dict[str, Any]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.argv = ["headway", *arguments]
    main()


if __name__ == "__main__":
    serve(sys.argv[1])
