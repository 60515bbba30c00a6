"""The vocabulary of a Marian model: a SentencePiece model whose pieces have ids of their own.

As Hugging Face's MarianTokenizer does, it reads a language code such as `>>fra<<` at the beginning of a line as one
token, and takes a piece without an id for unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from headway.errors import UserError
from headway.files import write_json
from headway.processing.text.subwords import SPACE, SubwordVocabulary
from headway.processing.text.vocabulary import TokensConfig, TokenSpan, Vocabulary
from headway.tensors.batch import EOS, SPECIALS, UNKNOWN

PIECES = "pieces.json"


class MarianVocabulary(SubwordVocabulary):
    """Pieces of a SentencePiece model, or of the two of both sides, with ids from one table.

    Args:
        model: the SentencePiece model of this side.
        pieces: the piece of each id; the first are the special tokens.

    Raises:
        ValueError: two ids of one piece, or other special tokens.
    """

    family = "marian"
    extensible = False

    def __init__(self, model: bytes, pieces: Sequence[str]) -> None:
        super().__init__(model)
        self._pieces, self._ids = tuple(pieces), {piece: id for id, piece in enumerate(pieces)}
        if self._pieces[: len(SPECIALS)] != SPECIALS or len(self._ids) < len(self._pieces):
            raise ValueError("a table of pieces begins with the special tokens, and has each piece once")

    def __reduce__(self) -> tuple[type[MarianVocabulary], tuple[bytes, tuple[str, ...]]]:  # type: ignore[override]
        return MarianVocabulary, (self.serialised, self._pieces)

    @classmethod
    def train(cls, config: TokensConfig, lines: Iterable[str], where: str, side: str) -> SubwordVocabulary:
        """Raise UserError: such a vocabulary comes with its model."""
        what, allowed = "a vocabulary of this kind comes with its model", "model.from: hf:FOLDER_OR_NAME"
        raise UserError(what, where=f"{where}.kind", received=config.kind, allowed=allowed)

    def shares_ids_with(self, other: Vocabulary) -> bool:
        return isinstance(other, MarianVocabulary) and self._pieces == other._pieces

    def __len__(self) -> int:
        return len(self._pieces)

    def encode(self, segmented: str) -> list[int]:
        code, text = _language_code(segmented)
        pieces: list[str] = [*code, *self._processor.encode(text, out_type=str)]
        return [self._id(piece) for piece in pieces]

    def encode_lines(self, segmented: Sequence[str]) -> list[list[int]]:
        parts = [_language_code(line) for line in segmented]
        encoded: list[list[str]] = self._processor.encode([text for _, text in parts], out_type=str)
        return [
            [self._id(piece) for piece in (*code, *pieces)] for (code, _), pieces in zip(parts, encoded, strict=True)
        ]

    def _id(self, piece: str) -> int:
        """The id of a piece; a special token's name in the text is a piece that has none."""
        id = self._ids.get(piece, UNKNOWN)
        return id if id > EOS else UNKNOWN

    def encode_with_spans(self, segmented: str) -> list[TokenSpan]:
        code, text = _language_code(segmented)
        start = sum(map(len, code))
        spans = [TokenSpan(self._id(piece), piece, 0, start) for piece in code]
        encoded = self._processor.encode(text, out_type="offset_mapping")
        for piece, (begin, end) in zip(encoded["pieces"], encoded["offsets"], strict=True):
            id = self._id(piece)
            spans.append(TokenSpan(id, text[begin:end] if id == UNKNOWN else piece, start + begin, start + end))
        return spans

    def decode(self, ids: Sequence[int]) -> str:
        text, known = "", list[str]()
        for id in map(int, ids):
            if id == UNKNOWN:
                text, known = f"{text}{self._text(known)} {SPECIALS[UNKNOWN]} ", []
            elif id > EOS:
                known.append(self._pieces[id])
        return (text + self._text(known)).strip()

    def _text(self, pieces: list[str]) -> str:
        text: str = self._processor.decode_pieces(pieces)
        return text.replace(SPACE, " ")

    def token(self, id: int) -> str:
        return self._pieces[id]

    def _write(self, folder: Path) -> None:
        super()._write(folder)
        write_json(folder / PIECES, list(self._pieces))

    @classmethod
    def load(cls, folder: Path) -> MarianVocabulary:
        model = SubwordVocabulary.load(folder).serialised
        try:
            return cls(model, json.loads((folder / PIECES).read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise UserError(f"the vocabulary's table cannot be read ({error})", where=str(folder / PIECES)) from error


def _language_code(text: str) -> tuple[list[str], str]:
    """The language code that a line begins with, if there is one, and the rest."""
    end = text.find("<<") if text.startswith(">>") else -1
    return ([], text) if end < 0 else ([text[: end + 2]], text[end + 2 :])
