"""The lines of a parser: a tree over exactly the given words, whatever the model wrote."""

import pytest

from headway.core.errors import UserError
from headway.predictors.formatter import RepairCount, TreeFormatter

WRITTEN = "(S (NP DT NN )NP (VP VBZ )VP . )S"


def test_brackets_over_the_words() -> None:
    formatter = TreeFormatter()
    assert formatter.source("The dog  barks .") == "The dog barks ."
    whole = formatter.output("The dog  barks .", WRITTEN)
    assert whole == ("(S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .))", {})
    broken = formatter.output("f(x) dog barks .", "(S NN")
    assert broken.text == "(S (NN f-LRB-x-RRB-) (XX dog) (XX barks) (XX .))"
    count = RepairCount()
    for formatted in (whole, broken):
        count.add(formatted.repairs)
    assert count.text() == "1 of 2 trees were repaired (50.0%); brackets never closed: 1, missing words: 3"


def test_nothing_to_say_without_a_tree() -> None:
    assert RepairCount().text() == ""
    linear = TreeFormatter("linear").output("The dog", "(S (NP")
    assert linear == ("(S (NP", None)
    count = RepairCount()
    count.add(linear.repairs)
    assert count.text() == ""


def test_a_line_without_words_has_no_tree() -> None:
    assert TreeFormatter().output("  ", WRITTEN) == ("", None)


def test_drawings() -> None:
    assert TreeFormatter("drawing").output("a b", "(S DT NN )S").text == "S ─┬─ DT a\n   └─ NN b\n"


def test_given_tags() -> None:
    formatter = TreeFormatter(tagged=True)
    line = "a_b_DT dog_NN ._$("
    assert formatter.source(line) == "a_b dog ."
    text, repairs = formatter.output(line, "(S XX XX XX )S")
    assert text == "(S (DT a_b) (NN dog) ($-LRB- .))"
    assert repairs == {}
    for token in ("dog", "_NN", "dog_"):
        with pytest.raises(UserError, match=r"^with tagged, a word comes with its tag"):
            formatter.source(token)
        with pytest.raises(UserError, match=r"^line 7: with tagged, a word comes with its tag"):
            formatter.check(f"a_b_DT {token}", "line 7")


def test_brackets_are_read_as_treebanks_write_them() -> None:
    formatter = TreeFormatter()
    assert formatter.source("f -LRB- x -RRB- .") == "f ( x ) ."
    assert formatter.output("a -LRB-", "(S NN -LRB- )S").text == "(S (NN a) (-LRB- -LRB-))"
    assert TreeFormatter(tagged=True).source("-LRB-_-LRB- x_NN") == "( x"


def test_a_target_is_no_tree_in_brackets() -> None:
    TreeFormatter().check_target(WRITTEN, "trees.txt:1")
    with pytest.raises(UserError, match=r"trees\.txt:2: this is a tree in brackets.*with format=linear"):
        TreeFormatter().check_target("(S (NN a))", "trees.txt:2")
