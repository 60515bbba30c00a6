"""Dates in natural formats of 35 languages, to be rewritten as ISO 8601: the task of `headway demo`.

Month and weekday names and most patterns come from Unicode's CLDR through Babel; `dates_patterns.yaml` adds other
common patterns. All dates are unambiguous: they have the month's name or begin with the year, and always have all four
digits of the year, in the Gregorian calendar.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import date, timedelta
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from babel import Locale
from babel.dates import tokenize_pattern

from headway.core.documents import parse_yaml
from headway.core.errors import UserError
from headway.core.files import write_new_texts

FIRST, LAST = date(1900, 1, 1), date(2099, 12, 31)

# The code point of zero in Unicode's decimal digit systems, under their CLDR names.
ZEROS = {"arab": 0x660, "arabext": 0x6F0, "beng": 0x9E6, "deva": 0x966, "fullwide": 0xFF10, "thai": 0xE50}

# CLDR's date formats and skeletons with day, month and year; its short format may write two digits of the year.
FORMATS = ("full", "long", "medium")
SKELETONS = ("yMMMMEEEEd", "yMMMMd", "yMMMEd", "yMMMd", "yMEd", "yMd")

# Dates of every month and weekday, and a first day. Two formats are equal if they write all of these alike.
PROBES = (*(date(1987 + month, month, (5 * month) % 28 + 1) for month in range(1, 13)), date(2021, 3, 1))


@dataclass(frozen=True)
class DateExample:
    """A date as written in `language` with `pattern`, and the same date in ISO 8601."""

    text: str
    iso: str
    language: str
    pattern: str


@dataclass
class DateData:
    """The examples of the task. No text occurs twice, and no date of one part occurs in another.

    `test_unseen_dates` uses combinations of language and pattern that occur in `train`. `test_unseen_pairs` uses
    combinations that do not, although the language and the pattern each occur in other combinations. The two test parts
    share their dates.
    """

    train: list[DateExample]
    dev: list[DateExample]
    test_unseen_dates: list[DateExample]
    test_unseen_pairs: list[DateExample]


@dataclass(frozen=True, order=True)
class Writing:
    """A format of dates: a language, a pattern, and the letter case and digits."""

    language: str
    pattern: str
    case: str = "as is"
    digits: str = "latn"

    @property
    def name(self) -> str:
        """The pattern with its case and digits, which is the same in all languages."""
        digits = "" if self.digits == "latn" else f" in {self.digits} digits"
        return self.pattern + digits + ("" if self.case == "as is" else f" in {self.case} case")

    def write(self, day: date) -> str:
        """Format `day`."""
        text = "".join(self._field(kind, value, day) for kind, value in _tokens(self.pattern))
        if "{ordinal}" in text:
            suffixes = _settings()["ordinals"][self.language]
            text = text.replace("{ordinal}", suffixes.get(day.day, suffixes["else"]))
        if self.digits in ZEROS:
            text = text.translate({ord("0") + digit: ZEROS[self.digits] + digit for digit in range(10)})
        return _CASES[self.case](text)

    def _field(self, kind: str, value: Any, day: date) -> str:
        if kind == "chars":
            return str(value)
        letter, width = value
        match letter:
            case "y":
                return _han_digits(day.year) if self.digits == "han" else f"{day.year:04}"
            case "M" if width >= 3:
                return _name(self.language, "months", width)[day.month]
            case "M" | "d":
                number = day.day if letter == "d" else day.month
                return _han_number(number) if self.digits == "han" else f"{number:0{width}}"
            case "E":
                return _name(self.language, "days", width)[day.weekday()]
            case "G":
                return str(Locale.parse(self.language).eras["abbreviated"][1])
        raise AssertionError(f"no date pattern holds the field {letter}")


_CASES: dict[str, Callable[[str], str]] = {
    "as is": str,
    "upper": str.upper,
    "lower": str.lower,
    "initial upper": lambda text: text[0].title() + text[1:],  # title case, since Georgian has no initial capitals
}


@cache
def _settings() -> Any:
    file = resources.files(__package__).joinpath("dates_patterns.yaml")
    return parse_yaml(file.read_text(encoding="utf-8"), file.name)


@cache
def _tokens(pattern: str) -> list[tuple[str, Any]]:
    return list(tokenize_pattern(pattern))


@cache
def _name(language: str, field: str, width: int) -> dict[int, str]:
    # Only the `format` names: Babel 2.18 gives locales without stand-alone names those of the locale loaded before.
    names = getattr(Locale.parse(language), field)["format"]["wide" if width == 4 else "abbreviated"]
    return dict(names)


def _han_digits(number: int) -> str:
    return "".join("〇一二三四五六七八九"[int(digit)] for digit in str(number))


def _han_number(number: int) -> str:
    tens, ones = divmod(number, 10)
    return ("" if tens < 2 else _han_digits(tens)) + ("十" if tens else "") + (_han_digits(ones) if ones else "")


def _patterns(language: str) -> list[str]:
    """The patterns of a language, CLDR's first, each with and without its commas."""
    locale = Locale.parse(language)
    listed = [str(locale.date_formats[name].pattern) for name in FORMATS]
    listed += [str(locale.datetime_skeletons[name].pattern) for name in SKELETONS if name in locale.datetime_skeletons]
    # Replace CLDR's thin spaces and invisible direction marks, which are for typesetting, by what a keyboard has.
    listed = [pattern.replace("\u202f", " ").replace("\u200f", "") for pattern in listed]
    unambiguous = [pattern for pattern in listed if pattern.startswith("y") or "MMM" in pattern]
    listed = unambiguous + _settings()["extra"].get(language, [])
    # Unify the spelling of fields, so that equal patterns have the same name in all languages.
    listed = [re.sub(r"\bEEE\b", "E", pattern.replace("cccc", "EEEE")) for pattern in listed]
    return list(dict.fromkeys(listed + [pattern.replace(",", "").replace("،", "") for pattern in listed]))


@cache
def writings(language: str) -> tuple[Writing, ...]:
    """All formats of dates in `language`, without duplicates."""
    patterns = _patterns(language)
    ways = [Writing(language, pattern) for pattern in patterns]
    for digits in _settings()["digits"].get(language, []):
        counted = [pattern for pattern in patterns if digits != "han" or pattern.startswith("y年")]
        ways += [Writing(language, pattern, digits=digits) for pattern in counted]
    spelt_out = [pattern for pattern in patterns if "MMMM" in pattern]
    ways += [Writing(language, pattern, "initial upper") for pattern in spelt_out]
    if language not in _settings()["no_upper_case"]:
        ways += [Writing(language, pattern, "upper") for pattern in spelt_out]
    ways += [Writing(language, pattern, "lower") for pattern in spelt_out]
    distinct: dict[tuple[str, ...], Writing] = {}
    for way in ways:
        distinct.setdefault(tuple(map(way.write, PROBES)), way)
    return tuple(distinct.values())


def languages() -> list[str]:
    return list(_settings()["languages"])


def generate_dates(
    seed: int,
    train_size: int = 60_000,
    dev_size: int = 1000,
    test_size: int = 2000,
    held_out_dates: float = 0.05,
    held_out_pairs: float = 0.08,
) -> DateData:
    """Generate the data, which is determined by the arguments and the release of Babel.

    Args:
        train_size: the number of training examples. `dev_size` and `test_size`: those of dev and of each of the two
            tests.
        held_out_dates: the share of all dates from 1900 to 2099 for dev (one third) and the tests (two thirds).
        held_out_pairs: the share of the combinations of language and pattern that do not occur in training.

    Raises:
        UserError: there are not enough different texts.
    """
    generator = random.Random(seed)
    dates = [FIRST + timedelta(days=day) for day in range((LAST - FIRST).days + 1)]
    generator.shuffle(dates)
    held_out = round(held_out_dates * len(dates))
    dev_dates, test_dates, train_dates = dates[: held_out // 3], dates[held_out // 3 : held_out], dates[held_out:]
    unseen = hold_out(generator, held_out_pairs)
    seen = [way for language in languages() for way in writings(language) if way not in unseen]
    drawn = {
        "train": (seen, train_dates, train_size),
        "dev": (seen, dev_dates, dev_size),
        "test_unseen_dates": (seen, test_dates, test_size),
        "test_unseen_pairs": (sorted(unseen), test_dates, test_size),
    }
    for part, (ways, days, size) in drawn.items():
        if size > len(ways) * len(days):  # otherwise noticed only after drawing all of them
            raise _too_many(part, size, len(ways) * len(days))
    return DateData(**{part: _examples(generator, part, *choice) for part, choice in drawn.items()})


def hold_out(generator: random.Random, share: float) -> set[Writing]:
    """Choose `share` of all formats, so that their patterns, languages and characters all occur in other formats.

    Only formats with mostly unique texts are chosen, since texts that another language writes in the same way are not
    unseen.
    """
    ways = [way for language in languages() for way in writings(language)]
    texts = {way: [way.write(day) for day in PROBES] for way in ways}
    common = Counter(text for way in ways for text in texts[way])
    parts = {way: {f"pattern {way.name}", f"language {way.language}", *"".join(texts[way])} for way in ways}
    remaining = Counter(part for way in ways for part in parts[way])
    candidates = [way for way in ways if sum(common[text] == 1 for text in texts[way]) * 4 >= len(PROBES) * 3]
    generator.shuffle(candidates)
    chosen: set[Writing] = set()
    for way in candidates:
        if len(chosen) >= share * len(ways):
            break
        if remaining[f"language {way.language}"] > 3 and all(remaining[part] > 1 for part in parts[way]):
            chosen.add(way)
            remaining.subtract(parts[way])
    return chosen


def _examples(
    generator: random.Random, part: str, ways: Sequence[Writing], dates: Sequence[date], size: int
) -> list[DateExample]:
    """`size` examples of a part with different texts, balanced over languages.

    Raises UserError if there are too few.
    """
    by_language: dict[str, list[Writing]] = {}
    for way in ways:
        by_language.setdefault(way.language, []).append(way)
    groups = list(by_language.values())
    examples: dict[str, DateExample] = {}
    for _ in range(4 * size + 100):
        if len(examples) == size:
            return list(examples.values())
        way, day = generator.choice(generator.choice(groups)), generator.choice(dates)
        text = way.write(day)
        examples.setdefault(text, DateExample(text, day.isoformat(), way.language, way.name))
    raise _too_many(part, size, len(examples))


def _too_many(part: str, size: int, most: int) -> UserError:
    what = "more examples than there are different texts"
    return UserError(what, where=part.replace("_", "-"), received=size, allowed=f"about {most:,}")


def write_dates(data: DateData, folder: Path) -> None:
    """Write each part as two aligned files: `train.tsv` (text, ISO date) and `train.ways.tsv` (language, pattern).

    The parts are train, dev, test-unseen-dates and test-unseen-pairs. The folder is created if it does not exist.
    Raises UserError, before anything is written, if a file already exists with a different text.
    """
    texts = {}
    for part in fields(data):
        examples: list[DateExample] = getattr(data, part.name)
        name = part.name.replace("_", "-")
        texts[folder / f"{name}.tsv"] = "".join(f"{example.text}\t{example.iso}\n" for example in examples)
        ways = (f"{example.language}\t{example.pattern}\n" for example in examples)
        texts[folder / f"{name}.ways.tsv"] = "".join(ways)
    write_new_texts(texts)
