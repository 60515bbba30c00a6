"""Where sentences end in running text, for measures and baselines that are about sentences."""

import re

# A full stop after these, or after a single capital letter, does not end a sentence.
ABBREVIATIONS = (
    {"mr", "mrs", "ms", "dr", "prof", "st", "sr", "jr", "rev", "gen", "col", "capt", "lt", "sgt", "gov", "sen", "rep"}
    | {"pres", "hon", "vs", "etc", "fig", "vol", "al", "inc", "ltd", "co", "corp", "approx", "dept", "est"}
    | {"jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec"}
)
# Western marks end a sentence where white space follows them and what they close; `. ''` is how corpora tokenise `."`.
WESTERN = r"(?P<western>[.!?…]+)[\"'”’»)\]]*(?:\s+(?:''|[”’»)\]])(?=\s))?(?=\s)"
# Those of Chinese and Japanese do so anywhere but before a closing bracket: 「はい。」と言った。
EASTERN = r"[。！？｡]+(?![。！？｡」』）】])"
END = re.compile(f"{WESTERN}|{EASTERN}")


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order, without the white space around them; a line break ends a sentence as well.

    Rules, no model: a sentence ends at . ! ? … with closing quotes and brackets before white space, unless a small
    letter or a comma follows or the full stop is that of an initial or of a common English abbreviation, and at 。！？
    anywhere but before a closing bracket.
    """
    found = []
    for line in text.splitlines():
        start = 0
        for end in END.finditer(line):
            if end["western"] and _goes_on(line, start, end):
                continue
            found.append(line[start : end.end()])
            start = end.end()
        found.append(line[start:])
    return [stripped for each in found if (stripped := each.strip())]


def _goes_on(line: str, start: int, end: re.Match[str]) -> bool:
    """Whether what follows belongs to the same sentence, or the mark to an abbreviation."""
    following = line[end.end() :].lstrip()[:1]
    if following.islower() or following in (",", ";", ":"):
        return True
    if end["western"] != ".":
        return False
    last = re.split(r"[^\w]", line[start : end.start()])[-1]
    return last.lower() in ABBREVIATIONS or (len(last) == 1 and last.isupper())
