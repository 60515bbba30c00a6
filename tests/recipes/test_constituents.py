"""Constituents made of dependencies: sentences worked out by hand, and trees for any dependencies at all."""

from pathlib import Path

import pytest
from constituents import Word, convert, convert_conllu, lift, main
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import UserError


def words(text: str) -> list[Word]:
    """`form/UPOS/head/relation`, heads from 1, a root's 0; the tag is the part of speech."""
    rows = [token.rsplit("/", 3) for token in text.split()]
    return [
        Word(form, upos, upos, int(head) - 1 if head != "0" else index, relation)
        for index, (form, upos, head, relation) in enumerate(rows)
    ]


@pytest.mark.parametrize(
    ("sentence", "tree"),
    [
        # dogs: NP of its determiner and adjective, NP once more with the PP behind it; barked: VP with the adverb, VP
        # of the auxiliary, S with the subject, and the full stop in the outermost.
        (
            "the/DET/3/det old/ADJ/3/amod dogs/NOUN/7/nsubj of/ADP/5/case Rome/PROPN/3/nmod have/AUX/7/aux"
            " barked/VERB/0/root loudly/ADV/7/advmod ./PUNCT/7/punct",
            "(S (NP (NP (DET the) (ADJ old) (NOUN dogs)) (PP (ADP of) (NP (PROPN Rome))))"
            " (VP (AUX have) (VP (VERB barked) (ADVP (ADV loudly)))) (PUNCT .))",
        ),
        # A nominal predicate: NP, a VP with the copula, S. The subordinate clause: S, and SBAR with its mark. The comma
        # at the edge of the clause stands beside it.
        (
            "She/PRON/4/nsubj is/AUX/4/cop a/DET/4/det doctor/NOUN/0/root ,/PUNCT/8/punct because/SCONJ/8/mark"
            " he/PRON/8/nsubj asked/VERB/4/advcl",
            "(S (NP (PRON She)) (VP (AUX is) (NP (DET a) (NOUN doctor)) (PUNCT ,)"
            " (SBAR (SCONJ because) (S (NP (PRON he)) (VP (VERB asked))))))",
        ),
        # Conjuncts without a subject of their own are VPs, below the S; `to` makes a VP.
        (
            "He/PRON/2/nsubj wants/VERB/0/root to/PART/4/mark eat/VERB/2/xcomp and/CCONJ/6/cc drink/VERB/4/conj",
            "(S (NP (PRON He)) (VP (VERB wants) (VP (VP (PART to) (VP (VERB eat))) (CCONJ and) (VP (VERB drink)))))",
        ),
        # A conjunct with a subject is an S; a question's auxiliary, outside of the subject, is in the S.
        (
            "Did/AUX/3/aux he/PRON/3/nsubj eat/VERB/0/root or/CCONJ/6/cc she/PRON/6/nsubj drink/VERB/3/conj",
            "(S (S (AUX Did) (NP (PRON he)) (VP (VERB eat))) (CCONJ or) (S (NP (PRON she)) (VP (VERB drink))))",
        ),
        # Several function words before one noun are one PP; so are two conjoined nouns below one preposition.
        (
            "because/ADP/4/case of/ADP/1/fixed the/DET/4/det rain/NOUN/0/root and/CCONJ/6/cc wind/NOUN/4/conj",
            "(PP (ADP because) (ADP of) (NP (NP (DET the) (NOUN rain)) (CCONJ and) (NP (NOUN wind))))",
        ),
        # `'s` belongs to its noun; a particle is PRT; brackets at both edges stay inside, one comma does not.
        (
            "John/PROPN/3/nmod:poss 's/PART/1/case dog/NOUN/4/nsubj looks/VERB/0/root up/ADP/4/compound:prt"
            " (/PUNCT/7/punct sadly/ADV/4/advmod )/PUNCT/7/punct",
            "(S (NP (NP (PROPN John) (PART 's)) (NOUN dog))"
            " (VP (VERB looks) (PRT (ADP up)) (ADVP (PUNCT -LRB-) (ADV sadly) (PUNCT -RRB-))))",
        ),
        # What cannot be a phrase of the grammar is X; a second root hangs on the first.
        ("***/PUNCT/0/root Yes/INTJ/0/root", "(X (PUNCT ***) (INTJ (INTJ Yes)))"),
    ],
)
def test_sentences_worked_out_by_hand(sentence: str, tree: str) -> None:
    converted, lifted = convert(words(sentence))
    assert converted.write() == tree
    assert lifted == 0


def test_crossing_edges_are_lifted() -> None:
    # "A hearing is scheduled on the issue": the edge from `hearing` to `issue` passes over `scheduled`, which is not
    # below `hearing`, so that `issue` is lifted to the head of that, `scheduled`.
    hearing = words(
        "A/DET/2/det hearing/NOUN/4/nsubj is/AUX/4/aux scheduled/VERB/0/root on/ADP/7/case the/DET/7/det"
        " issue/NOUN/2/nmod"
    )
    heads = [word.head for word in hearing]
    assert lift(heads) == 1
    assert heads == [1, 3, 3, 3, 6, 6, 3]
    tree, lifted = convert(hearing)
    assert lifted == 1
    assert tree.write() == (
        "(S (NP (DET A) (NOUN hearing)) (VP (AUX is) (VP (VERB scheduled) (PP (ADP on) (NP (DET the) (NOUN issue))))))"
    )


UPOS = ("NOUN", "VERB", "ADJ", "ADV", "AUX", "PUNCT", "PART", "PRON", "CCONJ", "NUM")
RELATIONS = (
    "nsubj", "obj", "conj", "cc", "punct", "case", "mark", "aux", "cop", "advmod", "nmod", "det", "fixed", "parataxis",
    "acl", "obl", "compound:prt", "amod", "discourse", "nummod",
)  # fmt: skip


@st.composite
def sentences(draw: st.DrawFn) -> list[Word]:
    """Trees of dependencies that make no sense: each word but the first of some order hangs on one before it."""
    count = draw(st.integers(1, 9))
    order = draw(st.permutations(range(count)))
    heads = {order[0]: order[0]} | {order[n]: order[draw(st.integers(0, n - 1))] for n in range(1, count)}
    return [
        Word(f"w{n}", draw(st.sampled_from(UPOS)), "T", heads[n], draw(st.sampled_from(RELATIONS)))
        for n in range(count)
    ]


@given(sentences())
def test_any_dependencies_make_a_tree_over_their_words(sentence: list[Word]) -> None:
    tree, _ = convert(sentence)
    assert tree.words() == [word.form for word in sentence]


def is_projective(heads: list[int]) -> bool:
    edges = [(min(head, word), max(head, word)) for word, head in enumerate(heads) if head != word]
    root = next(word for word, head in enumerate(heads) if head == word)
    covered = any(left < root < right for left, right in edges)
    return not covered and not any(a < c < b < d for a, b in edges for c, d in edges)


@given(sentences())
def test_lifting_ends_in_a_projective_tree_and_leaves_others_alone(sentence: list[Word]) -> None:
    heads = [word.head for word in sentence]
    before = list(heads)
    lifted = lift(heads)
    assert is_projective(heads)
    assert (lifted == 0) == is_projective(before)


def conllu(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "bank.conllu"
    path.write_text("".join("\t".join([*row.split(), "_", "_"]) + "\n" for row in rows), encoding="utf-8")
    return path


def test_conllu_with_either_tag(tmp_path: Path) -> None:
    path = conllu(tmp_path, "1 Dogs dog NOUN NNS _ 2 nsubj", "2 bark bark VERB _ _ 0 root")
    (converted,) = convert_conllu(path)
    assert (converted.line, converted.tree.write()) == (1, "(S (NP (NNS Dogs)) (VP (VERB bark)))")
    (converted,) = convert_conllu(path, "upos")
    assert converted.tree.write() == "(S (NP (NOUN Dogs)) (VP (VERB bark)))"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["1 a a NOUN NN _ 2 obj", "2 b b NOUN NN _ 1 obj"], r"bank\.conllu:1: these heads make no tree"),
        (["1 a a NOUN NN _ 7 obj"], "these heads make no tree"),
        (
            ["1 a a NOUN NN _ 0 root", "3 b b NOUN NN _ 1 obj"],
            r"bank\.conllu:2: the words of a sentence are numbered in",
        ),
        (["1 a a NOUN NN _ _ obj"], "this row is no word with a head"),
        (["1 a a NOUN"], r"bank\.conllu:1: this row is not CoNLL-U"),
    ],
)
def test_mistakes(tmp_path: Path, rows: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        list(convert_conllu(conllu(tmp_path, *rows)))


@pytest.mark.parametrize("tag", ["", "N N"])
def test_a_part_of_speech_is_one_symbol(tmp_path: Path, tag: str) -> None:
    (tmp_path / "bank.conllu").write_text(f"1\tDogs\tdog\tNOUN\t{tag}\t_\t0\troot\t_\t_\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"bank\.conllu:1: (a part of speech is empty|this row)"):
        list(convert_conllu(tmp_path / "bank.conllu"))
    (converted,) = convert_conllu(tmp_path / "bank.conllu", "upos")
    assert converted.tree.words() == ["Dogs"]


def test_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = conllu(tmp_path, "1 Dogs dog NOUN NNS _ 2 nsubj", "2 bark bark VERB VBP _ 0 root")
    main([str(path)])
    assert capsys.readouterr() == ("(S (NP (NNS Dogs)) (VP (VBP bark)))\n", "1 trees; 0 crossing edges were lifted\n")
    main([str(path), "--tags", "upos"])
    assert "(VP (VERB bark))" in capsys.readouterr().out
    path.write_text("\n\n", encoding="utf-8")
    with pytest.raises(UserError, match="there are no sentences here"):
        main([str(path)])
