"""Vocabularies that grow: old ids stay, new text is cut into fewer tokens, and comes back whole."""

import pytest

from headway.core.errors import UserError
from headway.processing.marian_files import MarianVocabulary
from headway.processing.text.extension import check_extensible, extended_processors, old_parts
from headway.processing.text.text_processor import TextConfig, TextProcessor, train_processors
from headway.processing.text.vocabulary import VocabularyConfig, load_vocabulary
from headway.tensors.batch import SPECIALS, UNKNOWN

OLD = [
    ("the cat sat on the mat", "le chat est sur le tapis"),
    ("a dog sat on a log", "un chien est sur une souche"),
] * 5
NEW = [("quarks decay quickly", "les quarks décroissent"), ("the quark sat", "le quark est")] * 5
KINDS = ["bpe", "unigram", "char", "word", "whitespace"]


def processors(kind: str, shared: bool) -> tuple[TextProcessor, TextProcessor]:
    sizes = {"bpe": 30, "unigram": 20}
    config = VocabularyConfig(kind=kind, size=sizes.get(kind, 200), shared=shared)
    if kind == "unigram" and shared:
        config = config.model_copy(update={"size": 28})
    return train_processors(TextConfig(), config, lambda: OLD)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_old_tokens_keep_their_ids_and_new_text_is_known(kind, shared, tmp_path):
    older = processors(kind, shared)
    newer = extended_processors(older, 40, lambda: NEW)
    assert (newer[0].vocabulary is newer[1].vocabulary) == shared
    for side, (old, new) in enumerate(zip(older, newer, strict=True)):
        assert old.size < new.size <= old.size + 40
        assert new.tokens(range(old.size)) == old.tokens(range(old.size))
        for pair in NEW:
            ids = new.encode(pair[side]).values
            assert UNKNOWN in old.encode(pair[side]).values
            assert UNKNOWN not in ids
            assert new.decode(ids) == pair[side]
            assert max(ids) >= old.size
        new.vocabulary.save(tmp_path / str(side))
        assert load_vocabulary(tmp_path / str(side)).encode(NEW[0][side]) == new.encode(NEW[0][side]).values
    again = extended_processors(older, 40, lambda: NEW)
    assert [each.tokens(range(each.size)) for each in again] == [each.tokens(range(each.size)) for each in newer]


def test_new_pieces_join_what_old_ones_cut():
    old, _ = older = processors("bpe", True)
    new, _ = extended_processors(older, 60, lambda: NEW)
    for pair in OLD[:2]:
        assert new.decode(new.encode(pair[0]).values) == pair[0]
        assert len(new.encode(pair[0]).values) <= len(old.encode(pair[0]).values)
    assert any(len(token.text) > 3 and token.id >= old.size for token in new.encode_with_spans("quarks"))


def test_the_parts_of_a_new_token_are_known_and_have_text():
    old, _ = processors("bpe", True)
    new, _ = extended_processors((old, old), 60, lambda: [("sat quickly", "cat ω")])
    parts = old_parts(old.vocabulary, new.vocabulary)
    by_token = dict(zip(new.tokens(range(old.size, new.size)), parts, strict=True))
    assert by_token["ω"] == []
    assert len(parts) == new.size - old.size
    assert all(id >= len(SPECIALS) and old.tokens([id]) != ["\u2581"] for ids in parts for id in ids)
    assert any(len(ids) > 1 for ids in parts)


def test_fewer_new_tokens_than_characters_are_characters():
    old, _ = processors("bpe", True)
    new, _ = extended_processors((old, old), 2, lambda: [("ωψω", "ωψω ωψω")])
    assert sorted(new.tokens(range(old.size, new.size))) == ["ψ", "ω"]


def test_a_vocabulary_that_came_with_its_model_cannot_grow():
    old, _ = processors("bpe", True)
    marian = MarianVocabulary(old.vocabulary.serialised, SPECIALS)
    with pytest.raises(UserError, match=r"training.extend_vocabulary: .*received 'marian'; allowed: bpe"):
        check_extensible((TextProcessor(old.config, marian), old))
