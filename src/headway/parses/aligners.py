"""Word aligners: eflomal (Östling and Tiedemann 2016) in both directions with symmetrisation, and links from a file.

An aligner iterates over word pairs as often as it needs, and returns a line of Pharaoh links for each pair.
"""

from __future__ import annotations

import subprocess
import sys
from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory

from headway.core.errors import RunError, UserError, not_installed
from headway.formats.alignments import Link, LinksFrom, check_links, read_alignments
from headway.formats.lines import check_file

WordPairs = Callable[[], Iterable[tuple[list[str], list[str]]]]
LONGEST = 1023  # the maximum number of words of a side in eflomal
# A separate program, since eflomal has another licence and may crash its process.
PROGRAM = """
import sys
from eflomal import Aligner
source, target, forward, backward = sys.argv[1:]
with open(source, encoding="utf-8") as sources, open(target, encoding="utf-8") as targets:
    Aligner().align(sources, targets, forward, backward)
"""
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def eflomal_version(where: str) -> str:
    """The version of eflomal. Raises UserError if it is not installed."""
    try:
        return version("eflomal")
    except PackageNotFoundError as error:
        raise not_installed("this aligner", ["eflomal"], "align", where) from error


def align_by_eflomal(pairs: WordPairs, symmetrise: str) -> Iterator[str]:
    """Align all pairs jointly with eflomal. A pair with an empty or too long side has no links.

    eflomal uses the system's random numbers, so results differ slightly between runs.

    Raises:
        RunError: eflomal failed.
    """
    read = bytearray()
    with TemporaryDirectory() as name, ExitStack() as stack:
        source, target, forward, backward = (Path(name) / part for part in ("source", "target", "forward", "backward"))
        with source.open("wb") as sources, target.open("wb") as targets:
            for words in pairs():
                read.append(all(0 < len(side) <= LONGEST for side in words))
                if read[-1]:
                    sources.write(f"{' '.join(words[0])}\n".encode())
                    targets.write(f"{' '.join(words[1])}\n".encode())
        if any(read):
            command = [sys.executable, "-c", PROGRAM, *map(str, (source, target, forward, backward))]
            done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603  # our own program
            if done.returncode or not (forward.exists() and backward.exists()):
                raise RunError(f"eflomal failed: {done.stderr.decode(errors='replace').strip()[-500:]}")
        lines = [stack.enter_context(file.open(encoding="utf-8")) for file in (forward, backward) if any(read)]
        for is_read in read:
            both = [_links(next(file)) for file in lines if is_read]
            yield symmetrised(both[0], both[1], symmetrise) if is_read else ""


def _links(line: str) -> set[Link]:
    return {(int(source), int(target)) for source, target in (link.split("-") for link in line.split())}


def symmetrised(forward: set[Link], backward: set[Link], kind: str) -> str:
    """A sorted line of links from both directions: their `intersection`, or `grow-diag-final-and`."""
    links = forward & backward if kind == "intersection" else grow_diag_final_and(forward, backward)
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def grow_diag_final_and(forward: set[Link], backward: set[Link]) -> set[Link]:
    """The intersection, extended by neighbours in the union and by links of unaligned words (Koehn et al. 2005).

    Links are visited by target and then by source, and added as soon as they qualify. Visiting a link once is enough,
    since aligned words stay aligned.
    """
    links, union = forward & backward, forward | backward
    sources, targets = {source for source, _ in links}, {target for _, target in links}

    def add(source: int, target: int) -> None:
        links.add((source, target))
        sources.add(source)
        targets.add(target)

    turn = sorted((target, source) for source, target in links)
    while turn:
        later = list[Link]()
        position = 0
        while position < len(turn):
            target, source = turn[position]
            position += 1
            for by_target, by_source in NEIGHBOURS:
                new = source + by_source, target + by_target
                if new in union and new not in links and not (new[0] in sources and new[1] in targets):
                    add(*new)
                    insort(turn if new[::-1] > (target, source) else later, new[::-1])
        turn = later
    for direction in (forward, backward):
        for target, source in sorted((target, source) for source, target in direction):
            if source not in sources and target not in targets:
                add(source, target)
    return links


def links_of_file(file: Path, pairs: WordPairs, where: str, first: LinksFrom = None) -> Iterator[str]:
    """Read a file with a line of links per pair, including possible links. Raises UserError if they do not fit."""
    check_file(file, where)
    lines, counts = read_alignments(file, first), [(len(source), len(target)) for source, target in pairs()]
    if len(lines) != len(counts):
        what = "links are of all pairs of data.train, a line a pair"
        raise UserError(what, where=where, received=f"{len(lines):,} lines of links for {len(counts):,} pairs")
    for links in check_links(lines, counts, f"{where} {file}"):
        yield " ".join(f"{source}-{target}" for source, target in sorted(links.possible))
