"""Tags before a line are one token each, whatever the vocabulary and the preparation of text."""

import pytest

from headway.core.errors import UserError
from headway.formats.corpus_config import parse_corpus
from headway.processing.text.extension import tagged
from headway.processing.text.text_processor import (
    PreparationConfig,
    TextConfig,
    TextProcessor,
    load_processors,
    save_processors,
    train_processors,
)
from headway.processing.text.vocabulary import VocabularyConfig

PAIRS = [("Hello, world <2de> & all.", "Hallo Welt"), ("The cat sat on it.", "Die Katze")] * 4
TEXT = TextConfig(source=PreparationConfig(normalise=("lower",), segment="moses"))


def processors(kind: str, shared: bool = False) -> tuple[TextProcessor, TextProcessor]:
    config = VocabularyConfig(kind=kind, size=45 if kind == "bpe" else 400, shared=shared)
    return tagged(train_processors(TEXT, config, lambda: PAIRS), ["<2de>", "<2fr>"])


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", ["bpe", "char", "word"])
def test_a_tag_is_one_token_before_the_text(kind, shared, tmp_path):
    save_processors(processors(kind, shared), tmp_path)
    source, target = load_processors(tmp_path)
    assert (source.vocabulary is target.vocabulary) == shared
    plain = source.encode("The cat sat on it.").values
    size = source.size
    assert source.encode("<2de> The cat sat on it.").values == [size - 2, *plain]
    assert source.encode_lines(["  <2fr> <2de>  The cat sat on it."]) == [[size - 1, size - 2, *plain]]
    assert max(source.encode("The <2de> cat").values) < size - 2  # a tag within the text is text
    assert source.encode("<2fr>").values == [size - 1]
    assert source.tokens([size - 2, size - 1]) == ["<2de>", "<2fr>"]
    assert source.decode([size - 2, *plain]).startswith("<2de> the cat")


def test_spans_are_those_of_the_raw_line():
    source, _ = processors("bpe")
    line = " <2de>  <2fr> Cats, on"
    tokens = source.encode_with_spans(line)
    assert [token.id for token in tokens] == source.encode(line).values
    assert [(token.text, line[token.start : token.end]) for token in tokens[:2]] == [
        ("<2de>", "<2de>"),
        ("<2fr>", "<2fr>"),
    ]
    assert "".join(line[token.start : token.end] for token in tokens[2:]).replace(" ", "") == "Cats,on"
    assert [token.word for token in tokens[:2]] == [0, 1]


@pytest.mark.parametrize("tag", ["2de", "<s>", "<2de><2fr>", "<2 de>", ""])
def test_what_is_no_tag_is_refused(tag):
    with pytest.raises(UserError, match=r"data.train.*tag: a tag is such as <2de>"):
        parse_corpus([{"tsv": "x", "tag": tag}], "data.train")
