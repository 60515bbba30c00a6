"""Runs as they are served, and a real server over them."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
import torch

import headway
from headway.core.log import silenced
from tests.export.student import write_student
from tests.runs.old_runs import copied
from tests.shared_runs import shared_run

uvicorn = pytest.importorskip("uvicorn")

from headway.serving.app import build_app  # noqa: E402 - needs the packages of the extra
from headway.serving.guard import configured  # noqa: E402
from headway.serving.models import ServedModel, served_model  # noqa: E402
from headway.serving.options import ServeOptions  # noqa: E402


class Answer(NamedTuple):
    """An answer over HTTP."""

    status: int
    headers: dict[str, str]
    content: Any


class Running(NamedTuple):
    """A server that listens."""

    port: int
    models: dict[str, ServedModel]
    server: "uvicorn.Server"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, path: str, body: Any = None, method: str = "", **headers: str) -> Answer:
        """The answer to a GET or, with a body, a POST of JSON; a text is a body as it is."""
        if body is not None and not isinstance(body, str | bytes):
            body, headers = json.dumps(body), {"content-type": "application/json"} | headers
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=200)) as connection:
            connection.request(method or ("GET" if body is None else "POST"), path, body, headers)
            response = connection.getresponse()
            raw, kept = response.read(), {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, kept, json.loads(raw) if raw and "json" in kept.get("content-type", "") else raw)

    def form(self, path: str, **fields: str) -> Answer:
        """The answer to a form."""
        return self.ask(path, urlencode(fields), **{"content-type": "application/x-www-form-urlencoded"})

    def predict(self, model: str, inputs: Any, **options: Any) -> Answer:
        """The answer of `/v1/predict`."""
        return self.ask("/v1/predict", {"model": model, "inputs": inputs, **options})


@pytest.fixture(scope="session")
def numbers(pytestconfig: pytest.Config) -> Path:
    """A run that translates numbers from English to German."""
    return shared_run(pytestconfig.cache.mkdir("runs"), "numbers", write_student) / "run"


@pytest.fixture(scope="session")
def loaded(numbers: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Predictors by name, of every task that is served."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("served")
    names = ("tagging", "parsing", "error_detection", "summarization")
    with silenced():
        return {"en-de": headway.load(numbers)} | {
            name: headway.load(copied(name, folder / name).run) for name in names
        }


@contextmanager
def running(predictors: dict[str, Any], **options: Any) -> Iterator[Running]:
    """A real server over some runs, by their names, at a free port."""
    limits = ServeOptions(port=0, **options)
    models = [served_model(name, Path(name), predictor, limits) for name, predictor in predictors.items()]
    server = uvicorn.Server(configured(build_app(models, limits), limits, port=0))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Running(port, {model.name: model for model in models}, server)
    finally:
        server.should_exit = True
        thread.join(200)
        assert not thread.is_alive()


def close(model: ServedModel) -> None:
    """End the threads of a model."""
    for batcher in model.batchers:
        batcher.close()


def wait(condition: Callable[[], bool]) -> None:
    """Wait for what comes soon, as long as the test has time."""
    while not condition():
        time.sleep(0.01)


@pytest.fixture(scope="module")
def server(loaded: dict[str, Any]) -> Iterator[Running]:
    """A server of all tasks, which no test stops."""
    with running(loaded) as one:
        yield one


class Gate:
    """Holds up a predictor until it is opened, and counts what it computes."""

    def __init__(self, predictor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened, self.begun, self.read = threading.Event(), threading.Event(), list[list[str]]()
        answer = predictor.answer

        def held(request: Any) -> Any:
            self.read.append([row.raw for row in request.rows])
            self.begun.set()
            self.opened.wait()
            return answer(request)

        monkeypatch.setattr(predictor, "answer", held)


@pytest.fixture
def gate(loaded: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """The predictor of numbers, held up."""
    one = Gate(loaded["en-de"], monkeypatch)
    yield one
    one.opened.set()
