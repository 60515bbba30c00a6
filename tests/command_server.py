"""`headway` and `python FILE.py` for scripts and pages: each command is a copy of one process that has imported all.

A page has a dozen commands, and each would import torch anew. The copies begin without threads and with the working
folder, environment, arguments and standard streams of the command, and end as it does. A command hands on the signals
that would stop it, and is killed together with its copy.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import traceback
from functools import cache
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import mkdtemp
from typing import NoReturn

from headway.cli import main

ROOT = Path(__file__).parents[1]
SERVERS: list[Popen[bytes]] = []
IMPORTED = ("training.loop", "runs.load", "pages.page", "grids.compare", "predictors", "serving.app")
CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
if sys.argv[0].endswith("python") and not sys.argv[1].endswith(".py"):
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
server = socket.socket(socket.AF_UNIX)
server.connect({path!r})
said = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(said).to_bytes(4, "big")], [0, 1, 2])
server.sendall(said)
copy = int(server.recv(8))
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: os.kill(copy, number))
sys.exit(int(server.recv(8) or 1))
"""


@cache
def commands() -> Path:
    """A folder with these commands, whose server ends with this process."""
    folder = Path(mkdtemp())  # short, as the name of a socket must be
    path = folder / "socket"
    for client in (folder / "headway", folder / "python"):
        client.write_text(CLIENT.format(python=sys.executable, path=str(path)), encoding="utf-8")
        client.chmod(0o755)
    server = Popen(
        [sys.executable, "-m", __name__, str(path)],
        cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdin=PIPE, stdout=PIPE,
    )  # fmt: skip
    assert server.stdout is not None
    assert server.stdout.readline()
    SERVERS.append(server)
    return folder


def commands_path() -> str:
    """PATH with these commands before all others."""
    return os.pathsep.join([str(commands()), str(Path(sys.executable).parent), os.environ["PATH"]])


def serve(path: str) -> None:
    """Copy this process for each command, until standard input ends with the process that started this one."""
    for name in IMPORTED:
        importlib.import_module(f"headway.{name}")
    gc.freeze()
    os.fsync = lambda descriptor: None  # as in the tests themselves
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while listener in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _watch(connection)
            connection.close()
    shutil.rmtree(Path(path).parent)


def _watch(connection: socket.socket) -> NoReturn:
    """Run one command in another copy, and tell how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(connection, 4, 3)
    said = b""
    while len(said) < int.from_bytes(size, "big"):
        said += connection.recv(1 << 16)
    worker = os.fork()
    if worker == 0:
        connection.close()
        _run(streams, *json.loads(said))
    for stream in streams:
        os.close(stream)
    connection.sendall(str(worker).encode())
    ended = os.pidfd_open(worker)
    if connection in select.select([connection, ended], [], [])[0]:  # the command has been killed
        os.kill(worker, signal.SIGKILL)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    connection.sendall(str(code if code >= 0 else 128 - code).encode())
    os._exit(0)


def _run(streams: list[int], arguments: list[str], folder: str, environment: dict[str, str]) -> NoReturn:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    code: object = 0
    try:
        if arguments[0].endswith("python"):
            sys.argv = arguments[1:]
            sys.path.insert(0, str(Path(arguments[1]).resolve().parent))
            runpy.run_path(arguments[1], run_name="__main__")
        else:
            sys.argv = ["headway", *arguments[1:]]
            main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))  # without the second in which modules are undone


if __name__ == "__main__":
    serve(sys.argv[1])
