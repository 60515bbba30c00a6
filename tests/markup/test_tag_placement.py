"""The cases of tags that were placed by hand, and their score."""

import pytest
from tag_placement import Case, Score, proportional, read_cases, scores, spans, without_tags


def test_every_tag_of_a_translation_is_one_of_its_caption_and_has_words() -> None:
    cases = read_cases()
    assert len(cases) == 200
    assert len({without_tags(case.source) for case in cases}) == 200
    for case in cases:
        source, target = spans(case.source), spans(case.target)
        assert source, case
        assert target.keys() <= source.keys(), case
        assert all(begin < end for begin, end in [*source.values(), *target.values()]), case
        for text in (case.source, case.target):
            assert text.count("<") == 2 * len(spans(text)) == text.count(">"), case
    assert sum(len(spans(case.target)) for case in cases) > 250


def test_tags_are_compared_whole_and_by_their_tokens() -> None:
    case = Case("noun", "<i>A</i> <b>big dog</b>.", "<i>Ein</i> <b>großer Hund</b>.")
    assert list(scores(case, spans(case.target))) == [Score(1, 1, 1, 1, 1), Score(1, 1, 2, 2, 2)]
    one, two = scores(case, spans("Ein <i>großer</i> <b>Hund.</b>"))
    assert (one, two) == (Score(1, 0, 0, 1, 1), Score(1, 0, 1, 2, 2))
    assert (one + two).told().split() == ["0.0", f"{100 / 3:.1f}"]
    assert spans("<b> a </b>b<i>, c</i>") == {"b": (1, 2), "i": (4, 7)}


@pytest.mark.parametrize(
    ("source", "target", "placed"),
    [
        ("a <b>b</b> c", "x y z", "x <b>y</b> z"),
        ("a b <b>c</b>", "x", "<b>x</b>"),
        ("<b>a</b> b", "u v w x", "<b>u v</b> w x"),
    ],
)
def test_a_place_as_far_along(source: str, target: str, placed: str) -> None:
    assert proportional(Case("", source, target)) == spans(placed)
