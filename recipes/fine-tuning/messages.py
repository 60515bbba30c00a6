"""The messages of installed programs and their translations, as tab-separated pairs.

    python recipes/fine-tuning/messages.py LOCALE LANGUAGE OUTPUT

LOCALE is a folder such as /usr/share/locale, LANGUAGE one of its folders. OUTPUT gets a translation and the English
message a line, in an order that does not depend on the machine. Left out are messages of one word, of several lines,
with a marked shortcut, of over 120 characters, and those that were not translated. The first translation of a message
is kept.
"""

import gettext
import hashlib
import re
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

LONGEST = 120  # characters of a side
SHORTCUT = re.compile(r"(?:^|\W)[_&]\w")


def messages(catalog: Path) -> Iterator[tuple[str, str]]:
    """The English messages of a compiled catalog, and their translations."""
    with catalog.open("rb") as file:
        entries = vars(gettext.GNUTranslations(file))["_catalog"]
    for key, translation in entries.items():
        if isinstance(key, str) and key:  # not a plural form, not the header
            yield key.rpartition("\x04")[2].strip(), translation.strip()


def reason_against(english: str, translation: str) -> str | None:
    """Why a pair is left out."""
    if english == translation or not translation:
        return "not translated"
    if not (english + translation).isprintable():
        return "of several lines"
    if max(len(english), len(translation)) > LONGEST:
        return "long"
    if len(re.findall(r"[a-z]{2,}", english.lower())) < 2:
        return "of one word"
    return "with a shortcut" if SHORTCUT.search(english) else None


def main(locale: str, language: str, output: str) -> None:
    """Write the pairs, and say how many were left out and why."""
    pairs: dict[str, str] = {}
    left_out: Counter[str] = Counter()
    for catalog in sorted((Path(locale) / language / "LC_MESSAGES").glob("*.mo")):
        try:
            entries = list(messages(catalog))
        except (ValueError, LookupError, OSError, struct.error) as error:  # of bytes that are no catalog, or no text
            print(f"messages.py: {catalog.name} is left out: {error}", file=sys.stderr)
            continue
        for english, translation in entries:
            reason = reason_against(english, translation) or ("there already" if english in pairs else None)
            if reason is None:
                pairs[english] = translation
            else:
                left_out[reason] += 1
    order = sorted(pairs, key=lambda english: hashlib.sha256(english.encode("utf-8")).digest())
    with Path(output).open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{pairs[english]}\t{english}\n" for english in order)
    counts = "".join(f"; {count:,} {reason}" for reason, count in sorted(left_out.items()))
    print(f"{language}: {len(pairs):,} messages{counts}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("messages.py: three arguments are needed: LOCALE LANGUAGE OUTPUT")
    main(*sys.argv[1:])
