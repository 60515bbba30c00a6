"""Vocabularies of whole tokens, one line each in vocabulary.txt: a token's line number, from 0, is its id."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from headway.errors import UserError
from headway.files import write_text
from headway.processing.text.vocabulary import PieceSpan, Vocabulary
from headway.tensors.batch import EOS, SPECIALS, UNKNOWN

FILE = "vocabulary.txt"


class WordVocabulary(Vocabulary):
    """Tokens are what white space separates (`str.split`); their ids follow those of the specials.

    A token of the text that is spelled like a special (`<s>`) is a token like any other.
    """

    family = "words"

    def __init__(self, tokens: Sequence[str]) -> None:
        self._pieces = (*SPECIALS, *tokens)
        self._ids = {token: id for id, token in enumerate(tokens, start=len(SPECIALS))}

    @classmethod
    def train(cls, lines: Iterable[str], *, size: int | None, min_frequency: int) -> WordVocabulary:
        """The most frequent tokens, `size` with the specials (None: all); of equal ones those that came first."""
        counts = Counter(token for line in lines for token in line.split())
        frequent = counts.most_common(size and size - len(SPECIALS))
        return cls([token for token, count in frequent if count >= min_frequency])

    def __len__(self) -> int:
        return len(self._pieces)

    def encode(self, segmented: str) -> list[int]:
        return [self._ids.get(token, UNKNOWN) for token in segmented.split()]

    def encode_with_spans(self, segmented: str) -> list[PieceSpan]:
        return [
            PieceSpan(self._ids.get(token[0], UNKNOWN), token[0], *token.span())
            for token in re.finditer(r"\S+", segmented)
        ]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self._pieces[id] for id in ids if id > EOS)

    def piece(self, id: int) -> str:
        return self._pieces[id]

    def starts_word(self, id: int) -> bool:
        return True

    def _write(self, folder: Path) -> None:
        write_text(folder / FILE, "".join(f"{piece}\n" for piece in self._pieces))

    @classmethod
    def load(cls, folder: Path) -> WordVocabulary:
        path = folder / FILE
        try:
            pieces = path.read_bytes().decode().split("\n")
        except FileNotFoundError:
            raise UserError("the vocabulary's file is missing", where=str(path)) from None
        except UnicodeDecodeError:
            raise UserError("the vocabulary's file is damaged: not UTF-8", where=str(path)) from None
        if tuple(pieces[: len(SPECIALS)]) != SPECIALS or pieces[-1] or len(set(pieces[4:])) != len(pieces[4:]):
            raise UserError("the vocabulary's file is damaged", where=str(path))
        return cls(pieces[len(SPECIALS) : -1])
