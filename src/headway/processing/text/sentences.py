"""Sentence segmentation of running text, for metrics and baselines that work on sentences."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from headway.core.languages import base_language, language_name, separates_sentences
from headway.core.log import warn
from headway.core.processes import check_waited_for

WINDOW, MOST = 500, 2000  # characters of a window: at first, and at most if no sentence ends within it
PLAIN = re.compile(r"[\w\s,'’-]{,500}")  # contains no sentence end in any language
# The end of a sentence and the first character of the next one; all repetitions are bounded, for texts of any length.
BREAK = re.compile(
    r"(\w{0,9})([.!?…؟۔]{1,3})[\"'”’»)\]]{0,3}\s{1,9}[\"'“„‘«(¿¡\[–—-]{0,3}(\w)|[。！？।]\s{0,9}[^\s。！？।」』”’）)]"
)


def has_several_sentences(text: str) -> bool:
    """Whether a text seems to have several sentences, judging by its characters. Abbreviations may be misjudged."""
    for word, mark, following in BREAK.findall(text):
        is_word = len(word) > 4 or (len(word) > 1 and word[0].islower() and word not in ("ca", "vs", "cf", "bzw"))
        if not following or (not following.islower() and (mark != "." or is_word)):
            return True
    return False


# The signs that end a sentence in languages without rules (STerm of UAX 29), and Chinese closing quotes and brackets.
STOPS = "।॥۔؟։።፧၊။។៕᠃᠉༎།༏༐༑༔᙮⸮꓿"
AFTER_STOP = re.compile(rf"(?<=[{STOPS}])\s+(?=\S)")
CLOSING = re.compile(r"[”’」』】）》〉〕〗｠]+")


def between(blank: str, source: str, target: str) -> str:
    """The separator of two sentences in a translation. In the source it is `blank`: nothing, or a space."""
    if separates_sentences(source) == separates_sentences(target):
        return blank
    return " " if separates_sentences(target) else ""


@cache
def warn_without_rules(language: str) -> None:
    """Warn once of a language that has no rules for sentences."""
    if language and language_of_rules(language) is None:
        warn(f"there are no rules for sentences of {language_name(language)}: they are found by the rules of English")


def sentences(text: str, language: str = "en") -> list[str]:
    """The sentences of a text, in order and stripped; a line break always ends a sentence.

    The rules are those of pySBD (Sadvilkar and Neumann 2020) for 23 languages. Other languages use the rules of
    English.

    Args:
        text: running text.
        language: a language code such as `ja` or `ja-JP`.
    """
    import pysbd  # imported late: it loads the rules of all languages

    rules = language_of_rules(language)
    segmenter = pysbd.Segmenter(language=rules or "en", clean=False)  # not thread-safe
    spans = [sentence for line in text.splitlines() for sentence in _windows(line, segmenter.segment)]
    if rules is None:
        spans = [part for sentence in spans for part in AFTER_STOP.split(sentence)]
    elif rules == "zh":
        spans = list(_with_closing(spans))
    return [stripped for sentence in spans if (stripped := sentence.strip())]


def _with_closing(found: Sequence[str]) -> Iterator[str]:
    """Sentences, with the closing quotes and brackets at the beginning of a sentence moved to the one before."""
    for number, sentence in enumerate(found):
        own = CLOSING.match(sentence) if number else None
        following = CLOSING.match(found[number + 1]) if number + 1 < len(found) else None
        yield sentence[own.end() if own else 0 :] + (following[0] if following else "")


def languages_of_rules() -> list[str]:
    """The codes of the languages that pySBD has rules for."""
    from pysbd.languages import LANGUAGE_CODES

    return sorted(LANGUAGE_CODES)


def language_of_rules(language: str) -> str | None:
    """The language of `languages_of_rules` for a code such as `ja-JP`, or None if it has no rules."""
    code = base_language(language)
    return code if code in languages_of_rules() else None


def _windows(line: str, segment: Callable[[str], Sequence[str]]) -> Iterator[str]:
    """Split a line into sentences, in windows that begin at the last sentence of the preceding window.

    The rules take quadratic time in the length of their input, so long lines are not segmented as a whole.
    """
    if PLAIN.fullmatch(line):
        yield line
        return
    begin, width, held = 0, WINDOW, ""
    while begin < len(line):
        part, last = line[begin : begin + width], begin + width >= len(line)
        found = [one for one in _whole(part, segment(part)) if one]
        if last or len(found) > 1:
            first, *others = found if last else found[:-1]
            yield from (held + first, *others)
            begin, width, held = begin + sum(map(len, (first, *others))), WINDOW, ""
        elif width < MOST:
            width *= 2
        else:
            beginning = part[: part.rstrip().rfind(" ") + 1] or part
            begin, width, held = begin + len(beginning), WINDOW, held + beginning


def _whole(line: str, found: Sequence[str]) -> Iterator[str]:
    """The sentences `found` in a line, and the text between them as further sentences.

    pySBD marks positions with characters such as U+266C, and loses sentences that contain such characters.
    """
    check_waited_for()
    end = 0
    for sentence in found:
        begin = line.find(sentence, end)
        if begin >= 0:
            yield line[end:begin]
            yield sentence
            end = begin + len(sentence)
    yield line[end:]
