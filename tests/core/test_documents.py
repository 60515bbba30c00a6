"""YAML and JSON documents: every mistake is a UserError with its line, and nothing in them takes time or memory."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.documents import LARGEST_YAML, dump_yaml, parse_json, parse_yaml, read_json, read_yaml
from headway.core.errors import UserError


def bomb(first: str, around: str) -> str:
    """Nine levels of aliases, each of ten of the one below."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{n}: &a{n} " + around % ", ".join([f"*a{n - 1}"] * 10) for n in range(1, 9)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "x:3: the key 'a' stands here again, first in line 1"),
        ("a:\n  b: 1\n  c: 2\n  b: 3", "x:4: the key 'b' stands here again, first in line 2"),
        ("a: {b: 1,\n b: 2}", "x:2: the key 'b' stands here again"),
        ("- {b: 1, 'b': 2}", "x:1: the key 'b' stands here again"),
        ("a: 010", "x:1: 010 may be an octal number"),
        ("a: [1,\n -0_7]", "x:2: -0_7 may be an octal number"),
        ("a: !!int x", "x:1: 'x' is no number"),
        ("a: !!int ''", "x:1: '' is no number"),
        ("a: !!int 1:30", "x:1: '1:30' is no number"),
        ("a: !!float ''", "x:1: '' is no number"),
        ("a: 0b_", "x:1: '0b_' is no number"),
        ("\na: " + "1" * 5000, f"x:2: '{'1' * 20}' is no number"),
        ("a: !!bool x", "x: this cannot be read as YAML"),
        ("a: !!timestamp 2024-01-01", "x:1: this is not YAML (could not determine a constructor"),
        ("a: !!set {b}", "x:1: this is not YAML"),
        ("a: !!binary YQ==", "x:1: this is not YAML"),
        ("a: !!python/object:os.system {}", "x:1: this is not YAML"),
        ("a: !!python/name:os.system", "x:1: this is not YAML"),
        ("a: *b", "x:1: this is not YAML (found undefined alias"),
        ("a: &b [*b]", "x:1: an alias stands for itself"),
        ("a: &b {c: *b}", "x:1: an alias stands for itself"),
        ("? [a]\n: 1", "x:1: a key is text or a number"),
        ("a: " + "[" * 2000, "x:1: nested deeper than 100"),
        ("a: " + "{a: " * 2000, "x:1: nested deeper than 100"),
        ("\n".join(" " * n + "a:" for n in range(400)), "x:100: nested deeper than 100"),
        ("a: 1\nb: \x00", "x:2: this is not YAML (special characters are not allowed)"),
        ("a: 1\n---\nb: 2", "x:2: this is not YAML"),
        ("a: [1", "x:1: this is not YAML"),
        (bomb("[y]", "[%s]"), "aliases stand for too much"),
        (bomb("{y: 1}", "{<<: [%s]}"), "aliases stand for too much"),
        (bomb(f"[{'y' * 1000}]", "[%s]"), "aliases stand for too much"),
    ],
)
def test_mistakes_in_yaml_have_their_line(text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        parse_yaml(text, "x")
    assert message in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1:30", "1:30"), ("1:30.5", "1:30.5"), ("2024-99-99", "2024-99-99"), ("2024-01-01", "2024-01-01"),
        ("2024-01-01 10:00:00", "2024-01-01 10:00:00"), ("0", 0), ("-0", 0), ("1_000", 1000), ("0x1F", 31),
        ("0b11", 3), ("+7", 7), ("0.5", 0.5), ("01.5", 1.5), ("1.0e-3", 1e-3), ("1.5e3", 1500.0), ("1e-3", "1e-3"),
        ("'010'", "010"), ("yes", True), ("off", False), ("~", None), ("", None), ("0o10", "0o10"), (".5", 0.5),
        ("=", "="), ("{a: &x {b: 1}, c: {<<: *x, d: 2}}", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
        ("[&x [1], *x]", [[1], [1]]),
    ],
)  # fmt: skip
def test_yaml_as_people_read_it(text: str, value: Any) -> None:
    assert parse_yaml(text, "x") == value
    assert type(parse_yaml(text, "x")) is type(value)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    "text", ["08", "-08", "0_8", "010", "1.5e3", ".5e3", "1e3", "1:30", "2024-01-01", "no", "0x1F"]
)
def test_a_text_that_looks_like_another_value_stays_a_text(text: str) -> None:
    assert parse_yaml(dump_yaml({text: [text]}), "x") == {text: [text]}


@given(values)
def test_what_is_written_is_read(value: Any) -> None:
    assert parse_yaml(dump_yaml(value), "x") == value
    assert parse_json(json.dumps({"v": value}), "x") == {"v": value}


@given(st.text(max_size=40) | st.text("&*:[]{}!|>-#'\"%@ \n0a<?", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_yaml, parse_json):
        with suppress(UserError):
            parse(text, "x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n"a": 2}', "x: this is damaged: the key 'a' stands twice"),
        ('[{"a": {"b": ["b", {"b": 1}]},\n"c": "a:",\n\n"a" : 2}]', "x: this is damaged: the key 'a' stands twice"),
        ('{"a": 1,\n}', "x:2: this is damaged: not JSON"),
        ("", "x:1: this is damaged: not JSON"),
        ("[" * 100_000, "x: this is damaged: it cannot be read as JSON"),
        ("1" * 5000, "x: this is damaged: it cannot be read as JSON"),
        ("null", "x: this is damaged: it should hold an object or a list"),
    ],
)
def test_mistakes_in_json_have_their_line(text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        parse_json(text, "x")
    assert str(error.value).startswith(message)


def test_json_of_another_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for content in ("[]", "1", "null", '"x"'):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(UserError, match=r"x\.json: the file is damaged: it should hold an object"):
            read_json(path)
    path.write_text('["a"]', encoding="utf-8")
    assert read_json(path, list) == ["a"]


@pytest.mark.parametrize("name", ["none", "a\0b", "n" * 300, ".", "file/below", "loop", "pipe", "/dev/zero", "large"])
def test_only_regular_files_of_some_size_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b" " * (LARGEST_YAML + 1))
    with pytest.raises(UserError) as error:
        read_yaml(tmp_path / name)
    assert str(error.value).startswith(f"{tmp_path / name}: ".replace("\0", "\\x00"))


def test_a_file_that_is_not_utf8_has_its_line(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(UserError, match="x:2: cannot read the file"):
        read_yaml(tmp_path / "x")


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_yaml(tmp_path / "x") == read_json(tmp_path / "x") == {"a": 1}
