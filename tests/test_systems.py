"""Linux, macOS and Windows: nothing that one of them lacks is named outside of `core/system.py`."""

import ast
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from headway.core import system
from tests.sources import ROOT, trees
from tests.without_unix.unix_names import MODULES, SIGNALS, SYSTEM

ELSEWHERE = {"os": {*SYSTEM, "kill"}, "signal": set(SIGNALS)}  # `os.kill` ends a process of Windows whatever the signal
FORKS = {"fork", "forkserver", "preexec_fn"}


def unix_names(tree: ast.Module) -> list[str]:
    """What a module names that Windows lacks."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name in MODULES]
        elif isinstance(node, ast.ImportFrom):
            gone = ELSEWHERE.get(str(node.module), set())
            found += [str(node.module)] if node.module in MODULES else []
            found += [name.name for name in node.names if name.name in gone]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found += [node.attr] if node.attr in ELSEWHERE.get(node.value.id, set()) else []
        elif isinstance(node, ast.keyword) and node.arg in FORKS:
            found.append(node.arg)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("get_context"):
            found += [value.value for value in node.args if isinstance(value, ast.Constant) and value.value in FORKS]
    return found


def of_the_locale(tree: ast.Module) -> list[int]:
    """The lines of calls whose text is written or read in an encoding of the locale, or with its line ends."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        keywords = {key.arg for key in node.keywords}
        shown = [f"{key.arg}={ast.unparse(key.value)}" for key in node.keywords]
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        mode = ast.literal_eval(node.args[0]) if node.args and isinstance(node.args[0], ast.Constant) else ""
        opens = name == "open" and (mode in ("r", "w", "x", "a", "r+", "w+") or not node.args)
        writes = name == "write_text" or (opens and mode not in ("", "r"))
        reads = (name == "read_text" and not node.args) or (opens and not writes) or "text=True" in shown
        if ((reads or writes) and "encoding" not in keywords) or (writes and "newline" not in keywords):
            found.append(node.lineno)
    return found


def test_every_system_has_what_is_named() -> None:
    for path, tree in trees().items():
        if "recipes" not in path.split("/"):
            assert path == "core/system.py" or unix_names(tree) == [], path
            assert of_the_locale(tree) == [], path


def test_what_is_looked_for_is_found() -> None:
    names = "import fcntl\nfrom os import fork\nos.kill(1, signal.SIGKILL)\nget_context('fork')\nPopen(x, preexec_fn=y)"
    assert sorted(unix_names(ast.parse(names))) == ["SIGKILL", "fcntl", "fork", "fork", "kill", "preexec_fn"]
    calls = (
        'p.open("w", encoding="utf-8")',
        'p.open("rb")',
        "p.read_text()",
        'p.open(encoding="x")',
        "run(x, text=True)",
    )
    assert of_the_locale(ast.parse("\n".join(calls))) == [1, 3, 5]


def test_headway_is_imported_without_modules_of_unix() -> None:
    paths = [str(Path(__file__).with_name("without_unix")), str(ROOT.parent)]
    said = "headway.core.system.WINDOWS, hasattr(headway.core.files.os, 'fork')"
    script = f"import headway.core.files, headway.cli; print({said})"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True)
    assert ended.stdout.split() == [b"True", b"False"]


def test_a_file_that_is_open_elsewhere_is_replaced_once_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "WINDOWS", True)
    (tmp_path / "new").write_text("new", encoding="utf-8")
    replace, refused = Path.replace, [True, True, False]

    def sometimes(path: Path, target: Path) -> Path:
        if refused.pop(0):
            raise PermissionError(13, "another program has this file open")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", sometimes)
    system.move(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old").read_text(encoding="utf-8") == "new"
    monkeypatch.setattr(system, "PATIENCE", 0.1)
    refused[:] = [True] * 100
    with pytest.raises(PermissionError):
        system.move(tmp_path / "old", tmp_path / "new")


def test_without_sessions_a_process_is_killed_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "killpg", raising=False)
    begin = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=-1)"
    child = f"{begin}; print(p.pid, flush=True); p.wait()"
    with subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        grandchild = int(process.stdout.readline())
        system.kill_with_children(process.pid)
    import psutil

    while psutil.pid_exists(grandchild) and psutil.Process(grandchild).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.05)


def test_without_limits_there_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(system, "_limits", None)
    with system.file_size_limited(1):
        (tmp_path / "x").write_bytes(b"123")
    assert system.peak_resident_memory() > 1 << 20


@pytest.mark.parametrize("windows", [False, True])
def test_no_link_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: bool) -> None:
    monkeypatch.setattr(system, "WINDOWS", windows)
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(OSError, match="link"):
        system.open_no_link(tmp_path / "link")
    with system.open_no_link(tmp_path / "file") as file:
        file.write(b"1")
    system.sync(tmp_path / "file")
    system.sync(tmp_path)


def test_a_signal_that_a_thread_raises_reaches_the_main_one() -> None:
    received = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: received.append(threading.current_thread()))
    try:
        thread = threading.Thread(target=signal.raise_signal, args=(signal.SIGTERM,))
        thread.start()
        thread.join()
        assert received == [threading.main_thread()]
    finally:
        signal.signal(signal.SIGTERM, before)
