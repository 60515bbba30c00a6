"""The store: parses are looked up by their sentence, a changed one has none, and a crash loses no more than a line."""

import errno
import json
import os
from io import FileIO

import pytest

from headway.core.errors import UserError
from headway.formats.corpus_config import parse_corpus
from headway.parses.parse import Parse, Token
from headway.parses.parse_store import ParsesConfig, ParseStore, key_of, open_writer, store_beside, store_of
from headway.parses.parsers import ParserConfig

PARSER = {"kind": "conllu", "model": "made"}
PARSE = Parse([Token(0, 2, 1, "nsubj"), Token(3, 8, 1, "root 100%:x\t")])


def write(path, *lines, parser=PARSER):
    with open_writer(path, parser, ParseStore) as writer:
        known = set(writer.known)
        writer.add([(key_of(line), PARSE.write()) for line in lines])
    return known


def test_a_parse_is_found_by_its_sentence(tmp_path):
    path = tmp_path / "here" / "a.parses"
    assert write(path, "we sing", "", "we  sing") == set()
    store = ParseStore(path)
    assert len(store) == 3
    assert store.get("we sing") == PARSE
    assert store.get("we Sing") is None
    assert set(store.keys()) == {key_of(line) for line in ("we sing", "", "we  sing")}
    assert PARSE.read(PARSE.write()) == PARSE
    assert Parse.read("") == Parse(())


def test_many_sentences(tmp_path):
    path = tmp_path / "a.parses"
    write(path, *map(str, range(500)))
    store = ParseStore(path)
    assert all(store.get(str(number)) == PARSE for number in range(500))
    assert store.get("500") is None


def test_a_store_grows_and_its_fingerprint_changes(tmp_path):
    path = tmp_path / "a.parses"
    write(path, "one")
    before = ParseStore(path).fingerprint()
    assert write(path, "two") == {key_of("one")}
    assert ParseStore(path).get("one") == ParseStore(path).get("two") == PARSE
    assert ParseStore(path).fingerprint() != before


@pytest.mark.parametrize("lost", [1, 5, 60])
def test_a_line_that_was_cut_off_is_written_again(tmp_path, lost):
    path = tmp_path / "a.parses"
    write(path, "one", "two")
    whole = path.read_bytes()
    path.write_bytes(whole[:-lost])
    assert ParseStore(path).get("two") is None
    assert write(path, "two") == {key_of("one")}
    assert path.read_bytes() == whole


def test_a_header_that_was_cut_off_is_written_again(tmp_path):
    path = tmp_path / "a.parses"
    path.write_bytes(b'{"format": 1, "ki')
    assert write(path, "one") == set()
    assert ParseStore(path).get("one") == PARSE


def test_another_parser_or_process_is_refused(tmp_path):
    path = tmp_path / "a.parses"
    write(path, "one")
    with pytest.raises(UserError, match="another parser, or version of it, made these parses"):
        write(path, "two", parser=PARSER | {"model": "other"})
    with open_writer(path, PARSER, ParseStore), pytest.raises(UserError, match="another process is at work here"):
        write(path, "two")


def test_what_is_no_store_is_refused(tmp_path):
    path = tmp_path / "a.parses"
    with pytest.raises(UserError, match=r"have no parses yet; allowed: headway data annotate"):
        ParseStore(path)
    for content in ("no JSON\n", "[]\n", json.dumps({"format": 99}) + "\n"):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(UserError, match="this is no store of parses"):
            ParseStore(path)
    path.write_text(json.dumps({"format": 1}) + f"\n{key_of('one')}\t0:1\n", encoding="utf-8")
    with pytest.raises(UserError, match="parses are damaged"):
        ParseStore(path).get("one")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be kept here"):
        write(tmp_path / "file" / "a.parses", "one")


def test_where_parses_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    parses = ParsesConfig.model_validate({"source": "ja_ginza", "target": f"spacy:{tmp_path}/parsers/en"})
    assert parses.source == ParserConfig(kind="spacy", model="ja_ginza")
    files = parse_corpus({"source": tmp_path / "a.ja", "target": tmp_path / "a.en"}, "data.train")
    assert store_of(files, "source", parses) == tmp_path / "a.ja.spacy-ja_ginza.parses"
    assert store_of(files, "target", parses) == tmp_path / "a.en.spacy-en.parses"
    elsewhere = parses.model_copy(update={"folder": tmp_path / "parses"})
    assert store_of(files, "source", elsewhere) == tmp_path / "parses" / "a.ja.spacy-ja_ginza.parses"
    table = parse_corpus({"tsv": tmp_path / "a.tsv"}, "data.train")
    assert store_of(table, "target", parses) == tmp_path / "a.tsv.target.spacy-en.parses"
    hub = parse_corpus({"hub": "user/set", "split": "train", "columns": ("a", "b")}, "data.train")
    assert store_of(hub, "source", parses) == tmp_path / "cache/parses/user/set-train.source.spacy-ja_ginza.parses"
    assert store_beside(tmp_path / "x", ParserConfig(kind="conllu", model="y/z.conllu"), None).parent == tmp_path


def test_all_of_a_parse_is_written_where_the_system_takes_a_part_at_a_time(tmp_path, monkeypatch):
    write(tmp_path / "whole.parses", "one", "two")
    at_once = os.write
    monkeypatch.setattr(os, "write", lambda file, text: at_once(file, text[:7]))
    write(tmp_path / "a.parses", "one", "two")
    assert (tmp_path / "a.parses").read_bytes() == (tmp_path / "whole.parses").read_bytes()


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    class Full(FileIO):
        def write(self, text):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("headway.parses.parse_store.FileIO", Full)
    with pytest.raises(OSError, match="No space left") as error:
        write(tmp_path / "a.parses", "one")
    assert error.value.filename == str(tmp_path / "a.parses")
