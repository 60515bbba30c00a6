"""Rows of tables and JSON objects among lines of text."""

import pytest

from headway.errors import UserError
from headway.formats.lines import OBJECTS, TABS, check_texts, row_kind, rows_kind


def test_kinds_of_lines() -> None:
    objects = ['{"a": "b"}', ' {"a": 1}']
    assert [*map(row_kind, ["a\tb", *objects])] == [TABS, OBJECTS, OBJECTS]
    assert [*map(row_kind, ["a b", "", "{a}", "{", '"a"', '["a"]'])] == [None] * 6
    assert rows_kind(["a\tb", "", "# text = a b", "c\t"]) == TABS
    assert rows_kind(objects) == OBJECTS
    for lines in ([], [""], ["a\tb", "c"], ["c", "a\tb"], ["a\tb", objects[0]], ["# a", "#b"]):
        assert rows_kind(lines) is None


def test_rows_are_refused_where_no_text_of_training_was_like_them() -> None:
    with pytest.raises(UserError, match=r"^line 3: .* rows with tabs; received 'a\\tb'; allowed: `cut -f1 FILE`"):
        check_texts(["", "a\tb"], frozenset("ab"), "line 3")
    with pytest.raises(UserError, match=r"these are JSON objects; .*`jq -r \.FIELD FILE`"):
        check_texts(['{"a": "b"}'], frozenset(), "line 1")
    check_texts(["a\tb"], frozenset("\t"), "line 1")
    check_texts(['{"a": "b"}'], frozenset("{}"), "line 1")
    check_texts(["a\tb", "a b"], frozenset(), "line 1")
