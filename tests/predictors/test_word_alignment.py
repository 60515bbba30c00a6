"""Alignments of words: merged from pieces, alike from search and forced decoding, right where that is known."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import yaml

from headway.predictors import word_alignment as aligners
from headway.predictors.captured_attention import AttentionWeights
from headway.predictors.output import Example, Output, TextHypothesis
from headway.predictors.word_alignment import Aligner, WordAlignment, build_aligner, cross_layers, merge_words
from headway.processing.processor import Words
from headway.processing.text.extension import tagged
from headway.processing.text.text_processor import PreparationConfig, TextProcessor
from headway.processing.text.vocabulary import VocabularyConfig, train_vocabulary
from headway.runs.load import load
from tests.conftest import Command, Reversal, write_reversal


def forced(run_headway: Command, folder: Path, target: Path, alignments: Path) -> str:
    files = ("--source", folder / "dev.source", "--target", target, "--alignments", alignments)
    assert run_headway("score", folder / "run", *files).code == 0
    return alignments.read_text()


def test_a_word_that_looked_at_no_source_word_has_no_link() -> None:
    weights = np.array([[0.0, 0.0], [0.2, 0.8], [0.0, 0.0], [1e-9, 0.0]])  # the rest is the end mark's
    assert WordAlignment(("a", "b"), ("w", "x", "y", "z"), weights).pharaoh() == "0-3 1-1"
    assert WordAlignment((), ("x",), np.zeros((1, 0))).links() == []


@pytest.mark.parametrize("beam", ["1", "3"])
def test_search_and_forced_decoding_align_alike(
    run_headway: Command, backwards: Path, tmp_path: Path, beam: str
) -> None:
    source = (backwards / "dev.source").read_text()
    flags = ("--beam", beam, "--alignments", tmp_path / "found")
    ended = run_headway("predict", backwards / "run", *flags, stdin=source)
    assert ended.code == 0
    (tmp_path / "said").write_text(ended.out)
    assert (tmp_path / "found").read_text() == forced(run_headway, backwards, tmp_path / "said", tmp_path / "forced")


def test_alignments_are_right(run_headway: Command, backwards: Path, tmp_path: Path) -> None:
    forced(run_headway, backwards, backwards / "dev.target", tmp_path / "found")
    files = ("--hypotheses", tmp_path / "found", "--references", backwards / "gold")
    scored = run_headway("score", "--metric", "aer", *files, "--json")
    assert json.loads(scored.out)["variants"]["found"]["aer"]["mean"] < 10


def test_weights_and_a_picture(run_headway: Command, backwards: Path, tmp_path: Path) -> None:
    files = ("--alignments", tmp_path / "a.jsonl", "--alignment-figure", tmp_path / "a.png")
    assert run_headway("predict", backwards / "run", *files, stdin="a b c\n\nd e f g\n").code == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    records = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [(each["line"], each["source_words"], each["target_words"]) for each in records] == [
        (1, ["a", "b", "c"], ["c", "b", "a"]), (2, [], []), (3, ["d", "e", "f", "g"], ["g", "f", "e", "d"]),
    ]  # fmt: skip
    weights = np.array(records[0]["weights"])
    assert weights.shape == (3, 3)
    assert (weights.sum(1) <= 1 + 1e-5).all()
    assert records[0]["alignment"] == "0-2 1-1 2-0"


def test_the_gold_of_dev_says_which_layer(run_headway: Command, backwards: Path, tmp_path: Path) -> None:
    flags = ("--alignments", tmp_path / "a", "--alignment-gold")
    ended = run_headway("predict", backwards / "run", *flags, backwards / "gold", stdin="a b c\n")
    assert "AER on dev by layer: decoder.1.cross" in ended.err
    assert (tmp_path / "a").read_text() == "0-2 1-1 2-0\n"
    (tmp_path / "short").write_text("0-0\n")
    ended = run_headway("predict", backwards / "run", *flags, tmp_path / "short", stdin="a b c\n")
    assert ended.code == 2
    assert "1 alignments for 30 pairs" in ended.err


@pytest.mark.parametrize(
    ("rates", "layer"), [((30, 30, 30), 1), ((20, 30, 20), 0), ((30, 20, 20), 1), ((30, 20, 10), 2)]
)
def test_of_layers_that_are_equally_good_the_usual_one_aligns(monkeypatch, rates, layer: int) -> None:
    names = [f"decoder.{index}.cross" for index in (1, 2, 3)]
    monkeypatch.setattr(aligners, "error_rates", lambda *_: dict(zip(names, rates, strict=True)))
    assert aligners.choose_aligner(cast("Any", None), None, None, Path("gold")).layer == names[layer]


@pytest.mark.parametrize("verb", ["predict", "score"])
def test_gold_between_words_that_dev_does_not_have(
    run_headway: Command, backwards: Path, tmp_path: Path, verb: str
) -> None:
    shifted = re.sub(r"\d+", lambda number: str(int(number[0]) + 1), (backwards / "gold").read_text())
    (tmp_path / "gold").write_text(shifted)
    targets = ("--source", backwards / "dev.source", "--target", backwards / "dev.target") if verb == "score" else ()
    flags = (*targets, "--alignments", tmp_path / "a", "--alignment-gold", tmp_path / "gold")
    ended = run_headway(verb, backwards / "run", *flags, stdin="a b c\n")
    assert (ended.code, ended.out) == (2, "")
    assert "gold, line 1: these links are between words that the sentences do not have" in ended.err
    assert "numbered from 0" in ended.err


def test_layers_of_a_transformer(run_headway: Command, reversal: Reversal, tmp_path: Path) -> None:
    predictor = load(reversal.run, device="cpu")
    assert cross_layers(predictor) == ["decoder.1.cross", "decoder.2.cross"]
    assert build_aligner(predictor).layer == "decoder.1.cross"
    assert build_aligner(predictor, 2, [1]) == Aligner("decoder.2.cross", (1,))
    for flags, message in (
        (("--alignment-layer", "3"), "error: --alignment-layer: no attention to the source there; received 3"),
        (("--alignment-heads", "0,2"), "error: --alignment-heads: there is no such head; received 0; allowed: 1 to 2"),
        (("--alignment-heads", "x"), "error: --alignment-heads: these are no numbers, separated by commas"),
    ):
        ended = run_headway("predict", reversal.run, "--alignments", tmp_path / "a", *flags, stdin="ab\n")
        assert ended.code == 2
        assert ended.err.startswith(message)
    assert run_headway("predict", reversal.run, "--alignments", tmp_path / "a", stdin="ab\n\n").code == 0
    assert (tmp_path / "a").read_text() == "0-0\n\n"


def test_pieces_are_merged_to_words() -> None:
    """Two source words of 2 and 1 pieces, two target words of 1 and 2; the last row and column are end marks."""
    weights = np.array([[0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.2, 0.2], [0.1, 0.1, 0.8, 0.0], [1.0, 0.0, 0.0, 0.0]])
    source, target = Words(("ab", "c"), (0, 0, 1)), Words(("x", "yz"), (0, 1, 1))
    merged = merge_words(weights, source, target)
    np.testing.assert_allclose(merged, [[0.3, 0.3], [(0.6 + 0.2) / 2, (0.2 + 0.8) / 2]])
    assert WordAlignment(source.texts, target.texts, merged).links() == [(0, 0), (1, 1)]


def test_tags_are_no_words() -> None:
    processor = TextProcessor(PreparationConfig(), train_vocabulary(VocabularyConfig(kind="word"), ["a b"]))
    processor, _ = tagged((processor, processor), ["<2up>"])
    source = processor.words(processor.encode("<2up> a b").values)
    assert source == Words(("<2up>", "a", "b"), (0, 1, 2), tags=1)
    weights = np.array([[[0.4, 0.5, 0.1, 0], [0.8, 0, 0.2, 0], [1, 0, 0, 0], [0, 0, 0, 1]]], np.float32)
    hypotheses = [TextHypothesis("x y z", 0.0, ["x", "y", "z"], [])]
    target = Words(("x", "y", "z"), (0, 1, 2))
    prediction = Output(
        Example("<2up> a b"), hypotheses, AttentionWeights({"x": weights}), None, ["<2up>", "a", "b"], source, target
    )
    aligned = Aligner("x")(prediction)
    assert (aligned.source, aligned.pharaoh()) == (("a", "b"), "0-0 1-1")
    alone = Words(("<2up>", "ab"), (0, 1, 1), tags=1)
    by_token = Aligner("x")(replace(prediction, source_words=alone), split=True)
    assert (by_token.source, by_token.pharaoh()) == (("a", "b"), "0-0 1-1")


def test_heads_are_averaged_before_words_are_linked() -> None:
    words = Words(("a", "b"), (0, 1))
    weights = np.array([[[0.6, 0.4, 0], [0.1, 0.9, 0], [0, 0, 1]], [[0, 1, 0], [0.3, 0.7, 0], [0, 0, 1]]], np.float32)
    prediction = Output(
        Example("a b"),
        [TextHypothesis("a b", 0.0, ["a", "b"], [])],
        AttentionWeights({"x": weights}),
        source_words=words,
        target_words=words,
    )
    assert Aligner("x")(prediction).pharaoh() == "1-0 1-1"
    assert Aligner("x", (1,))(prediction).pharaoh() == "0-0 1-1"
    assert Aligner("x")(Output(Example(""), [TextHypothesis("", 0.0, [], [])])).pharaoh() == ""


def test_an_empty_side_has_no_links() -> None:
    empty, words = Words((), ()), Words(("a",), (0,))
    for source, target in ((empty, words), (words, empty), (empty, empty)):
        merged = merge_words(np.ones((len(target.of) + 1, len(source.of) + 1)), source, target)
        assert WordAlignment(source.texts, target.texts, merged).links() == []


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char", "word", "whitespace"])
def test_pieces_know_their_words(kind: str) -> None:
    lines = ["the small cat sat", "a cat ran home", "old houses stand", "they stood there and ran"] * 3
    vocabulary = train_vocabulary(VocabularyConfig(kind=kind, size=27), lines)
    side = TextProcessor(PreparationConfig(), vocabulary)
    for line in [*lines, "the 猫 catty q", " a  cat "]:
        ids = side.encode(line).values
        words = side.words(ids)
        assert len(words.of) == len(ids)
        assert len(words.texts) == len(line.split())
        for text, word in zip(words.texts, line.split(), strict=True):
            assert text == word or "<unk>" in text
    assert side.words([]) == Words((), ())


def test_a_model_without_attention(run_headway: Command, tmp_path: Path) -> None:
    """It trains, reports and decodes; attention and alignments it does not have."""
    recipe, _ = write_reversal(tmp_path)
    model = {
        "kind": "recurrent",
        "dim": 8,
        "encoder": {"layers": 1, "hidden": 8},
        "decoder": {"layers": 1, "hidden": 8},
    }
    tree = yaml.safe_load(recipe.read_text()) | {"model": model | {"attention": "none"}}
    recipe.write_text(yaml.safe_dump(tree))
    trained = run_headway("train", recipe, "training.updates=2", "--output", tmp_path / "run")
    assert (trained.code, (tmp_path / "run" / "report.html").exists()) == (0, True)
    assert run_headway("predict", tmp_path / "run", stdin="ab\n").out.count("\n") == 1
    for option, message in (
        ("--attention", "no attention of this model has such a name; received '*.cross'; allowed: none"),
        ("--alignments", "this model has no attention to the source"),
    ):
        ended = run_headway("predict", tmp_path / "run", option, tmp_path / "x", stdin="ab\n")
        assert ended.code == 2
        assert message in ended.err
