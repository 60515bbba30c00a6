"""Limits of a request are known before work begins, work that nobody waits for ends, and connections are bounded."""

import json
import math
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.core.errors import UserError
from headway.core.processes import AbandonedError, check_waited_for
from headway.export.firefox_engine import FirefoxBackend
from headway.serving import app
from headway.serving.options import ServeOptions
from tests.serving.conftest import Running, running, wait
from tests.serving.test_server import upload

FIELDS = {"source": "en", "target": "de"}


@pytest.mark.parametrize(
    ("limit", "body"),
    [
        ("work", {"inputs": ["one"] * 128, "min_length": 2000}),
        ("work", {"inputs": ["one"] * 128, "sample": True, "nbest": 8, "max_length": 500}),
        ("work", {"inputs": ["one"] * 128, "kind": "mbr", "max_length": 500}),
        ("work", {"inputs": ["one"] * 128, "terms": {"one": "uno"}, "max_length": 200}),
        ("weights", {"inputs": ["one " * 20] * 5, "capture": "all", "max_length": 2000}),
        ("weights", {"inputs": ["one " * 20] * 60, "alignment": True, "max_length": 2000, "beam": 1}),
        ("sentences", {"inputs": [""] * 201}),
        ("sentences", {"inputs": "one", "before": [["", ""]] * 200}),
        ("terms", {"inputs": "one", "terms": {str(number): "" for number in range(201)}}),
        ("text limit", {"inputs": "one", "terms": {"one": "a" * 5000}}),
        ("text limit", {"inputs": "one", "before": [["a", "a" * 5000]]}),
        ("text limit", {"inputs": "one", "capture": ["a" * 5000]}),
        ("values", {"inputs": [1] * 10_000}),
    ],
)
def test_more_than_a_request_may_ask_for_is_refused_by_the_name_of_the_limit(
    server: Running, limit: str, body: dict[str, Any]
) -> None:
    answer = server.ask("/v1/predict", {"model": "en-de", **body})
    assert (answer.status, limit in answer.content["error"]) == (413, True), answer.content
    assert re.search(r"\d", answer.content["error"])


def test_many_empty_texts_are_refused_before_languages_are_looked_for(server: Running) -> None:
    for count in (201, 330_000):
        assert server.ask("/translate", {"q": [""] * count, "source": "auto", "target": "de"}).status == 413


def test_an_answer_has_no_more_bytes_than_allowed(loaded: dict[str, Any]) -> None:
    with running({"en-de": loaded["en-de"]}, answer=2000) as server:
        assert server.predict("en-de", "one").status == 200
        for options in ({"nbest": 8, "beam": 8}, {"capture": "all"}):
            answer = server.predict("en-de", ["one two"] * 5, **options)
            assert (answer.status, "up to" in answer.content["error"]) == (413, True)


class Watched:
    """The predictor of numbers; notes how its batches end, and holds up those with `held` until nobody waits."""

    def __init__(self, predictor: Any, monkeypatch: pytest.MonkeyPatch, held: str) -> None:
        self.begun, self.ended = threading.Event(), list[type[Exception] | None]()
        answer = predictor.answer

        def watched(request: Any) -> Any:
            try:
                while held in [row.raw for row in request.rows]:
                    self.begun.set()
                    check_waited_for()
                    time.sleep(0.01)
                outputs = answer(request)
            except Exception as error:
                self.ended.append(type(error))
                raise
            self.ended.append(None)
            return outputs

        monkeypatch.setattr(predictor, "answer", watched)


def sent(server: Running, path: str, body: dict[str, Any]) -> socket.socket:
    """A connection with a request whose answer is not read."""
    client, raw = socket.create_connection(("127.0.0.1", server.port), timeout=200), json.dumps(body)
    client.sendall(f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(raw)}\r\n\r\n{raw}".encode())
    return client


def test_a_search_ends_when_its_client_goes_or_its_time_is_over(
    loaded: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Watched(loaded["en-de"], monkeypatch, "two")
    with running({"en-de": loaded["en-de"]}, deadline=0.2) as server:
        assert server.predict("en-de", "two").status == 503
        wait(lambda: len(one.ended) == 1)
    with running({"en-de": loaded["en-de"]}) as server:
        one.begun.clear()
        with sent(server, "/v1/predict", {"model": "en-de", "inputs": "two"}):
            assert one.begun.wait()
        wait(lambda: len(one.ended) == 2)
    assert one.ended == [AbandonedError, AbandonedError]


def test_the_end_of_the_server_ends_searches_and_documents(
    loaded: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Watched(loaded["en-de"], monkeypatch, "two")
    with running({"en-de": loaded["en-de"]}, drain=0) as server, ThreadPoolExecutor(2) as pool:
        asked = [
            pool.submit(server.form, "/translate", q="two", **FIELDS),
            pool.submit(upload, server, "a.txt", b"two", **FIELDS),
        ]
        assert one.begun.wait()
        wait(lambda: b"headway_requests_active 3.0" in server.ask("/metrics").content)
        server.server.handle_exit(signal.SIGTERM, None)
        assert [each.result().status for each in asked] == [503, 503]
    assert set(one.ended) == {AbandonedError}
    wait(
        lambda: not any(thread.name.startswith("headway-document") and busy(thread) for thread in threading.enumerate())
    )


def busy(thread: threading.Thread) -> bool:
    """Whether a thread works on a document."""
    frame, names = sys._current_frames().get(thread.ident or 0), set()
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return "translate_document" in names


def test_a_short_request_does_not_wait_for_a_long_one(loaded: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    one = Watched(loaded["en-de"], monkeypatch, "two")
    with running({"en-de": loaded["en-de"]}) as server:
        with sent(server, "/v1/predict", {"model": "en-de", "inputs": "two", "min_length": 2000}):
            assert one.begun.wait()
            assert server.form("/translate", q="one", **FIELDS).content == {"translatedText": "eins"}
        wait(lambda: len(one.ended) == 2)
    assert one.ended == [None, AbandonedError]


def test_half_a_header_does_not_hold_a_connection(loaded: dict[str, Any]) -> None:
    with (
        running({"en-de": loaded["en-de"]}, head_deadline=0.3) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=200) as client,
    ):
        with suppress(OSError):
            for letter in b"GET / HTTP/1.1\r\nx: " + b"a" * 5000:
                client.sendall(bytes([letter]))
                time.sleep(0.05)
            pytest.fail("it was kept for minutes")
        assert server.ask("/health").status == 200


def test_connections_that_ask_nothing_make_room_for_those_that_do(loaded: dict[str, Any]) -> None:
    with running({"en-de": loaded["en-de"]}, connections=4) as server:
        halves = [socket.create_connection(("127.0.0.1", server.port), timeout=200) for _ in range(12)]
        for each in halves:
            with suppress(OSError):
                each.sendall(b"GET /health HTTP/1.1\r\n")
        assert server.ask("/health").status == 200
        wait(lambda: len(server.server.server_state.connections) <= 4)
        for each in halves:
            each.close()


def test_without_keys_no_name_but_its_own_reaches_the_server(
    loaded: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running({"en-de": loaded["en-de"]}, names=("office.example",)) as server:
        for host in ("localhost:5000", "127.0.0.1", "[::1]:5000", "OFFICE.example"):
            assert server.ask("/languages", host=host).status == 200
        for host in ("attacker.example", "localhost.attacker.example:5000", "[", "a@localhost"):
            assert server.ask("/languages", host=host).status == 421
    monkeypatch.setenv("HEADWAY_API_KEYS", "one")
    with running({"en-de": loaded["en-de"]}) as server:
        assert server.ask("/languages", host="attacker.example").status == 200


@pytest.mark.parametrize("keys", [" , ,", ""])
def test_a_variable_without_a_key_does_not_open_the_server(monkeypatch: pytest.MonkeyPatch, keys: str) -> None:
    monkeypatch.setenv("HEADWAY_API_KEYS", keys)
    with pytest.raises(UserError, match="HEADWAY_API_KEYS: this variable has no key"):
        ServeOptions().allowed_keys()


def test_files_of_one_client_do_not_push_out_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MOST_KEPT", 10_000)
    server = app.Server([], ServeOptions())
    server.keep("mine", "a", "a.txt", b"a" * 2000)
    for number in range(10):
        server.keep(f"theirs {number}", "b", "b.txt", b"b" * 1000)
    assert [*server.files] == ["mine", "theirs 7", "theirs 8", "theirs 9"]


class Engine(FirefoxBackend):
    """The engine of Firefox, without its program."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def hypotheses(self, request: Any) -> Any:
        none = (math.nan,) * 2
        return [[headway.search.limits.Hypothesis((4,), none, math.nan, "eins")] for _ in request.rows]


def test_an_engine_that_tells_no_scores_and_is_greedy_is_served(numbers: Path) -> None:
    predictor = headway.load(numbers)
    predictor.backend = Engine(predictor.target)
    with running({"en-de": predictor}) as server:
        (output,) = server.predict("en-de", "one").content["outputs"]
        assert (output["text"], output["hypotheses"][0]["score"]) == ("eins", None)
        answer = server.ask("/translate", {"q": ["one"], "alternatives": 3, **FIELDS})
        assert answer.content == {"translatedText": ["eins"], "alternatives": [[]]}


@contextmanager
def served(run: Path, *words: str, first: str = "") -> Iterator[tuple[subprocess.Popen[str], Running, list[str]]]:
    """A server in a process of its own, which does something first, and its log."""
    program = f"{first}\nfrom headway.cli import main\nmain()"
    command = [sys.executable, "-c", program, "serve", str(run), "--port", "0", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}) as one:
        assert one.stderr is not None
        port = int(one.stderr.readline().rstrip().rpartition(":")[2])
        lines = list[str]()
        threading.Thread(target=lambda: lines.extend(one.stderr or ()), daemon=True).start()
        server = Running(port, {}, None)  # type: ignore[arg-type]

        def ready() -> bool:
            with suppress(OSError):
                return server.ask("/ready").status == 200
            return False

        wait(ready)
        try:
            yield one, server, lines
        finally:
            one.kill()


def latencies(server: Running, count: int, late: float = 0.0) -> list[float]:
    """The seconds of so many short requests, one after the other; or fewer, if they take long."""
    taken, end = list[float](), time.monotonic() + 20
    while len(taken) < count and time.monotonic() < end:
        begun = time.monotonic()
        assert server.predict("en-de", "one two").status == 200
        taken.append(time.monotonic() - begun)
        time.sleep(late)
    return taken


@pytest.mark.slow
def test_honest_requests_are_answered_beside_bad_ones_and_sigterm_ends_all(numbers: Path) -> None:
    """Bad requests are as large as the limits allow, or larger; at most 20 at a time, for a minute."""
    page = "".join(f"<p>one <b>two</b> three {number}</p>\n" for number in range(2000)).encode()
    many = json.dumps({"q": [""] * 330_000, "source": "auto", "target": "de"})
    bad: Sequence[dict[str, Any]] = [
        {"inputs": ["one"] * 128, "min_length": 2000},
        {"inputs": ["one two"] * 128, "min_length": 500},
        {"inputs": "one", "min_length": 2000, "sample": True, "nbest": 8},
        {"inputs": "one", "min_length": 400, "beam": 1},
        {"inputs": ["one two"] * 10, "capture": "all", "max_length": 200},
        {"inputs": [1] * 300_000},
    ]
    bodies = [json.dumps({"model": "en-de", **each}) for each in bad]
    stop = threading.Event()
    with served(numbers, "--concurrent", "100") as (process, server, _), ThreadPoolExecutor(20) as pool:
        alone = statistics.median(latencies(server, 30))

        def attack(number: int) -> None:
            while not stop.is_set():
                try:
                    if number % 5 == 0:
                        assert server.ask("/translate", many).status == 413
                    elif number % 5 == 1:
                        upload(server, "a.html", page, **FIELDS)
                    else:
                        assert server.ask("/v1/predict", bodies[number % len(bad)]).status in (200, 413, 503)
                except OSError:  # the server has gone; to ask on would take the processor from its last work
                    time.sleep(0.1)

        attacks = [pool.submit(attack, number) for number in range(20)]
        time.sleep(3)
        taken = sorted(latencies(server, 200, 0.05))
        process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        code = process.wait(100)
        ended = time.monotonic() - begun
        stop.set()
        for each in attacks:
            each.result()
    last = taken[int(0.99 * len(taken))]
    print(f"alone {alone:.3f} s; beside bad ones p50 {statistics.median(taken):.3f}, p99 {last:.3f}; end {ended:.1f} s")
    assert code == 0
    load = max(1, alone / 0.05)  # an idle machine takes less than 0.05 s
    assert last < 2 * load, taken
    assert ended < 10 * load


@pytest.mark.slow
def test_a_thread_that_does_not_end_does_not_keep_the_server(numbers: Path) -> None:
    first = """
import time
from headway.serving.batching import Batcher
Batcher._answer = lambda batcher, jobs: time.sleep(1000)
"""
    with served(numbers, "--drain", "1", first=first) as (process, server, lines):
        with sent(server, "/v1/predict", {"model": "en-de", "inputs": "two"}):
            wait(lambda: b"headway_requests_active 2.0" in server.ask("/metrics").content)
            process.send_signal(signal.SIGTERM)
            assert process.wait(100) == 0
        wait(lambda: any("threads did not end in time" in line for line in lines))


def test_documents_take_turns_while_they_are_read(loaded: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    reading, most = list[int](), list[int]()
    translate_document = app.translate_document

    def watched(data: bytes, name: str, translate: Any, languages: Any, **options: Any) -> bytes:
        reading.append(1)
        most.append(len(reading))
        time.sleep(0.05)

        def translated(sentences: Sequence[str]) -> Any:
            reading.pop()
            outputs = translate(sentences)
            reading.append(1)
            return outputs

        written = translate_document(data, name, translated, languages, **options)
        reading.pop()
        return written

    monkeypatch.setattr(app, "translate_document", watched)
    with running({"en-de": loaded["en-de"]}) as server, ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(upload, server, "a.txt", b"one", **FIELDS) for _ in range(4)]
        assert {each.result().status for each in asked} == {200}
    assert max(most) == 1
