"""Records of exports, as a Firefox and fxtranslate ask for them; and what no Firefox would take."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from headway.core.errors import UserError
from headway.processing.firefox_files import FORMS, read_engine, read_models, write_records
from tests.conftest import Command
from tests.serving.record_server import serving_records

zstandard = pytest.importorskip("zstandard")
pytest.importorskip("uvicorn")

NAMES = {
    "model": "model.enja.intgemm.alphas.bin", "srcvocab": "srcvocab.enja.spm", "trgvocab": "trgvocab.enja.spm",
    "lex": "lex.50.50.enja.s2t.bin",
}  # fmt: skip
COLLECTION = "/v1/buckets/main/collections/translations-models-v2"


def write_export(folder: Path, major: int = 3, languages: tuple[str, str] = ("en", "ja"), **names: str) -> Path:
    """A folder with the files of an export, which have no model, and their records."""
    folder.mkdir()
    for part, name in (names or NAMES).items():
        (folder / name).write_bytes(f"{part} {languages}\n".encode() * 100)
    write_records(folder, names or NAMES, languages, 256, major)
    return folder


@pytest.fixture
def export(tmp_path: Path) -> Path:
    return write_export(tmp_path / "export")


@pytest.fixture
def served(export: Path) -> Iterator[Callable[..., Any]]:
    """Asks a server of records for a path: the JSON or bytes of its answer, or the status of an error."""
    with serving_records(export) as address:

        def ask(path: str, method: str = "GET") -> Any:
            try:
                with urlopen(Request(address + path, method=method), timeout=60) as answer:
                    content = answer.read()
                    return json.loads(content) if "json" in answer.headers["content-type"] else content
            except HTTPError as error:
                return error.code

        yield ask


def test_a_firefox_finds_the_files(export: Path, served: Callable[..., Any]) -> None:
    base = served("/v1/")["capabilities"]["attachments"]["base_url"]
    (change,) = served("/v1/buckets/monitor/collections/changes/changeset?_expected=0")["changes"]
    assert (change["bucket"], change["collection"]) == ("main", "translations-models-v2")
    changeset = served(f"{COLLECTION}/changeset?_expected={change['last_modified']}")
    assert changeset["timestamp"] == change["last_modified"]
    assert {record["fileType"]: record["name"] for record in changeset["changes"]} == NAMES
    for record in changeset["changes"]:
        attachment = record["attachment"]
        content = served("/" + (base + attachment["location"]).split("/", 3)[3])
        assert (len(content), hashlib.sha256(content).hexdigest()) == (attachment["size"], attachment["hash"])
        whole = zstandard.ZstdDecompressor().decompress(content)
        assert whole == (export / record["name"]).read_bytes()
        assert record["decompressedHash"] == hashlib.sha256(whole).hexdigest()
        assert (record["sourceLanguage"], record["targetLanguage"], record["version"]) == ("en", "ja", "3.0")
        assert attachment["mimetype"] == "application/zstd"
    assert served(f"{COLLECTION}/records") == served("/records") == {"data": changeset["changes"]}


def test_nothing_else_is_answered(served: Callable[..., Any]) -> None:
    assert served("/v1/buckets/main/collections/other/changeset") == 404
    assert served("/attachments/../records.json") == 404
    assert served("/attachments/%2e%2e/records.json") == 404
    assert served(f"{COLLECTION}/changeset", "POST") == 405
    assert served("/records", "DELETE") == 405


def test_a_folder_of_exports_has_all_their_pairs(tmp_path: Path) -> None:
    back = {part: name.replace("enja", "jaen") for part, name in NAMES.items()}
    write_export(tmp_path / "there")
    write_export(tmp_path / "back", languages=("ja", "en"), **back)
    collection = read_models(tmp_path)
    assert sorted(record["name"] for record in collection.records) == sorted([*NAMES.values(), *back.values()])
    assert len(collection.files) == 8


def test_records_of_version_1_have_older_keys_and_the_files_themselves(tmp_path: Path) -> None:
    collection = read_models(write_export(tmp_path / "old", 1))
    assert collection.name == "translations-models"
    for record in collection.records:
        assert (record["fromLang"], record["toLang"], record["version"]) == ("en", "ja", "1.0")
        assert "sourceLanguage" not in record
        attached = collection.files[record["attachment"]["location"]].read_bytes()
        assert attached == (tmp_path / "old" / record["name"]).read_bytes()


def changed(export: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    file = export / "remote-settings" / "records.json"
    content = json.loads(file.read_text("utf-8"))
    change(content["data"])
    file.write_text(json.dumps(content), "utf-8")


def set_in(place: int, key: str, value: Any) -> Callable[[list[dict[str, Any]]], None]:
    def change(records: list[dict[str, Any]]) -> None:
        *path, last = key.split(".")
        record = records[place]
        for each in path:
            record = record[each]
        record[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda records: records.pop(2), "these files of a model lack trgvocab"),
        (lambda records: records.pop(0), "these files of a model lack model"),
        (set_in(3, "fileType", "vocab"), "a vocabulary of both sides beside one of a side"),
        (lambda records: records.append(records[0]), "one of a kind twice"),
        (set_in(0, "version", "2.0"), "no Firefox takes models of this version.*received '2.0'; allowed: 3.x"),
        (set_in(1, "attachment.hash", "0" * 64), "srcvocab.enja.spm: the attachment of this record has another hash"),
        (set_in(1, "decompressedHash", "0" * 64), "the file in the attachment of this record has another hash"),
        (set_in(1, "decompressedSize", 7), "cannot be decompressed"),
        (set_in(1, "attachment.location", "main/none.zst"), "the attachment of this record is missing"),
        (set_in(1, "attachment.location", "../model.enja.intgemm.alphas.bin"), "of this record is missing"),
        (lambda records: records.clear(), "records.json: data is damaged|this is damaged"),
        (set_in(1, "attachment", None), "is damaged"),
    ],
)
def test_what_no_firefox_would_take_is_refused(
    export: Path, change: Callable[[list[dict[str, Any]]], None], message: str
) -> None:
    changed(export, change)
    with pytest.raises(UserError, match=message):
        read_models(export)


def test_models_of_two_versions_are_not_served_together(tmp_path: Path) -> None:
    write_export(tmp_path / "there")
    write_export(tmp_path / "old", 1)
    with pytest.raises(UserError, match="no Firefox takes models of this version"):
        read_models(tmp_path)


def test_a_folder_without_records(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there are no records"):
        read_models(tmp_path)


def test_a_copy_of_the_engines_record(tmp_path: Path) -> None:
    content = b"\0asm"
    attachment = {
        "filename": "bergamot-translator.zst", "location": "main-workspace/translations-wasm-v2/1.zst",
        "hash": hashlib.sha256(content).hexdigest(), "size": len(content), "mimetype": "application/zstd",
    }  # fmt: skip
    record = {"id": "1", "name": "bergamot-translator", "version": "4.0", "last_modified": 5, "attachment": attachment}
    (tmp_path / "records.json").write_text(json.dumps({"data": [record]}), "utf-8")
    (tmp_path / "1.zst").write_bytes(content)
    collection = read_engine(tmp_path)
    assert (collection.name, collection.records, collection.modified) == ("translations-wasm-v2", [record], 5)
    assert collection.files == {attachment["location"]: tmp_path / "1.zst"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["RUN", "--records", "FOLDER"], "runs are served, or the records of exports"),
        ([], "runs are served, or the records of exports"),
        (["--wasm", "FOLDER"], "runs are served, or the records of exports"),
        (["--records", "FOLDER", "--pivot", "en"], "--pivot: a server of records has no such option"),
        (["--records", "FOLDER"], "there are no records"),
    ],
)
def test_flags_that_do_not_belong_together(
    run_headway: Command, tmp_path: Path, words: list[str], message: str
) -> None:
    code, _, err = run_headway("serve", *(str(tmp_path) if word == "FOLDER" else word for word in words))
    assert code == 2
    assert message in err


def test_fxtranslate_lists_the_pair(export: Path, tmp_path: Path) -> None:
    pytest.importorskip("fxtranslate")
    words = [sys.executable, "-m", "headway", "serve", "--records", str(export), "--port", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        line = server.stderr.readline()
        address = line.split(" at ")[1].strip().removesuffix("/v1")
        environment = os.environ | {"FXTRANSLATE_RECORDS_URL": f"{address}/records"}
        listed = subprocess.run(
            [sys.executable, "-m", "fxtranslate", "list", "--all"], env=environment, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        server.terminate()
        assert server.wait(60) in (0, -15)
    assert "English (en) → Japanese (ja)" in listed.stdout


def test_forms_have_versions_of_their_own() -> None:
    majors = [major for form in FORMS.values() for major in form.majors]
    assert len(set(majors)) == len(majors)
