"""What a recipe names on the hub is asked for with patience that ends, and an answer that is none is one error."""

import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from headway.core.errors import RunError, UserError
from headway.formats.corpus_config import parse_corpus
from headway.formats.pairs import open_source
from headway.processing import hub as asked
from headway.processing.hub import check_on_hub, files_of_bounded_size
from headway.processing.marian_files import marian_folder
from headway.processing.pretrained import encoder_location
from tests.processing.local_hub import Handler, LocalHub, local_hub

constants = pytest.importorskip("huggingface_hub.constants")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LocalHub]:
    """A hub on this machine, which no token of the user is sent to."""
    monkeypatch.setenv("HF_TOKEN", "hf_of_this_test_alone")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with local_hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        yield server


def data_set(name: str) -> None:
    config = {"kind": "hub", "name": name, "split": "train", "columns": ["a", "b"]}
    open_source(parse_corpus(config, "data.train"), "data.train")


ASKING: dict[str, Callable[[str], object]] = {
    "model.encoder": encoder_location,
    "model.from": lambda name: marian_folder(f"hf:{name}"),
    "data.train.hub": data_set,
}


@pytest.fixture(params=ASKING)
def key(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A key of recipes that names something on the hub."""
    monkeypatch.setitem(sys.modules, "datasets", ModuleType("datasets"))
    return str(request.param)


def drip(handler: Handler) -> None:
    """An answer that goes on and on."""
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" " * 1000)
            time.sleep(0.01)
    except OSError:
        handler.close_connection = True


def silent(handler: Handler) -> None:
    """No answer."""
    time.sleep(2)
    handler.close_connection = True


def listing(*files: object) -> Callable[[Handler], None]:
    return lambda handler: handler.send_json({"siblings": list(files)})


ANSWERS: dict[str, Callable[[Handler], None]] = {
    "a page of a proxy": lambda handler: handler.send(200, b"<html>Please log in</html>", Content_Type="text/html"),
    "an error": lambda handler: handler.send(502, b"Bad gateway"),
    "a circle": lambda handler: handler.send(302, Location=handler.path),
    "a list": lambda handler: handler.send_json([]),
    "nothing": lambda handler: handler.send(200),
    "no files": lambda handler: handler.send_json({"siblings": 5}),
    "no list of files": listing(7),
    "a name that climbs": listing({"rfilename": "a/../../evil"}),
    "a name from the root": listing({"rfilename": "/etc/evil"}),
    "no name": listing({"rfilename": None}),
    "a size beyond all": listing({"rfilename": "model.safetensors", "size": 10**15}),
    "no text": lambda handler: handler.send(200, b"\xff\xfe\xff"),
    "not HTTP": lambda handler: handler.wfile.write(b"SSH-2.0\r\n\r\n") and None,
    "a drip": drip,
    "silence": silent,
}  # fmt: skip


@pytest.mark.parametrize("answer", ANSWERS)
def test_what_is_no_answer_of_a_hub(hub: LocalHub, answer: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "WAIT", 0.5)
    monkeypatch.setattr(asked, "LONGEST_WAIT", 0.5)
    hub.answer = ANSWERS[answer]
    with pytest.raises(RunError, match=rf"^{key}: the hub \({re.escape(hub.address)}\) does not answer as it should"):
        ASKING[key]("someone/something")


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "nonsense", "file:///etc/passwd"])
def test_no_hub_there(key: str, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(RunError, match=rf"^{key}: the hub \({endpoint}\) does not answer as it should"):
        ASKING[key]("someone/something")


def test_what_a_hub_does_not_have(hub: LocalHub, key: str) -> None:
    with pytest.raises(UserError, match=rf"^{key}: the hub \({hub.address}\) has no such repository that you may read"):
        ASKING[key]("someone/something")
    with pytest.raises(UserError, match=rf"^{key}: this is no folder, and no name of a repository"):
        ASKING[key]("../something")


def test_a_model_is_downloaded(hub: LocalHub) -> None:
    hub.repositories["someone/model"] = {"config.json": b"{}", "notes.txt": b"x"}
    folder = marian_folder("hf:someone/model")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"config.json": b"{}"}
    assert encoder_location("someone/model") == "someone/model"
    assert set(hub.tokens) == {"Bearer hf_of_this_test_alone"}


def test_nothing_is_asked_where_that_is_forbidden(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    check_on_hub("someone/something", "model.encoder")
    assert hub.tokens == []


def test_no_file_grows_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "LARGEST_FILE", 1000)
    with pytest.raises(OSError, match="File too large"), files_of_bounded_size():
        (tmp_path / "file").write_bytes(b"0" * 1001)
    (tmp_path / "file").write_bytes(b"0" * 1001)
