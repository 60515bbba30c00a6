"""Linear forms: a round trip for every tree, and a tree over exactly the words for anything else."""

from collections import Counter
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.formats.penn import parse_tree
from headway.trees.linear_form import (
    EMPTY,
    KINDS,
    MISLABELLED,
    MISSING,
    NO_TREE,
    OUTSIDE,
    SUPERFLUOUS,
    UNCLOSED,
    UNOPENED,
    _align,
    _differ,
    linearise,
    repair,
)
from headway.trees.tree import UNKNOWN_TAG, Leaf, Tree, change
from tests.trees.strategies import LABELS, TAGS, WORDS, trees

SYMBOLS = st.sampled_from([*(f"({label}" for label in LABELS), *(f"){label}" for label in LABELS), *TAGS])
GARBAGE = st.text(alphabet="()N-<>", min_size=1, max_size=4)


@given(trees())
def test_every_tree_comes_back(tree: Tree) -> None:
    repaired = repair(linearise(tree), tree.words())
    assert repaired.tree == tree
    assert not repaired.counts


@given(trees())
def test_without_tags_its_shape_comes_back_and_given_tags_with_it(tree: Tree) -> None:
    text, tags = linearise(tree, "xx"), [leaf.tag for leaf in tree.leaves()]
    repaired = repair(text, tree.words())
    assert repaired.tree.constituents() == tree.constituents()
    assert {leaf.tag for leaf in repaired.tree.leaves()} == {UNKNOWN_TAG}
    again = repair(text, tree.words(), tags)
    assert again.tree == tree
    assert not repaired.counts
    assert not again.counts


@given(st.lists(SYMBOLS | GARBAGE, max_size=14), st.lists(WORDS, min_size=1, max_size=6), st.booleans())
def test_anything_becomes_a_tree_over_exactly_the_words(symbols: list[str], words: list[str], tagged: bool) -> None:
    tags = ["NN"] * len(words) if tagged else None
    repaired = repair(" ".join(symbols), words, tags)
    assert repaired.tree.words() == words
    assert parse_tree(repaired.tree.write()) == repaired.tree
    if tags:
        assert [leaf.tag for leaf in repaired.tree.leaves()] == tags
    assert set(repaired.counts) <= set(KINDS)
    assert all(count > 0 for count in repaired.counts.values())
    again = repair(linearise(repaired.tree), words, tags)
    assert again.tree == repaired.tree
    assert not again.counts


@given(trees(), st.data())
def test_a_symbol_more_or_less_is_noticed(tree: Tree, data: st.DataObject) -> None:
    symbols = linearise(tree).split()
    index = data.draw(st.integers(0, len(symbols) - 1))
    without, doubled = symbols[:index] + symbols[index + 1 :], symbols[: index + 1] + symbols[index:]
    for broken in (without, doubled):
        repaired = repair(" ".join(broken), tree.words())
        assert repaired.tree.words() == tree.words()
        assert repaired.counts


@pytest.mark.parametrize(
    ("text", "tree", "counts"),
    [
        # (NP is not closed before )S, which names a constituent further out: both are closed.
        ("(S (NP DT NN )S", "(S (NP (DT a) (NN b)))", {UNCLOSED: 1}),
        ("(S (NP DT NN", "(S (NP (DT a) (NN b)))", {UNCLOSED: 2}),
        ("(S (NP DT )VP NN )S", "(S (NP (DT a)) (NN b))", {MISLABELLED: 1}),
        # The root stays open until the last word.
        ("(S DT )S NN )S", "(S (DT a) (NN b))", {UNOPENED: 1}),
        ("(S DT NN )S )NP )S", "(S (DT a) (NN b))", {UNOPENED: 2}),
        ("(S (NP (VP )VP )NP DT NN )S", "(S (DT a) (NN b))", {EMPTY: 2}),
        ("(S DT NN )S (NP )NP", "(S (DT a) (NN b))", {EMPTY: 1}),
        ("DT (S NN )S", "(S (DT a) (NN b))", {OUTSIDE: 1}),
        ("DT NN", "(TOP (DT a) (NN b))", {NO_TREE: 1}),
        ("", "(TOP (XX a) (XX b))", {NO_TREE: 1, MISSING: 2}),
        ("(S )S", "(TOP (XX a) (XX b))", {EMPTY: 1, NO_TREE: 1, MISSING: 2}),
        ("(S ( DT NN ) )S", "(S (DT a) (NN b))", {EMPTY: 1, MISLABELLED: 1, UNOPENED: 1}),
        ("(S (NP DT )NP (VP NN )VP VB )S", "(S (NP (DT a)) (VP (NN b)))", {SUPERFLUOUS: 1}),
        ("(S D)T(X NN )S", "(S (D-RRB-T-LRB-X a) (NN b))", {}),
    ],
)
def test_each_kind_of_repair(text: str, tree: str, counts: dict[str, int]) -> None:
    repaired = repair(text, ["a", "b"])
    assert repaired.tree.write() == tree
    assert repaired.counts == Counter(counts)


@pytest.mark.parametrize(
    ("text", "words", "tags", "tree"),
    [
        # The full stop is the only leaf that can be told from the others: what is missing is missing before it.
        ("(S (NP DT )NP . )S", "the dog .", None, "(S (NP (DT the)) (XX dog) (. .))"),
        ("(S (NP DT NN NN )NP . )S", "the dog .", None, "(S (NP (DT the) (NN dog)) (. .))"),
        # Between two leaves of one constituent it goes into that, else into the lowest that holds both.
        ("(S (NP DT , NN )NP VB )S", "a b , c d", None, "(S (NP (DT a) (XX b) (, ,) (NN c)) (VB d))"),
        (
            "(S (NP (NP DT )NP (PP IN )PP )NP . )S",
            "a - b .",
            "DT : IN .",
            "(S (NP (NP (DT a)) (: -) (PP (IN b))) (. .))",
        ),
        # Before the first leaf and behind the last it goes to the root.
        ("(S (NP (NP DT )NP )NP )S", "- a .", "HYPH DT .", "(S (HYPH -) (NP (NP (DT a))) (. .))"),
        # Known tags say which leaf is superfluous; a constituent that held nothing else vanishes.
        ("(S (NP DT )NP (VP VB )VP (NP NN )NP )S", "a c", "DT NN", "(S (NP (DT a)) (NP (NN c)))"),
    ],
)
def test_where_words_are_added_and_leaves_dropped(text: str, words: str, tags: str | None, tree: str) -> None:
    assert repair(text, words.split(), tags.split() if tags else None).tree.write() == tree


@given(
    st.lists(st.sampled_from(["NN", ".", "XX", "VB"]), min_size=1, max_size=5),
    st.lists(st.sampled_from(["a", ".", "b"]), min_size=1, max_size=5),
)
def test_alignments_are_the_cheapest(tags: list[str], words: list[str]) -> None:
    @cache
    def cheapest(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        changed = cheapest(i - 1, j - 1) + _differ(tags[i - 1], words[j - 1], None)
        return min(cheapest(i - 1, j) + 1, cheapest(i, j - 1) + 1, changed)

    partners = _align(tags, words, None)
    used = [leaf for leaf in partners if leaf is not None]
    assert used == sorted(set(used))
    gaps = partners.count(None) + len(tags) - len(used)
    wrong = sum(_differ(tags[leaf], word, None) for word, leaf in zip(words, partners, strict=True) if leaf is not None)
    assert gaps + wrong == cheapest(len(tags), len(words))


def test_change_keeps_what_is_left() -> None:
    tree = parse_tree("(S (NP (DT a)) (VP (VB b)))")
    assert change(tree, lambda leaf: leaf != Leaf("DT", "a"), str.lower) == parse_tree("(s (vp (VB b)))")
    assert change(tree, lambda leaf: False, str.lower) is None
