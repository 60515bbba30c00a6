"""The beginning of a source as a summary."""

import pytest

from headway.core.errors import UserError
from headway.corpora.lead import LeadConfig, lead, leads_of
from headway.recipe import parse_lead
from headway.recipe.sections import DataConfig

TEXT = "  Dr. Who is  here. He eats. He sleeps, too. He leaves. "


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("3", "Dr. Who is"),
        ("5-words", "Dr. Who is  here. He"),
        ("50", TEXT.strip()),
        ("1-sentences", "Dr. Who is  here."),
        ("3-sentences", "Dr. Who is  here. He eats. He sleeps, too."),
        ("9-sentences", "Dr. Who is  here. He eats. He sleeps, too. He leaves."),
        ("4-characters", "Dr."),
    ],
)
def test_lead(given: str, expected: str) -> None:
    config = parse_lead(given)
    assert lead(TEXT, config) == expected
    assert lead(" ", config) == ""


def test_names() -> None:
    given = [LeadConfig(count=2), parse_lead("1-sentences"), parse_lead("3-characters")]
    assert leads_of(["a b c", "", "東京で地震。大きい。"], given) == {
        "lead-2-words": ["a b", "", "東京"],
        "lead-1-sentences": ["a b c", "", "東京で地震。"],
        "lead-3-characters": ["a b", "", "東京で"],
    }


def test_words_of_text_without_spaces_are_characters(caplog: pytest.LogCaptureFixture) -> None:
    assert leads_of(["東京で地震。", "大きい"], [LeadConfig(count=3)]) == {"lead-3-words": ["東京で", "大きい"]}
    assert "no spaces between words" in caplog.text
    caplog.clear()
    assert leads_of(["東京 で 地震 。"], [LeadConfig(count=3)]) == {"lead-3-words": ["東京 で 地震"]}
    assert not caplog.records


def test_sentences_end_by_the_rules_of_a_language() -> None:
    german = "Am 3. Mai kam er z. B. an. Dann ging er."
    assert lead(german, parse_lead("1-sentences")) == "Am 3."
    assert lead(german, parse_lead("1-sentences"), "de") == "Am 3. Mai kam er z. B. an."
    assert lead(german, parse_lead("1-sentences-de")) == "Am 3. Mai kam er z. B. an."
    assert lead(german, parse_lead("1-sentences-en"), "de") == "Am 3."
    assert parse_lead("2-sentences-ja-JP").name == "lead-2-sentences-ja-JP"
    with pytest.raises(UserError, match=r"no beginning of a source: there are no rules for .*'xx', only for am, ar"):
        parse_lead("2-sentences-xx")
    with pytest.raises(UserError, match="where sentences end, and the unit is words; received '2-words-de'"):
        parse_lead("2-words-de")


def test_a_lead_is_a_beginning_as_it_stands() -> None:
    text = "彼は言った。本当？そう！"
    assert lead(text, parse_lead("2-sentences-ja")) == "彼は言った。本当？"
    assert lead(text, parse_lead("9-sentences-ja")) == text
    assert lead("One.  Two.\u3000Three.", parse_lead("2-sentences")) == "One.  Two."


def test_in_a_recipe() -> None:
    given = [8, "3-sentences", "1-sentences-de", {"count": 2}]
    data = DataConfig.model_validate({"train": {"tsv": "x"}, "lead": given})
    names = ["lead-8-words", "lead-3-sentences", "lead-1-sentences-de", "lead-2-words"]
    assert [config.name for config in data.lead] == names


@pytest.mark.parametrize("given", ["0", "-1", "eight", "3-pieces", "3 sentences", ""])
def test_mistakes(given: str) -> None:
    with pytest.raises(UserError, match=r"lead: this is no beginning of a source; received .*3-sentences"):
        parse_lead(given)
