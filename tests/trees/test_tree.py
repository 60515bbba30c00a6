"""Trees: against recursion, and what is cleaned away."""

import pytest
from hypothesis import given

from headway.formats.penn import parse_tree
from headway.trees.tree import Builder, Constituent, Leaf, Tree, clean, escape, unescape, without_functions
from tests.trees.strategies import trees


def slow_write(node: Tree | Leaf) -> str:
    if isinstance(node, Leaf):
        return f"({node.tag} {escape(node.word)})"
    return f"({node.label} {' '.join(map(slow_write, node.children))})"


def slow_constituents(node: Tree | Leaf, start: int) -> tuple[list[Constituent], int]:
    if isinstance(node, Leaf):
        return [], start + 1
    constituents, end = list[Constituent](), start
    for child in node.children:
        below, end = slow_constituents(child, end)
        constituents += below
    return [Constituent(node.label, start, end), *constituents], end


@given(trees())
def test_trees_are_walked_as_recursion_would(tree: Tree) -> None:
    assert tree.write() == slow_write(tree)
    constituents, words = slow_constituents(tree, 0)
    assert tree.constituents() == constituents
    assert len(tree.words()) == words


@given(trees())
def test_what_is_written_is_read(tree: Tree) -> None:
    assert parse_tree(tree.write()) == tree


def test_trees_may_be_deeper_than_recursion() -> None:
    builder = Builder()
    for _ in range(5000):
        builder.open("NP")
    builder.leaf(Leaf("NN", "dog"))
    while builder.labels:
        builder.close()
    (tree,) = builder.finish()
    assert isinstance(tree, Tree)
    assert len(tree.constituents()) == 5000
    assert tree.write() == "(NP " * 5000 + "(NN dog)" + ")" * 5000


def test_a_builder_leaves_out_what_is_empty() -> None:
    builder = Builder()
    for event in ("S", "NP", "", "VP", "PP", "", ""):
        builder.open(event) if event else builder.close()
    builder.leaf(Leaf("NN", "dog"))
    builder.close()
    assert builder.finish() == [Tree("S", (Leaf("NN", "dog"),))]
    assert builder.empty == 3


def test_brackets_in_words_are_spelled_out() -> None:
    assert escape("f(x)") == "f-LRB-x-RRB-"
    assert unescape("f-LRB-x-RRB-") == "f(x)"


@pytest.mark.parametrize(
    ("label", "plain"),
    [("NP-SBJ-1", "NP"), ("NP=2", "NP"), ("NP", "NP"), ("-LRB-", "-LRB-"), ("PRP$", "PRP$"), ("ADVP|PRT", "ADVP|PRT")],
)
def test_functions(label: str, plain: str) -> None:
    assert without_functions(label) == plain


@pytest.mark.parametrize(
    ("written", "cleaned"),
    [
        ("( (S (NP-SBJ (PRP I)) (VP (VBP do))))", "(S (NP (PRP I)) (VP (VBP do)))"),
        ("(TOP (S (VP (VB go))))", "(S (VP (VB go)))"),
        ("(ROOT (S1 (S (VB go))))", "(S (VB go))"),
        ("(S (NP (-NONE- *T*-1)) (VP (VB go) (NP (-NONE- 0))))", "(S (VP (VB go)))"),
        ("( (S (VB go)) (. .))", "(TOP (S (VB go)) (. .))"),
        ("( (UH yes))", "(TOP (UH yes))"),
        ("(ROOT (UH yes))", "(TOP (UH yes))"),
        ("(S (-NONE- *))", None),
    ],
)
def test_cleaning(written: str, cleaned: str | None) -> None:
    tree = clean(parse_tree(written))
    assert (tree and tree.write()) == cleaned


def test_functions_can_be_kept() -> None:
    tree = clean(parse_tree("( (S (NP-SBJ (PRP I)) (VP (VBP do))))"), functions=True)
    assert tree is not None
    assert tree.write() == "(S (NP-SBJ (PRP I)) (VP (VBP do)))"
