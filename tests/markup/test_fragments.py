"""Made documents, and translators that lose, double and make up what they should keep: nothing but text changes."""

import pytest
from hypothesis import HealthCheck, given, settings

from tools.campaigns.markup import KINDS, MarkupCampaign, MarkupCase, check

CASES = MarkupCampaign().cases()


@settings(max_examples=100, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(CASES)
def test_nothing_but_text_changes(case: MarkupCase) -> None:
    check(case)


@pytest.mark.parametrize("kind", KINDS)
def test_a_translation_is_asked_for(kind: str) -> None:
    """The check would notice a translator that is never called."""
    from headway.markup.documents import Languages, translate_document
    from tools.campaigns.markup import document

    asked: list[str] = []

    def translate(sentences: list[str]) -> list[object]:
        asked.extend(sentences)
        raise KeyError

    text = document(MarkupCase(kind, (("Hello", " ", ("b", ["dear"])),), 1, 0))
    with pytest.raises(KeyError):
        translate_document(text.encode(), "x", translate, Languages("en", "de"), kind)  # type: ignore[arg-type]
    assert "Hello" in asked[0]
