"""Corpora of translation memories and of the messages of programs."""

from pathlib import Path

import pytest

from headway.core.errors import UserError
from headway.formats.pairs import open_source

TMX = """<?xml version="1.0"?>
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en-GB"><seg>one <bpt i="1">&lt;b></bpt>two<ept i="1">&lt;/b></ept> &amp; <hi>x</hi></seg></tuv>
<tuv lang="DE"><prop>no</prop><seg>eins zwei</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>alone</seg></tuv><tuv xml:lang="fr"><seg>seul</seg></tuv></tu>
<tu><tuv xml:lang="de"><seg>drei
vier</seg></tuv><tuv xml:lang="en"><seg>three</seg></tuv></tu>
</body></tmx>
"""
PO = r"""msgid ""
msgstr ""
"Plural-Forms: nplurals=2; plural=n != 1;\n"

#, fuzzy
msgid "no"
msgstr "vielleicht"

msgid "one "
"two"
msgstr "eins \"zwei\""

msgid "open"
msgstr ""

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"
"""


def test_a_memory_is_pairs(tmp_path: Path) -> None:
    path = tmp_path / "x.tmx"
    path.write_text(TMX, encoding="utf-8")
    source = open_source({"kind": "tmx", "file": str(path), "source": "en", "target": "de"}, "data.train", "skip")
    pairs = [(pair.line, pair.source, pair.target) for pair in source]
    assert pairs == [(3, "one two & x", "eins zwei"), (6, "three", "drei vier")]
    report = source.row_errors.report()
    assert (report.broken, report.line_ends) == (1, 1)
    assert "line 5: this unit lacks a language" in report.errors[0]
    with pytest.raises(UserError, match=r"x\.tmx:5: this unit lacks a language; received 'de'"):
        list(open_source({"kind": "tmx", "file": str(path), "source": "en", "target": "de"}, "data.train"))
    path.write_text(TMX[:-20], encoding="utf-8")
    with pytest.raises(UserError, match=r"x\.tmx:7: this is not XML"):
        list(open_source({"kind": "tmx", "file": str(path), "source": "en", "target": "fr"}, "data.train", "skip"))


VARIANTS = """<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en-GB"><seg>bus</seg></tuv><tuv xml:lang="pt-PT"><seg>autocarro</seg></tuv>
<tuv xml:lang="pt_br"><seg>ônibus</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>train</seg></tuv><tuv xml:lang="pt-PT"><seg>comboio</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>word</seg></tuv><tuv xml:lang="zh-CN"><seg>词</seg></tuv>
<tuv xml:lang="zh-TW"><seg>詞</seg></tuv><tuv xml:lang="pt-BR"><seg/></tuv>
<tuv xml:lang="pt"><seg>palavra</seg></tuv></tu>
</body></tmx>
"""


@pytest.mark.parametrize(
    ("wanted", "targets"),
    [
        ("pt-BR", ["ônibus", "palavra"]),
        ("pt-PT", ["autocarro", "comboio", "palavra"]),
        ("pt", ["autocarro", "comboio", "palavra"]),
        ("zh-TW", ["詞"]),
        ("zh-Hant", ["詞"]),
        ("zh", ["词"]),
    ],
)
def test_a_memory_gives_the_variant_that_is_asked_for(wanted: str, targets: list[str], tmp_path: Path) -> None:
    (tmp_path / "x.tmx").write_text(VARIANTS, encoding="utf-8")
    memory = {"kind": "tmx", "file": str(tmp_path / "x.tmx"), "source": "en", "target": wanted}
    source = open_source(memory, "data.train", "skip")
    assert [pair.target for pair in source] == targets
    assert source.row_errors.count == 3 - len(targets)


def test_messages_are_pairs(tmp_path: Path) -> None:
    path = tmp_path / "x.po"
    path.write_text(PO, encoding="utf-8")
    source = open_source({"kind": "po", "file": str(path)}, "data.train")
    expected = [(9, "one two", 'eins "zwei"'), (16, "%d file", "%d Datei"), (16, "%d files", "%d Dateien")]
    assert [(pair.line, pair.source, pair.target) for pair in source] == expected
    path.write_text(PO + "msgid broken\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"x\.po:20: this is no line of a PO file"):
        list(source)
