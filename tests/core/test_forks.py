"""Copies of a process compute jobs on one core each, and end with their context."""

import multiprocessing
import os
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from headway.core.errors import RunError, UserError
from headway.core.forks import forks, may_fork
from headway.core.processes import check_waited_for

LINUX = Path("/proc/self/task").exists() and "fork" in multiprocessing.get_all_start_methods()
pytestmark = pytest.mark.skipif(not LINUX, reason="only Linux copies processes")


class UnpicklableError(Exception):
    """An error that cannot be sent from one process to another."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


def failing(error: Exception) -> Any:
    def work() -> None:
        raise error

    return work


def endless() -> None:
    while True:
        check_waited_for()
        time.sleep(0.001)


def test_copies_compute_on_one_core_in_the_order_of_the_jobs() -> None:
    shared = torch.arange(9)
    with forks(2) as begin:
        waits = begin(
            [partial(lambda n: (os.getpid(), shared[n].item(), torch.get_num_threads()), n) for n in range(9)]
        )
        later = begin([int])
        results = [wait() for wait in waits]
        assert [wait() for wait in later] == [0]
    processes, numbers, threads = zip(*results, strict=True)
    assert (numbers, set(threads)) == (tuple(range(9)), {1})
    assert os.getpid() not in processes
    assert len(set(processes)) <= 2


def test_an_error_is_raised_where_the_result_is_waited_for() -> None:
    user = UserError("this line is too long", where="line 3", received=7, allowed="up to 5")
    with forks(2) as begin:
        first, second, third = begin([failing(user), failing(UnpicklableError(1, 2)), lambda: 7])
        assert third() == 7
        with pytest.raises(RunError, match="UnpicklableError: 1 and 2"):
            second()
        with pytest.raises(UserError) as raised:
            first()
    assert (str(raised.value), raised.value.allowed) == (str(user), user.allowed)


def test_a_process_that_dies_ends_all_with_one_error() -> None:
    with pytest.raises(RunError, match="died"), forks(2) as begin:
        begin([endless, lambda: os._exit(9)])[1]()
    assert not multiprocessing.active_children()


def test_copies_are_killed_when_their_caller_is_interrupted() -> None:
    def interrupted() -> None:
        with forks(2) as begin:
            begin([endless] * 5)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not multiprocessing.active_children()


def test_a_copy_has_no_copies() -> None:
    with forks(1) as begin:
        (wait,) = begin([may_fork])
        assert wait() is False


def test_a_process_with_threads_is_not_copied() -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    assert not may_fork()
    ended.set()
    thread.join()
