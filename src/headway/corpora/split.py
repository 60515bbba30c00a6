"""Sentences cut into train, dev and test in their order, so that no document ends up in two of them."""

import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from headway.errors import UserError, option
from headway.files import write_text
from headway.formats.lines import blocks, read_lines

PARTS = ("train", "dev", "test")


def split_file(path: Path, output: Path, shares: Sequence[float]) -> dict[str, int]:
    """Write the first share of a file's sentences as train, the next as dev, the rest as test.

    Args:
        path: sentences with a word a row, which blank lines separate.
        output: the folder to write `train`, `dev` and `test` to, with the suffix of the file.
        shares: of train, dev and test, in any unit.

    Returns:
        How many sentences each part has.

    Raises:
        UserError: a file that cannot be read, or too few sentences for every part to have one.
    """
    sentences = ["".join(f"{row}\n" for _, row in block) for block in blocks(path)]
    sizes, rest = _sizes(len(sentences), shares, str(path)), iter(sentences)
    output.mkdir(parents=True, exist_ok=True)
    for name, size in sizes.items():
        write_text(output / f"{name}{path.suffix}", "\n".join(islice(rest, size)))
    return sizes


def split_parallel(source: Path, target: Path, output: Path, shares: Sequence[float]) -> dict[str, int]:
    """`split_file` for two files, plain, .gz or .xz, of which line n of the one belongs to line n of the other.

    The parts are plain text with the suffixes of the files, such as `train.ja` and `train.en`. Raises UserError also
    where the files are not equally long, or their suffixes the same.
    """
    paths = (source, target)
    suffixes = [Path(path.name.removesuffix(".gz").removesuffix(".xz")).suffix for path in paths]
    both = f"{source}, {target}"
    if suffixes[0] == suffixes[1]:
        what = "both files have the same suffix, so that their parts would have one name"
        raise UserError(what, where=both, received=suffixes[0], allowed="suffixes such as .ja and .en")
    counts = [sum(1 for _ in read_lines(path)) for path in paths]
    if counts[0] != counts[1]:
        raise UserError("both files need the same number of lines", where=both, received=f"{counts[0]} and {counts[1]}")
    sizes = _sizes(counts[0], shares, both)
    output.mkdir(parents=True, exist_ok=True)
    for path, suffix in zip(paths, suffixes, strict=True):
        lines = read_lines(path)
        for name, size in sizes.items():
            write_text(output / f"{name}{suffix}", "".join(f"{line}\n" for line in islice(lines, size)))
    return sizes


def _sizes(count: int, shares: Sequence[float], where: str) -> dict[str, int]:
    """How many sentences each part gets. Raises UserError unless each gets one."""
    if len(shares) != len(PARTS) or not all(0 < share < math.inf for share in shares):
        raise UserError("there are three shares, all above 0", where=option("shares"), received=list(shares))
    first = round(count * shares[0] / sum(shares))
    second = round(count * (shares[0] + shares[1]) / sum(shares))
    sizes = dict(zip(PARTS, (first, second - first, count - second), strict=True))
    if not all(sizes.values()):
        raise UserError("there are too few sentences for these parts", where=where, received=count)
    return sizes
