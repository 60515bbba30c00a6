"""Bracket scores: counted by hand as EVALB counts, and against slow counting of any trees."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import UserError
from headway.metrics import build_metric
from headway.metrics.brackets import PUNCTUATION, TreeMetric
from headway.trees.linear_form import NO_TREE, linearise, repair
from headway.trees.tree import Leaf, Tree, clean
from tests.conftest import Command
from tests.metrics.scored import score_files, values
from tests.trees.strategies import LABELS, trees

GOLD = "(S (NP (DT the) (NN dog)) (, ,) (VP (VBD saw) (NP (NP (DT a) (NN cat)) (PP (IN in) (NP (NNP Rome))))) (. .))"


def counts(hypothesis: str, gold: str) -> dict[str, float]:
    """The sums of one segment by name, those of repairs left out."""
    (row,) = build_metric("bracket-f1").statistics([hypothesis], [[gold]])
    return dict(zip(TreeMetric.NAMES, row[: len(TreeMetric.NAMES)], strict=True))


def test_a_wrong_attachment() -> None:
    # Words that count: the0 dog1 saw2 a3 cat4 in5 Rome6 (comma and full stop are taken out).
    # Gold, 7: S 0-7, NP 0-2, VP 2-7, NP 3-7, NP 3-5, PP 5-7, NP 6-7.
    # Said, 6: S 0-7, NP 0-2, VP 2-7, NP 3-5, PP 5-7, NP 6-7; all of them are among the gold ones, NP 3-7 is missing.
    hypothesis = (
        "(S (NP (DT the) (NN dog)) (, ,) (VP (VBD saw) (NP (DT a) (NN cat)) (PP (IN in) (NP (NNP Rome)))) (. .))"
    )
    assert counts(hypothesis, GOLD) == {
        "matched": 6, "output": 6, "reference": 7, "complete": 0, "sentences": 1, "right tags": 7, "tags": 7,
        "crossing": 0, "repaired": 0,
    }  # fmt: skip
    assert build_metric("bracket-precision").score([hypothesis], [[GOLD]]).value == 100
    assert build_metric("bracket-recall").score([hypothesis], [[GOLD]]).value == pytest.approx(100 * 6 / 7)
    assert build_metric("bracket-f1").score([hypothesis], [[GOLD]]).value == pytest.approx(100 * 12 / 13)
    assert build_metric("complete-match").score([hypothesis], [[GOLD]]).value == 0


def test_where_punctuation_is_does_not_matter_and_brackets_of_nothing_else_do_not_count() -> None:
    hypothesis = (
        "(S (NP (DT the) (NN dog) (, ,)) (VP (VBD saw) (NP (NP (DT a) (NN cat)) (PP (IN in) (NP (NNP Rome)))))"
        " (X (. .)))"
    )
    totals = counts(hypothesis, GOLD)
    assert (totals["matched"], totals["output"], totals["reference"], totals["complete"]) == (7, 7, 7, 1)


def test_wrong_labels_and_tags_and_crossing_brackets() -> None:
    # Gold: S 0-3, NP 0-2, VP 2-3. Said: S 0-3, VP 0-2 (another label), NP 1-3, which crosses NP 0-2 (and matches none).
    # Tags: two of three are right.
    gold = "(S (NP (DT a) (NN b)) (VP (VB c)))"
    hypothesis = "(S (VP (DT a) (NN b)) (VP (NN c)))"
    assert [counts(hypothesis, gold)[name] for name in ("matched", "output", "right tags", "tags")] == [2, 3, 2, 3]
    hypothesis = "(S (DT a) (NP (NN b) (VB c)))"
    assert [counts(hypothesis, gold)[name] for name in ("matched", "output", "crossing")] == [1, 2, 1]
    assert build_metric("crossing-brackets").score([hypothesis, gold], [[gold, gold]]).value == 0.5
    assert build_metric("tagging-accuracy").score(["(S (XX a) (NN b) (XX c))"], [[gold]]).value == pytest.approx(
        100 / 3
    )


def test_unary_chains_are_multisets() -> None:
    # Gold: NP 0-1 twice and S 0-1. Said: NP once, S twice: one NP and one S match.
    totals = counts("(S (S (NP (NN a))))", "(S (NP (NP (NN a))))")
    assert (totals["matched"], totals["output"], totals["reference"]) == (2, 3, 3)


def test_roots_particles_functions_and_traces() -> None:
    # TOP does not count, PRT is ADVP: S, VP and ADVP match.
    totals = counts("(TOP (S (VP (VB go) (ADVP (RP on)))))", "(S (VP (VB go) (PRT (RP on))))")
    assert (totals["matched"], totals["output"], totals["reference"], totals["complete"]) == (3, 3, 3, 1)
    # Without functions, traces and a ROOT, both are (S (NP a) (VP b)).
    totals = counts("(S=1 (NP (NN a)) (VP (VB b)))", "(ROOT (S (NP-SBJ (NN a)) (VP-2 (VB b))))")
    assert (totals["matched"], totals["output"], totals["reference"], totals["complete"]) == (3, 3, 3, 1)


def test_the_corpus_is_scored_as_a_whole() -> None:
    # 3 of 3 brackets and 1 of 2 with 3 wanted: F1 = 2 * 4 / (5 + 6), not the mean of 1 and 2/5.
    first, gold, hypothesis = "(S (NP (NN a)) (VP (VB b)))", "(S (NP (NN a)) (VP (VB b)))", "(S (X (NN a)) (VB b))"
    metric = build_metric("bracket-f1")
    score = metric.score([first, hypothesis], [[gold, gold]])
    assert score.value == pytest.approx(100 * 8 / 11)


def test_no_hypothesis_finds_nothing_and_no_reference_counts_nothing() -> None:
    totals = counts("", GOLD)
    assert (totals["matched"], totals["output"], totals["reference"], totals["tags"], totals["repaired"]) == (
        0,
        0,
        7,
        7,
        1,
    )
    assert set(counts(GOLD, "").values()) == {0}
    for name in ("bracket-f1", "complete-match", "tagging-accuracy", "crossing-brackets", "well-formed"):
        assert build_metric(name).score([""], [[""]]).value == 0


def test_linear_forms_are_repaired_over_the_words_of_the_reference() -> None:
    gold = "(S (NP (DT a) (NN b)) (VP (VB c)))"
    whole, broken = "(S (NP DT NN )NP (VP VB )VP )S", "(S (NP DT NN (VP VB )VP )S"
    # The broken one: S 0-3, NP 0-3, VP 2-3, of which S and VP match.
    metric = build_metric("bracket-f1")
    assert metric.score([whole], [[gold]]).value == 100
    assert metric.score([broken], [[gold]]).value == pytest.approx(100 * 4 / 6)
    formed = build_metric("well-formed")
    statistics = formed.statistics([whole, broken, gold, "", "( ) DT"], [[gold] * 5])
    assert formed.aggregate(statistics.sum(0)) == pytest.approx(100 * 2 / 5)
    (note,) = formed.notes(statistics.sum(0))
    assert note.startswith(f"repaired: {NO_TREE}: 2, brackets never closed: 1, ")
    assert formed.notes(statistics[0]) == []


def test_other_words_and_several_references_are_refused() -> None:
    with pytest.raises(UserError, match="segment 1: this tree is over other words than its reference; received 'a c'"):
        build_metric("bracket-f1").score(["(S (NN a) (NN c))"], [["(S (NN a) (NN b))"]])
    with pytest.raises(UserError, match="a tree has one reference"):
        build_metric("bracket-f1").score([GOLD], [[GOLD], [GOLD]])


@pytest.mark.parametrize(
    ("gold", "mistake"),
    [
        ("(S XX )S", "this is not one tree: this stands outside of its bracket; received '(S XX )S'"),
        ("(S (NN a)", "this is not one tree: this bracket is never closed; received '(S (NN a)'"),
    ],
)
def test_references_that_are_no_trees_are_named(gold: str, mistake: str) -> None:
    with pytest.raises(UserError) as error:
        build_metric("bracket-f1").score(["(S (NN a))", "(S (NN a))"], [["(S (NN a))", gold]])
    assert str(error.value).startswith(f"references, segment 2: {mistake}")


def slow_spans(tree: Tree, punctuation: list[bool]) -> list[tuple[str, frozenset[int]]]:
    """Each bracket as its label and the set of the words it covers; by recursion."""
    spans: list[tuple[str, frozenset[int]]] = []
    index = 0

    def walk(node: Tree | Leaf) -> frozenset[int]:
        nonlocal index
        if isinstance(node, Leaf):
            index += 1
            return frozenset() if punctuation[index - 1] else frozenset([index - 1])
        words = frozenset().union(*[walk(child) for child in node.children])
        if words and node.label != "TOP":
            spans.append(("ADVP" if node.label == "PRT" else node.label, words))
        return words

    walk(tree)
    return spans


SHAPES = st.lists(
    st.sampled_from([*(f"({bracket}" for bracket in LABELS), *(f"){bracket}" for bracket in LABELS)]), max_size=8
)


@given(trees(), SHAPES)
def test_any_two_trees_are_counted_as_slowly(gold: Tree, shape: list[str]) -> None:
    cleaned = clean(gold)
    assert cleaned is not None
    tags = [leaf.tag for leaf in cleaned.leaves()]
    symbols = [symbol for pair in zip(shape, tags, strict=False) for symbol in pair] + tags[len(shape) :]
    text = " ".join(["(S", *symbols, ")S"])
    written = repair(text, cleaned.words()).tree
    hypothesis = clean(written)
    assert hypothesis is not None
    punctuation = [tag in PUNCTUATION for tag in tags]
    ours, wanted = slow_spans(hypothesis, punctuation), slow_spans(cleaned, punctuation)
    crossing = sum(any(one & other and not one <= other and not other <= one for _, other in wanted) for _, one in ours)
    left, matched = list(wanted), 0
    for bracket in ours:
        if bracket in left:
            left.remove(bracket)
            matched += 1
    totals = counts(written.write(), gold.write())
    assert (totals["matched"], totals["output"], totals["reference"]) == (matched, len(ours), len(wanted))
    assert totals["crossing"] == crossing
    assert totals["complete"] == (matched == len(ours) == len(wanted))
    assert counts(linearise(written), cleaned.write()) == totals


def test_files_of_any_kind(tmp_path: Path, run_headway: Command) -> None:
    gold = tmp_path / "gold.mrg.gz"
    gold.write_bytes(gzip.compress(b"( (S (NP-SBJ (DT a)\n (NN b))\n (VP (VB c) (NP (-NONE- *)))))\n(())\n"))
    trees_file, linear = tmp_path / "hypotheses.trees", tmp_path / "hypotheses.linear"
    trees_file.write_text("(S (NP (DT a)) (NN b) (VP (VB c)))\n(S (NN x))\n", encoding="utf-8")
    linear.write_text("(S (NP DT NN )NP (VP VB )VP\n\n", encoding="utf-8")
    metrics = [build_metric("bracket-f1"), build_metric("well-formed")]
    report = score_files(metrics, [trees_file, linear], [gold])
    assert values(report) == [pytest.approx(100 * 4 / 6), 100]
    assert values(report, 1) == [100, 0]
    assert f"bracket-f1 of {trees_file}: precision 66.67, recall 66.67: 2 of 3 brackets" in report.text()
    assert f"well-formed of {linear}: repaired: brackets never closed: 1" in report.text()
    code, out, _ = run_headway(
        "score", "--metric", "bracket-f1", "tagging-accuracy", "--hypotheses", linear, "--references", gold
    )
    assert code == 0
    assert out.splitlines()[1].split()[1] == "100.00"
    broken = tmp_path / "broken"
    broken.write_text("(S (NN a))\n(S (NN a)\n", encoding="utf-8")
    code, _, err = run_headway("score", "--metric", "bracket-f1", "--hypotheses", broken, "--references", gold)
    assert (code, err) == (2, f"error: {broken}:2: this bracket is never closed\n")


def test_trees_over_several_lines_are_no_linear_forms(tmp_path: Path) -> None:
    (tmp_path / "gold.mrg").write_text(
        "\n( (S\n    (NP (NN a))\n    (VP (VB b))))\n(\n (S (NN c)))\n", encoding="utf-8"
    )
    (tmp_path / "linear").write_text("(S (NP NN )NP (VP VB )VP )S\n(S NN )S\n", encoding="utf-8")
    (tmp_path / "stanford").write_text(
        "(ROOT\n  (S\n    (NP (NN a))\n    (VP (VB b))))\n\n(S\n  (NN c))\n", encoding="utf-8"
    )
    (tmp_path / "pretty").write_text(
        "(ROOT\n  (S\n    (NP (NN a))\n    (VP (VB b))\n  )\n)\n(S\n  (NN c)\n)\n", encoding="utf-8"
    )
    (tmp_path / "cut-off").write_text("(S\n(S\n", encoding="utf-8")  # of a model that was stopped
    (tmp_path / "apart").write_text("( S ( NP ( NN a ) ) ( VP ( VB b ) ) )\n( S ( NN c ) )\n", encoding="utf-8")
    (tmp_path / "spaced").write_text("(S (NP (NN a ) ) (VP (VB b ) ) )\n(S (NN c ) )\n", encoding="utf-8")
    metric = build_metric("bracket-f1")
    (tmp_path / "lone").write_text("(S NN ) )S\n(S NN )S\n", encoding="utf-8")
    assert metric.read(tmp_path / "lone") == ["(S NN ) )S", "(S NN )S"], "linear forms, one of which is to be repaired"
    assert values(score_files([metric], [tmp_path / "apart"], [tmp_path / "gold.mrg"])) == [100]
    assert values(score_files([metric], [tmp_path / "spaced"], [tmp_path / "gold.mrg"])) == [100]
    files = [tmp_path / name for name in ("gold.mrg", "linear", "stanford", "pretty", "cut-off")]
    report = score_files([metric], files, [tmp_path / "gold.mrg"])
    assert values(report)[:4] == [100, 100, 100, 100]
    assert metric.read(tmp_path / "cut-off") == ["(S", "(S"]


def test_linear_forms_may_begin_with_an_unknown_token(tmp_path: Path) -> None:
    (tmp_path / "said").write_text("<unk> (S NN )S\n(S NN )S\n", encoding="utf-8")
    assert build_metric("bracket-f1").read(tmp_path / "said") == ["<unk> (S NN )S", "(S NN )S"]
