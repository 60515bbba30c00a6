"""Alignment of a line with its changed form."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headway.processing.text.normalisation import AGREEMENTS, REACH, _nearest_agreement, align, compose, identity


def origins(before: str, after: str) -> list[str]:
    return [before[start:end] for start, end in align(before, after)]


def test_an_unchanged_line_is_the_identity() -> None:
    assert align("a  b\t", "a  b\t") == identity(5) == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("well-known, yes", "well @-@ known , yes", "w e l l - - - k n o w n , y e s"),
        ("a-b", "a @-@ b", "a - - - b"),
        ("-", "@-@", "- - -"),
        ("so…", "so...", "s o … … …"),
        ("so… no", "so ... no", "s o … … … n o"),
        ('he said "no",', 'he said "no,"', 'h e s a i d " n o ", ",'),
        ("a\x01b", "ab", "a b"),
        ("abc", "", ""),
    ],
)
def test_altered_stretches_belong_together(before: str, after: str, expected: str) -> None:
    visible = [origin for origin, character in zip(origins(before, after), after, strict=True) if character != " "]
    assert visible == expected.split()


def test_white_space_comes_from_white_space_or_from_between() -> None:
    assert align("a  b", "a b") == [(0, 1), (1, 3), (3, 4)]
    assert align("ab", "a b") == [(0, 1), (1, 1), (1, 2)]
    assert align(" a ", "a") == [(1, 2)]
    assert align("a", " a ") == [(0, 0), (0, 1), (1, 1)]


def test_a_change_beyond_the_reach_of_the_quick_search() -> None:
    before, after = "start " + "x" * REACH + " end", "start " + "y" * (2 * REACH) + " end"
    found = origins(before, after)
    assert found[:5] == list("start")
    assert found[-3:] == list("end")
    assert set(found[6 : 6 + 2 * REACH]) == {"x" * REACH}


def test_dashes_everywhere_are_altered_one_by_one() -> None:
    """No three characters of the two texts agree before the end; each dash still becomes a dash."""
    before = "a-" * 500 + "a"
    after = before.replace("-", " @-@ ")
    spans = [span for span, sign in zip(align(before, after), after, strict=True) if sign in "a-"]
    assert spans[: -2 * REACH] == identity(len(before))[: -2 * REACH]
    assert len(spans) == len(before)


@given(st.text("abc-@", max_size=70), st.text("abc-@", max_size=70))
def test_the_nearest_agreement_is_that_of_all_pairs(before: str, after: str) -> None:
    """By trying all numbers of characters to leave out, the fewest first."""
    assume(before[:1] != after[:1])

    def slow(size: int, reach: int) -> tuple[int, int] | None:
        for total in range(1, reach):
            for taken in range(max(0, total - len(after)), min(total, len(before)) + 1):
                given = total - taken
                if before[taken : taken + size] == after[given : given + size]:
                    return taken, given
        return None

    for size, reach in AGREEMENTS:
        assert _nearest_agreement(before, 0, after, 0, size, reach) == slow(size, reach)
        assert _nearest_agreement("xy" + before, 2, "z" + after, 1, size, reach) == slow(size, reach)


def test_compose_goes_through_both_changes() -> None:
    inner = align("a…b", "a...b")
    outer = align("a...b", "a ... b")
    assert compose(inner, outer, 3) == [(0, 1), (1, 1), (1, 2), (1, 2), (1, 2), (2, 2), (2, 3)]


def test_compose_puts_what_was_inserted_within_a_stretch_at_the_stretch() -> None:
    assert compose([(0, 1), (0, 1)], [(0, 1), (1, 1), (1, 2)], 1) == [(0, 1)] * 3


lines = st.text(alphabet="ab .-@\u3000…", max_size=30)


@given(lines, lines)
def test_spans_of_any_change_are_monotone_and_within_the_line(before: str, after: str) -> None:
    spans = align(before, after)
    assert len(spans) == len(after)
    assert all(0 <= start <= end <= len(before) for start, end in spans)
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)
    assert [end for _, end in spans] == sorted(end for _, end in spans)


@given(st.lists(st.text(alphabet="abc", min_size=1, max_size=4)), st.lists(st.sampled_from(["", " ", "\t ", "　"])))
def test_white_space_alone_never_moves_a_character(tokens: list[str], gaps: list[str]) -> None:
    gaps = (gaps + [" "] * len(tokens))[: len(tokens)]
    before = "".join(gap + token for gap, token in zip(gaps, tokens, strict=True))
    after = " ".join(tokens)
    assert [found for found in origins(before, after) if found.strip()] == list("".join(tokens))
