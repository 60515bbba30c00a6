"""Unknown words are replaced by the source words that they attend to, as they stand there or in a dictionary."""

from pathlib import Path

import numpy as np
import pytest
import torch

from headway.core.errors import UserError
from headway.export.parity import Search, answering_by
from headway.models import build_model
from headway.predictors.predictor import Run
from headway.predictors.sequence_predictor import SequencePredictor
from headway.predictors.unknown_words import UnknownWords, read_dictionary, unknown_words
from headway.processing.text.extension import tagged
from headway.processing.text.text_processor import TextProcessor
from headway.recipe import parse_recipe
from headway.runs.load import load
from headway.search.limits import Hypothesis
from headway.tensors.batch import UNKNOWN
from tests.conftest import Command, Reversal


@pytest.fixture
def predictor(backwards: Path, monkeypatch: pytest.MonkeyPatch) -> SequencePredictor:
    """The run, whose search finds the words backwards, of which `b` and whatever is unknown are unknown words."""
    loaded = load(backwards / "run")
    assert isinstance(loaded, SequencePredictor)
    unknown = {UNKNOWN, *loaded.source.encode("b").values}

    def hypotheses(request):
        ids = [[UNKNOWN if id in unknown else id for id in reversed(source)] for source in request.sources]
        return [[Hypothesis(tuple(row), (0.0,) * (len(row) + 1), 0.0)] * 2 for row in ids]

    monkeypatch.setattr(loaded.backend, "hypotheses", hypotheses)
    return loaded


def test_unknown_words_are_copied_from_where_they_attend(predictor: SequencePredictor) -> None:
    lines = ["a b c", "c  d g", "f a b e"]
    kept = predictor.predict(lines)
    assert [each.text for each in kept] == ["c <unk> a", "g d c", "e <unk> a f"]
    copied = predictor.predict(lines, unknown_words="copy", nbest=2)
    assert [[each.text for each in row.hypotheses] for row in copied] == [["c b a"] * 2, ["g d c"] * 2, ["e b a f"] * 2]
    assert [each.tokens for each in copied] == [each.tokens for each in kept]


def test_a_dictionary_translates_them(predictor: SequencePredictor, tmp_path: Path) -> None:
    (tmp_path / "words").write_text("b\tbeta\na\talpha\n", encoding="utf-8")
    options = {"unknown_words": "copy", "dictionary": tmp_path / "words"}
    assert predictor.predict("f a b e", **options)[0].text == "e beta a f"


def test_a_word_that_the_source_does_not_know_is_copied_as_it_stands(predictor: SequencePredictor) -> None:
    assert isinstance(predictor.source, TextProcessor)
    replace = UnknownWords("decoder.1.cross", predictor.source, {"a": "alpha"})
    weights = np.array(
        [[[0, 0, 0, 1], [0.1, 0.5, 0.4, 0], [0.6, 0.4, 0, 0]], [[1, 0, 0, 0], [0, 0.5, 0.4, 0], [1, 0, 0, 0]]]
    )
    source = predictor.source.encode("a Zürich c").values
    assert replace(" a  Zürich c more", source, [UNKNOWN, UNKNOWN, 7], weights) == ["alpha", "Zürich"]


def test_neither_the_end_mark_nor_a_tag_is_copied(predictor: SequencePredictor) -> None:
    assert isinstance(predictor.source, TextProcessor)
    source, target = tagged((predictor.source, predictor.target), ["<2de>"])
    line = "<2de> a Zürich"
    replace = unknown_words(["decoder.1.cross"], source, target, None)
    weights = np.array([[[0.9, 0.0, 0.1, 0.0], [0.5, 0.0, 0.0, 0.5], [0.0, 0.0, 0.0, 1.0]]])
    assert replace(line, source.encode(line).values, [UNKNOWN] * 3, weights) == ["Zürich", "<unk>", "<unk>"]


def test_white_space_after_the_last_word_stands_for_it(reversal: Reversal) -> None:
    source = load(reversal.run).source
    assert isinstance(source, TextProcessor)
    source = TextProcessor(source.config.model_copy(update={"clean": False}), source.vocabulary)
    line = "ab\u3000"
    tokens = source.encode_with_spans(line)
    assert tokens[-1].word == 1
    weights = np.zeros((1, 1, len(tokens) + 1))
    weights[..., len(tokens) - 1] = 1
    replace = UnknownWords("decoder.1.cross", source, {})
    assert replace(line, source.encode(line).values, [UNKNOWN], weights) == ["ab"]


def test_exports_are_compared_without_copies(predictor: SequencePredictor, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = predictor.recipe.model_dump(mode="json")
    tree["decoding"]["unknown_words"] = "copy"
    monkeypatch.setattr(predictor, "recipe", parse_recipe(tree))
    assert predictor.predict("a b c")[0].text == "c b a"
    ((answer, *_),) = answering_by(predictor)(["a b c"], Search(2, 9))
    assert "<unk>" in answer.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("b beta\n", r"words:1: this is no entry of a dictionary; received"),
        ("b\tbeta\tB\n", r"words:1: this is no entry"),
        ("b\tbeta\nb\tB\n", r"words:2: this word has an entry above; received 'b'"),
    ],
)
def test_what_is_no_dictionary(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "words").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read_dictionary(tmp_path / "words")


def test_what_copies_nothing_is_refused(predictor: SequencePredictor, reversal: Reversal, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="dictionary: a dictionary is for unknown_words copy"):
        predictor.predict("a b", dictionary=tmp_path)
    with pytest.raises(UserError, match="unknown_words: the unknown tokens of this vocabulary are parts of words"):
        load(reversal.run).predict("ab", unknown_words="copy")
    run = predictor.runs[0]
    with pytest.raises(UserError, match=r"unknown_words: .*give one run"):
        SequencePredictor([run, run], torch.device("cpu")).predict("a b", unknown_words="copy")
    tree = run.recipe.model_dump(mode="json")
    tree["model"]["attention"]["kind"] = "none"
    recipe = parse_recipe(tree)
    alone = Run(
        recipe, run.source, run.target, build_model(recipe.model, run.source.size, run.target.size, True), run.path
    )
    with pytest.raises(UserError, match="unknown_words: this model has no attention to the source"):
        SequencePredictor([alone], torch.device("cpu")).predict("a b", unknown_words="copy")


def test_the_command_line_has_the_option(run_headway: Command, backwards: Path, tmp_path: Path) -> None:
    (tmp_path / "words").write_text("b beta", encoding="utf-8")
    flags = ("--unknown-words", "copy", "--dictionary", tmp_path / "words")
    ended = run_headway("predict", backwards / "run", *flags, stdin="a b c\n")
    assert ended.code == 2
    assert "words:1: this is no entry of a dictionary" in ended.err
