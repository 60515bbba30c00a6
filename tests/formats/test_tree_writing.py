"""Trees on the command line: drawn, written, sampled; trees made of dependencies."""

from pathlib import Path

import pytest

from headway.formats.penn import parse_tree
from headway.trees.tree_drawing import draw
from tests.conftest import Command

TREES = "(S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .))\n(())\n(NP-TTL (NN End))\n"


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    path = tmp_path / "bank.trees"
    path.write_text(TREES, encoding="utf-8")
    return path


def test_a_drawing() -> None:
    tree = parse_tree("(S (NP (NP (DT the) (NN dog)) (PP (IN of) (NP (NN Rome)))) (VP (VBZ barks)))")
    assert draw(tree).splitlines() == [
        "S ─┬─ NP ─┬─ NP ─┬─ DT the",
        "   │      │      └─ NN dog",
        "   │      └─ PP ─┬─ IN of",
        "   │             └─ NP ─── NN Rome",
        "   └─ VP ─── VBZ barks",
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["format=words"], "The dog barks .\n\nEnd\n"),
        (["format=tagged"], "The_DT dog_NN barks_VBZ ._.\n\nEnd_NN\n"),
        (["format=linear"], "(S (NP DT NN )NP (VP VBZ )VP . )S\n\n(NP NN )NP\n"),
        (["format=linear", "leaves=xx"], "(S (NP XX XX )NP (VP XX )VP XX )S\n\n(NP XX )NP\n"),
        (
            ["format=brackets", "functions=true"],
            "(S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .))\n\n(NP-TTL (NN End))\n",
        ),
    ],
)
def test_formats(run_headway: Command, treebank: Path, options: list[str], expected: str) -> None:
    assert run_headway("data", "make", "trees", treebank, *options) == (0, expected, "")


def test_drawings_and_samples(run_headway: Command, treebank: Path) -> None:
    code, out, _ = run_headway("data", "make", "trees", treebank)
    assert code == 0
    assert out.startswith("The dog barks .\nS ─┬─ NP ─┬─ DT The\n")
    assert out.endswith("\n\nEnd\nNP ─── NN End\n\n")
    sampled = run_headway("data", "make", "trees", treebank, "format=words", "sample=2").out
    assert len(sampled.splitlines()) == 2
    assert sampled == run_headway("data", "make", "trees", treebank, "format=words", "sample=2").out
    assert run_headway("data", "make", "trees", treebank, "sample=9", "format=words").out.count("\n") == 3


def test_mistakes(run_headway: Command, treebank: Path) -> None:
    code, _, err = run_headway("data", "make", "trees", treebank, "format=picture")
    assert (code, err.split(";")[0]) == (2, "error: format: unknown format")
    linear = ["format=linear"]
    assert "leaves: unknown leaves" in run_headway("data", "make", "trees", treebank, "leaves=pos", *linear).err


@pytest.mark.parametrize(
    ("given", "mistake"),
    [
        (["leaves=xx"], "leaves: only the linear form leaves words out; received 'format drawing'"),
        (["functions=true", "format=words"], "functions: words have no grammatical functions"),
    ],
)
def test_options_that_would_do_nothing(run_headway: Command, treebank: Path, given: list[str], mistake: str) -> None:
    code, out, err = run_headway("data", "make", "trees", treebank, *given)
    assert (code, out) == (2, "")
    assert mistake in err


def test_a_tag_that_could_not_be_read_again_is_refused(run_headway: Command, tmp_path: Path) -> None:
    path = tmp_path / "bank.trees"
    path.write_text("(S (NN_X a_b))\n", encoding="utf-8")
    code, out, err = run_headway("data", "make", "trees", path, "format=tagged")
    assert (code, out) == (2, "")
    assert "format: a tag with an underscore cannot be told from the word before it; received 'a_b_NN_X'" in err
    path.write_text("(S (NN a_b))\n", encoding="utf-8")
    assert run_headway("data", "make", "trees", path, "format=tagged").out == "a_b_NN\n"


def test_a_file_that_holds_nothing(run_headway: Command, tmp_path: Path) -> None:
    path = tmp_path / "blank"
    path.write_text("\n\n")
    code, out, err = run_headway("data", "make", "trees", path)
    assert (code, out) == (2, "")
    assert err.endswith("blank: there are no trees here\n")
