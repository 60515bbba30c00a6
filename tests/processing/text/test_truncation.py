"""Long lines cut to their first pieces or words."""

import pytest

from headway.corpora.filters import Filters
from headway.processing.processor import Truncation, encode_beginnings, first_words
from headway.processing.text.text_processor import TextConfig, TextProcessor, train_processors
from headway.processing.text.vocabulary import VocabularyConfig

LINES = ["ab cd", "", "  a b  c ", "abcd", "a b c d e"]


@pytest.fixture
def characters() -> TextProcessor:
    return train_processors(TextConfig(), VocabularyConfig(kind="char"), lambda: iter([("ab cd e", "x")]))[0]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 20])
def test_pieces(characters: TextProcessor, length: int) -> None:
    whole = [characters.encode(line).values for line in LINES]
    encoded, cut = encode_beginnings(characters.vocabulary, LINES, Truncation(length))
    assert encoded == [ids[:length] for ids in whole]
    assert cut == [len(ids) > length for ids in whole]
    assert encode_beginnings(characters.vocabulary, LINES, None) == (whole, [False] * len(LINES))


@pytest.mark.parametrize("length", [1, 2, 3, 20])
def test_words(characters: TextProcessor, length: int) -> None:
    encoded, cut = encode_beginnings(characters.vocabulary, LINES, Truncation(length, "words"))
    assert encoded == [characters.encode(" ".join(line.split()[:length])).values for line in LINES]
    assert cut == [len(line.split()) > length for line in LINES]


@pytest.mark.parametrize(
    ("text", "count", "expected"),
    [
        ("one two  three", 2, "one two"),
        (" one\t two", 2, " one\t two"),
        ("one ", 5, "one"),
        ("", 3, ""),
        ("x y", 1, "x"),
    ],
)
def test_first_words(text: str, count: int, expected: str) -> None:
    assert first_words(text, count) == expected


def test_the_recipe_says_how_much() -> None:
    assert Filters().truncation() is None
    assert Filters(truncate_source=50).truncation() == Truncation(50, "pieces")
    assert str(Filters(truncate_source=50, count="words").truncation()) == "50 words"
