"""Penn brackets: over several lines, compressed, and what is wrong with them, by line."""

import gzip
from pathlib import Path

import pytest

from headway.core.errors import UserError
from headway.formats.penn import parse_penn, parse_tree
from headway.formats.treebanks import TreePairs, read_trees

MERGED = """
( (S
    (NP-SBJ (NNP Mr.) (NNP Vinken) )
    (VP (VBZ is)
      (NP-PRD (NN chairman) ))
    (. .) ))
( (S (NP (-NONE- *T*-1)) (VP (VB Go) (PRT (RP on))) (. .))
)
(())
(S (NP (DT the)(NN dog))(VP(VBZ barks)))
"""


def write(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["wsj.mrg", "wsj.mrg.gz"])
def test_a_treebank_with_the_lines_of_its_trees(tmp_path: Path, name: str) -> None:
    trees = [(line, tree and tree.write()) for line, tree in read_trees(write(tmp_path / name, MERGED))]
    assert trees == [
        (2, "(S (NP (NNP Mr.) (NNP Vinken)) (VP (VBZ is) (NP (NN chairman))) (. .))"),
        (7, "(S (VP (VB Go) (PRT (RP on))) (. .))"),
        (9, None),
        (10, "(S (NP (DT the) (NN dog)) (VP (VBZ barks)))"),
    ]


def test_pairs_of_sentence_and_symbols(tmp_path: Path) -> None:
    path = write(tmp_path / "wsj.mrg", MERGED)
    tags, xx, functions = TreePairs(path, "tags", False), TreePairs(path, "xx", False), TreePairs(path, "tags", True)
    pairs = list(tags)
    assert [pair.line for pair in pairs] == [2, 7, 9, 10]
    assert pairs[0].source == "Mr. Vinken is chairman ."
    assert pairs[0].target == "(S (NP NNP NNP )NP (VP VBZ (NP NN )NP )VP . )S"
    assert (pairs[2].source, pairs[2].target) == ("", "")
    assert next(iter(xx)).target == "(S (NP XX XX )NP (VP XX (NP XX )NP )VP XX )S"
    assert next(iter(functions)).target == "(S (NP-SBJ NNP NNP )NP-SBJ (VP VBZ (NP-PRD NN )NP-PRD )VP . )S"
    assert [pair.references for pair in pairs[2:]] == [("",), ("(S (NP (DT the) (NN dog)) (VP (VBZ barks)))",)]
    assert len({source.fingerprint() for source in (tags, xx, functions)}) == 3


def test_brackets_that_are_words() -> None:
    tree = parse_tree("(NP (-LRB- -LRB-) (NN dog) (-RRB- -RRB-))")
    assert tree.words() == ["(", "dog", ")"]
    assert tree.write() == "(NP (-LRB- -LRB-) (NN dog) (-RRB- -RRB-))"


def test_other_white_space_is_no_end_of_a_word() -> None:
    tree = parse_tree("(NP\u00a0(CD 1\u00a0000)\u3000(NN\u00a0euros))\u00a0")
    assert tree.write() == "(NP (CD 1_000) (NN euros))"


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("(S (NN a)\n\n(VP (VB b)\n", 3, "this bracket is never closed"),
        ("(S (NN a)))", 1, r"this stands outside of its bracket; received '\)'"),
        ("(S (NN a))\nword", 2, r"this stands outside of its bracket; received 'word'; allowed: \(TAG word\)"),
        ("(S\n(NN a b))", 2, "this stands outside of its bracket; received 'b'"),
        ("(S\n(NN a) b)", 2, "this stands outside of its bracket"),
        ("(S\n(() NN a))", 2, "this stands outside of its bracket"),
        ("(S\n(NN a (NN b)))", 2, "this bracket is no part of a tree"),
        ("(S\n(NP)\n(NN a))", 2, "this bracket is no part of a tree"),
        ("(S\n((NN a)))", 2, "this bracket is no part of a tree"),
    ],
)
def test_mistakes_have_their_line(text: str, line: int, what: str) -> None:
    with pytest.raises(UserError, match=f"^file:{line}: {what}"):
        list(parse_penn(text.split("\n"), "file"))


@pytest.mark.parametrize("text", ["(S (NN a)) (S (NN b))", "", "(())"])
def test_one_tree(text: str) -> None:
    with pytest.raises(UserError, match=r"^here: this is not one tree"):
        parse_tree(text, "here")
