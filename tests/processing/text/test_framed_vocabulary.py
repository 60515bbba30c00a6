"""Tokenizers of the library of that name, and codes around a text, keep their ids wherever they are stored."""

import pickle
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from headway.core.errors import UserError
from headway.processing.text.framed_vocabulary import FramedVocabulary, TokenizersVocabulary, code_of
from headway.processing.text.vocabulary import TokensConfig, load_vocabulary, train_vocabulary
from headway.tensors.batch import EOS, UNKNOWN

PIECES = ["</s>", "<pad>", "<unk>", "\u2581", "a", "b", "\u2581a", "\u2581ab"]
ROWS = [1, 1, 0, 2, 3, 4, 5, 6, 7, 8]  # padding, the begin mark that is a copy of it, ..., a row without a piece


def text() -> TokenizersVocabulary:
    scores = [(piece, float(len(piece))) for piece in PIECES]
    tokenizer = Tokenizer(models.Unigram(scores, unk_id=2, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["</s>", "<pad>", "<unk>"])
    return TokenizersVocabulary(tokenizer.to_str(), ROWS)


def framed() -> FramedVocabulary:
    return FramedVocabulary(text(), ["de_DE", "fr_XX", "</s>"], ["de_DE"], ["</s>"])


def test_ids_and_text() -> None:
    vocabulary = text()
    assert len(vocabulary) == len(ROWS)
    ids = vocabulary.encode("ab a b")
    assert [vocabulary.token(id) for id in ids] == ["\u2581ab", "\u2581a", "\u2581", "b"]
    assert vocabulary.decode(ids) == "ab a b"
    assert vocabulary.decode([0, 1, EOS, *ids]) == "ab a b"
    assert vocabulary.decode([ids[0], UNKNOWN, ids[1]]) == "ab <unk> a"
    assert vocabulary.token(9) == "<row_8>"
    assert vocabulary.encode("  ") == vocabulary.encode("") == []
    assert set(vocabulary.encode("a </s> <pad> z")) & {0, 1, EOS} == set()
    assert vocabulary.starts_word(ids[0])
    assert not vocabulary.starts_word(ids[-1])
    assert ids[2] in vocabulary.no_text


def test_spans() -> None:
    spans = text().encode_with_spans("ab b")
    assert [(span.surface, span.start, span.end) for span in spans] == [
        ("\u2581ab", 0, 2), ("\u2581", 2, 3), ("b", 3, 4),
    ]  # fmt: skip
    (mark, piece) = text().encode_with_spans("b")
    assert (mark.start, mark.end, piece.start, piece.end) == (0, 0, 0, 1)


def test_codes_surround_a_text() -> None:
    vocabulary = framed()
    plain, (german, french, end) = text().encode("ab a"), range(len(ROWS), len(ROWS) + 3)
    assert vocabulary.beginning == (german,)
    assert vocabulary.encode("ab a") == [german, *plain, end]
    assert vocabulary.encode("fr_XX ab a") == [french, *plain, end]
    assert vocabulary.encode_lines(["ab a", "fr_XX", " "]) == [[german, *plain, end], [french], []]
    assert vocabulary.decode([french, *plain, end]) == "ab a"
    for line in ("ab a", "fr_XX ab a", "fr_XX", ""):
        assert [span.id for span in vocabulary.encode_with_spans(line)] == vocabulary.encode(line)


@pytest.mark.parametrize("make", [text, framed])
def test_it_is_stored_and_sent(tmp_path: Path, make: type) -> None:
    vocabulary = make()
    vocabulary.save(tmp_path)
    for other in (load_vocabulary(tmp_path), pickle.loads(pickle.dumps(vocabulary))):
        assert type(other) is type(vocabulary)
        assert other.encode("ab a b") == vocabulary.encode("ab a b")
        assert other.shares_ids_with(vocabulary)
        assert other.beginning == vocabulary.beginning


def test_other_frames_share_ids() -> None:
    vocabulary = framed()
    assert vocabulary.shares_ids_with(FramedVocabulary(text(), vocabulary.tags, ["fr_XX"]))
    assert not vocabulary.shares_ids_with(FramedVocabulary(text(), ["de_DE"], ["de_DE"]))
    assert not vocabulary.shares_ids_with(text())


@pytest.mark.parametrize("content", ["", "{}", "[1]"])
def test_a_damaged_tokenizer(tmp_path: Path, content: str) -> None:
    text().save(tmp_path)
    (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=r"tokenizer\.json: the tokenizer"):
        load_vocabulary(tmp_path)


@pytest.mark.parametrize("kind", ["tokenizers", "framed", "m2m"])
def test_it_comes_with_a_model(kind: str) -> None:
    with pytest.raises(UserError, match="kind: a vocabulary of this kind comes with its model"):
        train_vocabulary(TokensConfig(kind=kind), ["a"])


def test_codes_may_be_short() -> None:
    assert code_of("de", ["de_DE", "fr_XX"], "x") == "de_DE"
    assert code_of("zh_CN", ["zh_CN", "zh_TW"], "x") == "zh_CN"
    for language, codes in (("zh", ["zh_CN", "zh_TW"]), ("xx", ["de_DE"]), ("de", [])):
        with pytest.raises(UserError, match="x: this model has no such language"):
            code_of(language, codes, "x")
