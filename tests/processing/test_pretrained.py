"""Words in an encoder's tokens: none without a token, none outside of the windows."""

import json
import random
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from headway.core.errors import UserError
from headway.processing.pretrained import WordProcessor, _cuts, encoder_location
from tests.models.encoders import write_encoder

WORDS = ["he", "goes", "\u200b", "\U0001f600", "abcdefgh" * 5, "don't", "\u0000", "Ω", " ", "bad"]


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory) -> WordProcessor:
    return WordProcessor.load(str(write_encoder(tmp_path_factory.mktemp("encoder"))))


def test_every_word_has_a_token(processor: WordProcessor) -> None:
    ids_of_words = processor.word_ids(WORDS)
    assert [len(ids) for ids in ids_of_words[:5]] == [1, 2, 1, 1, 40]
    assert all(ids_of_words)
    assert processor.tokens(ids_of_words[1]) == ["go", "##es"]
    assert processor.tokens(ids_of_words[2]) == processor.tokens(ids_of_words[6]) == ["[UNK]"]
    assert processor.word_ids([]) == []


def test_marks_and_padding(processor: WordProcessor) -> None:
    assert [processor.tokens(ids) for ids in processor.special_tokens] == [["[CLS]"], ["[SEP]"]]
    assert processor.tokens([processor.padding]) == ["[PAD]"]


def test_windows_hold_every_word_once_within_the_limit(processor: WordProcessor) -> None:
    draw = random.Random(1)
    for longest in (3, 4, 7, 20):
        for length in (1, 2, 9, 30):
            words = [draw.choice(WORDS) for _ in range(length)]
            windows = processor.windows(words, longest, 5)
            assert [window.start + n for window in windows for n in range(len(window.first))] == list(range(length))
            for window in windows:
                assert len(window.ids) <= longest
                assert window.sentence == 5
                assert processor.tokens(window.ids)[:: len(window.ids) - 1] == ["[CLS]", "[SEP]"]
                for index, first in enumerate(window.first):
                    assert window.ids[first] == processor.word_ids(words)[window.start + index][0]


def test_a_window_has_room_for_a_word(processor: WordProcessor) -> None:
    before, after = processor.special_tokens
    marks = len(before) + len(after)
    with pytest.raises(UserError, match=rf"data\.max_length: .*received {marks}; allowed: {marks + 1} or more"):
        processor.windows(["he"], marks)
    assert len(processor.windows(["he", "goes"], marks + 1)) == 2


def test_a_short_sentence_is_one_window_and_none_has_none(processor: WordProcessor) -> None:
    (window,) = processor.windows(["he", "goes", "home"], 6)
    assert processor.tokens(window.ids) == ["[CLS]", "he", "go", "##es", "home", "[SEP]"]
    assert window.first == (1, 2, 4)
    assert processor.windows([], 6) == []


def test_windows_of_one_sentence_are_about_equally_long() -> None:
    assert _cuts([1] * 11, 10) == [6, 11]
    assert _cuts([1] * 10, 10) == [10]
    assert _cuts([4, 4, 4], 5) == [1, 2, 3]
    assert _cuts([], 5) == []
    assert _cuts([3, 4, 1], 5) == [1, 3]


def test_windows_are_as_few_as_can_be_and_the_longest_as_short_as_can_be() -> None:
    draw = random.Random(3)
    for _ in range(200):
        room = draw.randint(1, 9)
        lengths = [draw.randint(1, room) for _ in range(draw.randint(1, 8))]
        ways = []
        for inner in range(len(lengths)):
            for cuts in combinations(range(1, len(lengths)), inner):
                ends = [*cuts, len(lengths)]
                longest = max(sum(lengths[start:end]) for start, end in pairwise([0, *ends]))
                ways += [(len(ends), longest)] if longest <= room else []
        found = _cuts(lengths, room)
        longest = max(sum(lengths[start:end]) for start, end in pairwise([0, *found]))
        assert (len(found), longest) == min(ways)


def test_a_long_sentence_raises_no_alarm(processor: WordProcessor, caplog: pytest.LogCaptureFixture) -> None:
    processor.tokenizer.model_max_length = 4
    processor.word_ids(["he"] * 9)
    assert caplog.messages == []


def test_what_is_saved_is_loaded(processor: WordProcessor, tmp_path: Path) -> None:
    processor.save(tmp_path)
    again = WordProcessor.load(str(tmp_path))
    assert again.windows(WORDS, 20) == processor.windows(WORDS, 20)


def test_locations_of_encoders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert encoder_location("bert-base-cased") == "bert-base-cased"
    assert encoder_location("package:headway/processing").endswith("headway/processing")
    with pytest.raises(UserError, match=r"model\.encoder: .*not installed"):
        encoder_location("package:no_such_package/x")
    with pytest.raises(UserError, match=r"model\.encoder: cannot load this encoder's tokenizer"):
        WordProcessor.load(encoder_location("package:headway/none"))


def test_a_tokenizer_without_its_unknown_token(processor: WordProcessor, tmp_path: Path) -> None:
    """Words that it does not know would end in an error of the library, after the first lines."""
    processor.save(tmp_path)
    file = tmp_path / "tokenizer.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    del content["model"]["vocab"]["[UNK]"]
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] != "[UNK]"]
    file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match=r"cannot load this encoder's tokenizer \(.*\[UNK\]"):
        WordProcessor.load(tmp_path)


def test_an_encoder_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match=r"model\.encoder: cannot load this encoder's tokenizer"):
        WordProcessor.load(str(tmp_path))
