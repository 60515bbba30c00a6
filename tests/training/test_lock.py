"""One training at a time in a run folder; a process that dies lets go of it."""

import errno
import json
import os
import re
import signal
import threading

import pytest

from headway.core.errors import UserError
from headway.core.storage import locked
from headway.training import start
from headway.training.loop import train
from headway.training.start import LOCK
from tests.training import toys


def test_another_process_is_named(tmp_path, run_headway):
    run = toys.run(tmp_path)
    with locked(run / LOCK):
        before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file() and path.name != LOCK}
        ended = run_headway("train", run / "recipe.yaml", "--output", run, "--resume")
        assert ended.code == 2
        assert "another process is at work here" in ended.err
        assert f"process {os.getpid()} of " in ended.err
        assert before == {path.name: path.read_bytes() for path in run.iterdir() if path.name in before}
    toys.run(tmp_path, updates=7, resume=True)
    assert (run / LOCK).read_bytes() == b""


def test_a_living_run_keeps_its_unfinished_checkpoint(tmp_path):
    run = toys.run(tmp_path)
    unfinished = run / "checkpoints" / ".update-00000009.tmp"
    unfinished.mkdir()
    with locked(run / LOCK), pytest.raises(UserError, match="another process is at work here"):
        train(toys.recipe(tmp_path), run, resume=True)
    assert unfinished.is_dir()


def test_a_killed_process_leaves_no_lock_behind(tmp_path):
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        with locked(tmp_path / LOCK):
            os.write(told, b"1")
            signal.pause()
    os.read(ready, 1)
    with pytest.raises(UserError, match=f"another process is at work here; received 'process {child} of "):
        locked(tmp_path / LOCK).__enter__()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with locked(tmp_path / LOCK):
        pass


def test_of_two_fresh_starts_one_trains(tmp_path):
    recipe, errors, codes = toys.recipe(tmp_path, updates=30), [], []
    together = threading.Barrier(2)

    def start():
        together.wait()
        try:
            codes.append(train(recipe, tmp_path / "run"))
        except UserError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0]
    (message,) = errors  # the second comes while the first trains, or when its run is there
    assert re.search("another process is at work here|there is a run here already", message)


def test_a_run_that_began_while_this_one_waited_is_not_overwritten(tmp_path, monkeypatch):

    whole, run = start.locked, tmp_path / "run"

    def late(path):
        monkeypatch.setattr(start, "locked", whole)
        toys.run(tmp_path)
        return whole(path)

    monkeypatch.setattr(start, "locked", late)
    with pytest.raises(UserError, match="there is a run here already"):
        train(toys.recipe(tmp_path, seed=2), run)


def test_the_report_is_written_under_the_lock(tmp_path, monkeypatch):
    from headway.training import loop

    written = []

    def write(run):
        with pytest.raises(UserError, match="another process is at work here"), locked(run / LOCK):
            pass
        written.append(run)

    monkeypatch.setattr(loop, "write_run_report", write)
    assert train(toys.recipe(tmp_path), tmp_path / "run", report=True) == 0
    assert written == [tmp_path / "run"]
    assert train(toys.recipe(tmp_path), tmp_path / "run", resume=True) == 0
    assert written == [tmp_path / "run"]


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch, caplog):
    def none(descriptor, blocking):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("filelock.lock_descriptor", none)
    toys.run(tmp_path)
    assert "this file system has no locks" in caplog.text


def test_a_machine_that_trained_here_and_did_not_end_is_named(tmp_path, caplog):
    (tmp_path / LOCK).write_text(json.dumps({"machine": "another", "process": 7}))
    with locked(tmp_path / LOCK):
        assert "process 7 of another worked here and did not end by itself" in caplog.text
    caplog.clear()
    with locked(tmp_path / LOCK):
        assert caplog.text == ""


@pytest.mark.parametrize("note", [b"[]", b"\xff", b"{"])
def test_a_note_that_says_nothing(tmp_path, note, caplog):
    (tmp_path / LOCK).write_bytes(note)
    with locked(tmp_path / LOCK):
        assert caplog.text == ""


def test_no_file_behind_a_link_is_emptied(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("text", encoding="utf-8")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(precious)
    with pytest.raises(UserError, match="the run folder cannot be written"):
        toys.run(tmp_path)
    assert precious.read_text(encoding="utf-8") == "text"
