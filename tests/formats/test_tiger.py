"""TIGER-XML: discontinuous constituents, loose words, secondary edges, and what is wrong with a file."""

import gzip
from pathlib import Path

import pytest

from headway.core.errors import UserError
from headway.formats import tiger
from headway.formats.pairs import open_source
from headway.formats.penn import parse_tree
from headway.formats.treebanks import read_trees

# "Das Buch hat er , sagt sie , gelesen .": the VP is `das Buch ... gelesen`, with its head `gelesen`. The parenthesis
# belongs to the sentence, and no constituent holds the punctuation.
DISCONTINUOUS = """
 <s id="s1"><graph root="s1_502">
   <terminals>
    <t id="s1_1" word="Das" pos="ART"/>
    <t id="s1_2" word="Buch" pos="NN"/>
    <t id="s1_3" word="hat" pos="VAFIN"/>
    <t id="s1_4" word="er" pos="PPER"><secedge idref="s1_501" label="SB"/></t>
    <t id="s1_5" word="(" pos="$("/>
    <t id="s1_6" word="sagt sie" pos="VVFIN"/>
    <t id="s1_7" word=")" pos="$("/>
    <t id="s1_8" word="gelesen" pos="VVPP"/>
    <t id="s1_9" word="." pos="$."/>
   </terminals>
   <nonterminals>
    <nt id="s1_500" cat="NP"><edge idref="s1_1" label="NK"/><edge idref="s1_2" label="NK"/></nt>
    <nt id="s1_501" cat="VP"><edge idref="s1_500" label="OA"/><edge idref="s1_8" label="HD"/></nt>
    <nt id="s1_502" cat="S">
     <edge idref="s1_501" label="OC"/><edge idref="s1_3" label="HD"/><edge idref="s1_4" label="SB"/>
     <edge idref="s1_503" label="PAR"/>
    </nt>
    <nt id="s1_503" cat="S"><edge idref="s1_6" label="HD"/></nt>
   </nonterminals>
 </graph></s>
"""


def bank(*sentences: str) -> str:
    inner = "".join(sentences)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<corpus><head/><body>{inner}</body></corpus>\n'


def sentence(nonterminals: str, words: str = "a b c") -> str:
    terminals = "".join(f'<t id="{word}" word="{word}" pos="T"/>' for word in words.split())
    return f'<s id="s"><graph>{terminals}{nonterminals}</graph></s>'


def nonterminal(name: str, *below: str) -> str:
    edges = "".join('<edge idref="{}" label="{}"/>'.format(*edge.partition("/")[::2]) for edge in below)
    return f'<nt id="{name}" cat="{name.upper()}">{edges}</nt>'


def read(tmp_path: Path, text: str) -> list[str | None]:
    return [tree and tree.write() for _, tree in read_trees(written(tmp_path, text))]


def written(folder: Path, text: str) -> Path:
    path = folder / "bank.xml"
    path.write_text(text, encoding="utf-8")
    return path


def test_discontinuous_constituents_are_raised(tmp_path: Path) -> None:
    # VP keeps the part with its head, gelesen, and gives NP to S. The brackets stand between children of S, the lowest
    # constituent that holds the words on both sides; behind the full stop there is no word, so that the root has it.
    path = tmp_path / "tiger.xml.gz"
    path.write_bytes(gzip.compress(bank(DISCONTINUOUS).encode()))
    ((line, tree),) = read_trees(path)
    assert line == 3
    assert tree is not None
    assert tree.write() == (
        "(TOP (S (NP (ART Das) (NN Buch)) (VAFIN hat) (PPER er) ($-LRB- -LRB-) (S (VVFIN sagt_sie)) ($-LRB- -RRB-)"
        " (VP (VVPP gelesen))) ($. .))"
    )
    ((_, whole),) = read_trees(path, functions=True)
    assert whole is not None
    assert [label for label, _, _ in whole.constituents()] == ["TOP", "S", "NP-OA", "S-PAR", "VP-OC"]


def test_without_a_head_the_longest_part_is_kept(tmp_path: Path) -> None:
    # X holds a, c and d: `c d` stays, `a` goes to the root. Y holds b and e: of equals the first stays.
    text = sentence(nonterminal("x", "a/NK", "c/NK", "d/NK") + nonterminal("y", "b/NK", "e/NK"), "a b c d e")
    assert read(tmp_path, bank(text)) == ["(TOP (T a) (Y (T b)) (X (T c) (T d)) (T e))"]


def test_several_sentences_and_one_without_constituents(tmp_path: Path) -> None:
    text = bank(sentence(nonterminal("s", "a/HD", "b/OA", "c/OA")), sentence("", "a"), '<s id="e"><graph/></s>')
    assert read(tmp_path, text) == ["(S (T a) (T b) (T c))", "(TOP (T a))", None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (sentence(nonterminal("s", "a/HD", "z/HD")), "an edge leads to 'z', which is no node"),
        (sentence(nonterminal("s", "a/HD") + nonterminal("x", "a/HD")), "an edge leads to 'a', which .* below another"),
        (sentence(nonterminal("s", "a/HD", "a/OA")), "an edge leads to 'a'"),
        (sentence(nonterminal("s", "x/HD") + nonterminal("x", "s/HD")), "the constituent 's' .* is below itself"),
        (sentence(nonterminal("s")), "the constituent 's' holds nothing"),
        (sentence('<t id="a" word="again" pos="T"/>'), "two nodes have the id 'a'"),
        (sentence(nonterminal("a", "b/HD")), "two nodes have the id 'a'"),
        (sentence('<t id="d" pos="T"/>'), "an element has no word"),
    ],
)
def test_sentences_that_are_no_trees(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=rf"bank\.xml:2: this sentence is no tree: {message}"):
        read(tmp_path, bank(text))


def test_files_at_fault(tmp_path: Path) -> None:
    for text, message in ((bank()[:-10], r"bank\.xml:\d: this is not XML"), (bank(), "it has no sentences")):
        with pytest.raises(UserError, match=message):
            read(tmp_path, text)
    with pytest.raises(UserError, match=r"bank\.xml:3: this is not XML"):
        read(tmp_path, bank(sentence("", "a"), "\n<s><graph>")[:-25])  # cut off within a sentence


def test_depth_costs_no_more_than_length(tmp_path: Path) -> None:
    """5,000 constituents, each within the one before."""
    depth = 5_000
    chain = "".join(nonterminal(f"n{level}", f"n{level + 1}/HD") for level in range(depth - 1))
    ((_, tree),) = read_trees(written(tmp_path, bank(sentence(chain + nonterminal(f"n{depth - 1}", "a/HD"), "a"))))
    assert tree is not None
    assert len(tree.constituents()) == depth
    assert tree.words() == ["a"]


def test_a_sentence_that_is_no_tree_can_be_left_out(tmp_path: Path) -> None:
    good, bad = sentence(nonterminal("s", "a/HD", "b/OA", "c/OA")), sentence(nonterminal("s", "z/HD"))
    source = open_source({"trees": written(tmp_path, bank(good, bad, good))}, "data.train", "skip")
    assert [pair.source for pair in source] == ["a b c"] * 2
    (error,) = source.row_errors.errors
    assert str(error).startswith(f"{tmp_path}/bank.xml:2: this sentence is no tree: an edge leads to 'z'")


def test_crossing_edges_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crossing = [nonterminal("x", "a/NK", "c/HD"), nonterminal("y", "x/HD", "e/NK"), nonterminal("z", "b/HD", "d/NK")]
    text = sentence("".join(crossing), "a b c d e")
    assert read(tmp_path, bank(text)) != []
    monkeypatch.setattr(tiger, "MOST_RAISED", 1)
    with pytest.raises(UserError, match=r"bank\.xml:2: this sentence is no tree: too many edges cross"):
        read(tmp_path, bank(text))
    monkeypatch.setattr(tiger, "LARGEST", 3)
    with pytest.raises(UserError, match="more than 3 words and constituents"):
        read(tmp_path, bank(text))


def test_brackets_in_words_survive(tmp_path: Path) -> None:
    ((_, tree),) = read_trees(written(tmp_path, bank(sentence("", "-LRB- a-RRB-b"))))
    assert tree is not None
    assert tree.words() == ["(", "a)b"]
    assert parse_tree(tree.write()) == tree
