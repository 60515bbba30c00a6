"""Multi30k, German and English, tokenised, with captions that are joined to longer texts.

    python recipes/multi30k/texts.py DATA OUTPUT

DATA is data/task1/raw of github.com/multi30k/dataset, unpacked. Captions that follow each other are joined by one, two,
up to six in turn. OUTPUT gets, in both languages,

    train   all captions of training, and behind them the same joined
    dev     val, joined
    test    test_2016_flickr, joined; test.captions has the number of captions of each text
    long    test_2016_flickr, six captions a text
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path

from headway.core.errors import HeadwayError
from headway.formats.lines import read_lines
from headway.processing.text.segmentation import segmenter

LANGUAGES, MOST = ("de", "en"), 6

Pair = tuple[str, ...]


def captions(data: Path, name: str, least: int) -> list[Pair]:
    """The captions of a part in both languages, tokenised. Ends the program where there are too few."""
    sides = list[list[str]]()
    for language in LANGUAGES:
        lines = list(read_lines(data / f"{name}.{language}"))
        sides.append([segmenter("moses", language).segment(line) for line in lines])
    if len(set(map(len, sides))) > 1:
        sys.exit(f"texts.py: {data / name}: {' and '.join(str(len(side)) for side in sides)} lines")
    for number, pair in enumerate(zip(*sides, strict=True), start=1):
        if not all(side.strip() for side in pair):
            sys.exit(f"texts.py: {data / name}: line {number} is blank in one of the languages")
    if len(sides[0]) < least:
        sys.exit(f"texts.py: {data / name}: {len(sides[0])} captions; at least {least} are needed")
    return list(zip(*sides, strict=True))


def joined(pairs: Sequence[Pair], sizes: Iterator[int]) -> Iterator[tuple[int, Pair]]:
    """Pairs that follow each other as one, with how many they are. What is left at the end is left out."""
    begin = 0
    for size in sizes:
        if begin + size > len(pairs):
            return
        some = pairs[begin : begin + size]
        yield size, tuple(" ".join(side) for side in zip(*some, strict=True))
        begin += size


def write(output: Path, name: str, pairs: Sequence[Pair]) -> None:
    """Write a part, a text a line, in both languages."""
    for language, lines in zip(LANGUAGES, zip(*pairs, strict=True), strict=True):
        (output / f"{name}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main(data: Path, output: Path) -> None:
    """Write all parts."""
    in_turn = range(1, MOST + 1)
    train, dev, test = captions(data, "train", 1), captions(data, "val", 1), captions(data, "test_2016_flickr", MOST)
    output.mkdir(parents=True, exist_ok=True)
    write(output, "train", [*train, *(pair for _, pair in joined(train, cycle(in_turn)))])
    write(output, "dev", [pair for _, pair in joined(dev, cycle(in_turn))])
    tests = list(joined(test, cycle(in_turn)))
    write(output, "test", [pair for _, pair in tests])
    (output / "test.captions").write_text("".join(f"{size}\n" for size, _ in tests), encoding="utf-8")
    write(output, "long", [pair for _, pair in joined(test, cycle([MOST]))])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except (HeadwayError, OSError) as error:
        sys.exit(f"texts.py: {error}")
