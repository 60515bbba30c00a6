"""Where sentences end."""

import pytest

from headway.processing.text.sentences import sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? four", ["One.", "Two!", "Three? four"]),
        ("It costs 3.5 dollars. No more", ["It costs 3.5 dollars.", "No more"]),
        ("Mr. Smith met J. R. Jones. They spoke.", ["Mr. Smith met J. R. Jones.", "They spoke."]),
        ("He works for example.com, e.g. daily. Yes.", ["He works for example.com, e.g. daily.", "Yes."]),
        ('"Stop!" he said. "Why?" She left.', ['"Stop!" he said.', '"Why?"', "She left."]),
        ("They left (at last.) Then rain…  Then sun", ["They left (at last.)", "Then rain…", "Then sun"]),
        (
            "he said `` no . '' then `` Yes . '' Then he left .",
            ["he said `` no . '' then `` Yes . ''", "Then he left ."],
        ),
        ("first line\nsecond line. Third", ["first line", "second line.", "Third"]),
        ("今日は雨。明日は晴れ！本当？はい", ["今日は雨。", "明日は晴れ！", "本当？", "はい"]),
        ("彼は「はい。」と言った。終わり。", ["彼は「はい。」と言った。", "終わり。"]),
        ("Она ушла. Он остался. а потом", ["Она ушла.", "Он остался. а потом"]),
        ("  \n ", []),
        ("Wait... What?!", ["Wait...", "What?!"]),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def test_nothing_is_lost() -> None:
    text = 'A man (b. 1950) said: "Go! Now." Dr. No went. 終。 The end'
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())
