"""Attachment and agreement: worked by hand, trees against every tree there is, and a trained run end to end."""

import gzip
import itertools
import json
import math

import numpy as np
import pytest

from headway.inspect.dependency_analysis import (
    Agreement,
    Analysed,
    AttachmentScore,
    Synchronised,
    best_tree,
    dependency_figure,
    synchronous_figure,
    word_heads,
    word_weights,
)
from headway.parses.parse import depths
from headway.parses.projection import NONE, Projection
from tests.parses import toys as parses
from tests.training import toys as training


def analysed(heads, blocks, weights) -> Analysed:
    projection = Projection(np.array(heads, np.int32), np.array(blocks, np.int32), {"edges": 0})
    return Analysed([f"p{place}" for place in range(len(heads))], projection, np.array(weights, float))


# Words a|b, c, d: a's piece points to b, b to c's only piece, c is the root, d hangs on a|b's first piece.
SENTENCE = analysed(
    [1, 2, 2, 0],
    [0, 0, 1, 2],
    [[0, 1, 0, 0], [0.1, 0.15, 0.35, 0.4], [0, 0.1, 0.6, 0.3], [0.3, 0.3, 0.4, 0]],
)


def test_words_look_at_words():
    assert np.allclose(word_weights(SENTENCE), [[0.25, 0.35, 0.4], [0.1, 0.6, 0.3], [0.6, 0.4, 0]])
    assert word_heads(SENTENCE.projection).tolist() == [1, 1, 0]
    assert word_heads(SENTENCE.projection.left_only()).tolist() == [NONE, 1, 0]


def test_scores_worked_by_hand():
    """By argmax a|b looks at d (wrong), c at itself, d at a|b: a circle. The tree breaks it where it costs least."""
    score = AttachmentScore()
    assert score.add(SENTENCE, causal=False) == ("2 0 1", "2 0 1")
    assert (score.words, score.right_by_argmax, score.right_by_tree) == (3, 2, 3)
    assert (score.pieces, score.pieces_right) == (4, 2)
    assert score.add(SENTENCE, causal=True) == ("2 0 1", "_ 0 1")  # a|b's head stands to the right
    assert (score.sentences, score.parsed, score.words, score.words_to_the_right) == (2, 2, 5, 1)
    assert score.to_json()["uas_argmax"] == pytest.approx(100 * 4 / 5)
    assert "5 words with a head, and 1 whose head stands to the right" in score.text("source")
    unparsed = analysed([NONE, NONE], [0, 1], [[1, 0], [1, 0]])
    empty = AttachmentScore()
    assert empty.add(unparsed, causal=False)[1] == "_ _"
    assert (empty.parsed, empty.words, empty.to_json()["uas_tree"]) == (0, 0, 0)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_best_tree_is_the_best_of_all(size):
    random = np.random.default_rng(size)
    for _ in range(5):
        weights = random.dirichlet(np.ones(size) / 2, size) if size > 1 else np.ones((1, 1))
        trees = []
        for heads in itertools.product(range(size), repeat=size):
            try:
                depths(heads)
            except ValueError:
                continue
            trees.append((sum(math.log(max(weights[w, h], 1e-30)) for w, h in enumerate(heads)), list(heads)))
        assert best_tree(weights) == max(trees)[1]


def test_agreement_worked_by_hand():
    projected = np.array([[1, 0, 0], [0.5, 0.5, 0], [0.2, 0.3, 0.5]])
    decoder = np.array([[1, 0, 0], [0.75, 0.25, 0], [0.6, 0.3, 0.1]])
    total = Agreement()
    total.add(Synchronised(np.eye(2), np.ones((3, 2)) / 2, projected, decoder))
    assert total.to_json() == pytest.approx(
        {"rows": 2, "same_argmax": 50, "total_variation": (0.25 + 0.4) / 2, "squared_distance": (0.125 + 0.32) / 2}
    )


def test_figures_are_drawn(tmp_path):
    dependency_figure(SENTENCE, tmp_path / "a.svg")
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    dependency_figure(SENTENCE, tmp_path / "b.svg", causal=True)
    assert drawn != (tmp_path / "b.svg").read_text(encoding="utf-8")  # fewer heads are marked
    pair = Synchronised(np.eye(2), np.ones((3, 2)) / 2, np.tril(np.ones((3, 3))), np.eye(3))
    synchronous_figure(pair, ["x", "</s>"], ["a", "b", "</s>"], tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """A run taught a head that is easy to see: each letter's is the one before it, the first is the root."""
    from headway.parses.annotation import parts_of_corpora, run_annotate
    from headway.recipe import Recipe
    from headway.training.loop import train

    folder = tmp_path_factory.mktemp("taught")
    recipe = training.recipe(folder, updates=100, batch_tokens=512, checkpoint_every=100, log_every=10)
    words = [
        line.split("\t") for name in ("train", "dev") for line in (folder / f"{name}.tsv").read_text().splitlines()
    ]
    spaced = {" ".join(word): list(range(len(word))) for pair in words for word in pair}
    parses.write_conllu(folder, parses.tree_lines(spaced))
    for name in ("train", "dev"):
        rows = [line.split("\t") for line in (folder / f"{name}.tsv").read_text().splitlines()]
        (folder / f"{name}.tsv").write_text("".join("\t".join(map(" ".join, row)) + "\n" for row in rows))
    parser = {"kind": "conllu", "model": str(folder / "made.conllu")}
    tree = recipe.model_dump(mode="json")
    tree["data"]["parses"] = {"source": parser, "target": parser}
    tree["vocabulary"] = {"kind": "whitespace", "shared": True}
    for stack in ("encoder", "decoder"):
        tree["model"][stack]["mixer"] = [{"kind": "dependency"}, {"kind": "attention"}][
            : tree["model"][stack]["layers"]
        ]
    tree["objective"] |= {"dependency": {"weight": 1}, "synchronous": {"cross_layer": 2, "weight": 1}}
    recipe = Recipe.model_validate(tree)
    corpora = {"data.train": recipe.data.train, "data.dev": recipe.data.dev}
    run_annotate(parts_of_corpora(corpora, recipe.data.parses, "error"), None)
    assert train(recipe, folder / "run") == 0
    return folder / "run"


def test_a_run_learns_its_heads(taught):
    lines = [json.loads(line) for line in (taught / "metrics.jsonl").read_text().splitlines()]
    logged = [line for line in lines if "loss" in line]
    names = ["cross_entropy", "dependency.source", "dependency.target", "synchronous"]
    for line in logged:
        assert line["loss"] == pytest.approx(sum(line[f"loss.{name}"] for name in names))
    for name in names[:3]:  # a head that knows its place grows apart from equation 12's flat softmax
        assert logged[-1][f"loss.{name}"] < 0.7 * logged[0][f"loss.{name}"], name


def test_the_command_measures_and_draws(taught, run_headway, tmp_path):
    done = run_headway(
        "inspect", "tables", "dependencies", taught, "--json", "--figures", tmp_path / "figures", "--sentences", "1"
    )
    assert done.code == 0, done.err
    content = json.loads(done.out)
    assert content["source"]["uas_argmax"] > 90
    assert content["target"]["uas_tree"] > 90
    assert content["source"]["parsed"] == content["source"]["sentences"] == 16
    assert content["agreement"]["rows"] > 0
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        "dependencies-source-1.png", "dependencies-target-1.png", "synchronous-1.png",
    ]  # fmt: skip
    heads = tmp_path / "heads"
    assert run_headway("inspect", "tables", "dependencies", taught, "--heads", heads).code == 0
    for side in ("source", "target"):
        files = [heads / f"{side}.{name}.heads" for name in ("model", "parser")]
        scored = run_headway("score", "--metric", "uas", "--hypotheses", files[0], "--references", files[1], "--json")
        (found,) = json.loads(scored.out)["variants"].values()
        assert found["uas"]["mean"] == pytest.approx(content[side]["uas_tree"])
    gold = tmp_path / "gold.conllu"
    gold.write_text(parses.tree_lines({"a b c": [0, 1, 2], "d a": [2, 0]}), encoding="utf-8")
    scored = run_headway(
        "inspect", "tables", "dependencies", taught, f"data.parses.source=conllu:{gold}", "--source", gold
    )
    assert scored.code == 0, scored.err
    assert "source: 2 of 2 sentences parsed, 5 words with a head" in scored.out
    assert "D and D'" not in scored.out
    compressed = gold.with_suffix(".conllu.gz")
    compressed.write_bytes(gzip.compress(gold.read_bytes()))
    again = run_headway(
        "inspect", "tables", "dependencies", taught, f"data.parses.source=conllu:{gold}", "--source", compressed
    )
    assert again.out == scored.out


def test_predicting_needs_no_parser(taught, run_headway):
    (taught.parent / "made.conllu").rename(taught.parent / "gone.conllu")
    try:
        done = run_headway("predict", taught, stdin="a b c\n")
    finally:
        (taught.parent / "gone.conllu").rename(taught.parent / "made.conllu")
    assert done.code == 0, done.err
    assert done.out.strip()


def test_what_cannot_be_measured_is_named(reversal, run_headway, tmp_path):
    nothing = run_headway("inspect", "tables", "dependencies", reversal.run)
    assert nothing.code == 2
    assert "data.parses" in nothing.err
    for name in ("a", "b"):
        (tmp_path / name).write_text("a\n" * (1 + (name == "b")), encoding="utf-8")
    uneven = run_headway(
        "inspect", "tables", "dependencies", reversal.run, "--source", tmp_path / "a", "--target", tmp_path / "b"
    )
    assert uneven.code == 2
    assert "1 sources and 2 targets" in uneven.err
