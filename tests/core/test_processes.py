"""The cores that this process may use, and streams in lists."""

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from operator import neg
from pathlib import Path

import pytest

from headway.core import processes
from headway.core.errors import RunError
from headway.core.processes import batched, cores, in_processes


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_limits_of_control_groups(tmp_path: Path) -> None:
    membership, mount = tmp_path / "cgroup", tmp_path / "mount"
    assert processes._quota(mount, membership) == float("inf")
    membership.write_text("0::/user/job\n")
    assert processes._quota(mount, membership) == float("inf")
    write(mount / "user" / "job", cpu__max="max 100000\n")
    assert processes._quota(mount, membership) == float("inf")
    write(mount / "user", cpu__max="250000 100000\n")  # of the group above
    assert processes._quota(mount, membership) == 2.5
    membership.write_text("4:memory:/x\n3:cpu,cpuacct:/docker/1\n")
    write(mount / "cpu,cpuacct" / "docker" / "1", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert processes._quota(mount, membership) == float("inf")
    write(mount / "cpu,cpuacct" / "docker" / "1", cpu__cfs_quota_us="50000\n")
    assert processes._quota(mount, membership) == 0.5


def test_a_part_of_a_core_counts_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_quota", lambda *paths: 0.5)
    assert cores() == 1


def test_a_larger_quota_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_quota", lambda *paths: 1e6)
    assert cores() == len(os.sched_getaffinity(0))


def test_batches_hold_all_items_in_their_order() -> None:
    assert list(batched(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(batched(range(4), 2)) == [[0, 1], [2, 3]]
    assert list(batched([], 3)) == []


def test_no_more_is_read_than_is_asked_for() -> None:
    stream = iter(range(10))
    assert next(batched(stream, 3)) == [0, 1, 2]
    assert next(stream) == 3


def test_processes_are_fed_no_more_than_needed() -> None:
    read: list[int] = []

    def endless() -> Iterator[int]:
        for number in count():
            read.append(number)
            yield number

    stream = in_processes(endless(), neg, 2, os.getpid, (), "counts")
    assert [next(stream) for _ in range(20)] == [-number for number in range(20)]
    assert len(read) == 20 + 6
    stream.close()  # type: ignore[attr-defined]


def test_a_process_that_dies() -> None:
    with pytest.raises(RunError, match="a process that counts died"):
        list(in_processes(iter(range(1, 9)), os._exit, 2, os.getpid, (), "counts"))  # type: ignore[arg-type]


ENDLESS = """
import os
from itertools import count
from operator import neg
from headway.core.processes import in_processes

if __name__ == "__main__":
    for _ in in_processes(count(), neg, 2, os.getpid, (), "counts"):
        print("working", flush=True)
"""


def test_processes_end_with_a_killed_parent(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS, encoding="utf-8")
    with subprocess.Popen([sys.executable, tmp_path / "endless.py"], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        for _ in range(20):
            assert parent.stdout.readline() == b"working\n"
        parent.kill()
        parent.communicate(timeout=200)  # ends only when no process holds the pipe any more
