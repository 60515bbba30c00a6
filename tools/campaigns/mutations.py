"""Content that files may have: odd characters, tokens that break readers, and changes to well-formed bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import hypothesis.strategies as st
from hypothesis.strategies import SearchStrategy

# Characters that end lines somewhere, that are not seen, that turn the direction, or that terminals act on.
ODD = (
    "\x00\x07\x08\x09\x0b\x0c\x0d\x1b\x1c\x1d\x1e\x1f\x7f\x85\xa0\xad\u0301\u200b\u200d\u200f\u2028\u2029\u202e\u2066"
    "\u3000\ufeff\ufffd\ufffe\ue000\U0001f3f3\U000e0001\U0010ffff"
)  # fmt: skip
LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"

# A text with repetitions: `(unit, times)` one after the other, so that a large content has a short `repr`.
Content: TypeAlias = tuple[tuple[bytes, int], ...]


def expanded(content: Content) -> bytes:
    """The bytes of a content."""
    return b"".join(unit * times for unit, times in content)


def words(alphabet: str = "abcXYZ.,-'|&éß日本") -> SearchStrategy[str]:
    """Words of a few letters, some of them odd characters; never a space, a tab or a newline."""
    odd = "".join(sign for sign in ODD if sign not in "\t\r")
    letters = st.one_of(st.sampled_from(alphabet), st.sampled_from(alphabet), st.sampled_from(odd))
    return st.one_of(st.sampled_from(("a", "dog", "Haus", "日本語")), st.text(letters, min_size=1, max_size=6))


@dataclass(frozen=True)
class Change:
    """A change to bytes, at a share of their length, so that it has a meaning whatever their length is."""

    kind: str
    at: int  # thousandths
    size: int
    token: tuple[bytes, int]

    def apply(self, content: Content) -> Content:
        """The changed content."""
        position = self.at * (sum(len(unit) * times for unit, times in content) + 1) // 1000
        before, after = _split(content, position)
        match self.kind:
            case "insert":
                return (*before, self.token, *after)
            case "replace":
                return (*before, self.token, *_split(after, self.size)[1])
            case "delete":
                return (*before, *_split(after, self.size)[1])
            case "cut":
                return before
            case "double":
                taken, _ = _split(after, self.size)
                return (*before, *taken, *after)
            case "flip":
                first, rest = _split(after, 1)
                flipped = bytes(byte ^ (1 << self.size % 8) for byte in expanded(first))
                return (*before, (flipped, 1), *rest)
        raise AssertionError(self.kind)


def _split(content: Content, position: int) -> tuple[Content, Content]:
    """The content before and after a position."""
    before: list[tuple[bytes, int]] = []
    for index, (unit, times) in enumerate(content):
        length = len(unit) * times
        if position < length:
            whole, part = divmod(position, len(unit))
            before += [(unit, whole), (unit[:part], 1)]
            after = [(unit[part:], 1), (unit, times - whole - 1), *content[index + 1 :]]
            return _without_nothing(before), _without_nothing(after)
        before.append((unit, times))
        position -= length
    return _without_nothing(before), ()


def _without_nothing(parts: Sequence[tuple[bytes, int]]) -> Content:
    return tuple((unit, times) for unit, times in parts if unit and times)


TOKENS: tuple[bytes, ...] = (
    b"\n", b"\n\n", b"\r\n", b"\r", b"\t", b" ", b"\xff", b"\xed\xa0\x80", b"\xc3", b"\x00", b"\xef\xbb\xbf", b"0",
    b"-1", b"1e999", b"NaN", b"null", b"true", b"99999999999999999999", b"30000000", b"1_000",
    "٣".encode(), "²".encode(),
    b"(", b")", b"(())", b"<", b">", b"&", b"&#0;", b"&lol;", b'"', b"'", b"\\", b"\\u000a", b"\\ud800", b"{}", b"[]",
    b"|||", b"-", b"?", b"_", b"#", b"=", b"/", b"..", b"<!--", b"<![CDATA[", b"\x1b[31m", b"\x1b]0;title\x07",
    *(sign.encode() for sign in ODD if sign not in "\x00\t\r"),
)  # fmt: skip
LONG_TOKENS: tuple[tuple[bytes, int], ...] = (
    (b"9", 5000), (b"(", 30_000), (b"(S ", 20_000), (b"a", 200_000), (b" a", 50_000), (b"a-", 30_000), (b"[", 50_000),
    (b'{"s":', 20_000), (b"\n", 50_000), (b"\t", 50_000), (b"<nt>", 30_000), ("日".encode(), 60_000), (b"0-0 ", 50_000),
    (b"\x00", 100_000), ("\u0301".encode(), 50_000),
)  # fmt: skip


def changes(tokens: Sequence[bytes] = ()) -> SearchStrategy[tuple[Change, ...]]:
    """Up to four changes, which insert `tokens` and what breaks readers of any format."""
    token = st.one_of(
        st.sampled_from((*tokens, *TOKENS)).map(lambda unit: (unit, 1)),
        st.sampled_from((*tokens, *TOKENS)).map(lambda unit: (unit, 1)),
        st.sampled_from((*tokens, *TOKENS)).map(lambda unit: (unit, 1)),
        st.binary(min_size=1, max_size=4).map(lambda unit: (unit, 1)),
        st.sampled_from(LONG_TOKENS),
    )
    kinds = st.sampled_from(("delete", "insert", "replace", "double", "flip", "cut"))
    change = st.builds(Change, kinds, st.integers(0, 999), st.integers(1, 40), token)
    return st.lists(change, max_size=4).map(tuple)


def changed(content: Content, applied: Sequence[Change]) -> Content:
    """The content after some changes, at most a million bytes of it."""
    for change in applied:
        content = change.apply(content)
    return _split(content, 1_000_000)[0]
