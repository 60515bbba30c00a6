"""PO, XLIFF and TMX as gettext and the schemas have them, encodings of the web, and placeholders of every format."""

import codecs
import re
from collections.abc import Sequence

import pytest

from headway.core.errors import UserError
from headway.markup.accelerators import find, put_back
from headway.markup.documents import Languages, translate_document
from headway.markup.encodings import web_codec
from headway.markup.gettext import messages
from headway.markup.inline import UNIT, Aligned
from headway.markup.placeholders import FORMATS, PLACEHOLDERS, flagged, same_arguments, same_placeholders

ENGLISH_GERMAN = Languages("en", "de")


def linked(text: str, sentence: str) -> Aligned:
    return Aligned(text, [(match.span(), match.span()) for match in UNIT.finditer(sentence)])


def same(sentences: Sequence[str]) -> list[Aligned]:
    return [linked(sentence, sentence) for sentence in sentences]


def upper(sentences: Sequence[str]) -> list[Aligned]:
    return [linked(sentence.upper(), sentence) for sentence in sentences]


def refused(sentences: Sequence[str]) -> list[Aligned]:
    raise AssertionError(f"nothing is to be translated: {sentences}")


def po(text: str, translate: object = upper, **options: bool) -> str:
    return translate_document(text.encode(), "a.po", translate, ENGLISH_GERMAN, **options).decode()  # type: ignore[arg-type]


XLIFF = (
    '<xliff version="1.2"><file source-language="en" target-language="de" original="a"><body>{}</body></file></xliff>'
)
XLIFF_2 = '<xliff version="2.0" srcLang="en"{}><file id="f">{}</file></xliff>'


def xliff(text: str, translate: object = upper, **options: bool) -> str:
    return translate_document(text.encode(), "a.xlf", translate, ENGLISH_GERMAN, **options).decode()  # type: ignore[arg-type]


def test_escapes_of_po_are_those_of_c() -> None:
    string = r"\a\b\f\v\t\r \"\\ \033[1mab\x1b[0m c\n"
    (message,) = messages([f'msgid "{string}"', 'msgstr ""'])
    assert message.fields["msgid"].text == '\a\b\f\v\t\r "\\ \033[1mab\x1b[0m c\n'
    empty = f'msgid "{string}"\nmsgstr ""\n'
    assert po(empty, same) == empty.replace('msgstr ""', f'msgstr "{string}"')
    assert po(empty).endswith(r'\033[1mAB\x1b[0m C\n"' + "\n")
    (message,) = messages([r'msgid "K\303\244se\344 \s"', 'msgstr ""'])
    assert message.fields["msgid"].text == "Käseä \\s"


@pytest.mark.parametrize("separator", "\u2028\x85\x0b\x0c\x1c")
def test_only_line_feeds_and_carriage_returns_end_a_line(separator: str) -> None:
    text = f'msgid "one{separator}two"\nmsgstr "kept"\n\nmsgid "three"\nmsgstr ""\n'
    assert po(text) == text.replace('msgstr ""', 'msgstr "THREE"')
    subtitle = f"1\n00:01,0 --> 00:02,0\none{separator} two\n".encode()
    assert translate_document(subtitle, "a.srt", same) == subtitle


def test_what_is_not_final_is_fuzzy() -> None:
    text = '#, fuzzy, c-format\n#, range: 0..10\n#| msgid "b"\nmsgid "a"\nmsgstr "b"\n\n#. note\nmsgid "c"\nmsgstr ""\n'
    filled = text.replace('msgstr "b"', 'msgstr "A"').replace('msgstr ""', 'msgstr "C"')
    assert po(text, final=False) == filled.replace('msgid "c"', '#, fuzzy\nmsgid "c"')
    assert po(text) == filled.replace("fuzzy, ", "")
    previous = '#| msgid "b"\nmsgid "a"\nmsgstr ""\n'
    assert po(previous, final=False) == '#, fuzzy\n#| msgid "b"\nmsgid "a"\nmsgstr "A"\n'


@pytest.mark.parametrize(
    ("flag", "source", "target"),
    [
        ("c-format", "%s of %d", "%d of %s"), ("c-format", "%d percent", "%d % of it"),
        ("qt-format", "%1 of %n", "%1 of 1"),
        ("python-format", "%(a)s of %(b)s", "%(a)s of %(a)s"), ("lisp-format", "~a of ~d", "~a of d"),
    ],
)  # fmt: skip
def test_a_message_with_other_arguments_stays_open(
    flag: str, source: str, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its flag says what an argument is. A fuzzy message stays fuzzy."""
    assert not same_arguments([flag], source, target)
    text = f'#, {flag}\nmsgid "{source}"\nmsgstr ""\n'
    assert f'"{target}"' not in po(text, lambda some: [Aligned(target) for _ in some])
    swapped = '#, c-format\nmsgid "%s of %d"\nmsgstr ""\n\n#, fuzzy, c-format\nmsgid "%s of %d"\nmsgstr "c"\n'
    assert po(swapped, lambda some: [Aligned("%d of %s") for _ in some]) == swapped
    assert "2 of 2 messages stay as they are: their translations have other arguments" in caplog.messages


def test_names_in_angle_brackets_are_arguments_or_tags() -> None:
    text = 'msgid "%<total>d of %<PRIu64> is 5%<b>more</b>"\nmsgstr ""\n'
    assert po(text).endswith('"%<total>d OF %<PRIu64> IS 5%<b>MORE</b>"\n')


def test_what_cannot_be_translated_stays_open() -> None:
    """Sentences without a translation are not written as if they were one."""
    catalogue, unit = (
        'msgid "one {x}. Two."\nmsgstr ""\n',
        XLIFF.format("<trans-unit><source>one</source></trans-unit>"),
    )
    for translation in ("", "{y} {z}"):
        assert po(catalogue, lambda some, text=translation: [Aligned(text) for _ in some]) == catalogue
    assert xliff(unit, lambda some: [Aligned("") for _ in some]) == unit


def test_numbered_and_named_arguments_may_change_places() -> None:
    for flag, source, target in (
        ("c-format", "%1$s %2$d", "%2$d %1$s"), ("qt-format", "%1 %2", "%2 %1"), ("kde-format", "%1 %2", "%2 %1"),
        ("ruby-format", "%{a} %<b>d", "%<b>d %{a}"), ("python-brace-format", "{a} {b}", "{b} {a}"),
        ("boost-format", "%1% %2%", "%2% %1%"), ("c-format", "100 %% of %s", "%s of 100 %%"),
    ):  # fmt: skip
        assert same_arguments([flag], source, target), source


def test_placeholders_of_every_format() -> None:
    shown = {
        "%1 of %L2, %n": ["%1", "%L2", "%n"], "%{name} and %<total>d": ["%{name}", "%<total>d"],
        "%1% and %|2$s|": ["%1%", "%|2$s|"], "$HOME and ${X}, US$5": ["$HOME", "${X}"],
        "%*d %.*f %<PRIu64> %1$s": ["%*d", "%.*f", "%<PRIu64>", "%1$s"], "[X0X] or [X12X]": ["[X0X]", "[X12X]"],
        "100%ige 5 % of 20%d": ["%d"], "\x1b[1mred\x1b[0m\a": ["\x1b[1m", "\x1b[0m", "\a"],
    }  # fmt: skip
    for text, placeholders in shown.items():
        assert PLACEHOLDERS.findall(text) == placeholders
        assert same_placeholders(text, text)
        assert not same_placeholders(text, "")
    assert flagged(["no-c-format"]).findall("20 %d of {x}") == ["{x}"]
    assert flagged(["c-format"]).findall("20 % d of {x}") == ["% d", "{x}"]
    assert flagged(["no-wrap", "range: 0..10"]) is PLACEHOLDERS
    assert {"c-format", "python-format", "kde-kuit-format", "object-pascal-format"} <= FORMATS.keys()


@pytest.mark.parametrize(
    ("source", "bare", "target", "language", "expected"),
    [
        ("&File", "File", "Datei öffnen", "de", "Datei ö&ffnen"), ("_Open", "Open", "ORT ÖFFNEN", "de", "_ORT ÖFFNEN"),
        ("Save &As…", "Save As…", "SAVE AS…", "de", "SAVE &AS…"), ("E_xit", "Exit", "EXIT", "de", "E_XIT"),
        ("_Open %s", "Open %s", "%s öffnen", "de", "%s _öffnen"), ("_File", "File", "Файл", "ru", "_Файл"),
        ("&Open...", "Open...", "打开...", "zh", "打开(&O)..."), ("文件(&F)", "文件", "File", "en", "&File"),
        ("_go to go", "go to go", "to go go", "de", "to _go go"),
    ],
)  # fmt: skip
def test_an_accelerator_is_put_back(source: str, bare: str, target: str, language: str, expected: str) -> None:
    begin, end, accelerator = find(source) or (0, 0, None)
    assert accelerator is not None
    assert source[:begin] + source[end:] == bare
    assert put_back(accelerator, target, language) == expected


def test_other_signs_are_no_accelerators() -> None:
    for text in ("AT&T", "R&D", "first_name", "a &amp; b", "__init__", "a & b", "{user_name}", "&all && none"):
        assert find(text) is None
    assert find("~Open", "~") is not None
    catalogue = (
        'msgid ""\nmsgstr "X-Accelerator-Marker: ~\\n"\n\nmsgid "Op~en"\nmsgstr ""\n\nmsgid "&Undo"\nmsgstr ""\n'
    )
    assert po(catalogue).endswith('msgstr "OP~EN"\n\nmsgid "&Undo"\nmsgstr "&UNDO"\n')


def test_encodings_have_the_names_of_the_web() -> None:
    codecs_of = {
        "ISO-8859-1": "cp1252", "us-ascii": "cp1252", "gb2312": "gb18030", "x-gbk": "gb18030", "Shift_JIS": "cp932",
        "windows-31j": "cp932", "ks_c_5601-1987": "cp949", "iso-8859-9": "cp1254", "windows-874": "cp874",
        "iso-8859-8-i": "iso8859-8", "utf-8": "utf-8", "koi8-r": "koi8-r",
    }  # fmt: skip
    assert {label: web_codec(label) for label in codecs_of} == codecs_of
    for content in (
        b'<meta charset="iso-8859-1">\x93a\x94 \x81', b'<?xml version="1.0" encoding="latin1"?>\x93a\x94 \x81',
        b'<!-- <meta charset="utf-8"> --><META content="text/html; charset=windows-1252">\x93a\x94 \x81',
    ):  # fmt: skip
        assert translate_document(content, "a.xhtml", upper) == content.replace(b"\x93a", b"\x93A")
    described = '<meta name="description" content="charset=koi8-r"><meta name=a charset=utf-8>é'
    assert translate_document(described.encode(), "a.html", upper).decode().endswith("É")
    chinese = '<meta charset="gb2312">a 镕 '.encode("gb18030")
    assert translate_document(chinese, "a.html", upper) == chinese.replace(b">a", b">A")
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=ISO-8859-1\\nX: y\\n"\n\nmsgid "ä"\nmsgstr ""\n'
    assert translate_document(header.encode("latin-1"), "a.po", upper).endswith(b'msgstr "\xc4"\n')
    with pytest.raises(UserError, match=r"^a.html:1: this encoding is not known; received 'undefined'"):
        translate_document(b"<meta charset=undefined>", "a.html", upper)


def test_a_document_that_declares_no_encoding_has_the_one_that_is_given() -> None:
    subtitle = "1\n00:01,0 --> 00:02,0\ncafé …\n"
    marked = codecs.BOM_UTF32_LE + subtitle.encode("utf-32-le")
    assert translate_document(marked, "a.srt", upper).decode("utf-32") == subtitle.replace("café", "CAFÉ")
    for encoding in ("windows-1252", "utf-16-le"):
        content = subtitle.encode(codecs.lookup(encoding).name)
        written = translate_document(content, "a.srt", upper, encoding=encoding)
        assert written.decode(encoding) == subtitle.replace("café", "CAFÉ")
    declared = '<meta charset="utf-8">café'.encode()
    assert translate_document(declared, "a.html", same, encoding="cp1252") == declared


def test_labels_of_qt_in_xliff_keep_their_accelerators() -> None:
    units = "".join(
        f"<trans-unit><source>{label}</source></trans-unit>" for label in ("E&amp;xit", "&amp;File", "R &amp; B")
    )
    text = f'<xliff xmlns:trolltech="urn:trolltech:names:ts:document:1.0"><file><body>{units}</body></file></xliff>'

    def german(sentences: Sequence[str]) -> list[Aligned]:
        return [Aligned({"Exit": "Beenden", "File": "Datei", "R & B": "R & B!"}[one]) for one in sentences]

    written = translate_document(text.encode(), "a.xlf", german, Languages("en", "de")).decode()
    assert re.findall("<target>(.*?)</target>", written) == ["&amp;Beenden", "&amp;Datei", "R &amp; B!"]


def test_a_target_stands_where_the_schemas_ask_for_it() -> None:
    marked = '<mrk mtype="seg" mid="1">One.</mrk> <g id="1"><mrk mtype="seg" mid="2">Two.</mrk></g>'
    seen = f"<source>One. Two.</source><seg-source>{marked}</seg-source>"
    target = marked.replace("One", "ONE").replace("Two", "TWO") + "</target>"
    for there, begun in (("", "<target>"), ('<target state="new"/>', '<target state="translated">')):
        unit = f'<trans-unit id="1">{seen}{there}<note>kept</note></trans-unit>'
        expected = f'<trans-unit id="1">{seen}{begun}{target}<note>kept</note></trans-unit>'
        assert xliff(XLIFF.format(unit)) == XLIFF.format(expected)
    segment = "<unit id='u'><segment><source>one</source>{}</segment></unit>"
    assert xliff(XLIFF_2.format("", segment.format(""))) == XLIFF_2.format(
        ' trgLang="de"', segment.format("<target>ONE</target>")
    )
    done = XLIFF_2.format("", segment.format("<target>eins</target>"))
    assert xliff(done, refused) == done


def test_what_is_not_final_needs_a_review() -> None:
    unit = '<trans-unit id="1"><source>one</source>{}</trans-unit>'
    state = '<target state="needs-review-translation">ONE</target>'
    for there in ("", "<target/>", '<target state="new" state-qualifier="exact-match">one</target>'):
        assert xliff(XLIFF.format(unit.format(there)), final=False) == XLIFF.format(unit.format(state))
    segment = '<unit id="u"><segment{}><source>one</source>{}</segment></unit>'
    review = ' state="translated" subState="headway:needs-review-translation"'
    for there, final, states in (
        ("", False, review), ("", True, ""), (' state="initial" subState="a:b"', True, ' state="translated"')
    ):  # fmt: skip
        text, expected = segment.format(there, ""), segment.format(states, "<target>ONE</target>")
        assert xliff(XLIFF_2.format("", text), final=final) == XLIFF_2.format(' trgLang="de"', expected)


@pytest.mark.parametrize(
    "target",
    [
        "<target>eins</target>", '<target state="new">eins</target>', "<target>one</target>",
        '<target state="needs-review-translation">eins</target>', '<target state="needs-adaptation">eins</target>',
    ],
)  # fmt: skip
def test_the_text_of_a_person_is_never_overwritten(target: str) -> None:
    text = XLIFF.format(f'<trans-unit id="1"><source>one</source>{target}</trans-unit>')
    assert xliff(text, refused, final=False) == text
    segment = '<unit id="u"><segment state="initial"><source>one</source><target>eins</target></segment></unit>'
    assert xliff(XLIFF_2.format("", segment), refused) == XLIFF_2.format("", segment)


@pytest.mark.parametrize(
    "source",
    [
        'a <mrk mtype="protected">Green <g id="1">Door</g></mrk> b', 'a <mrk mtype="term">b</mrk>',
        'a <mrk id="1" translate="no">Do <mrk id="2" translate="yes">b</mrk></mrk>',
        'a <sm id="1" translate="no"/>Green Door<em startRef="1"/> b',
    ],
)  # fmt: skip
def test_protected_text_stays(source: str) -> None:
    expected = re.sub(r"\b[ab]\b", lambda match: match[0].upper(), source)
    unit = f'<trans-unit id="1"><source>{source}</source></trans-unit>'
    filled = unit.replace("</trans-unit>", f"<target>{expected}</target></trans-unit>")
    assert xliff(XLIFF.format(unit)) == XLIFF.format(filled)


def test_an_inner_element_says_whether_it_is_translated() -> None:
    first = '<trans-unit id="1"><source>one</source></trans-unit>'
    second = '<trans-unit id="2" translate="yes"><source>two</source>{}</trans-unit>'
    group = f'<group translate="no">{first}{second}</group>'
    assert xliff(XLIFF.format(group.format(""))) == XLIFF.format(group.format("<target>TWO</target>"))
