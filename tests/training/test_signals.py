"""Signals in an evaluation end it at once; the run that goes on makes it anew, and nothing else changes."""

import json
import signal
import sys
import weakref

import pytest

from headway.runs.run_folder import folder_of, list_checkpoints
from headway.training import loop, session
from headway.training.loop import train
from headway.training.parallel import Interrupted, Parallel, Signals, noted_signals
from tests.tiers import thinned
from tests.training import toys
from tests.training.kills import assert_same, metrics

SETTINGS = {"updates": 7, "dev_metrics": ["exact_match"], "average": {"of": "best", "count": 2}, "log_every": 1}


def signal_in_evaluation(monkeypatch, number, name="dev_loss"):
    """Send SIGTERM in the evaluation of that number, which is then not made to its end."""
    whole, calls = getattr(session, name), []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == number:
            signal.raise_signal(signal.SIGTERM)
            pytest.fail("the evaluation went on")
        return whole(*arguments)

    monkeypatch.setattr(session, name, interrupted)


def state_of(run, update):
    return json.loads((folder_of(run / "checkpoints", update) / "state.json").read_text())["state"]


WHEN = [(name, *when) for name in ("dev_loss", "scores_of") for when in ((1, 2), (3, 6), (4, 7))]


@pytest.mark.parametrize(("name", "evaluations", "update"), thinned(WHEN, 5))
def test_a_signal_in_an_evaluation_ends_it_at_once(tmp_path, monkeypatch, caplog, name, evaluations, update):
    caplog.set_level("INFO")
    alone = toys.run(tmp_path, "alone", **SETTINGS)
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        signal_in_evaluation(patch, evaluations, name)
        assert train(toys.recipe(tmp_path, **SETTINGS), run) == 128 + signal.SIGTERM
    assert "SIGTERM: leaving the evaluation; its checkpoint is saved" in caplog.messages
    assert caplog.messages[-1] == f"stopped by SIGTERM after update {update}; the run can be resumed"
    assert state_of(run, update)["evaluation_pending"]
    assert [line["update"] for line in metrics(run) if "dev_loss" in line] == [2, 4, 6, 7][: evaluations - 1]
    toys.run(tmp_path, resume=True, **SETTINGS)
    assert not state_of(run, update)["evaluation_pending"] if update in (6, 7) else True
    assert_same(alone, run)


def test_a_signal_in_the_evaluation_that_a_resumed_run_begins_with(tmp_path, monkeypatch):
    alone = toys.run(tmp_path, "alone", **SETTINGS)
    for resume in (False, True, True):
        with monkeypatch.context() as patch:
            signal_in_evaluation(patch, 1)
            assert train(toys.recipe(tmp_path, **SETTINGS), tmp_path / "run", resume=resume) == 128 + signal.SIGTERM
        assert [folder.name for folder in list_checkpoints(tmp_path / "run/checkpoints")] == ["update-00000002"]
    assert_same(alone, toys.run(tmp_path, resume=True, **SETTINGS))


def test_a_signal_that_reached_another_process_before_the_first_update_ends_this_one_too(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr(Parallel, "sum", lambda *_: 1.0)
    assert train(toys.recipe(tmp_path, **SETTINGS), tmp_path / "run") == 128 + signal.SIGTERM
    assert caplog.messages[-1] == "stopped by SIGTERM after update 0; the run can be resumed"


def signal_in_update(monkeypatch, number):
    """Send SIGINT in the update of that number."""
    whole, calls = loop.make_update, []

    def signalled(*arguments):
        calls.append(1)
        if len(calls) == number:
            signal.raise_signal(signal.SIGINT)
        whole(*arguments)

    monkeypatch.setattr(loop, "make_update", signalled)


def test_a_signal_in_the_last_update_leaves_its_learning_rate_in_the_metrics(tmp_path, monkeypatch):
    settings = SETTINGS | {"log_every": 3}
    alone = toys.run(tmp_path, "alone", **settings)
    with monkeypatch.context() as patch:
        signal_in_update(patch, 7)
        assert train(toys.recipe(tmp_path, **settings), tmp_path / "run") == 128 + signal.SIGINT
    assert_same(alone, toys.run(tmp_path, resume=True, **settings))


def test_a_signal_in_the_update_before_an_evaluation_leaves_that_for_later(tmp_path, monkeypatch):
    alone = toys.run(tmp_path, "alone", **SETTINGS)
    with monkeypatch.context() as patch:
        signal_in_update(patch, 4)
        assert train(toys.recipe(tmp_path, **SETTINGS), tmp_path / "run") == 128 + signal.SIGINT
    assert state_of(tmp_path / "run", 4)["evaluation_pending"]
    assert_same(alone, toys.run(tmp_path, resume=True, **SETTINGS))


def test_a_second_signal_ends_at_once_with_its_own_exit_code():
    before = signal.getsignal(signal.SIGTERM)
    with noted_signals() as signals:
        signal.raise_signal(signal.SIGTERM)
        assert signals.received == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(SystemExit) as ended:
            signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == before


class _Key:
    """Something that a weak reference can name."""


def test_a_signal_in_a_callback_of_the_garbage_collector_prints_no_traceback(monkeypatch):
    told = []
    monkeypatch.setattr("sys.unraisablehook", lambda lost: told.append(lost.exc_type))
    hook = sys.unraisablehook
    with noted_signals() as signals:
        signal.raise_signal(signal.SIGTERM)
        for raised in (lambda _: signal.raise_signal(signal.SIGTERM), lambda _: 1 / 0):
            key = _Key()
            reference = weakref.ref(key, raised)
            del key
            assert reference() is None
        assert signals.received == signal.SIGTERM
    assert told == [ZeroDivisionError]
    assert sys.unraisablehook is hook


def test_work_that_may_be_left_does_not_begin_after_a_signal():
    signals = Signals()
    signals.received = signal.SIGTERM
    with pytest.raises(Interrupted), signals.may_leave():
        pytest.fail("it began")


def test_an_error_that_a_library_makes_of_a_signal_is_the_signal():
    """pydantic, which is not written in Python, does so while it builds a class."""

    def signalled(signals):
        try:
            signals.note(signal.SIGTERM)
        except Interrupted as error:
            raise ValueError("an error of a library") from error

    for work, raised in ((signalled, Interrupted), (lambda _: 1 / 0, ZeroDivisionError)):
        signals = Signals()
        with pytest.raises(raised), signals.may_leave():
            work(signals)


def test_a_second_sigint_is_what_it_was_before():
    numbers = []
    before = signal.signal(signal.SIGINT, lambda number, _: numbers.append(number))
    try:
        with noted_signals():
            signal.raise_signal(signal.SIGTERM)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert numbers == [signal.SIGINT]
