"""XML files: whatever is wrong with one is an error with its line."""

import gzip
import lzma
from pathlib import Path

import pytest

from headway.core.errors import UserError
from headway.formats.alignments import read_alignments, read_treebanks
from headway.formats.lines import LONGEST_LINE
from headway.formats.tiger import read_tiger
from headway.formats.treebanks import read_trees
from headway.formats.xml_files import Tag, read_tags


def elements(path: Path) -> list[Tag]:
    return list(read_tags(path))


def test_tags_come_in_their_order(tmp_path: Path) -> None:
    text = '<?xml version="1.0" encoding="latin-1"?>\n<a x="é">\n<b/></a>'.encode("latin-1")
    for name, content in (("a.xml", text), ("a.xml.gz", gzip.compress(text)), ("a.xml.xz", lzma.compress(text))):
        (tmp_path / name).write_bytes(content)
        assert [tag[:3] for tag in elements(tmp_path / name)] == [
            ("a", {"x": "é"}, 2), ("b", {}, 3), ("b", None, 3), ("a", None, 3),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("encoding", "begun"),
    [
        ("iso-8859-1", '<?xml version="1.0" encoding="iso-8859-1"?>'),
        ("utf-16", '<?xml version="1.0" encoding="utf-16"?>'),
        ("utf-8-sig", '<?xml version="1.0" encoding="utf-8"?>'),
        ("utf-16", "\n"),
        ("utf-8-sig", "\n"),
    ],
)
def test_a_treebank_of_one_line_in_any_encoding(tmp_path: Path, encoding: str, begun: str) -> None:
    terminals = '<terminals><t id="s1_1" word="Müß" pos="NN"/></terminals>'
    edges = '<nonterminals><nt id="s1_500" cat="NP"><edge idref="s1_1" label="--"/></nt></nonterminals>'
    bank = f'<corpus><body><s id="s1"><graph root="s1_500">{terminals}{edges}</graph></s></body></corpus>'
    (tmp_path / "a.xml").write_bytes(f"{begun}{bank}".encode(encoding))
    (tree,) = [row.tree for row in read_trees(tmp_path / "a.xml")]
    assert tree is not None
    assert tree.words() == ["Müß"]
    link = '<align type="good"><node treebank_id="a" node_id="s1_1"/><node treebank_id="b" node_id="s1_1"/></align>'
    banks = '<treebank id="a" filename="a.xml"/><treebank id="b" filename="a.xml"/>'
    aligned = f"<treealign><!-- Müß --><head>{banks}</head>{link}</treealign>"
    (tmp_path / "a_b.xml").write_bytes(f"{begun}{aligned}".encode(encoding))
    assert read_alignments(tmp_path / "a_b.xml") == ["0-0"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'<?xml version="1.0" encoding="shift_jis"?><a/>', r"a\.xml:1: this encoding of XML cannot be read"),
        (b'<?xml version="1.0" encoding="nosuch"?><a/>', r"a\.xml:1: this encoding .*unknown encoding.*allowed: UTF-8"),
        (b'<?xml version="1.0" encoding="utf-7"?><a/>', r"a\.xml:1: this encoding"),
        (b'<?xml version="1.0" encoding="punycode"?><a/>', r"a\.xml:1: this encoding"),
        (b"<a>\n<b>\n</a>", r"a\.xml:3: this is not XML \(mismatched tag\)"),
        (b"<a>\n\xff</a>", r"a\.xml:2: this is not XML"),
        (b"", r"a\.xml:1: this is not XML \(no element found\)"),
        (b'<a>\n<b c="' + bytes([120]) * (LONGEST_LINE + (1 << 17)), r"a\.xml:2: something here is longer than 4,194"),
    ],
)
def test_mistakes_have_file_and_line(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "a.xml"
    path.write_bytes(text)
    for read in (elements, lambda path: list(read_tiger(path)), read_treebanks):
        with pytest.raises(UserError, match=message):
            read(path)


def test_entities_do_not_grow(tmp_path: Path) -> None:
    levels = "".join(f'<!ENTITY a{level} "{f"&a{level - 1};" * 10}">' for level in range(1, 10))
    (tmp_path / "a.xml").write_text(f'<!DOCTYPE a [<!ENTITY a0 "{"x" * 100}">{levels}]><a b="&a9;"/>')
    with pytest.raises(UserError, match="this is not XML"):
        elements(tmp_path / "a.xml")


def test_compression_damaged_in_its_middle(tmp_path: Path) -> None:
    rows = "".join(f"<s id='{number}'>{number**5}</s>\n" for number in range(6_000))
    for suffix, pack in (("gz", gzip.compress), ("xz", lzma.compress)):
        path, whole = tmp_path / f"a.xml.{suffix}", bytearray(pack(f"<a>{rows}</a>".encode()))
        for index in range(len(whole) // 2, len(whole) // 2 + 40):
            whole[index] ^= 0x55
        path.write_bytes(whole)
        with pytest.raises(UserError, match=rf"a\.xml\.{suffix}:[0-9]+: this (compressed file is damaged|is not XML)"):
            elements(path)
        path.write_bytes(pack(f"<a>{rows}</a>".encode())[:-30])
        with pytest.raises(UserError, match=rf"a\.xml\.{suffix}:[0-9]+: this compressed file is damaged or cut off"):
            elements(path)
