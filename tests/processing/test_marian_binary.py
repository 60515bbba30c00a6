"""Marian's binary files: what is written is read again, and a header that lies is one clear error."""

import struct

import numpy as np
import pytest

from headway.core.errors import UserError
from headway.processing.marian_binary import HEAD, Items, quantized, read_items, write_items

CONFIG = "special:model.yml"
MATRIX = np.array([[1.0, -2.0, 0.4], [0.0, 0.5, 1.27]], dtype=np.float32)
ITEMS: Items = {
    CONFIG: b'type: transformer\ndim-vocabs:\n  - 8\n  - 8\nempty: ""\n\0',
    "encoder_l1_ffn_W1": quantized(MATRIX),
    "encoder_l1_ffn_b1": np.array([[0.5, -1.0]], dtype=np.float32),
    "Wemb": quantized(MATRIX.repeat(4, 0)),
}


def test_what_is_written_is_read_again() -> None:
    content = write_items(ITEMS)
    items = read_items(content, "model.bin")
    assert list(items) == list(ITEMS)
    assert items[CONFIG] == ITEMS[CONFIG]
    np.testing.assert_array_equal(items["encoder_l1_ffn_b1"], ITEMS["encoder_l1_ffn_b1"])
    for name in ("encoder_l1_ffn_W1", "Wemb"):
        np.testing.assert_array_equal(items[name].values, ITEMS[name].values)
        assert items[name].factor == ITEMS[name].factor
    assert write_items(items) == content


def test_the_bytes_are_where_engines_look_for_them() -> None:
    content = write_items({"a_W1": quantized(MATRIX), "b": np.ones((1, 2), dtype=np.float32)})
    assert struct.unpack_from("<2Q", content) == (1, 2)
    assert struct.unpack_from("<4Q", content, 16) == (5, 0x4101, 2, 256)
    assert struct.unpack_from("<4Q", content, 48) == (2, 0x404, 2, 8)
    assert content[80:87] == b"a_W1\0b\0"
    assert struct.unpack_from("<4i", content, 87) == (3, 2, 1, 2)  # in, out
    (padding,) = struct.unpack_from("<Q", content, 103)
    assert 111 + padding == 256
    assert np.frombuffer(content, np.int8, 6, 256).tolist() == [64, -127, 25, 0, 32, 81]  # out, in
    assert struct.unpack_from("<f", content, 262) == (63.5,)
    assert struct.unpack_from("<2f", content, 512) == (1, 1)
    assert len(content) == 520


def test_integers_are_the_nearest_and_the_largest_is_127() -> None:
    matrix = quantized(MATRIX)
    assert np.abs(matrix.values).max() == 127
    assert np.abs(matrix.floats - MATRIX).max() <= 0.5 / matrix.factor + 1e-6
    again = quantized(matrix.floats)
    np.testing.assert_array_equal(again.values, matrix.values)
    assert quantized(np.zeros((2, 2), np.float32)).values.any() == np.False_


def changed(position: int, form: str, *values: float) -> bytes:
    content = bytearray(write_items(ITEMS))
    struct.pack_into(form, content, position, *values)
    return bytes(content)


FIRST, SECOND = 16, 16 + HEAD.size  # the heads of the configuration and of a matrix
NAMES = 16 + 4 * HEAD.size
SHAPES = NAMES + sum(len(name) + 1 for name in ITEMS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "16 bytes after the first 0"),
        (changed(0, ">Q", 1), "its bytes are reversed"),
        (changed(0, "<Q", 2), "version 2"),
        (changed(8, "<Q", 1 << 60), "items have no room"),
        (changed(8, "<Q", 3), "damaged"),
        (changed(SECOND, "<Q", 1 << 62), "a name of"),
        (changed(SECOND + 8, "<Q", 0x402), "has type 0x402"),
        (changed(SECOND + 16, "<Q", 1 << 61), "dimensions"),
        (changed(SECOND + 16, "<Q", 3), "damaged"),
        (changed(SECOND + 24, "<Q", 1 << 63), "are left"),
        (changed(SHAPES + 4, "<i", -3), "has the shape"),
        (changed(SHAPES + 4, "<i", 1 << 30), "has type"),
        (changed(SHAPES + 28, "<Q", 1 << 50), "are left"),
        (changed(NAMES, "<2s", b"\xff\xff"), "no UTF-8"),
        (changed(NAMES, "<c", b"\0"), "without its end"),
        (write_items(ITEMS)[:-1], "are left"),
        (write_items(ITEMS) + b"\0", "follow the last item"),
        (write_items({"b": np.array([[np.nan]], np.float32)}), "not finite"),
        (write_items({"W": quantized(MATRIX)._replace(factor=np.float32(np.inf))}), "not finite"),
        (write_items({"W": quantized(MATRIX)._replace(factor=np.float32(-1))}), "has the factor -1.0"),
        (write_items({"W": quantized(MATRIX)._replace(factor=np.float32(1e-44))}), "has the factor"),
        (write_items({"ab": b"x", "ac": b"x"}).replace(b"ac\0", b"ab\0"), "two items are called ab"),
    ],
)
def test_a_file_that_lies_is_one_clear_error(content: bytes, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        read_items(content, "model.bin")
    assert "model.bin" in str(raised.value)
