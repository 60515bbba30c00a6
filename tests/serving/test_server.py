"""The interface over real HTTP: LibreTranslate's clients, every option of every task, limits, and an orderly end."""

import codecs
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.core.errors import UserError
from headway.predictors.predict_options import LabelOptions, PredictOptions, TreeOptions
from headway.serving.guard import JsonLines
from headway.serving.models import NOT_SERVED, PredictBody, direction_of, named_runs, served_model
from headway.serving.options import ServeOptions
from tests.command_server import commands_path
from tests.conftest import Command
from tests.runs.old_runs import copied
from tests.serving.conftest import Gate, Running, close, running, wait


def test_a_client_of_libretranslate_works_unchanged(server: Running, tmp_path: Path) -> None:
    client = pytest.importorskip("libretranslatepy").LibreTranslateAPI(server.url)
    assert client.translate("one two", "en", "de") == "eins zwei"
    assert client.detect("two three")[0]["language"] == "en"
    assert {each["code"]: each["targets"] for each in client.languages()} == {"en": ["de"], "de": []}


def test_weblate_is_answered(server: Running) -> None:
    """Requests as its `LibreTranslateTranslation` (5.14) sends them: an empty key, marks such as [X4X]."""
    headers = {"accept": "application/json; charset=utf-8", "referer": "https://weblate.example/"}
    assert [each["code"] for each in server.ask("/languages", **headers).content] == ["de", "en"]
    body = {"api_key": "", "q": ["one two", "three [X6X]", "[X0X] one"], "source": "en", "target": "de"}
    answer = server.ask("/translate", body, **headers)
    assert answer.status == 200
    assert answer.content["translatedText"][0] == "eins zwei"
    assert ["[X6X]" in text for text in answer.content["translatedText"]] == [False, True, False]
    assert answer.content["translatedText"][2].startswith("[X0X]")
    refused = server.ask("/translate", body | {"target": "zh-Hans"}, **headers)
    assert refused.status == 400
    assert isinstance(refused.content["error"], str)


def test_texts_lists_and_forms(server: Running) -> None:
    fields = {"source": "en", "target": "de"}
    assert server.form("/translate", q="one", **fields).content == {"translatedText": "eins"}
    several = server.ask("/translate", {"q": ["one", "two three"], **fields}).content
    assert several == {"translatedText": ["eins", "zwei drei"]}
    detected = server.ask("/translate", {"q": ["two", "three"], "source": "auto", "target": "de"}).content
    assert [each["language"] for each in detected["detectedLanguage"]] == ["en", "en"]
    detected = server.form("/translate", q="two", source="auto", target="de").content
    assert detected["detectedLanguage"] == {"language": "en", "confidence": 100.0}
    others = server.form("/translate", q="two three", alternatives="2", **fields).content
    assert others["translatedText"] == "zwei drei"
    assert 1 <= len(others["alternatives"]) <= 2
    assert "zwei drei" not in others["alternatives"]
    others = server.ask("/translate", {"q": ["two", "six"], "alternatives": 2, **fields}).content
    assert len(others["alternatives"]) == 2


def test_what_stands_between_sentences_is_kept(server: Running) -> None:
    text = "  one\n\n\ttwo \r\n😀\nthree"
    answer = server.ask("/translate", {"q": text, "source": "en", "target": "de"}).content
    assert answer["translatedText"] == "  eins\n\n\tzwei \r\n😀\ndrei"
    assert server.form("/translate", q="eins", source="de", target="de").content == {"translatedText": "eins"}


@pytest.mark.parametrize(
    ("changes", "status", "error"),
    [
        ({"q": ""}, 400, "Invalid request: missing q parameter"),
        ({"q": []}, 400, "Invalid request: missing q parameter"),
        ({"source": ""}, 400, "Invalid request: missing source parameter"),
        ({"target": ""}, 400, "Invalid request: missing target parameter"),
        ({"target": "zz"}, 400, "zz is not supported"),
        ({"source": "zz"}, 400, "zz is not supported"),
        (
            {"source": "de", "target": "en"}, 400,
            "English (en) is not available as a target language from German (de)",
        ),
        ({"format": "xml"}, 400, "xml format is not supported"),
        ({"alternatives": "abc"}, 400, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": 8}, 400, "Invalid request: alternatives parameter is above 7"),
        ({"q": "a" * 5001}, 413, "Invalid request: request (5001) exceeds text limit (5000)"),
        ({"q": "a\n" * 201}, 413, "request (201 sentences) exceeds text limit (200)"),
        ({"q": 3}, 400, None),
    ],
)  # fmt: skip
def test_mistakes_have_the_errors_of_libretranslate(
    server: Running, changes: dict[str, Any], status: int, error: str | None
) -> None:
    answer = server.ask("/translate", {"q": "one", "source": "en", "target": "de"} | changes)
    assert answer.status == status
    assert error is None or answer.content == {"error": error}


@pytest.mark.parametrize("body", ["[]", "nothing", '{"q": ' * 100_000, '"q"', '{"q": "\\ud800"}', b"\xff", "", "null"])
@pytest.mark.parametrize("path", ["/translate", "/detect", "/v1/predict"])
def test_no_json_breaks_it(server: Running, path: str, body: str | bytes) -> None:
    answer = server.ask(path, body, **{"content-type": "application/json"})
    assert answer.status == 400
    assert answer.content["error"]


def test_requests_are_read_as_libretranslate_reads_them(server: Running) -> None:
    """Null is a field that is missing, parameters may be in the address, and codes and types are without case."""
    fields, answer = {"q": "one", "source": "EN", "target": "De"}, {"translatedText": "eins"}
    lenient = {"format": None, "api_key": None, "alternatives": -1}
    assert server.ask("/translate", fields | lenient).content == answer
    assert server.ask("/translate?q=one&source=en&target=de", method="POST").content == answer
    form = {"content-type": "Application/X-WWW-Form-Urlencoded"}
    assert server.ask("/translate?source=en", "q=one&target=de", **form).content == answer
    assert server.ask("/translate", method="POST").content == {"error": "Invalid request: missing q parameter"}
    assert server.ask("/translate", fields | {"source": "Auto"}).content["detectedLanguage"]["language"] == "en"
    detected = server.ask("/detect", {"q": ["one", "two"]}).content
    assert [each["language"] for each in detected] == ["en"]
    assert server.ask("/spec").content == server.ask("/openapi.json").content
    assert server.ask("/spec", method="POST").status == 405
    assert server.ask("/translate", fields | {"format": ""}).content == answer
    assert server.ask("/translate?q=two&target=de", "q=one&source=en&source=fr", **form).content == {
        "translatedText": "zwei"
    }
    assert server.form("/translate", q="one\r\ntwo", source="en", target="de").content["translatedText"] == "eins\nzwei"
    marked = codecs.BOM_UTF8 + json.dumps(fields).encode()
    assert server.ask("/translate", marked, **{"content-type": "application/json"}).content == answer
    disabled = server.form("/suggest", q="one", s="eins", source="en", target="de")
    assert (disabled.status, disabled.content) == (403, {"error": "Suggestions are disabled on this server."})
    assert server.ask("/translate", method="PUT").headers["allow"] == "POST"
    assert server.ask("/translate/", fields).status == 404


def test_head_is_answered_where_get_is(server: Running) -> None:
    for path in ("/health", "/", "/languages", "/spec"):
        answer = server.ask(path, method="HEAD")
        assert (answer.status, answer.headers["content-length"] != "0") == (200, True)
    url = upload(server, "a.txt", b"one", source="EN", target="DE").content["translatedFileUrl"]
    assert server.ask(url.removeprefix(server.url), method="HEAD").status == 200
    assert server.ask(url.removeprefix(server.url)).content == b"eins", "it is still there"
    assert server.ask("/translate", method="HEAD").status == 405
    assert "head" not in server.ask("/openapi.json").content["paths"]["/health"]


def test_placeholders_of_plain_texts_stay(server: Running) -> None:
    fields = {"source": "en", "target": "de"}
    answer = server.ask("/translate", {"q": ["one %1 two %n", "two\n%{three}", "one"], **fields}).content
    assert [text.replace(" ", "") for text in answer["translatedText"]] == ["eins%1zwei%n", "zwei\n%{three}", "eins"]
    others = server.ask("/translate", {"q": "one %1 two", "alternatives": 3, **fields}).content
    assert all("%1" in text for text in (others["translatedText"], *others["alternatives"]))


def test_what_is_not_there(server: Running) -> None:
    assert server.ask("/nothing").status == 404
    assert server.ask("/translate").status == 405
    assert server.ask("/download_file/nothing").content == {"error": "there is no such file"}
    assert server.form("/translate_file", source="en", target="de").status == 400


def upload(server: Running, name: str, content: bytes, **fields: str) -> Any:
    """The answer to a file in a form."""
    parts = [f'--b\r\ncontent-disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()]
    head = f'--b\r\ncontent-disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    body = "".join(parts).encode() + head.encode() + content + b"\r\n--b--\r\n"
    return server.ask("/translate_file", body, **{"content-type": "multipart/form-data; boundary=b"})


def test_files(server: Running) -> None:
    answer = upload(server, "a.txt", b"one\r\n\r\ntwo\n", source="en", target="de").content
    assert answer["characters"] == {"seen": 6, "translated": 6, "left": 0}
    url = answer["translatedFileUrl"]
    assert url.startswith(f"{server.url}/download_file/")
    fetched = server.ask(url.removeprefix(server.url))
    assert fetched.content == b"eins\r\n\r\nzwei\n"
    assert fetched.headers["content-disposition"] == "attachment; filename*=UTF-8''a.de.txt"
    assert server.ask(url.removeprefix(server.url)).status == 404
    assert upload(server, "a.exe", b"", source="en", target="de").content["error"].endswith("file format not supported")
    for name, error in (("", "missing file parameter"), (".txt", "file format not supported")):
        assert upload(server, name, b"one", source="en", target="de").content["error"] == f"Invalid request: {error}"
    url = upload(server, "..\\../a.txt", b"one", source="en", target="de").content["translatedFileUrl"]
    named = server.ask(url.removeprefix(server.url)).headers["content-disposition"]
    assert named == "attachment; filename*=UTF-8''a.de.txt"
    assert upload(server, "a.txt", b"\xff", source="en", target="de").status == 400
    assert upload(server, "a.txt", b"a" * 100_001, source="en", target="de").status == 413


@pytest.mark.parametrize("most", [1, 600])
def test_a_file_is_aligned_in_parts(server: Running, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """The attention of a whole file may be more than fits; a sentence with too much of it has none."""
    limits = server.models["en-de"].limits.model_copy(update={"weights": most})
    monkeypatch.setattr(server.models["en-de"], "limits", limits)
    page = b"<p>one <b>two</b><p>two<p>one<p>one one<p>two two"
    url = upload(server, "a.html", page, source="en", target="de").content["translatedFileUrl"]
    fetched = server.ask(url.removeprefix(server.url)).content
    assert fetched == b"<p>eins <b>zwei</b><p>zwei<p>eins<p>eins eins<p>zwei zwei"


def test_markup_stays(server: Running) -> None:
    fields = {"source": "en", "target": "de", "format": "html"}
    page = server.ask("/translate", {"q": "<p>one <b>two</b></p>\n<p>&amp;</p>", **fields}).content["translatedText"]
    assert page == "<p>eins <b>zwei</b></p>\n<p>&amp;</p>"
    counted = server.ask("/translate", {"q": "<p>one two <code>three</code>", **fields}).content
    assert counted["characters"] == {"seen": 11, "translated": 11, "left": 0}
    left = server.ask("/translate", {"q": ["<p>one", "<p translate=no>two</p>"], **fields}).content["characters"]
    assert left == [{"seen": 3, "translated": 3, "left": 0}, {"seen": 3, "translated": 0, "left": 3}]
    pages = server.ask("/translate", {"q": ["<p>one</p>", "<i>two"], **fields, "source": "auto"}).content
    assert pages["translatedText"][0] == "<p>eins</p>"
    catalogue = b'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "one two"\nmsgstr ""\n'
    url = upload(server, "a.po", catalogue, source="en", target="de").content["translatedFileUrl"]
    assert b'#, fuzzy\nmsgid "one two"\nmsgstr "eins zwei"' in server.ask(url.removeprefix(server.url)).content
    broken = upload(server, "a.po", b'msgid "one', source="en", target="de")
    assert broken.status == 400
    assert "a.po:1" in broken.content["error"]


def test_a_pivot_joins_two_runs(loaded: dict[str, Any]) -> None:
    with running({"en-de": loaded["en-de"], "fr-en": loaded["en-de"]}, pivot="en") as server:
        targets = {each["code"]: each["targets"] for each in server.ask("/languages").content}
        assert targets == {"fr": ["de", "en"], "en": ["de"], "de": []}
        by_way_of_english = server.form("/translate", q="one two", source="fr", target="de").content["translatedText"]
        (first,) = loaded["en-de"].predict("one two")
        assert by_way_of_english == loaded["en-de"].predict(first.text)[0].text
    with pytest.raises(UserError, match="no run translates from or into the pivot"), running(loaded, pivot="ja"):
        pass


def test_every_task_answers_as_its_predictor_does(server: Running, loaded: dict[str, Any]) -> None:
    lines = {
        "en-de": "one two", "tagging": "they goes home .", "parsing": "d n v .", "error_detection": "he goes bad home",
        "summarization": "e a c b h",
    }  # fmt: skip
    for name, line in lines.items():
        answer = server.predict(name, [line, ""])
        assert answer.status == 200
        outputs = answer.content["outputs"]
        for output, expected in zip(outputs, loaded[name].predict([line, ""]), strict=True):
            assert output["text"] == expected.text
            assert output["hypotheses"][0]["log_probabilities"] == pytest.approx(expected.log_probabilities, abs=1e-4)
    models = {each["name"]: each for each in server.ask("/v1/models").content}
    assert models["en-de"] == {
        "name": "en-de", "task": "translation", "source": "en", "target": "de", "alignment": True,
        "context": False,
    }  # fmt: skip
    assert models["tagging"]["alignment"] is False


def test_options_attention_and_alignment_come_by_request(server: Running, loaded: dict[str, Any]) -> None:
    answer = server.predict("en-de", "one two", nbest=3, capture="decoder.*.cross", alignment=True, beam=5).content
    (output,), (expected,) = answer["outputs"], loaded["en-de"].predict("one two", nbest=3, beam=5, capture="all")
    assert [each["text"] for each in output["hypotheses"]] == [each.text for each in expected.hypotheses]
    (attention,) = output["attention"].values()
    assert attention["rows"] == [*expected.tokens, "</s>"]
    assert attention["weights"][0][0] == pytest.approx(expected.attention["decoder.1.cross"][0][0].tolist(), abs=1e-3)
    assert output["alignment"]["source_words"] == ["one", "two"]
    assert output["alignment"]["target_words"] == ["eins", "zwei"]
    tagged = server.predict("tagging", "they goes", capture="all").content["outputs"][0]
    assert tagged["words"] == ["they", "goes"]
    assert set(tagged["probabilities"]) >= set(tagged["labels"])
    assert len(tagged["attention"]) == 1
    drawn = server.predict("parsing", "d n v .", format="drawing").content["outputs"][0]["text"]
    assert "─" in drawn
    marked = server.predict("error_detection", "he goes bad home", threshold=0.0).content["outputs"][0]
    assert len(set(marked["labels"])) == 1


@pytest.mark.parametrize(
    ("model", "options", "status"),
    [
        ("en-de", {"dictionary": "/etc/passwd"}, 400),
        ("en-de", {"unknown_words": "copy", "dictionary": "/etc/passwd"}, 400),
        ("en-de", {"batch_tokens": 10**9}, 400),
        ("en-de", {"beam": 9}, 400),
        ("en-de", {"kind": "mbr", "utility": "comet:model=hf:some/one"}, 400),
        ("en-de", {"kind": "mbr", "samples": 9}, 400),
        ("en-de", {"nbest": 10_000}, 400),
        ("en-de", {"max_length": 100_000}, 400),
        ("en-de", {"min_length": 100_000}, 400),
        ("en-de", {"max_length_ratio": 1000}, 400),
        ("en-de", {"max_length_offset": 100_000}, 400),
        ("en-de", {"prefixes": ["a" * 6000]}, 413),
        ("en-de", {"prefixes": ["a", "b"]}, 400),
        ("en-de", {"engine": "onnx"}, 400),
        ("en-de", {"capture": "nothing"}, 400),
        ("en-de", {"beam": "many"}, 400),
        ("error_detection", {"threshold": "dev"}, 400),
        ("tagging", {"threshold": 0.5}, 400),
        ("tagging", {"alignment": True}, 400),
        ("nothing", {}, 400),
    ],
)
def test_no_option_reaches_a_file_or_takes_all_memory(
    server: Running, model: str, options: dict[str, Any], status: int
) -> None:
    answer = server.predict(model, "one", **options)
    assert (answer.status, list(answer.content)) == (status, ["error"])


def test_attention_of_long_texts_is_refused(server: Running) -> None:
    assert server.predict("en-de", "one " * 220, capture="all").status == 413
    assert server.predict("tagging", "one " * 1000, capture="all").status == 413
    assert server.predict("en-de", ["one"] * 201).status == 413


def test_every_option_but_those_of_the_server_is_served(loaded: dict[str, Any], server: Running) -> None:
    for kind, name in ((PredictOptions, "en-de"), (TreeOptions, "parsing"), (LabelOptions, "tagging")):
        body = server.models[name].body
        assert set(body.model_fields) - set(PredictBody.model_fields) == set(kind.model_fields) - set(NOT_SERVED)
    schema = server.ask("/openapi.json").content
    content = schema["paths"]["/v1/predict"]["post"]["requestBody"]["content"]["application/json"]
    assert len(content["schema"]["anyOf"]) == 5
    assert "file" not in json.dumps(content).lower().replace("profile", "")


def test_keys(loaded: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys").write_text("first\n\nsecond\n", encoding="utf-8")
    monkeypatch.setenv("HEADWAY_API_KEYS", "third, fourth")
    fields = {"q": "one", "source": "en", "target": "de"}
    with running({"en-de": loaded["en-de"]}, keys=tmp_path / "keys") as server:
        for key in ("first", "second", "third", "fourth"):
            assert server.form("/translate", api_key=key, **fields).status == 200
        assert server.ask("/translate", fields, authorization="Bearer first").status == 200
        assert server.form("/translate", api_key="fifth", **fields).content == {"error": "Invalid API key"}
        assert server.form("/translate", api_key="fifth", **fields).status == 403
        assert server.form("/translate", **fields).content["error"].startswith("Please contact the server operator")
        for path, body in (("/detect", {"q": "one"}), ("/v1/predict", {"model": "en-de", "inputs": "one"})):
            assert server.ask(path, body).status == 400
            assert server.ask(path, body | {"api_key": "first"}).status == 200
        assert upload(server, "a.txt", b"one", source="en", target="de").status == 400
        assert upload(server, "a.txt", b"one", source="en", target="de", api_key="first").status == 200
        assert server.ask("/frontend/settings").content["keyRequired"] is True
        assert server.ask("/languages").status == server.ask("/health").status == 200


def test_too_many_requests_are_refused(loaded: dict[str, Any], gate: Gate) -> None:
    with running({"en-de": loaded["en-de"]}, concurrent=2) as server, ThreadPoolExecutor(3) as pool:
        fields = {"q": "one", "source": "en", "target": "de"}
        asked = [pool.submit(server.form, "/translate", **fields) for _ in range(2)]
        wait(lambda: b"headway_requests_active 3.0" in server.ask("/metrics").content)
        refused = server.form("/translate", **fields)
        gate.opened.set()
        assert [each.result().content for each in asked] == [{"translatedText": "eins"}] * 2
    assert refused.status == 429
    assert refused.headers["retry-after"] == "1"
    assert refused.content["error"].startswith("Slowdown")


def test_a_full_queue_and_a_deadline_are_503(loaded: dict[str, Any], gate: Gate) -> None:
    with running({"en-de": loaded["en-de"]}, queue=1, deadline=0.5) as server, ThreadPoolExecutor(1) as pool:
        fields = {"q": "one", "source": "en", "target": "de"}
        late = pool.submit(server.form, "/translate", **fields)
        assert gate.begun.wait()
        full = server.form("/translate", **fields)
        assert late.result().status == full.status == 503
        assert late.result().headers["retry-after"] == full.headers["retry-after"] == "1"
        gate.opened.set()
        wait(lambda: server.form("/translate", **fields).status == 200)  # a slow machine may need the deadline again


def test_a_body_is_no_larger_than_allowed(loaded: dict[str, Any]) -> None:
    with running({"en-de": loaded["en-de"]}, body=1000) as server:
        assert server.ask("/translate", {"q": "a" * 1000}).status == 413
        with socket.create_connection(("127.0.0.1", server.port), timeout=200) as client:
            client.sendall(b"POST /translate HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
            with pytest.raises(OSError, match=r"."):  # noqa: PT012 - whenever the server has had enough
                for _ in range(1000):
                    client.sendall(b"400\r\n" + b"a" * 0x400 + b"\r\n")
                    if b"413" in client.recv(4096):
                        raise OSError("413")


def test_a_slow_client_is_not_waited_for(loaded: dict[str, Any]) -> None:
    with (
        running({"en-de": loaded["en-de"]}, deadline=0.3) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=200) as client,
    ):
        client.sendall(b"POST /translate HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nq=")
        assert b"408" in client.recv(4096)


def test_a_request_of_a_client_that_has_gone_is_not_computed(loaded: dict[str, Any], gate: Gate) -> None:
    with running({"en-de": loaded["en-de"]}) as server, ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(server.form, "/translate", q="one", source="en", target="de")]
        assert gate.begun.wait()
        body = b"q=three&source=en&target=de"
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            head = f"POST /translate HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
            client.sendall(f"{head}content-type: application/x-www-form-urlencoded\r\n\r\n".encode() + body)
            wait(lambda: sum(each.waiting() for each in server.models["en-de"].batchers) == 1)
        wait(lambda: b'status="499"' in server.ask("/metrics").content)
        asked.append(pool.submit(server.form, "/translate", q="two", source="en", target="de"))
        gate.opened.set()
        assert [each.result().content["translatedText"] for each in asked] == ["eins", "zwei"]
    assert gate.read == [["one"], ["two"]]


def test_an_end_is_orderly(loaded: dict[str, Any], gate: Gate) -> None:
    with running({"en-de": loaded["en-de"]}) as server, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.form, "/translate", q="one", source="en", target="de")
        assert gate.begun.wait()
        server.server.handle_exit(signal.SIGTERM, None)

        def refused() -> bool:
            try:
                server.ask("/health")
            except OSError:
                return True
            return False

        wait(refused)
        assert not asked.done()
        gate.opened.set()
        assert asked.result().content == {"translatedText": "eins"}


def test_an_error_of_ours_is_500_and_quotes_nothing(loaded: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(request: Any, count: int) -> Any:
        raise RuntimeError("the secret text")

    monkeypatch.setattr(loaded["en-de"], "answer", broken)
    with running({"en-de": loaded["en-de"]}) as server:
        answer = server.form("/translate", q="the secret text", source="en", target="de")
        assert answer.status == 500
        assert "secret" not in str(answer.content)
        assert server.ask("/ready").status == 200
    try:
        broken(None, 1)
    except RuntimeError:
        record = logging.LogRecord("uvicorn.error", logging.ERROR, "", 1, "the secret text", (), sys.exc_info())
    line = JsonLines().format(record)
    assert json.loads(line)["error"] == "RuntimeError"
    assert "secret" not in line


def test_the_log_has_no_texts(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "headway.serving"):
        server.form("/translate", q="a secret", source="en", target="de")
        server.ask("/secret?q=secret")
        server.predict("en-de", "secret", prefixes=["secret"])
        wait(lambda: len(caplog.records) >= 3)
    lines = [JsonLines().format(record) for record in caplog.records]
    assert not any("secret" in line for line in lines)
    facts = json.loads(lines[0])
    assert (facts["path"], facts["status"], facts["characters"]) == ("/translate", 200, 8)


def test_numbers_for_prometheus(server: Running) -> None:
    server.form("/translate", q="one", source="en", target="de")
    lines = server.ask("/metrics").content.decode().splitlines()
    counts = {line.split()[0]: float(line.split()[1]) for line in lines if not line.startswith("#")}
    assert counts['headway_requests_total{path="/translate",status="200"}'] >= 1
    assert counts['headway_batch_inputs_count{model="en-de"}'] >= 1
    assert counts['headway_jobs_waiting{model="en-de",queue="short"}'] == 0


def test_headers(server: Running) -> None:
    answer = server.ask("/languages", origin="https://elsewhere.example")
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "script-src 'sha256-" in server.ask("/").headers["content-security-policy"]


def test_names_and_directions(loaded: dict[str, Any], tmp_path: Path) -> None:
    assert direction_of("en-de") == ("en", "de")
    assert direction_of("en-pt-BR") == ("en", "pt-BR")
    assert direction_of("zh-Hans-en") == ("zh-Hans", "en")
    assert direction_of("tags") is None
    assert named_runs(["en-de=a/b", "c"]) == [("en-de", Path("a/b")), (None, Path("c"))]
    (tmp_path / "a=b").mkdir()
    assert named_runs([str(tmp_path / "a=b")]) == [(None, tmp_path / "a=b")]
    predictor = headway.load(copied("translation-decoder-only", tmp_path / "run").run)
    with pytest.raises(UserError, match="does not say from which language") as raised:
        served_model(None, Path("runs/x"), predictor, ServeOptions())
    assert str(raised.value).endswith(
        "allowed: en-de=runs/x, or text.source.language and text.target.language in its recipe"
    )
    with pytest.raises(UserError, match="into which, and 'xx' of this name is no language; received 'en-xx'"):
        served_model("en-xx", Path("runs/x"), predictor, ServeOptions())
    with pytest.raises(UserError, match="into which, and neither does this name; received 'en-en'"):
        served_model("en-en", Path("runs/x"), predictor, ServeOptions())
    model = served_model("en-fr", Path("runs/x"), predictor, ServeOptions())
    assert model.direction == ("en", "fr")
    close(model)
    model = served_model(None, Path("runs/tags"), loaded["tagging"], ServeOptions())
    assert (model.name, model.direction) == ("tags", None)
    close(model)


def test_mistakes_of_the_command_line(numbers: Path, run_headway: Command, tmp_path: Path) -> None:
    speech = copied("speech_recognition", tmp_path / "speech").run
    for words, message in (
        ([speech], "a server reads text, and this run speech"),
        ([numbers, numbers], "two runs have this name"),
        ([tmp_path / "nothing"], "nothing"),
        ([numbers, "--keys", tmp_path / "nothing"], "nothing"),
        ([numbers, "--pivot", "english"], "did you mean 'en'?"),
        ([numbers, "--host", "256.0.0.1"], "this address cannot be had"),
        ([], "runs are served, or the records of exports"),
    ):
        done = run_headway("serve", *words, "--port", "0")
        assert (done.code, message in done.err) == (2, True), done.err


@pytest.mark.slow
def test_sigterm_ends_the_command_with_0(numbers: Path) -> None:
    command = ["headway", "serve", str(numbers), "--port", "0"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PATH": commands_path()}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        (first,) = (line for line in [next(lines)])
        port = int(first.rstrip().rpartition(":")[2])
        running_there = Running(port, {}, None)  # type: ignore[arg-type]

        def answers() -> bool:
            try:
                return running_there.ask("/ready").status == 200
            except OSError:
                return False

        wait(answers)
        assert running_there.form("/translate", q="one", source="en", target="de").content == {"translatedText": "eins"}
        process.send_signal(signal.SIGTERM)
        rest = list(lines)
        assert process.wait(200) == 0
    assert first == f"serving en-de (translation) at http://127.0.0.1:{port}\n"
    assert {json.loads(line)["path"] for line in rest} >= {"/ready", "/translate"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_request_that_fits_the_schema_is_500(loaded: dict[str, Any]) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    import hypothesis

    with running(loaded, concurrent=1000) as server:
        schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
        statuses: set[int] = set()
        for operation in schema.get_all_operations():

            @hypothesis.given(case=operation.ok().as_strategy())
            @hypothesis.settings(max_examples=40, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
            def every(case: Any) -> None:
                response = case.call(base_url=server.url)
                statuses.add(response.status_code)
                assert response.status_code < 500 or response.status_code == 503, response.text

            every()
        assert {200, 400} <= statuses
