"""One text a segment: what tags divide, what is between elements and sentences, and where elements of HTML end."""

import logging
from collections.abc import Sequence

import pytest

from headway.markup.documents import Languages, translate_document
from headway.markup.inline import Aligned
from headway.processing.text.sentences import sentences, warn_without_rules
from tests.markup.test_documents import ENGLISH_GERMAN, asked, cue, upper


def written(text: str, kind: str = "html", languages: Languages = ENGLISH_GERMAN) -> str:
    return translate_document(text.encode(), "x", upper, languages, kind).decode()


def from_table(text: str, languages: Languages, table: dict[str, Aligned], kind: str = "html") -> str:
    def translate(some: Sequence[str]) -> list[Aligned]:
        return [table[sentence] for sentence in some]

    return translate_document(text.encode(), "x", translate, languages, kind).decode()


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("<a>Home</a><a>About us</a>", ["Home About us"]),
        ("<del>old</del><ins>new</ins> words", ["old new words"]),
        ("Stop<img>here, super<wbr>market", ["Stop here, supermarket"]),
        ("<b>un</b>likely<sup>1</sup>", ["unlikely1"]),
        ("a <i></i> b", ["a b"]),
        ("one <svg><path/></svg> two<!-- x -->three", ["one twothree"]),
        ("<b>房子</b><i>很旧</i>", ["房子很旧"]),
    ],
)
def test_a_boundary_of_elements_is_a_space_to_the_model(text: str, read: list[str]) -> None:
    assert asked(text, "html") == read


@pytest.mark.parametrize(
    "text",
    [
        "X {THE <em>OTHER</em> HAND} Y", "SEE https://a.org/<b>SOME</b> PAGE", "THE {a&amp;b} OF {{ c.d_e }}",
        "A <code>x y</code>S AND <code>f</code><kbd>g</kbd>", "\ue000 {a} \ue001",
    ],
)  # fmt: skip
def test_what_a_tag_divides_is_no_placeholder_and_nothing_is_lost(text: str) -> None:
    assert written(text.replace("{the", "{THE")) == text


def test_links_tell_a_placeholder_from_the_same_word() -> None:
    links = [((4, 11), (4, 11)), ((12, 17), (12, 18))]
    table = {"The word in is in it.": Aligned("Das Wort in ist in ihm.", links)}
    got = from_table("The word <code>in</code> is in it.", Languages("en", "de"), table)
    assert got == "Das Wort <code>in</code> ist in ihm."


def test_made_up_placeholders_are_no_translation() -> None:
    table = {"See %s now": Aligned("Siehe %s {x}"), "See now": Aligned("Siehe nun")}
    assert from_table("See %s now", Languages("en", "de"), table) == "Siehe %s nun"


@pytest.mark.parametrize(
    ("source", "target", "text", "wanted"),
    [
        ("zh", "en", "房子。门。", "One house. One door."), ("en", "zh", "One house. One door.", "房子。门。"),
        ("en", "th", "One house. One door.", "房子。 门。"), ("zh", "ja", "房子。门。", "One house.One door."),
        ("ja", "km", "房子。门。", "One house. One door."), ("en", "de", "One house. One door.", "房子。 门。"),
    ],
)  # fmt: skip
def test_what_is_between_sentences_is_that_of_the_target(source: str, target: str, text: str, wanted: str) -> None:
    table = {"房子。": "One house.", "门。": "One door.", "One house.": "房子。", "One door.": "门。"}
    aligned = {before: Aligned(after) for before, after in table.items()}
    for kind in ("html", "text"):
        assert from_table(text, Languages(source, target), aligned, kind) == wanted


def test_sentences_end_as_their_language_has_it(caplog: pytest.LogCaptureFixture) -> None:
    assert sentences("他说：“走吧。”我们走了。（好。）", "zh") == ["他说：“走吧。”", "我们走了。", "（好。）"]
    assert sentences("ផ្ទះចាស់។ ទ្វារក្រហម។", "km") == ["ផ្ទះចាស់។", "ទ្វារក្រហម។"]
    warn_without_rules.cache_clear()
    for _ in range(2):
        written("<p>x</p>", languages=Languages("km", "en"))
    assert [message.partition(":")[0] for message in caplog.messages if "rules" in message] == [
        "there are no rules for sentences of Khmer"
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("<p translate=NO>a<p>b<div>c</div>", "<p translate=NO>a<p>B<div>C</div>"),
        ("<ul><li translate=no>a<ul><li>b</ul><li>c</ul>d", "<ul><li translate=no>a<ul><li>b</ul><li>C</ul>D"),
        ("<table><tr><td translate=no>a<td>b<tr><td>c</table>", "<table><tr><td translate=no>a<td>B<tr><td>C</table>"),
        ("<p>a <code>b</p><p>c</p>", "<p>A <code>b</p><p>C</p>"),
        ("<svg/>a <math><mi>b</mi></math> <iframe src=x/>c", "<svg/>A <math><mi>b</mi></math> <iframe src=x/>C"),
        ("<svg><script/><title>a</title></svg>b", "<svg><script/><title>a</title></svg>B"),
        ("<?xml version='1.0'?><html><script src='x'/><p>a</p></html>",
         "<?xml version='1.0'?><html><script src='x'/><p>A</p></html>"),
        ("a &copy b&nbspc &unknown; &#8217s", "A &copy B\xa0C &amp;UNKNOWN; ’S"),
    ],
)  # fmt: skip
def test_elements_and_entities_end_as_in_browsers(text: str, wanted: str) -> None:
    assert written(text) == wanted


def test_attributes_and_the_language_of_a_page(caplog: pytest.LogCaptureFixture) -> None:
    page = "<html lang='en'><meta name=description content='a b'><meta name=x content=b><p title=\"say &quot;a&quot;\">"
    page += '<img alt=dog src=a><input placeholder="b" value="c"><b aria-label="d" translate=no>e</b></p></html>'
    caplog.set_level(logging.INFO)
    result = written(page)
    assert "<html lang='de'>" in result
    for part in ("content='A B'", 'title="SAY &quot;A&quot;"', 'alt="DOG"', 'placeholder="B" value="c"', '="d"'):
        assert part in result
    assert "x: 13 characters of text; 12 translated, 1 left as they are" in caplog.messages
    assert "<html lang='ar' dir=\"rtl\">" in written(page, languages=Languages("en", "ar"))
    for languages in (Languages("fr", "de"), Languages("en", "en-GB")):
        assert "lang='en'" in written(page, languages=languages)
    assert translate_document(page.encode(), "x", upper, kind="html", attributes=False).decode() == page
    assert asked(page, "html") == ["a b", 'say "a"', "dog", "b"]


def test_a_speaker_a_voice_and_a_comment_end_a_sentence() -> None:
    talk = cue(1, "01", "02", "Where is") + cue(2, "02", "03", ">> the dog") + cue(3, "03", "04", "It is here.")
    assert asked(talk, "srt") == ["Where is", "the dog It is here."]
    voices = "WEBVTT\n\n00:01.000 --> 00:02.000\n<v A>I\n\n00:02.000 --> 00:03.000\n<v A>think\n\n"
    voices += "00:03.000 --> 00:04.000\n<v B>so\n\nNOTE x\n\n00:04.000 --> 00:05.000\ntoo.\n"
    assert asked(voices, "vtt") == ["I think", "so", "too."]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("See [it](u)*now* and\n**this**_that_.", "SEE [IT](u)*NOW* AND\n**THIS**_THAT_."),
        ("**Note**: 2 * 3 is a_b [c]", "**NOTE**: 2 * 3 IS A_B [C]"),
        ("Term\n: Its *meaning*\n: or $a_1$", "TERM\n: ITS *MEANING*\n: OR $a_1$"),
        ("[a][] and [b]\n\n[a]: x\n[b]: y\n", "[A][a] AND [B][b]\n\n[a]: x\n[b]: y\n"),
    ],
)
def test_markdown_escapes_only_what_changes_its_markup(text: str, wanted: str) -> None:
    assert written(text, "markdown") == wanted


def test_marks_that_a_translation_brings_are_escaped() -> None:
    def translate(some: Sequence[str]) -> list[Aligned]:
        return [Aligned({"one": "*a* [b](c) &amp;", "two": "1. x"}[sentence]) for sentence in some]

    result = translate_document(b"one\n\ntwo\n", "x", translate, kind="markdown").decode()
    assert result == "\\*a\\* \\[b\\](c) \\&amp;\n\n1\\. x\n"
