"""Marian's binary shortlists: the lists, the file, and what is refused."""

import struct

import numpy as np
import pytest

from headway.core.errors import UserError
from headway.processing.shortlist import MAGIC, read_shortlist, shortlist_of, write_shortlist

LINKS = [(5, 9), (5, 9), (5, 7), (5, 8), (5, 8), (5, 8), (6, 6), (11, 2)]
LISTS = shortlist_of(LINKS, 12, first=3, best=2)


def test_each_source_id_has_the_target_ids_that_it_is_linked_to_most() -> None:
    lists = [LISTS.ids[start:end].tolist() for start, end in zip(LISTS.offsets, LISTS.offsets[1:], strict=False)]
    assert lists == [[0, 2, 8, 9]] + [[0]] * 4 + [[8, 9], [6]] + [[0]] * 4 + [[2]]


def test_each_source_may_become_the_most_frequent_target_ids() -> None:
    links = [(5, 20), (6, 20), (5, 21), (6, 22), (5, 22), (5, 23)]
    assert np.flatnonzero(shortlist_of(links, 24, first=2, best=1).allowed([7, 0], 24)).tolist() == [
        0,
        1,
        2,
        3,
        4,
        7,
        20,
        22,
    ]


def test_the_ids_of_a_source_are_filled_up_to_eights() -> None:
    assert np.flatnonzero(LISTS.allowed([5, 0], 12)).tolist() == [0, 1, 2, 3, 4, 5, 8, 9]
    assert np.flatnonzero(LISTS.allowed([5, 6, 7, 10, 0], 12)).tolist() == [*range(12)]  # nine, and no seven more
    assert np.flatnonzero(shortlist_of([], 24, 8, 2).allowed([0], 24)).tolist() == [*range(8)]


def test_the_file_is_that_of_marian() -> None:
    content = write_shortlist(LISTS)
    assert struct.unpack_from("<Q", content) == (MAGIC,)
    assert struct.unpack_from("<4Q", content, 16) == (3, 2, 13, 16)
    assert struct.unpack_from("<13Q", content, 48)[5:] == (8, 10, 11, 12, 13, 14, 15, 16)
    seed = 0  # boost's combination of hashes
    for (word,) in struct.iter_unpack("<Q", content[16 : len(content) // 8 * 8]):
        seed ^= (word + 0x9E3779B9 + (seed << 6) + (seed >> 2)) % 2**64
    assert struct.unpack_from("<Q", content, 8) == (seed,)
    again = read_shortlist(content, 12, "lex.bin")
    assert (again.first, again.best) == (3, 2)
    np.testing.assert_array_equal(again.ids, LISTS.ids)
    np.testing.assert_array_equal(again.offsets, LISTS.offsets)


def changed(position: int, form: str, value: int, *, checked: bool = True) -> bytes:
    content = bytearray(write_shortlist(LISTS))
    struct.pack_into(form, content, position, value)
    if checked:
        seed = 0
        for (word,) in struct.iter_unpack("<Q", content[16 : len(content) // 8 * 8]):
            seed ^= (word + 0x9E3779B9 + (seed << 6) + (seed >> 2)) % 2**64
        struct.pack_into("<Q", content, 8, seed)
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "size", "message"),
    [
        (b"", 12, "0 bytes"),
        (changed(0, "<Q", 1), 12, "does not begin"),
        (changed(16, "<Q", 4, checked=False), 12, "checksum"),
        (changed(32, "<Q", 1 << 62), 12, "offsets"),
        (changed(40, "<Q", 1 << 62), 12, "offsets"),
        (write_shortlist(LISTS), 11, "another vocabulary"),
        (changed(16, "<Q", 13), 12, "another vocabulary"),
        (changed(48 + 8 * 13, "<I", 12), 12, "another vocabulary"),
        (changed(48, "<Q", 1), 12, "do not follow"),
        (changed(56, "<Q", 1 << 63), 12, "do not follow"),
        (changed(48 + 8 * 12, "<Q", 12), 12, "do not follow"),
    ],
)
def test_a_file_that_lies_is_one_clear_error(content: bytes, size: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_shortlist(content, size, "lex.bin")
