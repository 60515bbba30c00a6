"""Marian's binary weight files, which run in browsers: named items, with little-endian numbers.

Layout: u64 version; u64 n; for each item the u64 length of its name with the NUL, type, rank, number of bytes; all
names; all shapes as i32; u64 p and p padding bytes, so that the data begin at a multiple of 256; the data of all items.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Container, Mapping
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import UserError

VERSION, ALIGNMENT = 1, 256
FLOATS, INTEGERS, TEXT = 0x404, 0x4101, 0x101  # types: float32, int8 with a factor, bytes
MOST = 127  # the largest absolute value; -128 is not used
EMBEDDING = "Wemb"  # the embedding of both sides, and the end of the names of two
TWO_EMBEDDINGS = (f"encoder_{EMBEDDING}", f"decoder_{EMBEDDING}")
LONGEST_NAME, HIGHEST_RANK = 1000, 8
HEAD = struct.Struct("<4Q")
Floats = NDArray[np.float32]


class Quantized(NamedTuple):
    """An int8 matrix (out, in), or the embedding (V, D). Its elements are `values` divided by `factor`."""

    values: NDArray[np.int8]
    factor: np.float32

    @property
    def floats(self) -> Floats:
        return self.values * (np.float32(1) / self.factor)


Item = bytes | Floats | Quantized
Items = dict[str, Item]


def embeddings(names: Container[str]) -> tuple[str, str]:
    """The names of the source's and the target's embedding, which are equal if the sides share one."""
    return (EMBEDDING, EMBEDDING) if EMBEDDING in names else TWO_EMBEDDINGS


def quantized(matrix: Floats, most: int = MOST, factor: np.float32 | None = None) -> Quantized:
    """Quantize a matrix, by default mapping its largest absolute value to `most`."""
    if factor is None:
        largest = np.abs(matrix).max()
        factor = np.float32(most) / np.float32(largest if largest > 0 else 1)
    return Quantized(np.clip(np.rint(matrix * factor), -most, most).astype(np.int8), factor)


def write_items(items: Mapping[str, Item]) -> bytes:
    """Serialise items, in their order, into the bytes of a file."""
    names = [name.encode() + b"\0" for name in items]
    parts = [_stored(name, item) for name, item in items.items()]
    heads = zip(names, parts, strict=True)
    head = struct.pack("<2Q", VERSION, len(names)) + b"".join(
        HEAD.pack(len(name), kind, len(shape), len(data)) for name, (kind, shape, data) in heads
    )
    head += b"".join(names) + b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, shape, _ in parts)
    padding = -(len(head) + 8) % ALIGNMENT
    return head + struct.pack("<Q", padding) + bytes(padding) + b"".join(data for _, _, data in parts)


def _stored(name: str, item: Item) -> tuple[int, tuple[int, ...], bytes]:
    """The type, shape and data of an item.

    The stored shape of an int8 matrix is (in, out) although its data are (out, in), except for the embedding.
    """
    if isinstance(item, bytes):
        return TEXT, (len(item),), item
    if isinstance(item, Quantized):
        data = item.values.tobytes() + np.float32(item.factor).astype("<f4").tobytes()
        shape = item.values.shape if name.endswith(EMBEDDING) else item.values.shape[::-1]
        return INTEGERS, shape, data + bytes(-len(data) % ALIGNMENT)
    return FLOATS, item.shape, item.astype("<f4").tobytes()


def read_items(content: bytes, where: str) -> Items:
    """Read the items of a file, which share its memory. Raises UserError if the file does not match its header."""
    reader = _Reader(content, where)
    version, count = reader.numbers("<2Q")
    if version != VERSION:
        raise reader.broken(f"version {version}, not {VERSION}: no binary file of Marian, or its bytes are reversed")
    if count * HEAD.size > len(content):
        raise reader.broken(f"{count} items have no room in {len(content)} bytes")
    heads = [reader.numbers("<4Q") for _ in range(count)]
    names = [reader.name(length) for length, *_ in heads]
    if len(set(names)) < count:
        raise reader.broken(f"two items are called {Counter(names).most_common(1)[0][0]}")
    for name, (_, _, rank, _) in zip(names, heads, strict=True):
        if rank > HIGHEST_RANK:
            raise reader.broken(f"{name} has {rank} dimensions")
    shapes = [reader.numbers(f"<{rank}i") for _, _, rank, _ in heads]
    reader.take(*reader.numbers("<Q"))
    items: Items = {}
    for name, (_, kind, _, size), shape in zip(names, heads, shapes, strict=True):
        items[name] = reader.item(name, kind, shape, reader.take(size))
    if reader.position < len(content):
        raise reader.broken(f"{len(content) - reader.position} bytes follow the last item")
    return items


class _Reader:
    """A cursor over bytes that raises UserError when reading past the end."""

    def __init__(self, content: bytes, where: str) -> None:
        self.content, self.where, self.position = memoryview(content), where, 0

    def broken(self, what: str) -> UserError:
        return UserError(f"this file of weights is damaged ({what})", where=self.where)

    def take(self, size: int) -> memoryview:
        start, left = self.position, len(self.content) - self.position
        if size > left:
            raise self.broken(f"{size} bytes after the first {start}, where {left} are left")
        self.position += size
        return self.content[start : self.position]

    def numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def name(self, length: int) -> str:
        """Read the next name, which has `length` bytes including its NUL."""
        if length > LONGEST_NAME:
            raise self.broken(f"a name of {length} bytes")
        try:
            name = bytes(self.take(length)).decode()
        except UnicodeDecodeError as error:
            raise self.broken("a name that is no UTF-8") from error
        if not name.endswith("\0") or "\0" in name[:-1]:
            raise self.broken("a name without its end")
        return name[:-1]

    def item(self, name: str, kind: int, shape: tuple[int, ...], data: memoryview) -> Item:
        """Decode the data of an item."""
        elements = prod(shape)
        if min(shape, default=1) < 1:
            raise self.broken(f"{name} has the shape {list(shape)}")
        if kind == TEXT and elements == len(data):
            return bytes(data)
        if kind == FLOATS and 4 * elements == len(data):
            return self._finite(name, np.frombuffer(data, "<f4")).reshape(shape)
        if kind == INTEGERS and 0 < len(shape) < 3 and elements + 4 <= len(data) < elements + 4 + ALIGNMENT:
            factor = self._finite(name, np.frombuffer(data[elements : elements + 4], "<f4"))[0]
            if not 1e-30 < factor < 1e30:  # beyond which elements are not finite
                raise self.broken(f"{name} has the factor {factor}")
            values = np.frombuffer(data[:elements], np.int8)
            return Quantized(values.reshape(shape if name.endswith(EMBEDDING) else shape[::-1]), factor)
        raise self.broken(f"{name} has type {kind:#x}, the shape {list(shape)} and {len(data)} bytes")

    def _finite(self, name: str, numbers: Floats) -> Floats:
        if not np.isfinite(numbers).all():
            raise self.broken(f"{name} has numbers that are not finite")
        return numbers
