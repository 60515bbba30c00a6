"""Documents of every kind: the text is translated, all else stays, byte for byte."""

import io
import re
import sys
from collections.abc import Callable, Sequence
from types import FrameType

import pytest

from headway.core.errors import UserError
from headway.core.processes import WAITED_FOR, AbandonedError
from headway.markup.documents import KINDS, Languages, kind_of, translate_document
from headway.markup.inline import Aligned
from tools.campaigns.documents import SIGN, sign

ENGLISH_GERMAN = Languages("en", "de")


def upper(sentences: Sequence[str]) -> list[Aligned]:
    return [Aligned(sentence.upper()) for sentence in sentences]


def identity(sentences: Sequence[str]) -> list[Aligned]:
    return [Aligned(sentence) for sentence in sentences]


def refused(sentences: Sequence[str]) -> list[Aligned]:
    raise AssertionError(f"nothing is to be translated: {sentences}")


def translated(content: str | bytes, kind: str, translate: Callable[[Sequence[str]], list[Aligned]] = upper) -> str:
    raw = content.encode() if isinstance(content, str) else content
    return translate_document(raw, f"file.{kind}", translate, ENGLISH_GERMAN, kind).decode()


HTML = """<!DOCTYPE html>
<html><head><title>my page</title><style>p > b { x: y }</style><script>var x = '<b>hi</b>';</script></head>
<body class=x data-a='1'><!-- a note --><p>one <b>two <i>three</i></b>, see <a href='http://x.y/z?a=1&amp;b=2'>this</a>
   &amp; four {name}.<br>five&nbsp;six <code>foo()</code>.<img src="a.png" alt="kept">
<p translate="no">kept</p><span class="notranslate">kept too</span> seven
<p>an <b>unclosed tag<ul><li>eight</b> %s nine</ul><pre>kept  code</pre></body></html>
"""
MARKDOWN = """---
title: kept
---
# One *two* #

> Three **four** and `code` with
> [five six](http://x.y "kept") seven.

| one | two \\| three |
|-----|:---:|
| `a` | **four** |

1. five\x20\x20
   six
- [ref] and ![kept](a.png) see http://x.y/z

```
kept code
```

    kept code

<div>seven <b>eight</b></div>

[ref]: http://kept "kept"
"""
PO = r"""# a translator
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=n != 1;\n"

#. a note
#: a.c:1
#, fuzzy, c-format
#| msgid "old"
msgid "hello %s, <b>you</b>"
msgstr "alt"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

msgctxt "menu"
msgid "open"
msgstr "kept"

msgid ""
"one \"two\"\n"
"three\n"
msgstr ""

#~ msgid "obsolete"
#~ msgstr ""
"""
XLIFF = """<?xml version='1.0' encoding="utf-8"?>
<!-- kept -->
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language='en'><body>
  <trans-unit id="1">
    <source>one <g id="1">two <x id="2"/>three</g> &amp; four</source>
    <note>kept</note>
  </trans-unit>
  <trans-unit id="2"><source>kept</source><target state="final">Fertig</target></trans-unit>
  <trans-unit id="3"><source>five</source><target state="new" /></trans-unit>
  <trans-unit id="4" translate="no"><source>left</source></trans-unit>
  <trans-unit id="5"><source>six</source><target state="needs-translation">alt</target></trans-unit>
</body></file></xliff>
"""
XLIFF_2 = """<xliff version="2.0" srcLang="en" trgLang="de" xmlns="urn:oasis:names:tc:xliff:document:2.0"><file id="f">
 <unit id="1"><segment state="initial"><source>one <pc id="1">two</pc><ph id="2"/></source></segment>
 <segment state="final"><source>kept</source><target>Fertig</target></segment></unit></file></xliff>
"""
TMX = """<?xml version="1.0"?>
<tmx version="1.4"><header srclang="en"/><body>
  <tu tuid="1">
    <tuv xml:lang="en-US"><seg>one <bpt i="1">&lt;b&gt;</bpt>two<ept i="1">&lt;/b&gt;</ept></seg></tuv>
  </tu>
  <tu><tuv xml:lang="en"><seg>kept</seg></tuv><tuv xml:lang="DE"><seg>da</seg></tuv></tu>
</body></tmx>
"""
SRT = """1
00:00:01,000 --> 00:00:02,000
one <i>two</i>
three

2
00:00:03,000 --> 00:00:04,000 X1:1
{\\an8}four five.

3
00:00:05,000 --> 00:00:06,000
six
"""
VTT = """WEBVTT - a title

NOTE kept

00:01.000 --> 00:02.000 line:0
<v Ann>one &amp; two</v> <00:01.500>three
"""
DOCUMENTS = {
    "html": HTML, "markdown": MARKDOWN, "po": PO, "xliff": XLIFF, "tmx": TMX, "srt": SRT, "vtt": VTT,
    "text": "one two. three {x}!\n\n  four\tfive  \n",
}  # fmt: skip
# The parts of each that are translated, as a pattern of what changes from small to capital letters.
EXPECTED = {
    "html": ["MY PAGE", "ONE <b>TWO <i>THREE</i></b>, SEE <a href='http://x.y/z?a=1&amp;b=2'>THIS</a>\n",
             "   &amp; FOUR {name}.<br>FIVE&nbsp;SIX <code>foo()</code>.",
             "SEVEN", "AN <b>UNCLOSED TAG<ul><li>EIGHT</b> %s NINE"],
    "markdown": ["# ONE *TWO* #", "> THREE **FOUR** AND `code` WITH\n> [FIVE SIX](http://x.y \"kept\") SEVEN.",
                 "| ONE | TWO \\| THREE |", "| `a` | **FOUR** |", "FIVE  \n   SIX",
                 "- [REF][ref] AND ![kept](a.png) SEE http://x.y/z",
                 "<div>SEVEN <b>EIGHT</b></div>"],
    "po": ['#, c-format\n#| msgid "old"\nmsgid "hello %s, <b>you</b>"\nmsgstr "HELLO %s, <b>YOU</b>"',
           'msgstr[0] "%d FILE"\nmsgstr[1] "%d FILES"', 'msgstr ""\n"ONE \\"TWO\\"\\n"\n"THREE\\n"'],
    "xliff": ['four</source>\n    <target>ONE <g id="1">TWO <x id="2"/>THREE</g> &amp; FOUR</target>\n    <note>',
              '<target state="translated">FIVE</target>', '<target state="translated">SIX</target>'],
    "tmx": ['"de"><seg>ONE <bpt i="1">&lt;b&gt;</bpt>TWO<ept i="1">&lt;/b&gt;</ept></seg></tuv>\n  </tu>'],
    "srt": ["ONE <i>TWO</i>\nTHREE\n\n2", "X1:1\n{\\an8}FOUR FIVE.\n", "SIX\n"],
    "vtt": ["<v Ann>ONE &amp; TWO</v> <00:01.500>THREE\n"],
    "text": ["ONE TWO. THREE {x}!\n\n  FOUR\tFIVE  \n"],
}  # fmt: skip


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_text_alone_changes(kind: str) -> None:
    """Where the expected parts stand as they were before, the document is the one before."""
    text = DOCUMENTS[kind]
    result = translated(text, kind)
    for part in EXPECTED[kind]:
        assert part in result
    if kind in ("html", "markdown", "srt", "vtt", "text"):
        assert result.replace("[REF][ref]", "[REF]").lower() == text.lower()
    else:
        gone = {"po": 4, "xliff": 2, "tmx": 0}[kind]  # the lines of a flag and of empty or older translations
        assert len(set(text.splitlines()) - set(result.splitlines())) == gone


@pytest.mark.parametrize("kind", ["html", "markdown", "srt", "vtt", "text"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_identity_changes_nothing(kind: str, end: str, mark: str) -> None:
    text = mark + DOCUMENTS[kind].replace("\n", end)
    assert translated(text, kind, identity) == text


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_line_ends_and_mark_stay(kind: str) -> None:
    result = translated("\ufeff" + DOCUMENTS[kind].replace("\n", "\r\n"), kind)
    assert result == "\ufeff" + translated(DOCUMENTS[kind], kind).replace("\n", "\r\n")


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_what_is_translated_is_not_translated_again(kind: str) -> None:
    if kind in ("po", "xliff", "tmx"):
        once = translated(DOCUMENTS[kind], kind)
        assert translated(once, kind, refused) == once


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("text", "\n 12 {x} \n"), ("html", "<p> &amp; <b></b>12</p><script>a b</script>"),
        ("markdown", "---\n\n```\ncode\n```\n"), ("po", 'msgid ""\nmsgstr "X: y\\n"\n'), ("srt", ""), ("html", ""),
        ("xliff", "<xliff><file><body/></file></xliff>"), ("tmx", "<tmx><body/></tmx>"),
        ("vtt", "WEBVTT\n"),
    ],
)  # fmt: skip
def test_no_text(kind: str, text: str) -> None:
    assert translated(text, kind, refused) == text


def test_sentences_that_stay_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    translated(HTML, "html")
    assert not caplog.messages
    translated("<p>one. two.</p><p>7</p>", "html", lambda texts: [Aligned("") for _ in texts])
    assert [message.partition(":")[0] for message in caplog.messages] == ["2 of 2 sentences stay as they are"]


@pytest.mark.parametrize(
    ("kind", "text", "line", "what"),
    [
        ("po", 'msgid "a"\nmsgstr "b\n', 2, "no line of a PO file"), ("po", '\nmsgid "a"\n\n', 2, "not complete"),
        ("po", 'msgid "a"\nmsgid "b"\nmsgstr ""', 2, "second msgid"),
        ("po", 'msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural=n!;\\n"', 1, "plural cannot be read"),
        ("po", 'msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural=n/(n-1);\\n"', 1, "plural cannot be read"),
        ("xliff", "<xliff>\n<file></xliff>", 2, "mismatched tag"), ("tmx", "<a/>", 1, "no TMX"),
        ("xliff", "<a/>", 1, "no XLIFF"), ("tmx", "", 1, "not XML"),
        ("xliff", '<!DOCTYPE x [\n<!ENTITY a "b">]>\n<xliff>&a;</xliff>', 2, "entities"),
        ("xliff", '<!DOCTYPE x [\n<!ENTITY a SYSTEM "file:///etc/passwd">]>\n<xliff>&a;</xliff>', 2, "entities"),
        ("srt", "1\n00:01 -> 00:02\nx\n", 1, "no subtitles"), ("srt", "1\n00:00:01 --> soon\nx\n", 2, "no times"),
        ("text", b"one\ntwo \xff\n", 2, "not utf-8"), ("html", b'<meta charset="klingon">', 1, "not known"),
    ],
)  # fmt: skip
def test_broken_documents(kind: str, text: str | bytes, line: int, what: str) -> None:
    with pytest.raises(UserError, match=rf"^file\.{kind}:{line}: .*{what}"):
        translated(text, kind, refused)


def test_encodings() -> None:
    latin = '<meta charset="latin-1"><p>caf\xe9</p>'.encode("latin-1")
    assert translate_document(latin, "x.html", upper) == '<meta charset="latin-1"><p>CAF\xc9</p>'.encode("latin-1")
    russian = translate_document(latin, "x.html", lambda texts: [Aligned("да")])
    assert russian == b'<meta charset="latin-1"><p>&#1076;&#1072;</p>'
    utf16 = "\ufeffone\n".encode("utf-16-le")
    assert translate_document(utf16, "x.txt", upper) == "\ufeffONE\n".encode("utf-16-le")
    po = PO.replace("UTF-8", "ISO-8859-1").encode()
    with pytest.raises(UserError, match="the encoding of this document"):
        translate_document(po, "x.po", lambda texts: [Aligned("да") for _ in texts])


def test_xliff_2_and_prefixes() -> None:
    result = translated(XLIFF_2, "xliff")
    assert '<segment state="translated"><source>one <pc id="1">two</pc><ph id="2"/></source>' in result
    assert '<target>ONE <pc id="1">TWO</pc><ph id="2"/></target></segment>' in result
    named = '<x:xliff xmlns:x="y"><x:trans-unit><x:source>one</x:source></x:trans-unit></x:xliff>'
    assert "</x:source><x:target>ONE</x:target></x:trans-unit>" in translated(named, "xliff")


def test_plural_forms() -> None:
    header = 'msgid ""\nmsgstr "Plural-Forms: nplurals={}; plural={};\\n"\n\n'
    message = 'msgid "one"\nmsgid_plural "many"\nmsgstr[0] ""\n'
    assert 'msgstr[0] "MANY"' in translated(header.format(1, 0) + message.replace('"one"', '"many"'), "po")
    swapped = translated(header.format(2, "n == 1") + message + 'msgstr[1] ""\n', "po")
    assert 'msgstr[0] "MANY"\nmsgstr[1] "ONE"' in swapped


def test_subtitles_are_sentences() -> None:
    """A sentence that goes over several subtitles is translated as one, and divided again by its alignment."""
    asked: list[str] = []

    def swapped(sentences: Sequence[str]) -> list[Aligned]:
        asked.extend(sentences)
        links = [((0, 2), (12, 16)), ((3, 9), (17, 23)), ((10, 14), (8, 11)), ((15, 19), (24, 28)), ((20, 29), (0, 7))]
        return [Aligned("Gestern kam mein Freund spät.", links)]

    cues = "1\n00:00:01,000 --> 00:00:02,000\n{}\n\n2\n00:00:03,000 --> 00:00:04,000\n{}\n"
    result = translated(cues.format("My <i>friend</i> came", "late yesterday."), "srt", swapped)
    assert asked == ["My friend came late yesterday."]
    assert result == cues.format("Gestern kam mein <i>Freund</i>", "spät.")


def test_a_document_that_nobody_waits_for_ends_wherever_it_is() -> None:
    asked = list[int]()

    def translated(most: float) -> bytes:
        asked.clear()
        token = WAITED_FOR.set(lambda: asked.append(0) or len(asked) <= most)
        try:
            return translate_document(
                b"<p>a b. c d.</p><p>e</p>", "a.html", lambda some: [Aligned(one) for one in some]
            )
        finally:
            WAITED_FOR.reset(token)

    translated(float("inf"))
    steps = len(asked)
    assert steps >= 6  # of two paragraphs: read, cut into sentences, and written
    for most in range(steps):
        with pytest.raises(AbandonedError):
            translated(most)


def test_kinds() -> None:
    assert [kind_of(f"a.b{suffixes[0].upper()}") for suffixes, _ in KINDS.values()] == list(KINDS)
    assert kind_of("anything", "po") == "po"
    with pytest.raises(UserError, match=r"can be translated.*docx"):
        kind_of("a.docx")
    with pytest.raises(UserError, match="can be translated"):
        kind_of("a.po", "docx")


@pytest.mark.parametrize("kind", ["po", "xliff", "tmx"])
def test_the_translate_toolkit_reads_the_same(kind: str) -> None:
    """What is written is what another program for such files reads."""
    factory = pytest.importorskip("translate.storage.factory")
    file = io.BytesIO(translated(DOCUMENTS[kind], kind).encode())
    file.name = f"x.{ {'xliff': 'xlf'}.get(kind, kind) }"  # type: ignore[misc]
    units = {str(unit.source): str(unit.target) for unit in factory.getobject(file).units if unit.source}
    expected = {
        "po": {"hello %s, <b>you</b>": "HELLO %s, <b>YOU</b>", "%d file": "%d FILE", "open": "kept"},
        "xliff": {"five": "FIVE", "six": "SIX", "kept": "Fertig"},
        "tmx": {"kept": "da"},
    }[kind]
    assert expected.items() <= units.items()


@pytest.mark.parametrize(
    ("kind", "unit"),
    [
        *(("html", unit) for unit in ("<b>one</b> two ", "<", "{", "%", "[", "a <img> ", "<!--", "<p a='", "<b>")),
        ("markdown", "**a** b "), ("markdown", "``a"), ("text", "a. "), ("text", "("),
    ],
)  # fmt: skip
def test_time_grows_with_the_length(kind: str, unit: str) -> None:
    """Four times the text takes about four times the steps, not sixteen times."""

    def steps(length: int) -> int:
        count = 0

        def step(frame: FrameType, event: str, argument: object) -> None:
            nonlocal count
            count += 1

        document = (unit * (length // len(unit))).encode()
        sys.setprofile(step)
        try:
            translate_document(document, "x", lambda texts: [Aligned(f"{text} x") for text in texts], kind=kind)
        finally:
            sys.setprofile(None)
        return count

    steps(100)  # compiles expressions
    assert steps(8_000) < 6 * steps(2_000)


def test_tags_that_are_nested_too_deeply_are_refused() -> None:
    """Pairs around the same text are one."""
    deep = "".join(f"<b>{number} " for number in range(1200)) + "</b>" * 1200
    units = "".join(f"<g id='{number}'>" for number in range(1200)) + "a" + "</g>" * 1200
    xliff = f"<xliff>\n<file><unit><segment><source>{units}</source></segment></unit></file></xliff>"
    for kind, text in (("html", f"<p>a</p>\n<p>{deep}"), ("xliff", xliff)):
        with pytest.raises(UserError, match=r"^x:2: .* nested too deep"):
            translate_document(text.encode(), "x", upper, kind=kind)
    same = "<b>" * 1200 + "a" + "</b>" * 1200
    assert translate_document(same.encode(), "x", upper, kind="html").decode() == same.replace("a", "A")


MEMORY = """<tmx><body>
<tu><tuv xml:lang="en"><seg>one</seg></tuv><tuv xml:lang="pt-PT"><seg>um</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>two</seg></tuv><tuv xml:lang="pt-BR"><prop>x</prop><seg/></tuv></tu>
<tu><tuv xml:lang="en"><seg>three</seg></tuv><tuv xml:lang="pt-BR"><seg>três</seg></tuv></tu>
</body></tmx>
"""


def written(text: str, kind: str, languages: Languages) -> str:
    return translate_document(text.encode(), "x", upper, languages, kind).decode()


def test_a_memory_lacks_what_has_not_this_variant_and_an_empty_segment_is_filled() -> None:
    lines = written(MEMORY, "tmx", Languages("en", "pt-BR")).splitlines()
    assert lines[1].endswith('<tuv xml:lang="pt-PT"><seg>um</seg></tuv></tu>')
    assert '<tuv xml:lang="pt-BR"><seg>ONE</seg></tuv>' in lines[1]
    assert lines[2] == MEMORY.splitlines()[2].replace("<seg/>", "<seg>TWO</seg>")
    assert lines[3] == MEMORY.splitlines()[3]
    assert "ONE" not in written(MEMORY, "tmx", Languages("en", "pt")), "any region will do for a base language"


@pytest.mark.parametrize(
    ("kind", "text", "line", "received"),
    [
        (
            "xliff",
            '<xliff>\n<file source-language="en" target-language="fr"/></xliff>',
            2,
            "target .* de; received 'fr'",
        ),
        (
            "xliff",
            '<xliff>\n<file source-language="ja" target-language="de"/></xliff>',
            2,
            "source .* en; received 'ja'",
        ),
        ("xliff", '<xliff srcLang="en-GB" trgLang="fr-CA"/>', 1, "target .* de; received 'fr-CA'"),
        ("po", 'msgid ""\nmsgstr ""\n"Language: fr\\n"\n\nmsgid "one"\nmsgstr ""\n', 1, "target .* de; received 'fr'"),
    ],
)
def test_a_document_of_another_language_is_refused(kind: str, text: str, line: int, received: str) -> None:
    with pytest.raises(UserError, match=rf"^x:{line}: this document is not of the {received}; allowed: a document in"):
        written(text, kind, Languages("en", "de"))
    written(text, kind, Languages("en", "en"))
    if "ja" not in received:
        written(text, kind, Languages("en", "fr"))
    written(re.sub("ja|fr(-CA)?", "", text), kind, Languages("en", "de"))


def cue(number: int, begin: str, end: str, text: str) -> str:
    return f"{number}\n00:00:{begin},000 --> 00:00:{end},000\n{text}\n\n"


def asked(document: str, kind: str) -> list[str]:
    """What a translator of a document is asked for; a copy of each sentence is the document."""
    found: list[str] = []

    def copy(sentences: Sequence[str]) -> list[Aligned]:
        found.extend(sentences)
        return identity(sentences)

    assert translate_document(document.encode(), "x", copy, kind=kind).decode() == document
    return found


def test_subtitles_without_full_stops_are_sentences_of_their_own() -> None:
    captions = cue(1, "01", "02", "a man sits") + cue(2, "02", "03", "two dogs") + cue(3, "40", "41", "a boy")
    assert asked(captions, "srt") == ["a man sits", "two dogs", "a boy"]


def test_a_pause_a_speaker_and_a_sound_end_a_sentence() -> None:
    talk = cue(1, "01", "02", "Where is") + cue(2, "02", "03", "the dog") + cue(3, "10", "11", "- Here\n- There")
    talk += cue(4, "11", "12", "[DOOR]") + cue(5, "12", "13", "It is open.")
    assert asked(talk, "srt") == ["Where is the dog", "Here", "There", "[DOOR]", "It is open."]


def test_a_sentence_of_subtitles_ends_where_it_fits_no_longer() -> None:
    talk = (cue(1, "01", "02", "a man") + cue(2, "02", "03", "and a dog") + cue(3, "03", "04", "sit.")).encode()
    found: list[str] = []

    def copy(sentences: Sequence[str]) -> list[Aligned]:
        found.extend(sentences)
        return identity(sentences)

    assert translate_document(talk, "a.srt", copy, fits=lambda text: len(text.split()) < 5) == talk
    assert found == ["a man", "and a dog sit."]


def test_white_space_inside_a_tag_behind_a_run_of_white_space_stays() -> None:
    page = "<li>One &nbsp; &nbsp;\n  <strong>&lt;== here </strong></li>"
    assert translate_document(page.encode(), "a.html", sign).decode().replace(SIGN, "") == page


def test_links_that_name_their_label_in_two_ways_stay() -> None:
    page = "[x] [x][] and [x][x].\n\n[x]: y\n"
    assert translated(page, "markdown", sign).replace(SIGN, "") == page


def test_signs_in_formulas_are_no_marks_of_markdown() -> None:
    page = "The area $a*b$ is not $c*d$.\n\n$$\na_1 * b_2\n$$\n\nIt is in C:\\temp.\n"
    assert asked(page, "markdown") == ["The area $a*b$ is not $c*d$.", "It is in C:\\temp."]


@pytest.mark.parametrize(("text", "kind"), [("<div>\n<<<<< one >>>>>\n</div>\n", "markdown"), ("<p>one <</p>", "html")])
def test_signs_that_are_no_markup_stay_beside_new_text(text: str, kind: str) -> None:
    assert translated(text, kind, sign).replace(SIGN, "") == text


def test_marks_of_markdown_beyond_commonmark_stay() -> None:
    page = (
        "- [ ] Write\n- [x] Send\n\nThe price[^price] is $x_1 + y$ now.\n\n> [!WARNING]\n> It is open.\n\n"
        ":::tip\nTake the bus.\n:::\n\n[^price]: Without tax.\n"
    )
    sentences = ["Write", "Send", "The price[^price] is $x_1 + y$ now.", "It is open.", "Take the bus.", "Without tax."]
    assert asked(page, "markdown") == sentences
    signed = translate_document(
        page.encode(), "x", lambda some: [Aligned(f"{one} ok") for one in some], kind="markdown"
    )
    assert signed.decode().replace(" ok", "") == page
