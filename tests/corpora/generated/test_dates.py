"""The dates task: right, unambiguous, split without leaks, deterministic."""

import random
import re
import subprocess
import sys
import unicodedata
from collections import defaultdict
from datetime import date, timedelta
from pathlib import Path

import pytest
from babel.dates import format_date

from headway.core.errors import UserError
from headway.corpora.generated.dates import (
    DateData,
    DateExample,
    Writing,
    generate_dates,
    hold_out,
    languages,
    write_dates,
    writings,
)

HAN = "〇一二三四五六七八九"
WAYS = [way for language in languages() for way in writings(language)]


@pytest.fixture(scope="module")
def data() -> DateData:
    return generate_dates(seed=3, train_size=20_000, dev_size=400, test_size=600)


def parts(data: DateData) -> dict[str, list[DateExample]]:
    return vars(data)


def latin(text: str) -> str:
    """The text with every decimal digit, of whatever script, as 0-9."""
    return "".join(str(unicodedata.digit(char)) if char.isdecimal() else char for char in text)


def han_number(text: str) -> int:
    tens, separator, ones = text.rpartition("十")
    return (HAN.index(tens) if tens else 1) * 10 * bool(separator) + (HAN.index(ones) if ones else 0)


def numbers(text: str) -> list[int]:
    """All numbers in a text, in its order, those of Chinese characters in dates too."""
    han = re.match(f"([{HAN}]{{4}})年([{HAN}十]+)月([{HAN}十]+)[日号]", text)
    if han:
        return [int("".join(str(HAN.index(char)) for char in han[1])), han_number(han[2]), han_number(han[3])]
    return [int(number) for number in re.findall(r"\d+", latin(text))]


def test_many_languages_and_scripts(data: DateData) -> None:
    for examples in (data.train, data.dev, data.test_unseen_dates):
        assert len({example.language for example in examples}) == len(languages()) >= 25
    letters = {unicodedata.name(char).split()[0] for example in data.train for char in example.text if char.isalpha()}
    assert {
        "LATIN",
        "CYRILLIC",
        "GREEK",
        "ARABIC",
        "HEBREW",
        "DEVANAGARI",
        "BENGALI",
        "THAI",
        "HANGUL",
        "CJK",
    } <= letters


def test_sizes_and_no_text_twice(data: DateData) -> None:
    assert {name: len(examples) for name, examples in parts(data).items()} == {
        "train": 20_000, "dev": 400, "test_unseen_dates": 600, "test_unseen_pairs": 600,
    }  # fmt: skip
    for examples in parts(data).values():
        assert len({example.text for example in examples}) == len(examples)


def test_dates_of_the_parts_are_disjoint(data: DateData) -> None:
    train, dev = ({example.iso for example in examples} for examples in (data.train, data.dev))
    test = {example.iso for example in data.test_unseen_dates + data.test_unseen_pairs}
    assert not train & dev
    assert not train & test
    assert not dev & test


def test_unseen_pairs_are_new_combinations_of_known_parts(data: DateData) -> None:
    trained = {(example.language, example.pattern) for example in data.train}
    unseen = {(example.language, example.pattern) for example in data.test_unseen_pairs}
    assert not trained & unseen
    assert {language for language, _ in unseen} <= {language for language, _ in trained}
    assert {pattern for _, pattern in unseen} <= {pattern for _, pattern in trained}
    assert 0.07 < len(unseen) / len(WAYS) < 0.1
    assert {(example.language, example.pattern) for example in data.test_unseen_dates + data.dev} <= trained
    characters = {char for example in data.train for char in example.text}
    assert {char for example in data.test_unseen_pairs for char in example.text} <= characters


def test_a_held_out_pair_is_not_a_trained_one_under_another_name() -> None:
    unseen = hold_out(random.Random(5), 0.08)
    days = [date(2004, month, day) for month in range(1, 13) for day in (1, 9, 23)]
    trained = {way.write(day) for way in WAYS if way not in unseen for day in days}
    for way in unseen:
        assert sum(way.write(day) in trained for day in days) <= len(days) / 3, way


def test_every_text_holds_its_year_and_day(data: DateData) -> None:
    for examples in parts(data).values():
        for example in examples:
            day = date.fromisoformat(example.iso)
            assert 1900 <= day.year <= 2099
            values = numbers(example.text)
            assert day.year in values, example
            assert day.day in values, example
            assert values.index(day.year) == 0 or any(char.isalpha() for char in example.text), example


def test_one_text_has_one_date() -> None:
    meanings = defaultdict(set)
    for way in WAYS:
        for offset in range(370):  # five of them have the day and month of others
            day = date(2011, 1, 1) + timedelta(days=offset)
            meanings[way.write(day)].add(day)
    assert [text for text, days in meanings.items() if len(days) > 1] == []


def test_month_names_mean_the_same_month_in_all_languages() -> None:
    meanings = defaultdict(set)
    for way in WAYS:
        for month in range(1, 13):
            day = date(2011, month, 20)
            text = re.sub(r"[\d\s.,،/-]+", " ", latin(way.write(day))).casefold()
            if "MMM" in way.pattern and "E" not in way.pattern and way.language not in ("ja", "ko", "vi"):
                meanings[text].add(month)
    assert {text: months for text, months in meanings.items() if len(months) > 1} == {}


@pytest.mark.parametrize(
    ("language", "pattern", "text"),
    [
        ("en", "EEEE, MMMM d, y", "Monday, March 1, 2021"),
        ("en", "d'{ordinal} of' MMMM y", "1st of March 2021"),
        ("fr", "d'{ordinal}' MMMM y", "1er mars 2021"),
        ("pt", "d 'de' MMMM 'de' y", "1 de março de 2021"),
        ("ru", "d MMMM y 'г'.", "1 марта 2021 г."),
        ("sv", "'den' d'{ordinal}' MMMM y", "den 1:a mars 2021"),
        ("fa", "d MMMM y in arabext digits", "۱ مارس ۲۰۲۱"),
        ("bn", "d MMMM y in beng digits", "১ মার্চ ২০২১"),
        ("th", "EEEEที่ d MMMM G y", "วันจันทร์ที่ 1 มีนาคม ค.ศ. 2021"),
        ("ja", "y年M月d日 in fullwide digits", "２０２１年３月１日"),
        ("zh", "y年M月d日 in han digits", "二〇二一年三月一日"),
        ("ko", "y년 MMMM d일", "2021년 3월 1일"),
        ("de", "EEEE, d. MMMM y in upper case", "MONTAG, 1. MÄRZ 2021"),
        ("es", "EEEE, d 'de' MMMM 'de' y in initial upper case", "Lunes, 1 de marzo de 2021"),
    ],
)
def test_known_texts(language: str, pattern: str, text: str) -> None:
    way = next(way for way in writings(language) if way.name == pattern)
    assert way.write(date(2021, 3, 1)) == text


@pytest.mark.parametrize(
    ("day", "text"),
    [
        (date(1905, 1, 9), "一九〇五年一月九日"),
        (date(2000, 10, 10), "二〇〇〇年十月十日"),
        (date(2012, 12, 20), "二〇一二年十二月二十日"),
        (date(1999, 11, 30), "一九九九年十一月三十日"),
        (date(1987, 7, 25), "一九八七年七月二十五日"),
    ],
)
def test_dates_in_chinese_characters(day: date, text: str) -> None:
    assert Writing("zh", "y年M月d日", digits="han").write(day) == text


def test_patterns_agree_with_babel() -> None:
    plain = [way for way in WAYS if way.case == "as is" and way.digits == "latn" and "ordinal" not in way.pattern]
    for way in plain:
        for day in (date(1934, 2, 28), date(2024, 2, 29), date(2077, 8, 5)):
            assert way.write(day) == format_date(day, way.pattern, locale=way.language)


def test_names_do_not_depend_on_the_languages_before() -> None:
    program = (
        "from datetime import date; from headway.corpora.generated.dates import writings; import sys; "
        "sys.stdout.buffer.write('\\n'.join(way.write(date(2014, 10, 7)) for way in writings('th')).encode())"
    )
    alone = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout.decode()
    assert alone.split("\n") == [way.write(date(2014, 10, 7)) for way in writings("th")]


def test_the_same_seed_gives_the_same_data() -> None:
    sizes = {"train_size": 500, "dev_size": 50, "test_size": 50}
    assert generate_dates(seed=8, **sizes) == generate_dates(seed=8, **sizes)
    assert generate_dates(seed=8, **sizes).train != generate_dates(seed=9, **sizes).train


def test_files_are_aligned(tmp_path: Path) -> None:
    data = generate_dates(seed=1, train_size=80, dev_size=30, test_size=40)
    write_dates(data, tmp_path / "new" / "folder")
    for name, examples in parts(data).items():
        stem = tmp_path / "new" / "folder" / name.replace("_", "-")
        rows = [line.split("\t") for line in Path(f"{stem}.tsv").read_text("utf-8").splitlines()]
        ways = [line.split("\t") for line in Path(f"{stem}.ways.tsv").read_text("utf-8").splitlines()]
        assert [(*row, *way) for row, way in zip(rows, ways, strict=True)] == [
            tuple(vars(example).values()) for example in examples
        ]
    write_dates(data, tmp_path / "new" / "folder")  # the same once more
    other = generate_dates(seed=1, train_size=81, dev_size=30, test_size=40)
    with pytest.raises(UserError, match=r"output: there is a file .* with another text; received '.*train\.tsv'"):
        write_dates(other, tmp_path / "new" / "folder")


def test_impossible_requests_are_user_errors() -> None:
    # As many as there are pairs of a date and a way of writing it, some of which write the same text.
    with pytest.raises(UserError, match=r"test-unseen-pairs: more .* received 1000; allowed: about 9\d\d"):
        generate_dates(seed=1, train_size=10, dev_size=10, test_size=1000, held_out_dates=0.0005)


def test_sizes_that_cannot_be_are_found_before_anything_is_drawn() -> None:
    with pytest.raises(UserError, match=r"dev: more examples than .*; received 100000000; allowed: about"):
        generate_dates(seed=1, dev_size=10**8)
