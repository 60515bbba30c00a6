"""Lines of files: their number and their limits, and errors that name file and line."""

import bz2
import gzip
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.core.errors import UserError
from headway.formats import lines
from headway.formats.lines import (
    LONGEST_LINE,
    OBJECTS,
    TABS,
    blocks,
    check_file,
    check_texts,
    kept_pipes,
    read_lines,
    read_rows,
    row_kind,
    rows_kind,
)


def test_a_line_has_a_limit_that_is_told_early(tmp_path: Path) -> None:
    """A megabyte of compressed zeros would be a line of a gigabyte."""
    path = tmp_path / "zeros.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"short\n")
        for _ in range(40):
            file.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=rf"zeros\.gz:2: this line is longer than {LONGEST_LINE:,} bytes"):
            list(read_lines(path))
        assert tracemalloc.get_traced_memory()[1] < 5 * LONGEST_LINE
    finally:
        tracemalloc.stop()


def test_the_limit_is_that_of_the_line_without_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST_LINE", 3)
    path = tmp_path / "text"
    path.write_bytes(b"abc\r\nabc\nabc")
    assert list(read_lines(path)) == ["abc"] * 3
    path.write_bytes(b"abc\nabcd\n")
    with pytest.raises(UserError, match="text:2: this line is longer"):
        list(read_lines(path))


def test_a_line_that_is_not_utf8_does_not_end_the_reading(tmp_path: Path) -> None:
    path = tmp_path / "text.xz"
    path.write_bytes(lzma.compress(b"a\n\xffb\nc\n"))
    first, second, third = read_rows(path)
    assert (first, third) == ("a", "c")
    assert str(second) == f"{path}:2: invalid UTF-8: byte 0xff at byte 1 of the line"
    latin = tmp_path / "latin.txt"
    latin.write_bytes("un café\n".encode("latin-1"))
    with pytest.raises(UserError, match="seems to be Latin-1, which `iconv -f latin1 -t utf-8` converts"):
        list(read_lines(latin))
    with pytest.raises(UserError, match=r"text\.xz:2: invalid UTF-8"):
        list(read_lines(path))


@pytest.mark.parametrize(
    ("begins", "kind"), [(b"\xff\xfea\0", "UTF-16"), (b"\xfe\xff\0a", "UTF-16"), (b"PK\x03\x04\xff", "a zip archive")]
)
def test_what_a_file_seems_to_be_is_told(tmp_path: Path, begins: bytes, kind: str) -> None:
    (tmp_path / "text").write_bytes(begins)
    with pytest.raises(UserError, match=rf"text:1: invalid UTF-8: byte .* of the line; this seems to be {kind}$"):
        list(read_lines(tmp_path / "text"))


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_damage_in_the_middle_is_named_with_its_line(tmp_path: Path, suffix: str, pack: object) -> None:
    assert callable(pack)
    path = tmp_path / f"text{suffix}"
    whole = bytearray(pack("".join(f"{number} {number**5}\n" for number in range(20_000)).encode()))
    for index in range(len(whole) // 2, len(whole) // 2 + 40):
        whole[index] ^= 0x55
    path.write_bytes(whole)
    with pytest.raises(UserError, match=rf"text\{suffix}:\d+: (this compressed file is damaged|invalid UTF-8)"):
        list(read_lines(path))


def test_other_compression_is_named(tmp_path: Path) -> None:
    for suffix, compress in ((".bz2", bz2.compress), (".gz", gzip.compress), (".xz", lzma.compress)):
        (tmp_path / "text").write_bytes(compress(b"a text of some length\n" * 100))
        with pytest.raises(UserError, match=rf"invalid UTF-8: .*; this seems to be an? \{suffix} file"):
            list(read_lines(tmp_path / "text"))


def test_blocks_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows"
    path.write_text("a\nb\n\n\nc\nd\ne\n")
    assert [[row for _, row in block] for block in blocks(path)] == [["a", "b"], ["c", "d", "e"]]
    monkeypatch.setattr(lines, "LONGEST_BLOCK", 2)
    with pytest.raises(UserError, match=r"rows:5: there are more than 2 lines without a blank one"):
        list(blocks(path))


def test_names_that_no_file_can_have(tmp_path: Path) -> None:
    for name in ("x" * 300, "a\0b"):
        with pytest.raises(UserError, match=r"data\.train: there is no such file"):
            check_file(tmp_path / name, "data.train")


@pytest.mark.parametrize(("name", "packed"), [("pipe", bytes), ("pipe.gz", gzip.compress), ("pipe.xz", lzma.compress)])
def test_a_pipe_that_is_kept_can_be_read_again(
    tmp_path: Path, pipe: Callable[[str, bytes], Path], name: str, packed: Callable[[bytes], bytes]
) -> None:
    path = pipe(name, packed(b"a\nb\n"))
    with kept_pipes():
        with kept_pipes():
            assert list(read_lines(path)) == ["a", "b"]
        assert list(read_lines(path)) == ["a", "b"]
        file = tmp_path / "file"
        for text in ("one", "two"):  # a file is read as it is
            file.write_text(text)
            assert list(read_lines(file)) == [text]
        with pytest.raises(UserError, match=r"no such: cannot read this file \(No such file"):
            list(read_lines(tmp_path / "no such"))


def test_kinds_of_lines() -> None:
    objects = ['{"a": "b"}', ' {"a": 1}']
    assert [*map(row_kind, ["a\tb", *objects])] == [TABS, OBJECTS, OBJECTS]
    assert [*map(row_kind, ["a b", "", "{a}", "{", '"a"', '["a"]'])] == [None] * 6
    assert rows_kind(["a\tb", "", "# text = a b", "c\t"]) == TABS
    assert rows_kind(objects) == OBJECTS
    for others in ([], [""], ["a\tb", "c"], ["c", "a\tb"], ["a\tb", objects[0]], ["# a", "#b"]):
        assert rows_kind(others) is None


def test_rows_are_refused_where_no_text_of_training_was_like_them() -> None:
    with pytest.raises(UserError, match=r"^line 3: .* rows with tabs; received 'a\\tb'; allowed: `cut -f1 FILE`"):
        check_texts(["", "a\tb"], frozenset("ab"), "line 3")
    with pytest.raises(UserError, match=r"these are JSON objects; .*`jq -r \.FIELD FILE`"):
        check_texts(['{"a": "b"}'], frozenset(), "line 1")
    check_texts(["a\tb"], frozenset("\t"), "line 1")
    check_texts(['{"a": "b"}'], frozenset("{}"), "line 1")
    check_texts(["a\tb", "a b"], frozenset(), "line 1")
