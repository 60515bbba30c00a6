"""Where sentences end."""

import pytest

from headway.processing.text.sentences import sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("It costs 3.5 dollars. No more", ["It costs 3.5 dollars.", "No more"]),
        ("Mr. Smith met J. R. Jones. They spoke.", ["Mr. Smith met J. R. Jones.", "They spoke."]),
        ("He works for example.com, e.g. daily. Yes.", ["He works for example.com, e.g. daily.", "Yes."]),
        ('"Stop!" he said. "Why?" She left.', ['"Stop!" he said.', '"Why?"', "She left."]),
        ("first line\nsecond line. Third", ["first line", "second line.", "Third"]),
        ("今日は雨。明日は晴れ！本当？はい", ["今日は雨。", "明日は晴れ！", "本当？", "はい"]),
        ("  \n ", []),
        ("Wait... What?!", ["Wait...", "What?!"]),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("ja", "彼は「はい。」と言った。終わり。", ["彼は「はい。」と言った。", "終わり。"]),
        ("ja-JP", "彼は「はい。」と言った。終わり。", ["彼は「はい。」と言った。", "終わり。"]),
        ("de", "Er kam z.B. am 3. Mai an. Dann ging er.", ["Er kam z.B. am 3. Mai an.", "Dann ging er."]),
        ("ru", "Он жил на ул. Ленина. Она ушла.", ["Он жил на ул. Ленина.", "Она ушла."]),
        ("xx", "No rules. Those of English.", ["No rules.", "Those of English."]),
    ],
)
def test_rules_are_those_of_a_language(language: str, text: str, expected: list[str]) -> None:
    assert sentences(text, language) == expected


@pytest.mark.parametrize("mark", "\u266c\u2668\u2609\u2604\u0238\u222f\u01c3")
def test_marks_of_the_library_lose_no_sentence(mark: str) -> None:
    assert sentences(f"Love {mark} music") == [f"Love {mark} music"]
    said = f"He came. I love this {mark} song. It is nice. A {mark}"
    assert "".join("".join(sentences(said)).split()) == "".join(said.split())
    assert sentences(f"I love this {mark} song. It is nice.")[-1] == "It is nice."


def test_nothing_is_lost() -> None:
    text = 'A man (b. 1950) said: "Go! Now." Dr. No went. 終。 The end'
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())
