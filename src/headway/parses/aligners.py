"""Aligners of words: eflomal (Östling and Tiedemann 2016) in both directions, made one; and links made elsewhere.

An aligner reads pairs of words as often as it needs and gives the links of each pair, as a line of Pharaoh links.
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
LONGEST = 1023  # words of a side that eflomal reads
# A program of its own, since eflomal has another licence and may take its process along where it fails.
PROGRAM = """
import sys
from eflomal import Aligner
source, target, forward, backward = sys.argv[1:]
with open(source, encoding="utf-8") as sources, open(target, encoding="utf-8") as targets:
    Aligner().align(sources, targets, forward, backward)
"""
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def eflomal_version(where: str) -> str:
    """The version of eflomal. Raises UserError where it is not installed."""
    try:
        return version("eflomal")
    except PackageNotFoundError as error:
        raise not_installed("this aligner", ["eflomal"], "align", where) from error


def align_by_eflomal(pairs: WordPairs, symmetrise: str) -> Iterator[str]:
    """The links of all pairs, which eflomal aligns together; none where a side has no words, or too many.

    It draws from the system's random numbers, so that a second run gives slightly other links.

    Raises:
        RunError: it failed.
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
    """One line of links, sorted, from those of both directions: their `intersection`, or `grow-diag-final-and`."""
    links = forward & backward if kind == "intersection" else grow_diag_final_and(forward, backward)
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def grow_diag_final_and(forward: set[Link], backward: set[Link]) -> set[Link]:
    """The intersection, grown by neighbours in the union and by links of words without any (Koehn et al. 2005).

    Links are visited by target and then source, and those that are added as soon as their turn comes. A link that was
    visited adds nothing later, since words that have a link keep it.
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
    """The links of a file made elsewhere, a line a pair; possible ones count. Raises UserError for those of others."""
    check_file(file, where)
    lines, counts = read_alignments(file, first), [(len(source), len(target)) for source, target in pairs()]
    if len(lines) != len(counts):
        what = "links are of all pairs of data.train, a line a pair"
        raise UserError(what, where=where, received=f"{len(lines):,} lines of links for {len(counts):,} pairs")
    for links in check_links(lines, counts, f"{where} {file}"):
        yield " ".join(f"{source}-{target}" for source, target in sorted(links.possible))
