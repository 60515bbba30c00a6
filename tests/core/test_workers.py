"""Workers: threads of one core each, with the caller's context, that end with it."""

import threading
import time
from contextvars import ContextVar

import pytest
import torch

from headway.core.device import threads_set
from headway.core.processes import AbandonedError, check_waited_for
from headway.core.workers import threads_of_one_core as workers

NAME = ContextVar("NAME", default="")


def test_each_worker_computes_on_one_core_and_later_threads_on_as_many_as_before() -> None:
    with threads_set(2):
        with workers(3) as begin:
            assert [wait() for wait in begin([torch.get_num_threads] * 9)] == [1] * 9
            later = list[int]()
            thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
            thread.start()
            thread.join()
            assert later == [2]
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 2


def test_work_sees_the_context_of_its_caller() -> None:
    with workers(2) as begin:
        before = NAME.set("caller")
        (seen,) = begin([NAME.get])
        NAME.reset(before)
        assert seen() == "caller"
        assert [wait() for wait in begin([NAME.get])] == [""]


def test_an_error_is_raised_where_the_result_is_waited_for() -> None:
    with workers(2) as begin:
        wait, other = begin([lambda: 1 // 0, lambda: 7])
        assert other() == 7
        with pytest.raises(ZeroDivisionError):
            wait()


def test_work_is_abandoned_when_its_caller_is_interrupted() -> None:
    begun, ended = threading.Event(), list[type[BaseException]]()

    def endless() -> None:
        begun.set()
        try:
            while True:
                check_waited_for()
                time.sleep(0.001)
        except AbandonedError as error:
            ended.append(type(error))
            raise

    def interrupted() -> None:
        with workers(2) as begin:
            begin([endless] * 5)  # three of them wait for a thread, and never begin
            begun.wait()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert 1 <= len(ended) <= 2
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("headway-worker")]
