"""A side: raw line -> ids -> text, and the raw characters of every token."""

import json
import pickle
import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import UserError
from headway.processing.text import text_processor as side_module
from headway.processing.text.line_ends import on_one_line
from headway.processing.text.text_processor import (
    PreparationConfig,
    TextConfig,
    TextProcessor,
    TextToken,
    check_languages,
    load_processors,
    prepare,
    prepare_with_spans,
    save_processors,
    train_processor,
    train_processors,
    with_characters,
    with_languages,
)
from headway.processing.text.vocabulary import VocabularyConfig, train_vocabulary
from headway.tensors.batch import UNKNOWN
from tests.tiers import thinned

PAIRS = [
    ("The well-known house is old.", "Das „alte“ Haus ist bekannt."),
    ("It's John's dog, isn't it?", "Es ist Johns Hund, nicht wahr?"),
    ("A dog (small) runs…", "Ein kleiner Hund läuft…"),
] * 3

MOSES = PreparationConfig(normalise=("nfkc", "punctuation", "lower"), segment="moses")
CONFIGS = [
    PreparationConfig(),
    PreparationConfig(clean=False),
    PreparationConfig(normalise=("nfkc",)),
    PreparationConfig(normalise=("lower",), segment="whitespace"),
    PreparationConfig(normalise=("lower", "nfkc", "lower")),
    MOSES,
    PreparationConfig(language="de", normalise=("punctuation",), segment="moses"),
]
# Letters that change length, compose, reorder or expand, beside what punctuation rules look at.
ODD = "\u05d1\u05bc\u05b0\x1f\x85aBß İΣé\u0301\u0323\u1100\u1161\u11a8ㅏｶﾞ①㍻ﬁ½"
ODD += "…\u3000\t\xa0▁-–—.,:'\"„“’«»()[]<>%&|@1٣\U0001f600\u200d\x00\x01"
odd_lines = st.text(alphabet=ODD, max_size=24) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def pairs() -> Iterator[tuple[str, str]]:
    return iter(PAIRS)


def words(*normalise: str, segment: str = "none", language: str = "en", line: str) -> list[tuple[str, str]]:
    """Each token that the side makes of a line, with its raw characters."""
    config = PreparationConfig.model_validate({"language": language, "normalise": normalise, "segment": segment})
    vocabulary = train_vocabulary(VocabularyConfig(kind="whitespace"), [prepare(line, config)])
    return [
        (token.text, line[token.start : token.end])
        for token in TextProcessor(config, vocabulary).encode_with_spans(line)
    ]


def test_normalisation_steps_run_in_the_order_given() -> None:
    assert prepare("Ｉ „Ａ“", PreparationConfig(normalise=("nfkc", "punctuation", "lower"))) == 'i "a"'
    assert prepare("㎈ K", PreparationConfig(normalise=("lower", "nfkc"))) == "cal k"
    assert prepare("ﾊﾟ PPM ㏙", PreparationConfig(normalise=("lower", "nfkc"))) == "パ ppm PPM"
    assert prepare("ﾊﾟ PPM ㏙", PreparationConfig(normalise=("nfkc", "lower"))) == "パ ppm ppm"


def test_punctuation_follows_the_language() -> None:
    assert prepare('"a",', PreparationConfig(language="en", normalise=("punctuation",))) == '"a,"'
    assert prepare('"a",', PreparationConfig(language="de", normalise=("punctuation",))) == '"a",'


@pytest.mark.parametrize("code", ["fr-FR", "fr_CA", "fra", "FR"])
def test_all_codes_of_a_language_have_its_rules(code: str) -> None:
    kinds: dict[str, Any] = {"normalise": ("punctuation",), "segment": "moses"}
    found, expected = (
        prepare('"l\'eau", 1\u00a0000', PreparationConfig(language=one, **kinds)) for one in (code, "fr")
    )
    assert found == expected
    assert "l' eau" in found


def test_a_code_has_the_rules_of_its_training(tmp_path: Path) -> None:
    sides = PreparationConfig(), PreparationConfig(language="fr-FR", segment="moses")
    made = train_processors(TextConfig(source=sides[0], target=sides[1]), VocabularyConfig(kind="word"), lambda: PAIRS)
    save_processors(made, tmp_path)
    assert load_processors(tmp_path)[1].prepare("l'eau") == "l' eau"
    file = tmp_path / "sides.json"
    older = json.loads(file.read_text(encoding="utf-8"))
    del older["rules"]  # as runs were written when such a code had no rules
    file.write_text(json.dumps(older), encoding="utf-8")
    before = load_processors(tmp_path)
    assert before[1].prepare("l'eau") == "l ' eau"
    save_processors(before, tmp_path / "copy")
    assert load_processors(tmp_path / "copy")[1].prepare("l'eau") == "l ' eau"


@pytest.mark.parametrize(
    ("config", "warned"),
    [
        ({"language": "eo", "segment": "moses"}, "text: moses has no rules for Esperanto (eo)"),
        ({"language": "it-IT", "normalise": ("punctuation",)}, "text: punctuation has no rules for Italian (it-IT)"),
        ({"language": "it-IT", "segment": "moses"}, ""),
        ({"language": "eo", "normalise": ("lower",)}, ""),
    ],
)
def test_a_language_without_rules_is_warned_of(
    config: dict[str, Any], warned: str, caplog: pytest.LogCaptureFixture
) -> None:
    train_processor(PreparationConfig(**config), VocabularyConfig(kind="word"), ["a b"], "text")
    assert warned in (told := caplog.text)
    assert bool(told) == bool(warned)


def test_an_impossible_language_is_refused() -> None:
    text = TextConfig(target=PreparationConfig(language="französisch"))
    with pytest.raises(UserError, match=r"text\.target\.language: .*did you mean 'fr'"):
        check_languages(text)


def test_rules_of_a_language_ask_for_the_language() -> None:
    with pytest.raises(UserError, match=r"text\.target\.language: moses .*the recipe names none; received 'und'"):
        check_languages(TextConfig(target=PreparationConfig(segment="moses")))


def test_a_language_that_a_recipe_leaves_open_is_that_of_the_run() -> None:
    run = TextConfig(source=PreparationConfig(language="en"), target=PreparationConfig(language="en"))
    assert with_languages(TextConfig(), run) == run
    named = TextConfig(target=PreparationConfig(language="de"))
    assert with_languages(named, run).target.language == "de"


def test_segmentation() -> None:
    assert prepare(" a  b\u3000c\t", PreparationConfig(clean=False)) == " a  b\u3000c\t"
    assert prepare(" a  b\u3000c\t", PreparationConfig(segment="whitespace")) == "a b c"
    assert (
        prepare("Mr. well-known isn't <b>.", PreparationConfig(language="en", segment="moses"))
        == "Mr. well @-@ known isn 't < b > ."
    )
    assert prepare("l'homme", PreparationConfig(language="fr", segment="moses")) == "l' homme"


def test_tokens_know_their_raw_characters() -> None:
    assert words("nfkc", "punctuation", "lower", segment="moses", line="The  well－known „ＣＡＴ“ … isn't") == [
        ("the", "The"), ("well", "well"), ("@-@", "－"), ("known", "known"), ('"', "„"), ("cat", "ＣＡＴ"), ('"', "“"),
        ("...", "…"), ("isn", "isn"), ("'t", "'t"),
    ]  # fmt: skip
    # Punctuation moves the quotation mark: what changed places belongs together, or the dots stay and the mark is new.
    assert words("punctuation", segment="moses", line='a".') == [("a", "a"), (".", '".'), ('"', '".')]
    assert words("punctuation", segment="moses", line='a"... b') == [("a", "a"), ("...", "..."), ('"', ""), ("b", "b")]
    assert words("lower", line="İstanbul X") == [("i̇stanbul", "İstanbul"), ("x", "X")]
    assert words("nfkc", line="é ｶﾞｶ ㍻ ᄀㅏ x̂") == [
        ("é", "é"), ("ガカ", "ｶﾞｶ"), ("平成", "㍻"), ("가", "ᄀㅏ"), ("x̂", "x̂"),
    ]  # fmt: skip


def test_characters_within_a_changed_sequence_come_from_the_whole_sequence() -> None:
    text, spans = prepare_with_spans("aｶﾞ①bﬁ", PreparationConfig(clean=False, normalise=("nfkc",)))
    assert text == "aガ1bfi"
    assert spans == [(0, 1), (1, 3), (3, 4), (4, 5), (5, 6), (5, 6)]
    points = "x\u05d1\u05bc\u05b0y"  # two marks that do not compose change places
    assert prepare_with_spans(points, PreparationConfig(normalise=("nfkc",))) == (
        "x\u05d1\u05b0\u05bcy",
        [(0, 1), (1, 4), (1, 4), (1, 4), (4, 5)],
    )


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@given(line=odd_lines)
def test_spans_of_a_prepared_line(config: PreparationConfig, line: str) -> None:
    text, spans = prepare_with_spans(line, config)
    assert text == prepare(line, config)
    assert len(spans) == len(text)
    assert all(0 <= start <= end <= len(line) for start, end in spans)
    assert all(left[0] <= right[0] and left[1] <= right[1] for left, right in pairwise(spans))


@given(line=odd_lines)
def test_nfkc_spans_are_exact(line: str) -> None:
    text, spans = prepare_with_spans(line, PreparationConfig(clean=False, normalise=("nfkc",)))
    for start, end in spans:
        made = "".join(character for character, span in zip(text, spans, strict=True) if span == (start, end))
        assert unicodedata.normalize("NFKC", on_one_line(line[start:end])) == made


@given(line=odd_lines)
def test_lower_spans_are_exact(line: str) -> None:
    text, spans = prepare_with_spans(line, PreparationConfig(clean=False, normalise=("lower",)))
    for character, (start, end) in zip(text, spans, strict=True):
        assert end == start + 1
        assert character in on_one_line(line[start]).lower() or (character, line[start]) == ("ς", "Σ")


@given(line=odd_lines)
@pytest.mark.parametrize("config", thinned(CONFIGS, 3), ids=str)
@pytest.mark.parametrize("kind", ["char", "whitespace"])
def test_tokens_have_the_ids_of_encode_and_monotone_spans(kind: str, config: PreparationConfig, line: str) -> None:
    vocabulary = train_vocabulary(VocabularyConfig.model_validate({"kind": kind}), ["a b c i ㍻ @-@ é"])
    side = TextProcessor(config, vocabulary)
    tokens = side.encode_with_spans(line)
    assert [token.id for token in tokens] == side.encode(line).values == side.encode_lines([line])[0]
    assert all(0 <= token.start <= token.end <= len(line) for token in tokens)
    assert all(left.start <= right.start and left.end <= right.end for left, right in pairwise(tokens))


@given(line=odd_lines)
def test_without_normalisation_a_token_is_its_raw_characters(line: str) -> None:
    for kind in ("char", "whitespace"):
        vocabulary = train_vocabulary(VocabularyConfig.model_validate({"kind": kind}), [ODD, "x"])
        for token in TextProcessor(PreparationConfig(clean=False), vocabulary).encode_with_spans(line):
            raw = on_one_line(line[token.start : token.end])
            if set(token.text) != {"▁"}:
                assert raw.replace("▁", " ").strip(" ") == token.text.replace("▁", " ").strip(" ")
            else:
                assert raw.replace("▁", " ").strip(" ") == ""


def test_tokens_leave_out_the_space_of_their_mark() -> None:
    vocabulary = train_vocabulary(VocabularyConfig(kind="bpe", size=10), ["ab ab ab"])
    side = TextProcessor(PreparationConfig(), vocabulary)
    line = " ab  abz"
    assert side.encode_with_spans(line) == [
        TextToken(vocabulary.encode("ab")[0], "▁ab", 1, 3, 0),
        TextToken(vocabulary.encode("ab")[0], "▁ab", 5, 7, 1),
        TextToken(3, "z", 7, 8, 1),
    ]
    assert side.tokens(side.encode(line).values) == ["▁ab", "▁ab", "<unk>"]
    assert side.tokens([0, 1, 2]) == ["<pad>", "<s>", "</s>"]
    characters = TextProcessor(PreparationConfig(), train_vocabulary(VocabularyConfig(kind="char"), ["a b"]))
    assert [(token.text, token.start, token.end) for token in characters.encode_with_spans("a  b")] == [
        ("▁", 0, 0), ("a", 0, 1), ("▁", 1, 3), ("b", 3, 4),
    ]  # fmt: skip


def test_decoding_detokenises() -> None:
    config = PreparationConfig(language="en", segment="moses")
    line = 'The well-known dog, isn\'t it "old" & <b>?'
    vocabulary = train_vocabulary(VocabularyConfig(kind="whitespace"), [prepare(line, config)])
    side = TextProcessor(config, vocabulary)
    assert side.decode([1, *side.encode(line).values, 2, 0]) == 'The well-known dog, isn\'t it "old" & < b >?'
    assert side.decode([]) == ""
    vocabulary = train_vocabulary(VocabularyConfig(kind="whitespace"), ["&amp;"])
    assert TextProcessor(config, vocabulary).decode([4]) == "&amp;"  # no escape


@pytest.mark.parametrize("segment", ["none", "whitespace", "moses"])
@pytest.mark.parametrize("line", ["", "   ", " ", "\u3000", "\t", "\u3000 \u3000\x1f"])
@pytest.mark.parametrize("normalise", [(), ("nfkc", "punctuation", "lower")])
def test_a_blank_line_is_an_empty_list(segment: str, line: str, normalise: tuple[str, ...]) -> None:
    config = PreparationConfig.model_validate({"segment": segment, "normalise": normalise})
    for kind in ("char", "bpe", "word"):
        settings = VocabularyConfig.model_validate({"kind": kind, "size": 9})
        side = TextProcessor(config, train_vocabulary(settings, ["a b", "a\u3000b"]))
        assert side.encode(line).values == side.encode_with_spans(line) == []
        assert side.encode_lines([line, "a", line])[::2] == [[], []]


@pytest.mark.parametrize("kind", ["bpe", "word"])
@pytest.mark.parametrize("shared", [False, True])
def test_sides_come_back_from_their_folder(tmp_path: Path, kind: str, shared: bool) -> None:
    text = TextConfig(source=MOSES, target=PreparationConfig(language="de", segment="moses"))
    sides = train_processors(text, VocabularyConfig.model_validate({"kind": kind, "size": 60, "shared": shared}), pairs)
    save_processors(sides, tmp_path / "run" / "vocabulary")
    loaded = load_processors(tmp_path / "run" / "vocabulary")
    for side, back, lines in zip(sides, loaded, zip(*PAIRS, strict=True), strict=True):
        assert back.config == side.config
        for line in lines:
            assert back.encode_with_spans(line) == side.encode_with_spans(line)
            assert back.decode(back.encode(line).values) == side.decode(side.encode(line).values)
    assert (loaded[0].vocabulary is loaded[1].vocabulary) == (sides[0].vocabulary is sides[1].vocabulary) == shared


def test_a_shared_vocabulary_learns_from_both_sides() -> None:
    text = TextConfig(source=MOSES)
    source, target = train_processors(text, VocabularyConfig(kind="word", size=1000, shared=True), pairs)
    assert 3 not in source.encode("dog house").values
    assert 3 not in target.encode("Hund bekannt.").values
    alone, _ = train_processors(text, VocabularyConfig(kind="word", size=1000), pairs)
    assert alone.encode("dog hund").values == [alone.encode("dog").values[0], 3]


def test_the_target_can_have_a_vocabulary_of_another_kind() -> None:
    own = {"kind": "whitespace"}
    config = VocabularyConfig.model_validate({"kind": "char", "target": own})
    source, target = train_processors(TextConfig(), config, lambda: [("abc abd", "(S (NP NN )NP )S")] * 3)
    assert source.tokens(source.encode("abc").values) == ["▁", "a", "b", "c"]
    assert target.tokens(target.encode("(NP NN VB )NP").values) == ["(NP", "NN", "<unk>", ")NP"]
    wrong = VocabularyConfig.model_validate({"kind": "char", "target": {"kind": "bpe", "size": 900}})
    with pytest.raises(UserError, match=r"^vocabulary\.target\.size: .*target text"):
        train_processors(TextConfig(), wrong, pairs)


def test_processors_are_the_same_where_text_and_tokens_are() -> None:
    vocabulary = train_vocabulary(VocabularyConfig(kind="char"), ["ab"])
    side = TextProcessor(PreparationConfig(), vocabulary)
    assert side.same(TextProcessor(PreparationConfig(), vocabulary))
    assert not side.same(TextProcessor(PreparationConfig(normalise=("lower",)), vocabulary))
    assert not side.same(TextProcessor(PreparationConfig(), train_vocabulary(VocabularyConfig(kind="char"), ["ac"])))


def test_errors_name_the_side() -> None:
    with pytest.raises(UserError, match=r"^vocabulary\.size: .*source text"):
        train_processors(TextConfig(), VocabularyConfig(size=8000), pairs)
    with pytest.raises(UserError, match=r"^vocabulary: the target text is empty"):
        train_processors(TextConfig(), VocabularyConfig(kind="char"), lambda: [("a", "")])


@pytest.mark.parametrize("kind", ["bpe", "word"])
def test_a_side_can_be_sent_to_a_worker(kind: str) -> None:
    side, _ = train_processors(
        TextConfig(source=MOSES), VocabularyConfig.model_validate({"kind": kind, "size": 50}), pairs
    )
    sent = pickle.loads(pickle.dumps(side))
    assert sent.encode_with_spans(PAIRS[0][0]) == side.encode_with_spans(PAIRS[0][0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (None, r"sides\.json: cannot read"),
        ({"format": 99}, "received 99; allowed: 1"),
        ({"source": {"segment": "nothing"}}, "damaged"),
        ({"characters": [1]}, "the characters of training are damaged"),
    ],
)
def test_damaged_folders_are_errors_of_the_user(tmp_path: Path, change: Any, message: str) -> None:
    save_processors(train_processors(TextConfig(), VocabularyConfig(kind="word"), pairs), tmp_path)
    file = tmp_path / "sides.json"
    description = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    if change is not None:
        file.write_text(json.dumps(description | change))
    with pytest.raises(UserError, match=message):
        load_processors(tmp_path)


def test_a_sample_is_even_and_the_same_in_every_process() -> None:
    sample = side_module.sampled(map(str, range(10_000)), 1000)
    assert len(set(sample)) == 1000
    assert 4700 < sum(map(int, sample)) / 1000 < 5300
    assert sample[:4] == ["0", "6332", "6261", "1114"]
    assert side_module.sampled(range(5), 5) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("shared", [False, True])
def test_subwords_train_on_a_sample_and_words_on_everything(monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    monkeypatch.setattr(side_module, "SAMPLE", 2)

    def many() -> Iterator[tuple[str, str]]:
        return iter([("a", "α"), ("b", "β"), ("c", "γ"), ("d", "δ")])

    def characters(kind: str) -> tuple[int, int]:
        config = VocabularyConfig.model_validate({"kind": kind, "shared": shared})
        source, target = train_processors(TextConfig(), config, many)
        return len(source.vocabulary) - 4, len(target.vocabulary) - 4

    assert characters("char") == ((5, 5) if shared else (3, 3))
    assert characters("word") == ((8, 8) if shared else (4, 4))


def test_characters_of_training_are_kept(tmp_path: Path) -> None:
    """Raw and prepared ones are known; what becomes one of them by preparation is not new."""
    config = PreparationConfig(normalise=("nfkc", "lower"))
    vocabulary = train_vocabulary(VocabularyConfig(kind="char"), ["ab ガ"])
    plain = TextProcessor(config, vocabulary)
    assert plain.unseen("xyz") == []  # not known
    known = with_characters(plain, "AB ｶﾞ")
    assert known.unseen("aAbBＡ\u3000\u2028 ｶﾞ") == []
    assert known.unseen("aéÉ日") == ["é", "É", "日"]
    save_processors((known, known), tmp_path / "sides")
    source, target = load_processors(tmp_path / "sides")
    assert source.characters == target.characters == known.characters
    description = json.loads((tmp_path / "sides" / "sides.json").read_text(encoding="utf-8"))
    del description["characters"]  # of an older run
    (tmp_path / "sides" / "sides.json").write_text(json.dumps(description))
    assert load_processors(tmp_path / "sides")[0].unseen("日") == []


@pytest.mark.parametrize("kind", ["word", "bpe", "unigram", "char"])
def test_unknown_words_are_as_they_stand_in_the_line(kind: str) -> None:
    config = VocabularyConfig.model_validate({"kind": kind, "size": 18 if kind != "word" else 100})
    vocabulary = train_vocabulary(config, ["a dog sings", "a cat sings", "the dog and the cat"] * 5)
    processor = TextProcessor(PreparationConfig(), vocabulary)
    line = "a Жук  sings ЖЖs ."
    ids = processor.encode(line).values
    assert UNKNOWN in ids
    assert processor.words(ids, line).texts == ("a", "Жук", "sings", "ЖЖs", ".")
    assert processor.words(ids[:2], line).texts[0] == "a", "also of the beginning of a line"
    assert "<unk>" in " ".join(processor.words(ids).texts)


def test_words_of_bytes_are_those_between_spaces() -> None:
    vocabulary = train_vocabulary(VocabularyConfig(kind="byte"), [])
    processor = TextProcessor(PreparationConfig(), vocabulary)
    for line, texts in (("a 猫b", ("a", "猫b")), (" a  bc ", ("a", "bc")), ("a", ("a",))):
        words = processor.words(vocabulary.encode(line), line)
        assert words.texts == texts
        assert len(words.of) == len(line.encode())
        assert words.of == tuple(sorted(words.of))
    spans = processor.encode_with_spans("a 猫b")
    assert [(token.start, token.end, token.word) for token in spans] == [
        (0, 1, 0), (1, 2, 1), (2, 3, 1), (2, 3, 1), (2, 3, 1), (3, 4, 1)
    ]  # fmt: skip
