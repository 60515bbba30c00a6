"""Where sentences end in running text, for measures and baselines that are about sentences."""

import re
from collections.abc import Callable, Iterator, Sequence

from headway.core.languages import base_language
from headway.core.processes import check_waited_for

WINDOW, MOST = 500, 2000  # characters that the rules read together, first, and at most if no sentence ends among them
PLAIN = re.compile(r"[\w\s,'’-]{,500}")  # no end of a sentence in any language
# The end of a sentence and the first character of the next one; all repetitions are bounded, for texts of any length.
BREAK = re.compile(
    r"(\w{0,9})([.!?…؟۔]{1,3})[\"'”’»)\]]{0,3}\s{1,9}[\"'“„‘«(¿¡\[–—-]{0,3}(\w)|[。！？।]\s{0,9}[^\s。！？।」』”’）)]"
)


def has_several_sentences(text: str) -> bool:
    """Whether a text seems to have several sentences, by its characters alone; a full stop may be an abbreviation's."""
    for word, mark, following in BREAK.findall(text):
        is_word = len(word) > 4 or (len(word) > 1 and word[0].islower() and word not in ("ca", "vs", "cf", "bzw"))
        if not following or (not following.islower() and (mark != "." or is_word)):
            return True
    return False


def sentences(text: str, language: str = "en") -> list[str]:
    """The sentences of a text, in order, without the white space around them; a line break ends a sentence as well.

    The rules are those of pySBD (Sadvilkar and Neumann 2020), which knows 23 languages; a text in any other is cut by
    the rules of English.

    Args:
        text: running text.
        language: its code, such as `ja` or `ja-JP`.
    """
    import pysbd  # its rules for all languages, which no command needs before there is text to cut

    segmenter = pysbd.Segmenter(language=language_of_rules(language) or "en", clean=False)  # not for two threads
    spans = [sentence for line in text.splitlines() for sentence in _windows(line, segmenter.segment)]
    return [stripped for sentence in spans if (stripped := sentence.strip())]


def languages_of_rules() -> list[str]:
    """The codes of the languages that there are rules for."""
    from pysbd.languages import LANGUAGE_CODES

    return sorted(LANGUAGE_CODES)


def language_of_rules(language: str) -> str | None:
    """The one of `languages_of_rules` that a code such as `ja-JP` belongs to; None where there are none for it."""
    code = base_language(language)
    return code if code in languages_of_rules() else None


def _windows(line: str, segment: Callable[[str], Sequence[str]]) -> Iterator[str]:
    """The sentences of a line. The rules take time by the square of its length, so they read parts of a long line,
    each from the last sentence of the part before it.
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
    """The sentences that were found in a line, and what stands between them as sentences of their own.

    pySBD marks places with characters such as U+266C, and loses the sentences that have such a character themselves.
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
