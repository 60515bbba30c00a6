"""All white space is a space, invisible signs go, and letters are composed, unless a recipe keeps them."""

import json
import unicodedata
from pathlib import Path

import pytest

from headway.processing.text.normalisation import clean_rules, cleaned
from headway.processing.text.subwords import SubwordVocabulary
from headway.processing.text.text_processor import (
    PreparationConfig,
    TextProcessor,
    load_processors,
    prepare,
    prepare_with_spans,
    save_processors,
    with_characters,
)
from headway.processing.text.vocabulary import VocabularyConfig, train_vocabulary

SIGNS = [" ", "\u00a0", "\u202f", "\u2009", "\u2003", "\u3000", "\t", " \u200b", " \u2060", " \ufeff", " \u200e"]
CLEAN, KEPT = PreparationConfig(), PreparationConfig(clean=False)
CHARACTERS = train_vocabulary(VocabularyConfig(kind="char"), ["red house one two", "é \u200d한"])


@pytest.mark.parametrize("line", [*(f"red{sign}house{sign}one two" for sign in SIGNS), "red hou\u00adse one two"])
def test_lines_that_look_the_same_are_the_same(line: str) -> None:
    assert prepare(line, CLEAN) == "red house one two"
    assert prepare(line, KEPT) == line
    text, spans = prepare_with_spans(line, CLEAN)
    assert [line[start:end].replace("\u00ad", "") for start, end in spans if line[start:end].strip()] == [
        *text.replace(" ", "")
    ]


@pytest.mark.parametrize(
    "line",
    ["می\u200cروم", "क्\u200dष", "\U0001f468\u200d\U0001f469", "\U0001f3f4\U000e0067\U000e0062\U000e007f", "ᠠ\u180e"],
)
def test_signs_that_change_letters_stay(line: str) -> None:
    assert cleaned(line) == line


def test_letters_are_composed() -> None:
    text, spans = prepare_with_spans("e\u0301 \u1112\u1161\u11ab\u200b!", CLEAN)
    assert (text, spans) == ("é 한!", [(0, 2), (2, 3), (3, 6), (7, 8)])


def test_cleaning_changes_what_unicode_says_and_nothing_else() -> None:
    assert cleaned("Straße ﬁ Ｉ ①") == "Straße ﬁ Ｉ ①"
    rules = clean_rules()
    assert {sign for sign, other in rules.items() if other == " "} == {
        character for character in map(chr, range(0x3001)) if character.isspace() and character != " "
    }
    removed = {sign for sign, other in rules.items() if not other}
    assert {unicodedata.category(sign) for sign in removed} == {"Cf", "Cn", "Lo", "Mn"}
    assert all(cleaned(written) == other for written, other in rules.items())


def test_a_sentencepiece_model_with_the_rules_cleans_text_by_itself() -> None:
    assert isinstance(CHARACTERS, SubwordVocabulary)
    exported = CHARACTERS.with_rules(clean_rules())
    for line in [*(f"red{sign}house" for sign in SIGNS), "hou\u00adse e\u0301\u1112\u1161\u11ab \u200d"]:
        assert exported.encode(line) == CHARACTERS.encode(cleaned(line))
    assert exported.with_rules({}) is exported, "rules of its own stay"
    assert CHARACTERS.encode("\u00a0") != exported.encode("\u00a0")


def test_spaces_that_are_kept_are_named_if_no_training_has_seen_them() -> None:
    kept = with_characters(TextProcessor(KEPT, CHARACTERS), ["red house"])
    assert kept.unseen("r \u00a0\u200b") == ["\u00a0", "\u200b"]
    assert with_characters(TextProcessor(CLEAN, CHARACTERS), ["red house"]).unseen("r \u00a0\u200b") == []
    words = train_vocabulary(VocabularyConfig(kind="word"), ["a b"])
    assert with_characters(TextProcessor(KEPT, words), ["a b"]).unseen("\u00a0") == [], "it separates words"


def test_processors_that_were_stored_before_keep_all_signs(tmp_path: Path) -> None:
    for config in (KEPT, CLEAN):
        save_processors((TextProcessor(config, CHARACTERS),) * 2, tmp_path / str(config.clean))
        source, _ = load_processors(tmp_path / str(config.clean))
        assert source.config == config
    stored = json.loads((tmp_path / "False" / "sides.json").read_text())
    assert "clean" not in stored["source"], "the cache of corpora knows older runs by this file"
