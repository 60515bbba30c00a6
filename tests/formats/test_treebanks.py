"""Trees on the command line: drawn, written, sampled; trees made of dependencies."""

from pathlib import Path

import pytest

from headway.formats.penn import parse_tree
from headway.trees.tree import draw
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
