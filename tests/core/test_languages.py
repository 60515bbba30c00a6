"""Codes of languages as people write them, and how languages are written."""

import pytest

from headway.core.languages import base_language, has_no_spaces, is_language, look_unspaced, nearest_language


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("fr", "fr"), ("fr-FR", "fr"), ("fr_CA", "fr"), ("FR", "fr"), ("fra", "fr"), ("fre", "fr"), ("de-DE", "de"),
        ("ger", "de"), ("pt_BR", "pt"), ("cmn", "zh"), ("zh-Hant-TW", "zh"), ("jpn", "ja"), ("qaa", "qaa"),
    ],
)  # fmt: skip
def test_a_language_has_one_code(code: str, language: str) -> None:
    assert base_language(code) == language
    assert is_language(code)


@pytest.mark.parametrize(
    ("code", "meant"), [("französisch", "fr"), ("german", "de"), ("japanese", "ja"), ("jp", "ja"), ("cz", "cs")]
)
def test_an_impossible_code_has_a_nearest_one(code: str, meant: str) -> None:
    assert not is_language(code)
    assert base_language(code) == code
    assert nearest_language(code) == f"; did you mean {meant!r}?"


@pytest.mark.parametrize("code", ["xx-", "xx", "", "e", "en_US.UTF-8", "../en"])
def test_impossible_codes(code: str) -> None:
    assert not is_language(code)
    nearest_language(code)


def test_languages_without_spaces() -> None:
    codes = ["ja", "ja-JP", "jpn", "zh", "zh-Hant", "yue", "lzh", "th", "th_TH", "lo", "km", "my", "bo", "dz"]
    assert [code for code in codes if not has_no_spaces(code)] == []
    assert [code for code in ("en", "ko", "vi", "ja-Latn", "xx", None) if has_no_spaces(code)] == []


UNSPACED = [
    "東京へ行きますか。", "我喜欢猫，3 只", "ฉันรักแมว", "ມື້ນີ້ອາກາດດີ", "ကျွန်တော် ဈေးသွားချင်တယ်။", "猫", "我用Python写程序",
]  # fmt: skip
SPACED = [
    "東京 へ 行き ます か 。", "我　喜欢　你", "ฉัน รัก แมว มาก ที่สุด", "안녕하세요 세계", "a 猫 cat", "one", "",
]  # fmt: skip


@pytest.mark.parametrize("text", UNSPACED)
def test_texts_without_spaces(text: str) -> None:
    assert look_unspaced([text])


@pytest.mark.parametrize("text", SPACED)
def test_texts_with_spaces(text: str) -> None:
    assert not look_unspaced([text])
