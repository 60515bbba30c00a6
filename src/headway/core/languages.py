"""Language codes, and facts about writing systems.

Codes are accepted in all usual forms: `fr`, `fr-FR`, `fr_FR`, `FR`, `fra` and `fre` are the same language.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Annotated, NamedTuple

from babel import Locale, UnknownLocaleError
from babel.core import get_global
from pydantic import AfterValidator

from headway.core.errors import nearest

TAG = re.compile(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*")
PRIVATE = re.compile("q[a-t][a-z]")  # codes reserved for private use
UNDETERMINED = "und"  # the code of a language without rules
HAN = frozenset(("Hans", "Hant", "Hani"))
JAPANESE = frozenset(("Hira", "Hrkt", "Jpan", "Kana"))
RIGHT_TO_LEFT = frozenset(("Adlm", "Arab", "Aran", "Hebr", "Mand", "Mend", "Nkoo", "Rohg", "Syrc", "Thaa"))
WITHOUT_SPACES = HAN | JAPANESE | {
    "Bali", "Java", "Khmr", "Lana", "Laoo", "Mymr", "Talu", "Thai", "Tibt"
}  # fmt: skip
# The characters of these scripts, including marks, vowels and digits.
WIDE = (
    r"\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1980-\u19ff\u1a20-\u1aaf\u1b00-\u1b7f\u3005-\u3007\u3040-\u30ff"
    r"\u3400-\u4dbf\u4e00-\u9fff\ua980-\ua9ff\uaa60-\uaa7f\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
WIDE_CHARACTER = re.compile(f"[{WIDE}]")
BETWEEN_CHARACTERS = re.compile(rf"(?<=[{WIDE}])([^\S\n]?)(?=[{WIDE}])")  # including a full-width space
CHARACTER_OR_WORD = re.compile(rf"[{WIDE}]|[^\s{WIDE}]+")
OTHER_WORD = re.compile(rf"[^\W{WIDE}]+")
HARDLY_ANY = 0.15  # the share of blanks between two characters if phrases, but not words, are separated
LOOKED_AT = 1000  # the number of texts


class _Code(NamedTuple):
    """A parsed code: the base language, and the script; None if the language has no usual script."""

    language: str
    script: str | None


def base_language(code: str) -> str:
    """The shortest code of the language alone, as in tables of rules. Invalid codes are returned unchanged."""
    read = _read(code)
    return code if read is None else read.language


def is_language(code: str) -> bool:
    return _read(code) is not None


def is_one_language(code: str) -> bool:
    """Whether a code names one language, unlike `und` and `mul` (several languages)."""
    return is_language(code) and base_language(code) not in ("mul", UNDETERMINED)


def nearest_language(code: str) -> str:
    """A hint with the language that an invalid code may mean: `ja` for `jp`, `fr` for `french`."""
    letters = "".join(re.findall("[a-z]+", code.lower()[:3]))
    of_country = get_global("likely_subtags").get(f"und_{letters.upper()}", "").split("_")[0]
    known = (of_country, letters, letters[:2])
    found = next((base_language(name) for name in known if name and is_language(name)), None)
    return nearest(code, Locale("en").languages) if found is None else f"; did you mean {found!r}?"


def _checked(code: str) -> str:
    if not is_language(code):
        raise ValueError(f"this is no code of a language, such as fr or pt-BR{nearest_language(code)}")
    return code


LanguageCode = Annotated[str, AfterValidator(_checked)]


@cache
def _read(code: str) -> _Code | None:
    if not TAG.fullmatch(code):
        return None
    first, *others = re.split("[-_]", code)
    likely = get_global("likely_subtags")
    language, *more = str(get_global("language_aliases").get(first.lower(), first.lower())).split("_")
    if not (language in likely or language in Locale("en").languages or PRIVATE.fullmatch(language)):
        return None
    usual = likely.get(language, "").split("_")
    scripts = (part.title() for part in (*others, *more, *usual) if len(part) == 4 and part.isalpha())
    return _Code(language, next(scripts, None))


def _variant(code: str) -> tuple[str, str | None, str | None]:
    """The language, the usual script of the region, and the region of a code, or None if it names no region."""
    if (read := _read(code)) is None:
        return code.lower(), None, None
    parts = re.split("[-_]", code)[1:]
    region = next((part.upper() for part in parts if re.fullmatch("[A-Za-z]{2}|[0-9]{3}", part)), None)
    usual = get_global("likely_subtags").get(f"{read.language}_{region}", f"_{read.script}").split("_")[1]
    return read.language, read.script if any(len(part) == 4 and part.isalpha() for part in parts) else usual, region


def same_writing(code: str, other: str) -> bool:
    """Whether two codes have the same language and script, as pt-PT and pt-BR have, but not zh-CN and zh-TW."""
    return _variant(code)[:2] == _variant(other)[:2]


def nearest_variant(codes: Iterable[str], wanted: str, *, with_base: bool = True) -> str | None:
    """The code in `codes` that is closest to a wanted variant; None if there is none. The script must be the same.

    The same variant is preferred, then, `with_base`, the language without a region. Other regions are accepted only if
    the wanted code has none.
    """
    language, script, region = _variant(wanted)
    found = {_variant(code): code for code in reversed([*codes]) if same_writing(code, wanted)}  # the first of each
    ranked = [(language, script, region), *([(language, script, None)] if with_base else ())]
    ranked += [*reversed(found)] if region is None else []
    return next((found[each] for each in ranked if each in found), None)


def has_no_spaces(code: str | None) -> bool:
    """Whether a language is written without spaces between words. False if no language is set."""
    return code is not None and (read := _read(code)) is not None and read.script in WITHOUT_SPACES


def separates_sentences(code: str | None) -> bool:
    """Whether a language has a space between two sentences. Chinese and Japanese have none."""
    return code is None or (read := _read(code)) is None or read.script not in HAN | JAPANESE


def is_right_to_left(code: str) -> bool:
    """Whether a language is written from right to left."""
    return (read := _read(code)) is not None and read.script in RIGHT_TO_LEFT


def is_written_in_han(code: str) -> bool:
    """Whether a language is written only in Chinese characters."""
    return (read := _read(code)) is not None and read.script in HAN


def look_unspaced(texts: Iterable[str]) -> bool:
    """Whether texts have no spaces between words, judged by the first thousand texts.

    Most of their characters belong to scripts without spaces, with hardly any blanks between two of them. Texts that a
    segmenter has split into words are not unspaced.
    """
    text = "\n".join(islice(texts, LOOKED_AT))
    between = [bool(blank) for blank in BETWEEN_CHARACTERS.findall(text)]
    more = len(WIDE_CHARACTER.findall(text)) > len(OTHER_WORD.findall(text))
    return more and sum(between) <= HARDLY_ANY * len(between)


def languages_of_names(files: Sequence[Path], columns: Sequence[str]) -> list[str | None]:
    """The languages of both sides from names of columns, or of files: train.ja, corpus.en.gz, x.de-en.tsv."""
    words: list[Sequence[str]] = [file.name.split(".")[1:] for file in files]
    if len(files) == 1:
        pair = re.search(r"\.([a-z]{2})[-_]([a-z]{2})\.", files[0].name) if [*columns] == ["1", "2"] else None
        words = [[word] for word in (pair.groups() if pair else columns)]
    codes = [[word for word in some if re.fullmatch("[a-z]{2}", word) and is_language(word)] for some in words]
    return [some[-1] if some and (len(files) == 2 or all(codes)) else None for some in codes]


def language_name(code: str) -> str:
    """The English name of a language, or its code if the name is unknown."""
    if code == UNDETERMINED:  # babel reads this as American English
        return code
    try:
        return Locale.parse(code.replace("-", "_")).get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code
