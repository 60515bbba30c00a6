"""Vocabularies of every kind."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import UserError
from headway.processing.text.vocabulary import (
    ByteVocabulary,
    Vocabulary,
    VocabularyConfig,
    load_vocabulary,
    train_vocabulary,
)
from headway.tensors.batch import BOS, EOS, PAD, UNKNOWN

KINDS = ["bpe", "unigram", "char", "word", "whitespace"]
SUBWORDS = KINDS[:3]
LINES = [
    "the cat sat on the mat",
    "the dog sat on the cat",
    "a cat and a dog",
    "猫 が 犬 を 見た",
    "tab\there é e\u0301 😀　x",
]
SIZES = {"byte": 8000, "bpe": 60, "unigram": 36, "char": 8000, "word": 30, "whitespace": 5}


def train(kind: str, lines: list[str] = LINES, **settings: object) -> Vocabulary:
    return train_vocabulary(VocabularyConfig.model_validate({"kind": kind, "size": SIZES[kind], **settings}), lines)


def smallest(lines: list[str]) -> int:
    """The size that has every character, a space among them, and no merge."""
    return 4 + len(set("".join(lines).replace("▁", " ")) | {" "})


VOCABULARIES = {kind: train(kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_the_specials_have_the_same_ids_in_every_kind(kind: str) -> None:
    vocabulary = train(kind)
    assert [vocabulary.token(id) for id in (PAD, BOS, EOS, UNKNOWN)] == ["<pad>", "<s>", "</s>", "<unk>"]
    assert all(id > UNKNOWN for line in LINES for id in vocabulary.encode(line))


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_seen_comes_back(kind: str) -> None:
    vocabulary = train(kind)
    for line in LINES:
        expected = " ".join(line.split()) if kind in ("word", "whitespace") else line
        assert vocabulary.decode(vocabulary.encode(line)) == expected
    for lines in (LINES, LINES * 50):  # SentencePiece reads few lines one by one, and many together
        assert vocabulary.encode_lines([*lines, ""]) == [*map(vocabulary.encode, lines), []]


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_leaves_out_specials_and_writes_unknown(kind: str) -> None:
    vocabulary = train(kind)
    ids = vocabulary.encode("cat ☃ dog")
    assert UNKNOWN in ids
    assert vocabulary.decode([BOS, *ids, EOS, PAD, PAD]) == "cat <unk> dog"
    assert vocabulary.decode([]) == vocabulary.decode([BOS, EOS]) == ""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("special", ["<pad>", "<s>", "</s>"])
def test_text_never_turns_into_a_special(kind: str, special: str) -> None:
    for lines in (LINES, [*LINES, f"{special} cat {special}{special} < / > s p a d"]):
        vocabulary = train(kind, lines, size=smallest(lines) + (20 if kind == "bpe" else 0))
        for line in (special, f"a {special} b", f"{special}{special}"):
            assert not {PAD, BOS, EOS} & set(vocabulary.encode(line))


@pytest.mark.parametrize("kind", SUBWORDS)
def test_the_name_of_unknown_in_the_text_is_read_as_its_characters(kind: str) -> None:
    lines = ["what <unk> is </s>"] * 3
    vocabulary = train(kind, lines, size=smallest(lines) + (5 if kind == "bpe" else 0))
    assert UNKNOWN not in vocabulary.encode(lines[0])
    assert vocabulary.decode(vocabulary.encode(lines[0])) == lines[0]


@pytest.mark.parametrize("kind", SUBWORDS)
def test_no_line_is_skipped_in_training(kind: str) -> None:
    """Not a long one, nor one with the character that SentencePiece keeps for itself."""
    lines = ["ab " * 5000 + "é", "ab ▅ ö", "ab"]
    vocabulary = train(kind, lines, size=9)
    assert UNKNOWN not in vocabulary.encode("é ö")


@pytest.mark.parametrize("kind", SUBWORDS)
def test_white_space(kind: str) -> None:
    """Runs of U+0020 become one, those around go, U+2581 is a space, other white space stays."""
    vocabulary = train(kind)
    for line, back in [
        ("  the   cat ", "the cat"),
        ("the▁cat", "the cat"),
        ("▁▁the ▁cat▁", "the cat"),
        ("\tthe\t\tcat\t", "\tthe\t\tcat\t"),
        ("　the　　cat　", "　the　　cat　"),
        ("", ""),
        ("  ", ""),
        ("▁", ""),
    ]:
        assert vocabulary.decode(vocabulary.encode(line)) == back
        assert bool(vocabulary.encode(line)) == bool(back)


def test_training_reads_the_mark_as_a_space_too() -> None:
    marked, plain = (train("bpe", [line], size=11) for line in ("▁▁ab▁▁▁ab c", "ab ab c"))
    assert [marked.token(id) for id in range(11)] == [plain.token(id) for id in range(11)]


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\x1f▅\r\n"), max_size=20)


@pytest.mark.parametrize("kind", SUBWORDS)
@given(line=texts)
def test_every_line_of_the_training_text_comes_back(kind: str, line: str) -> None:
    lines = [line, "x y"]
    vocabulary = train(kind, lines, size=smallest(lines))
    assert vocabulary.decode(vocabulary.encode(line)) == " ".join(filter(None, line.replace("▁", " ").split(" ")))


@pytest.mark.parametrize("kind", KINDS)
@given(line=st.text(alphabet="the cat　\x1c\x85\t▁☃▅\x00<s>é", max_size=20))
def test_spans_cover_the_line_in_order(kind: str, line: str) -> None:
    vocabulary = VOCABULARIES[kind]
    tokens = vocabulary.encode_with_spans(line)
    assert [token.id for token in tokens] == vocabulary.encode(line)
    end = 0
    for token in tokens:
        assert end <= token.start <= token.end <= len(line)
        assert line[end : token.start].strip() == ""
        end = token.end
        written = line[token.start : token.end].replace("▁", " ")
        if kind in ("word", "whitespace"):
            assert line[token.start : token.end] == token.surface
        else:
            assert written.strip(" ") == token.surface.replace("▁", " ").strip(" ")
    assert line[end:].strip(" ▁" if kind in SUBWORDS else None) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_comes_back_from_its_folder(tmp_path: Path, kind: str) -> None:
    vocabulary = train(kind)
    vocabulary.save(tmp_path / "new" / "folder")
    loaded = load_vocabulary(tmp_path / "new" / "folder")
    assert type(loaded) is type(vocabulary)
    assert [loaded.token(id) for id in range(len(loaded))] == [vocabulary.token(id) for id in range(len(vocabulary))]
    assert all(loaded.encode_with_spans(line) == vocabulary.encode_with_spans(line) for line in LINES)


@pytest.mark.parametrize(
    ("kind", "file"), [("bpe", "spm.model"), ("word", "vocabulary.txt"), ("bpe", "vocabulary.json")]
)
@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe nothing", b"[]"])
def test_a_missing_or_damaged_file_is_an_error_of_the_user(
    tmp_path: Path, kind: str, file: str, content: bytes | None
) -> None:
    train(kind).save(tmp_path)
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(UserError, match=file.replace(".", r"\.")):
        load_vocabulary(tmp_path)


def test_a_shortened_word_list_is_recognised(tmp_path: Path) -> None:
    train("word").save(tmp_path)
    path = tmp_path / "vocabulary.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(UserError, match="size differs"):
        load_vocabulary(tmp_path)


def test_an_unknown_family_is_an_error_of_the_user(tmp_path: Path) -> None:
    train("word").save(tmp_path)
    path = tmp_path / "vocabulary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"family": "octets"}))
    with pytest.raises(UserError, match="received 'octets'; allowed: subwords, bytes, "):
        load_vocabulary(tmp_path)


def test_bytes_are_those_of_utf_8(tmp_path: Path) -> None:
    train("byte").save(tmp_path)
    vocabulary = load_vocabulary(tmp_path)
    assert isinstance(vocabulary, ByteVocabulary)
    assert len(vocabulary) == len({vocabulary.token(id) for id in range(260)}) == 260
    with pytest.raises(IndexError):
        vocabulary.token(260)
    assert vocabulary.encode("a é") == [4 + 0x61, 4 + 0x20, 4 + 0xC3, 4 + 0xA9]
    assert [vocabulary.token(id) for id in vocabulary.encode("a é\t")] == ["a", "▁", "<0xC3>", "<0xA9>", "<0x09>"]
    assert [tuple(token[2:]) for token in vocabulary.encode_with_spans("a猫b")] == [
        (0, 1), (1, 2), (1, 2), (1, 2), (2, 3)
    ]  # fmt: skip
    assert not vocabulary.extensible
    with pytest.raises(UserError, match=r"vocabulary\.min_frequency"):
        train("byte", min_frequency=2)


@given(line=st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_bytes_give_back_any_line(line: str) -> None:
    vocabulary = train("byte")
    ids = vocabulary.encode(line)
    assert vocabulary.decode([BOS, *ids, EOS, PAD]) == (line if line.strip() else "")
    assert vocabulary.encode_lines([line]) == [ids]
    assert [token.id for token in vocabulary.encode_with_spans(line)] == ids
    assert all(UNKNOWN < id < len(vocabulary) for id in ids)


def test_bytes_that_are_no_text_are_replaced() -> None:
    vocabulary = train("byte")
    first, second, third = vocabulary.encode("猫")
    assert vocabulary.decode([first, second]) == "\ufffd"
    assert vocabulary.decode([first, second, *vocabulary.encode("a"), third]) == "\ufffda\ufffd"
    assert vocabulary.decode([*vocabulary.encode("a"), UNKNOWN, first, second, third]) == "a<unk>猫"


def test_word_keeps_the_most_frequent_and_of_equal_ones_the_first() -> None:
    lines = ["b a c a", "d b"]
    assert [train("word", lines, size=7).token(id) for id in range(4, 7)] == ["b", "a", "c"]
    assert len(train("word", lines, size=100)) == 8
    assert len(train("word", lines, size=100, min_frequency=2)) == 6
    assert train("word", lines, size=6).encode("a d zebra b") == [5, UNKNOWN, UNKNOWN, 4]


def test_whitespace_keeps_every_token() -> None:
    vocabulary = train("whitespace", ["b a　<s> <unk>", "a"], size=5)
    assert [vocabulary.token(id) for id in range(4, len(vocabulary))] == ["a", "b", "<s>", "<unk>"]
    assert vocabulary.decode(vocabulary.encode("<s>  a")) == "<s> a"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_an_impossible_size_names_the_possible_ones(kind: str) -> None:
    with pytest.raises(UserError, match=r"vocabulary\.size: .*received 8000; allowed: at most \d+") as caught:
        train(kind, size=8000)
    largest = int(str(caught.value.allowed).split()[-1])
    assert len(train(kind, size=largest)) == largest
    with pytest.raises(UserError, match=r"vocabulary\.size: .*received 10; allowed: at least \d+"):
        train(kind, size=10)


def test_char_ignores_the_size() -> None:
    many = ["".join(map(chr, range(0x4E00, 0x4E00 + 9000))), "a b"]
    assert len(train("char", many, size=5)) == 9000 + 3 + 4


def test_character_coverage_leaves_rare_characters_out() -> None:
    vocabulary = train("char", ["a b " * 5000 + "é"], character_coverage=0.999)
    assert vocabulary.encode("é")[-1] == UNKNOWN
    assert UNKNOWN not in vocabulary.encode("a b")


BYTES = {kind: train(kind, byte_fallback=True, size=SIZES[kind] + 256) for kind in ("bpe", "unigram")}


@pytest.mark.parametrize("kind", BYTES)
@given(line=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁\r\n"), max_size=20))
def test_with_byte_fallback_every_text_comes_back(kind: str, line: str) -> None:
    vocabulary = BYTES[kind]
    ids = vocabulary.encode(line)
    assert UNKNOWN not in ids
    assert vocabulary.decode(ids) == " ".join(filter(None, line.split(" ")))
    tokens = vocabulary.encode_with_spans(line)
    assert [token.id for token in tokens] == ids
    for token in tokens:
        if token.surface.startswith("<0x"):
            assert bytes.fromhex(token.surface[3:5]) in line[token.start : token.end].encode()


@pytest.mark.parametrize("kind", BYTES)
def test_digits_that_are_split_are_tokens_of_their_own(kind: str) -> None:
    lines = [f"{number} cats and {word}" for number in range(2000, 2030) for word in ("dogs", "dots", "cots")]
    joined, split = (train(kind, lines, size=27, split_digits=value) for value in (False, True))
    assert len(joined.encode("2012")) < len(split.encode("2012"))
    assert [split.token(id) for id in split.encode("2012")][-4:] == [*"2012"]


def test_the_name_of_a_byte_in_a_text_is_text() -> None:
    vocabulary = train("unigram", [*LINES, "<0xE6> <0x41>" * 9], byte_fallback=True, size=SIZES["unigram"] + 262)
    assert vocabulary.decode(vocabulary.encode("<0xE6> A")) == "<0xE6> A"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lines", [[], [""], ["  ", " "]])
def test_an_empty_text_is_an_error_of_the_user(kind: str, lines: list[str]) -> None:
    with pytest.raises(UserError, match=r"^vocabulary: "):
        train(kind, lines)


def test_settings_that_a_kind_does_not_have_are_errors_of_the_user() -> None:
    with pytest.raises(UserError, match=r"vocabulary\.min_frequency"):
        train("bpe", min_frequency=2)
    with pytest.raises(UserError, match=r"vocabulary\.character_coverage"):
        train("word", character_coverage=0.99)
    for kind in ("char", "word", "byte"):
        with pytest.raises(UserError, match=r"vocabulary\.byte_fallback"):
            train(kind, byte_fallback=True)


@pytest.mark.parametrize("kind", SUBWORDS)
def test_training_is_silent_and_deterministic(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    models = []
    for name in ("first", "second"):
        train(kind).save(tmp_path / name)
        models.append((tmp_path / name / "spm.model").read_bytes())
    assert models[0] == models[1]
    assert capfd.readouterr() == ("", "")
