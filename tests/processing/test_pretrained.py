"""Words in an encoder's pieces: none without a piece, none outside of the windows."""

import random
from pathlib import Path

import pytest

from headway.errors import UserError
from headway.processing.pretrained import WordProcessor, _cuts, encoder_place
from tests.models.encoders import write_encoder

WORDS = ["he", "goes", "\u200b", "\U0001f600", "abcdefgh" * 5, "don't", "\u0000", "Ω", " ", "bad"]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> WordProcessor:
    return WordProcessor.load(str(write_encoder(tmp_path_factory.mktemp("encoder"))))


def test_every_word_has_a_piece(pieces: WordProcessor) -> None:
    found = pieces.pieces(WORDS)
    assert [len(ids) for ids in found[:5]] == [1, 2, 1, 1, 40]
    assert all(found)
    assert pieces.tokens(found[1]) == ["go", "##es"]
    assert pieces.tokens(found[2]) == pieces.tokens(found[6]) == ["[UNK]"]
    assert pieces.pieces([]) == []


def test_marks_and_padding(pieces: WordProcessor) -> None:
    assert [pieces.tokens(ids) for ids in pieces.special_tokens] == [["[CLS]"], ["[SEP]"]]
    assert pieces.tokens([pieces.padding]) == ["[PAD]"]


def test_windows_hold_every_word_once_within_the_limit(pieces: WordProcessor) -> None:
    draw = random.Random(1)
    for longest in (3, 4, 7, 20):
        for length in (1, 2, 9, 30):
            words = [draw.choice(WORDS) for _ in range(length)]
            windows = pieces.windows(words, longest, 5)
            assert [window.start + n for window in windows for n in range(len(window.first))] == list(range(length))
            for window in windows:
                assert len(window.ids) <= longest
                assert window.sentence == 5
                assert pieces.tokens(window.ids)[:: len(window.ids) - 1] == ["[CLS]", "[SEP]"]
                for place, first in enumerate(window.first):
                    assert window.ids[first] == pieces.pieces(words)[window.start + place][0]


def test_a_short_sentence_is_one_window_and_none_has_none(pieces: WordProcessor) -> None:
    (window,) = pieces.windows(["he", "goes", "home"], 6)
    assert pieces.tokens(window.ids) == ["[CLS]", "he", "go", "##es", "home", "[SEP]"]
    assert window.first == (1, 2, 4)
    assert pieces.windows([], 6) == []


def test_windows_of_one_sentence_are_about_equally_long() -> None:
    assert _cuts([1] * 11, 10) == [6, 11]
    assert _cuts([1] * 10, 10) == [10]
    assert _cuts([4, 4, 4], 5) == [1, 2, 3]
    assert _cuts([], 5) == []


def test_what_is_saved_is_loaded(pieces: WordProcessor, tmp_path: Path) -> None:
    pieces.save(tmp_path)
    again = WordProcessor.load(str(tmp_path))
    assert again.windows(WORDS, 20) == pieces.windows(WORDS, 20)


def test_places_of_encoders() -> None:
    assert encoder_place("bert-base-cased") == "bert-base-cased"
    assert encoder_place("package:headway/processing").endswith("headway/processing")
    for name, message in (("package:no_such_package/x", "not installed"), ("package:headway/none", "no such folder")):
        with pytest.raises(UserError, match=f"model.encoder: .*{message}"):
            encoder_place(name)


def test_an_encoder_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match=r"model\.encoder: cannot load this encoder's tokenizer"):
        WordProcessor.load(str(tmp_path))
