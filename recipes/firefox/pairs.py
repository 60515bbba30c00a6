"""Pairs of paragraphs of LibreOffice's help in two languages, as train.tsv, dev.tsv and test.tsv.

    python pairs.py SOURCE TARGET OUTPUT

SOURCE and TARGET are unpacked packages libreoffice-help-LANGUAGE. Paragraphs are paired by page and identifier. The
part of a pair is determined by the letters of its source. So sentences that differ by a number, and a sentence in
several languages, are in one part.
"""

import hashlib
import html
import re
import sys
from pathlib import Path

PARAGRAPH = re.compile(r'<(p|h[1-6]) id="((?:par|hd)_id\w+)"[^>]*>(.*?)</\1>', re.DOTALL)
SHORTEST, LONGEST = 3, 100  # words of a source
OUT_OF, HELD_OUT = 50, ("test", "dev")  # a part of fifty each


def paragraphs(package):
    """The texts of a package by page and identifier."""
    pages = next(Path(package).glob("usr/share/libreoffice/help/*/text"))
    texts = {}
    for page in sorted(pages.rglob("*.html")):
        for _, name, body in PARAGRAPH.findall(page.read_text("utf-8")):
            text = " ".join(html.unescape(re.sub(r"<[^>]+>", "", body)).split())
            if text:
                texts.setdefault((page.relative_to(pages).as_posix(), name), text)
    return texts


def part_of(source):
    """The part that a source belongs to."""
    letters = re.sub(r"[\W\d_]", "", source.lower())
    number = int(hashlib.sha1(letters.encode()).hexdigest(), 16) % OUT_OF
    return HELD_OUT[number] if number < len(HELD_OUT) else "train"


def main(source, target, output):
    sources, targets = paragraphs(source), paragraphs(target)
    pairs = {
        (sources[place], targets[place]): None  # each pair once, in the order of the pages
        for place in sorted(sources.keys() & targets.keys())
        if sources[place] != targets[place] and SHORTEST <= len(sources[place].split()) <= LONGEST
    }
    rows = {"train": [], "dev": [], "test": []}
    for pair in pairs:
        rows[part_of(pair[0])].append("\t".join(pair) + "\n")
    Path(output).mkdir(parents=True, exist_ok=True)
    for part, lines in rows.items():
        (Path(output) / f"{part}.tsv").write_text("".join(lines), "utf-8")
    print(f"{output}: " + ", ".join(f"{part}: {len(lines):,} pairs" for part, lines in rows.items()))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
