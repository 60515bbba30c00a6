"""Marian's binary shortlists: for each source token, the target tokens that the decoder may choose from.

Layout: u64 magic, checksum, first, best, n + 1, m; n + 1 u64 offsets, where each list ends at the offset of the next; m
u32 ids. The `first` ids of the vocabulary are allowed for every source.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import UserError

MAGIC, HEAD, WORD = 0xF11A48D5013417F5, struct.Struct("<6Q"), (1 << 64) - 1
END = 0  # the id of the end of a sentence
EIGHT = 8  # the inference engines need matrix widths that are multiples of 8


@dataclass(frozen=True)
class Shortlist:
    """The shortlists of all source tokens.

    Attributes:
        first: the number of ids, from 0, that are in every shortlist.
        best: the maximum number of ids in the list of a token, but for the end of sentence.
        offsets: (V + 1,) the offset at which the list of each id begins.
        ids: the concatenated lists, each in ascending order.
    """

    first: int
    best: int
    offsets: NDArray[np.uint64]
    ids: NDArray[np.uint32]

    def allowed(self, source: Sequence[int], size: int, *, shared: bool = True) -> NDArray[np.bool_]:
        """The ids that the decoder may choose for a source, as a mask (V,).

        The ids of the source itself are included if both sides share a vocabulary. Further ids are added until their
        number is a multiple of 8.
        """
        chosen = np.zeros(size, dtype=bool)
        chosen[: self.first] = True
        if shared:
            chosen[list(source)] = True
        for id in source:
            chosen[self.ids[int(self.offsets[id]) : int(self.offsets[id + 1])]] = True
        others = self.first + np.flatnonzero(~chosen[self.first :])
        chosen[others[: -int(chosen.sum()) % EIGHT]] = True
        return chosen


def shortlist_of(
    links: Iterable[tuple[int, int]], size: int, first: int, best: int, *, targets: int | None = None
) -> Shortlist:
    """Build a shortlist from linked (source, target) ids: for each source id, its `best` most frequent target ids.

    There are `size` source ids, and `targets` target ids, or as many if the sides share a vocabulary.

    The end of sentence, which every source has, gets the `first` most frequent target ids of all: the first ids of a
    vocabulary may be bytes. A source id without links gets the end of sentence alone, because Marian refuses a file
    whose last list is empty.
    """
    counts, frequent = dict[int, Counter[int]](), Counter[int]()
    for source, target in links:
        frequent[target] += 1
        counts.setdefault(source, Counter())[target] += 1
    lists = [sorted(id for id, _ in _ranked(counts.get(source))[:best]) or [END] for source in range(size)]
    lists[END] = sorted({END, *(id for id, _ in _ranked(frequent)[:first])})
    offsets = np.cumsum([0, *map(len, lists)]).astype(np.uint64)
    return Shortlist(
        min(first, targets or size), best, offsets, np.array([id for each in lists for id in each], dtype=np.uint32)
    )


def _ranked(counts: Counter[int] | None) -> list[tuple[int, int]]:
    return sorted((counts or {}).items(), key=lambda each: (-each[1], each[0]))


def write_shortlist(shortlist: Shortlist) -> bytes:
    """Serialise a shortlist into the bytes of its file."""
    sizes = shortlist.first, shortlist.best, len(shortlist.offsets), len(shortlist.ids)
    body = (
        struct.pack("<4Q", *sizes) + shortlist.offsets.astype("<u8").tobytes() + shortlist.ids.astype("<u4").tobytes()
    )
    return struct.pack("<2Q", MAGIC, _checksum(body)) + body


def read_shortlist(content: bytes, size: int, where: str, *, targets: int | None = None) -> Shortlist:
    """Read a shortlist. Raises UserError if the file is damaged, or belongs to vocabularies of other sizes.

    The sizes are those of `shortlist_of`.
    """

    def broken(what: str) -> UserError:
        return UserError(f"this shortlist is damaged ({what})", where=where)

    if len(content) < HEAD.size:
        raise broken(f"{len(content)} bytes")
    magic, checksum, first, best, count, total = HEAD.unpack_from(content)
    if magic != MAGIC:
        raise broken("it does not begin as Marian's binary shortlists do")
    if HEAD.size + 8 * count + 4 * total != len(content):
        raise broken(f"{count} offsets and {total} ids in {len(content)} bytes")
    if checksum != _checksum(content[16:]):
        raise broken("its checksum is another")
    offsets = np.frombuffer(content, "<u8", count, HEAD.size)
    ids = np.frombuffer(content, "<u4", total, HEAD.size + 8 * count)
    if count != size + 1:
        what = "this shortlist is of another vocabulary"
        raise UserError(what, where=where, received=f"{count - 1} tokens", allowed=f"{size} tokens")
    if (highest := max(first, 1 + int(ids.max(initial=0)))) > (most := targets or size):
        what = "this shortlist is of another vocabulary of the target"
        raise UserError(what, where=where, received=f"{highest} tokens", allowed=f"{most} tokens")
    if int(offsets[0]) or int(offsets[-1]) != total or (offsets[1:] < offsets[:-1]).any():
        raise broken("its lists do not follow one another")
    return Shortlist(first, best, offsets, ids)


def _checksum(body: bytes) -> int:
    """Marian's hash, over all complete 64-bit words."""
    seed = 0
    for word in np.frombuffer(body[: len(body) // 8 * 8], "<u8").tolist():
        seed ^= (word + 0x9E3779B9 + (seed << 6) + (seed >> 2)) & WORD
    return seed
