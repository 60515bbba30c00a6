"""No text has a character within it that ends a line."""

import sys

import pytest

from headway.processing.text.line_ends import LINE_ENDS, has_line_end, on_one_line
from headway.processing.text.text_processor import PreparationConfig, TextProcessor
from headway.processing.text.vocabulary import VocabularyConfig, train_vocabulary


def test_they_are_those_that_python_splits_at() -> None:
    ends = "".join(chr(code) for code in range(sys.maxunicode + 1) if len(f"a{chr(code)}b".splitlines()) == 2)
    assert ends == LINE_ENDS


def test_each_becomes_a_space() -> None:
    text = f"a{'b'.join(LINE_ENDS)}c"
    assert has_line_end(text)
    assert on_one_line(text) == f"a{'b'.join(' ' * len(LINE_ENDS))}c"
    plain = "a\tb \x1f é\u200b"
    assert on_one_line(plain) is plain
    assert not has_line_end(plain)


@pytest.mark.parametrize("kind", ["char", "bpe", "unigram"])
def test_a_model_that_learned_them_writes_none(kind: str) -> None:
    """Vocabularies of older runs, and those of strangers, may have tokens of any characters."""
    ends = LINE_ENDS.replace("\n", "").replace("\r", "")
    config = VocabularyConfig.model_validate({"kind": kind, "size": 18})
    vocabulary = train_vocabulary(config, [f"a{sign}b{sign} c" for sign in ends] * 5)
    tokens = [vocabulary.token(id) for id in range(len(vocabulary))]
    assert any(sign in token for token in tokens for sign in "\x1c\u2028\x85")
    processor = TextProcessor(PreparationConfig(), vocabulary)
    text = processor.decode(range(4, len(vocabulary)))
    assert not has_line_end(text)
    words = processor.words(range(4, len(vocabulary)))
    assert not any(map(has_line_end, words.texts))


def test_sources_are_read_as_training_reads_them() -> None:
    vocabulary = train_vocabulary(VocabularyConfig(kind="char"), ["a b"])
    processor = TextProcessor(PreparationConfig(), vocabulary)
    assert processor.encode("a\u2028b").values == processor.encode("a b").values
    tokens = processor.encode_with_spans("a\u2028b")
    assert [token.id for token in tokens] == processor.encode("a b").values
    assert [(token.start, token.end) for token in tokens][-1] == (2, 3)
