"""Manifests and LibriSpeech's layout name the same recordings, wherever they are read from."""

import json
from pathlib import Path
from typing import Any

import pytest

from headway.core.errors import UserError
from headway.formats.corpus_config import AnyCorpus, parse_corpus
from headway.formats.recordings import Utterance, hash_of_audio, open_recordings, read_utterances


def corpus_of(**options: Any) -> AnyCorpus:
    return parse_corpus(options, "data.train")


def read(config: AnyCorpus) -> list[Utterance]:
    return read_utterances(open_recordings(config, "data.train"))


def test_a_manifest_of_two_columns(tmp_path, monkeypatch):
    (tmp_path / "lists").mkdir()
    path = tmp_path / "lists" / "train.tsv"
    path.write_text("../a.wav\tone  two\n\n/b/c.flac\tthree\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path.parent)
    wanted = [(1, "../a.wav", "one  two"), (3, "/b/c.flac", "three")]
    assert read(corpus_of(tsv=path)) == [(line, path.parent / audio, text) for line, audio, text in wanted]


def test_a_transcript_without_a_recording_is_an_error_or_counted(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("a.wav\tone\n \ttwo\n\nb.wav\tthree\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"train\.tsv:2: this row names no recording"):
        read(corpus_of(tsv=path))
    source = open_recordings(corpus_of(tsv=path), "data.train", "skip")
    assert [utterance.line for utterance in read_utterances(source)] == [1, 4]
    assert source.row_errors.report().broken == 1


@pytest.mark.parametrize("columns", [("audio", "text"), (4, 2)])
def test_columns_by_name_and_by_number(tmp_path, columns):
    path = tmp_path / "train.tsv"
    header = "id\ttext\tframes\taudio\n" if isinstance(columns[0], str) else ""
    path.write_text(f"{header}7\tone two\t50\ta.wav\n8\tthree\t60\tb.wav\n", encoding="utf-8")
    utterances = read(corpus_of(tsv=path, columns=columns))
    assert [(utterance.audio.name, utterance.text) for utterance in utterances] == [
        ("a.wav", "one two"),
        ("b.wav", "three"),
    ]


def test_json_lines(tmp_path):
    path = tmp_path / "train.jsonl"
    rows = [
        {"audio_filepath": "a.wav", "sentence": {"text": "one"}},
        {"audio_filepath": "b.wav", "sentence": {"text": "é"}},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    utterances = read(corpus_of(jsonl=path, columns=("audio_filepath", "sentence.text")))
    assert utterances == [(1, tmp_path / "a.wav", "one"), (2, tmp_path / "b.wav", "é")]


def test_the_layout_of_librispeech(tmp_path):
    for chapter, lines in (("84/121", ["84-121-0000 ONE TWO", "84-121-0001 THREE"]), ("9/5", ["9-5-0000 FOUR"])):
        folder = tmp_path / "dev-clean" / chapter
        folder.mkdir(parents=True)
        name = chapter.replace("/", "-")
        (folder / f"{name}.trans.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (tmp_path / "dev-clean/84/121/84-121-0001.wav").touch()
    utterances = read(corpus_of(librispeech=str(tmp_path / "dev-clean")))
    assert [(line, audio.relative_to(tmp_path).as_posix(), text) for line, audio, text in utterances] == [
        (1, "dev-clean/84/121/84-121-0000.flac", "ONE TWO"), (2, "dev-clean/84/121/84-121-0001.wav", "THREE"),
        (3, "dev-clean/9/5/9-5-0000.flac", "FOUR"),
    ]  # fmt: skip
    parts = (tmp_path / "dev-clean/9", tmp_path / "dev-clean/84")
    assert [utterance.text for utterance in read(corpus_of(librispeech=parts))] == ["FOUR", "ONE TWO", "THREE"]


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("audio\ttext\na.wav\n", ("audio", "text"), r"train\.tsv:2: wrong number of columns; received 1"),
        ("audio\ttext\na.wav\tone\n", ("path", "text"), r"train\.tsv:1: no column has this name; received 'path'"),
        ("a.wav one\n", None, r"train\.tsv:1: wrong number of columns"),
        ("\n", None, "there is no recording here"),
        ("", None, "this file is empty"),
    ],
)
def test_manifests_at_fault(tmp_path, text, columns, message):
    (tmp_path / "train.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read(corpus_of(tsv=tmp_path / "train.tsv", columns=columns))


def test_folders_at_fault(tmp_path):
    with pytest.raises(UserError, match=r"data\.train\.librispeech: there is no such folder, or"):
        read(corpus_of(librispeech=tmp_path / "missing"))
    with pytest.raises(UserError, match="or it has no transcripts"):
        read(corpus_of(librispeech=tmp_path))
    with pytest.raises(UserError, match="the task reads no such corpus; received 'parallel'"):
        read(corpus_of(source=Path("a"), target=Path("b")))


def test_a_hash_is_of_the_content(tmp_path):
    for name, content in (("a", b"same"), ("b", b"same"), ("c", b"other")):
        (tmp_path / name).write_bytes(content)
    assert hash_of_audio(tmp_path / "a") == hash_of_audio(tmp_path / "b") != hash_of_audio(tmp_path / "c")
    assert hash_of_audio(tmp_path / "missing") == "unreadable"
