"""Ctrl-C ends a command in silence, whatever a library makes of it."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import headway.cli


@pytest.fixture(autouse=True)
def _default_handler() -> Iterator[None]:
    """Ctrl-C as it is in a terminal; a shell begins what is in its background without it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def wrapped_interrupt(*arguments: Any, **keywords: Any) -> None:
    """What a library does that turns a KeyboardInterrupt into an error of its own."""
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    except KeyboardInterrupt as error:
        raise ValueError("an error of a library") from error


def fault(*arguments: Any, **keywords: Any) -> None:
    raise ValueError("a mistake of ours")


def test_an_error_that_an_interrupt_has_caused_is_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(headway.cli, "app", wrapped_interrupt)
    with pytest.raises(SystemExit) as ended:
        headway.cli.main([])
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", "")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_without_an_interrupt_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headway.cli, "app", fault)
    with pytest.raises(ValueError, match="a mistake of ours"):
        headway.cli.main([])


def test_an_interrupt_that_is_ignored_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(headway.cli, "app", lambda *_, **__: seen.append(signal.getsignal(signal.SIGINT)))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        headway.cli.main([])
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIG_IGN]


def test_commands_run_in_any_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[bool] = []
    monkeypatch.setattr(headway.cli, "app", lambda *_, **__: ran.append(True))
    thread = threading.Thread(target=headway.cli.main, args=([],))
    thread.start()
    thread.join()
    assert ran == [True]
