"""Joined sentences: their ids, the places of their tokens, and tags before them."""

from pathlib import Path

import pytest

from headway.core.errors import UserError
from headway.processing.processor import Truncation
from headway.processing.text.document_vocabulary import MARK, DocumentVocabulary
from headway.processing.text.extension import marked, tagged
from headway.processing.text.text_processor import (
    PreparationConfig,
    TextProcessor,
    load_processors,
    save_processors,
)
from headway.processing.text.vocabulary import TokensConfig, WordVocabulary, train_vocabulary

WORDS = WordVocabulary(["a", "b", "ca", "."])


def processor(limit: int = 100, tags: tuple[str, ...] = ()) -> TextProcessor:
    plain = TextProcessor(PreparationConfig(segment="moses"), WORDS)
    source, _ = tagged(marked((plain, plain), (True, False), Truncation(limit)), tags)
    return source


def test_ids_are_those_of_the_sentences_with_marks_between_them() -> None:
    joint = processor()
    assert joint.encode("a b.\nca.\nb").values == [4, 5, 7, 8, 6, 7, 8, 5]
    assert joint.encode("b").values == [5]
    assert joint.encode("a\n ").values == []
    assert joint.encode(" \nb").values == [5]
    assert joint.tokens([8]) == [MARK]
    assert joint.after_mark([4, 8, 6, 8, 5]) == 4
    assert joint.after_mark([4, 5]) == 0
    assert joint.decode([4, 8, 5]) == "a b"


def test_a_limit_keeps_the_last_sentences() -> None:
    for limit, tokens in (
        (8, "a b . <sep> ca . <sep> b"),
        (7, "ca . <sep> b"),
        (4, "ca . <sep> b"),
        (3, "b"),
        (1, "b"),
    ):
        joint = processor(limit)
        assert " ".join(joint.tokens(joint.encode("a b.\nca.\nb").values)) == tokens


@pytest.mark.parametrize("limit", [100, 5])
def test_every_token_knows_its_characters(limit: int) -> None:
    line = "a b.\n <x> ca.\n<x> b ca"
    joint = processor(limit, ("<x>",))
    spans = joint.encode_with_spans(line)
    assert [token.id for token in spans] == joint.encode(line).values
    for token in spans:
        assert line[token.start : token.end] == ("" if token.text == MARK else token.text)


def test_tags_of_the_sentence_stand_before_all() -> None:
    joint = processor(tags=("<x>", "<y>"))
    assert joint.tokens(joint.encode("<x> a\n<y> b").values) == ["<y>", "a", MARK, "b"]
    words = joint.words(joint.encode("<x> a\n<y> b").values)
    assert words.texts == ("<y>", "a", MARK, "b")
    assert words.tags == 3


def test_a_shared_vocabulary_stays_shared_and_is_stored(tmp_path: Path) -> None:
    plain = TextProcessor(PreparationConfig(), WORDS)
    source, target = tagged(marked((plain, plain), (True, False), Truncation(7, "words")), ["<x>"])
    assert source.vocabulary is target.vocabulary
    save_processors((source, target), tmp_path)
    again, _ = load_processors(tmp_path)
    assert again.same(source)
    assert isinstance(again.vocabulary.untagged, WordVocabulary)
    assert again.vocabulary.mark == 8
    assert again.vocabulary.text.limit == Truncation(7, "words")  # type: ignore[attr-defined]


def test_a_kind_of_vocabulary_is_none() -> None:
    with pytest.raises(UserError, match=r"data\.context"):
        train_vocabulary(TokensConfig(kind="document"), ["a"])
    assert DocumentVocabulary(WORDS, Truncation(3)).within_limit(["a b", "b"]) == ["b"]
