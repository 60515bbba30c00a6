"""Vocabularies of imported models: tokenizers of the `tokenizers` library, and language codes around a text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from headway.core.documents import read_json, shaped
from headway.core.errors import UserError, not_installed
from headway.core.files import write_json, write_text
from headway.processing.text.vocabulary import (
    TAGS,
    TEXT,
    TaggedVocabulary,
    TokensConfig,
    TokenSpan,
    Vocabulary,
    load_vocabulary,
)
from headway.tensors.batch import BOS, EOS, SPECIALS, UNKNOWN

TOKENIZER, ROWS = "tokenizer.json", "rows.json"
MARKS = ("\u2581", "Ġ")  # marks of a space, in SentencePiece and in byte-level pieces


def imported_alone(config: TokensConfig, where: str) -> UserError:
    """The error for training a vocabulary of a kind that always comes with its model."""
    what, allowed = (
        "a vocabulary of this kind comes with its model",
        "model.from, or training.from of a run that was imported",
    )
    return UserError(what, where=f"{where}.kind", received=config.kind, allowed=allowed)


def named(piece: str | None, row: int) -> str:
    """The name of a token: its piece, or its row if it has no piece or the piece equals a special token's name."""
    return f"<row_{row}>" if piece is None or piece in SPECIALS else piece


def code_of(language: str, codes: Iterable[str], where: str) -> str:
    """The code of a language, for which `de` may stand for `__de__` or `de_DE`. Raises UserError if there is none."""
    fitting = [code for code in codes if language in (code, code.strip("_"), code.partition("_")[0])]
    if len(fitting) != 1:
        allowed = fitting or list(codes) or "no language: this model does not choose among several"
        raise UserError("this model has no such language", where=where, received=language, allowed=allowed)
    return fitting[0]


class TokenizersVocabulary(Vocabulary):
    """A tokenizer of the `tokenizers` library, with its pieces renumbered to headway's ids.

    Pieces without an id are unknown, and so are special tokens spelled out in a text.

    Args:
        serialised: the tokenizer, in the library's format.
        rows: for each id, the number of the piece in the tokenizer, which may lack this number. BOS may be a second id
            of another piece.
    """

    family = "tokenizers"

    def __init__(self, serialised: str, rows: Sequence[int]) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise not_installed("this vocabulary", ["tokenizers"], "pretrained") from error
        self._serialised, self._rows = serialised, tuple(rows)
        self._tokenizer: Any = Tokenizer.from_str(serialised)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._ids = {row: id if id > EOS else UNKNOWN for id, row in enumerate(rows) if id != BOS}

    def __reduce__(self) -> tuple[type[TokenizersVocabulary], tuple[str, tuple[int, ...]]]:
        return TokenizersVocabulary, (self._serialised, self._rows)

    @classmethod
    def train(cls, config: TokensConfig, lines: Iterable[str], where: str, side: str) -> TokenizersVocabulary:
        raise imported_alone(config, where)

    @property
    def no_text(self) -> frozenset[int]:
        return super().no_text | {self._ids.get(self._tokenizer.token_to_id(mark), UNKNOWN) for mark in MARKS}

    def shares_ids_with(self, other: Vocabulary) -> bool:
        return isinstance(other, TokenizersVocabulary) and self.__reduce__() == other.__reduce__()

    def __len__(self) -> int:
        return len(self._rows)

    def _encoding(self, text: str) -> Any:
        return self._tokenizer.encode(text, add_special_tokens=False)

    def encode(self, segmented: str) -> list[int]:
        if not segmented.strip():
            return []
        return [self._ids.get(row, UNKNOWN) for row in self._encoding(segmented).ids]

    def encode_with_spans(self, segmented: str) -> list[TokenSpan]:
        spans: list[TokenSpan] = []
        if segmented.strip():
            encoding = self._encoding(segmented)
            for row, piece, (start, end) in zip(encoding.ids, encoding.tokens, encoding.offsets, strict=True):
                id = self._ids.get(row, UNKNOWN)
                if piece in MARKS and not segmented[start:end].isspace():  # the mark of a space that is not in the text
                    end = start
                spans.append(TokenSpan(id, segmented[start:end] if id == UNKNOWN else piece, start, end))
        return spans

    def decode(self, ids: Sequence[int]) -> str:
        parts = []
        for unknown, group in groupby((int(id) for id in ids if id > EOS), lambda id: id == UNKNOWN):
            rows = [self._rows[id] for id in group]
            text: str = self._tokenizer.decode(rows, skip_special_tokens=True)
            parts += [SPECIALS[UNKNOWN]] * len(rows) if unknown else [text]
        return " ".join(parts)

    def token(self, id: int) -> str:
        return (
            SPECIALS[id] if id < len(SPECIALS) else named(self._tokenizer.id_to_token(self._rows[id]), self._rows[id])
        )

    def starts_word(self, id: int) -> bool:
        return self.token(id).startswith(MARKS)

    def _write(self, folder: Path) -> None:
        write_text(folder / TOKENIZER, self._serialised)
        write_json(folder / ROWS, list(self._rows))

    @classmethod
    def load(cls, folder: Path) -> TokenizersVocabulary:
        rows = shaped(read_json(folder / ROWS, list), TypeAdapter(list[int]), str(folder / ROWS))
        try:
            return cls((folder / TOKENIZER).read_text(encoding="utf-8"), rows)
        except (OSError, ValueError) as error:
            raise UserError("the tokenizer is missing or damaged", where=str(folder / TOKENIZER)) from error
        except UserError:
            raise
        except Exception as error:  # the library has no exception class for unreadable files
            raise UserError(f"the tokenizer cannot be read ({error})", where=str(folder / TOKENIZER)) from error


class FramedVocabulary(TaggedVocabulary):
    """A vocabulary with codes, such as those of languages, before or after every text.

    Codes at the beginning of a line replace the default ones. Codes are not part of a decoded text.

    Args:
        text: the vocabulary of the text itself.
        tags: all codes.
        before: the default codes before a text.
        after: the codes after a text.
        free: whether outputs may begin with other codes than `before`.
    """

    family = "framed"

    def __init__(
        self,
        text: Vocabulary,
        tags: Sequence[str],
        before: Sequence[str],
        after: Sequence[str] = (),
        free: bool = False,
    ) -> None:
        super().__init__(text, tags)
        self._before, self._after, self._free = " ".join(before), " ".join(after), free

    @classmethod
    def train(cls, config: TokensConfig, lines: Iterable[str], where: str, side: str) -> FramedVocabulary:
        raise imported_alone(config, where)

    @property
    def beginning(self) -> tuple[int, ...]:
        return () if self._free else tuple(self._ids(self._before))

    @property
    def no_text(self) -> frozenset[int]:
        return self.text.no_text

    def shares_ids_with(self, other: Vocabulary) -> bool:
        return (
            isinstance(other, FramedVocabulary)
            and self.tags == other.tags
            and (self.text is other.text or self.text.shares_ids_with(other.text))
        )

    def _frame(self, prefix: str, ids: list[int]) -> list[int]:
        if not ids:  # without text, only the codes of the line itself are kept
            return self._ids(prefix)
        return self._ids(prefix or self._before) + ids + self._ids(self._after)

    def encode(self, segmented: str) -> list[int]:
        prefix, rest = self.split_tags(segmented)
        return self._frame(prefix, self.text.encode(rest))

    def encode_lines(self, segmented: Sequence[str]) -> list[list[int]]:
        split = [self.split_tags(line) for line in segmented]
        encoded = self.text.encode_lines([rest for _, rest in split])
        return [self._frame(prefix, ids) for (prefix, _), ids in zip(split, encoded, strict=True)]

    def encode_with_spans(self, segmented: str) -> list[TokenSpan]:
        """As in `Vocabulary`; codes that are added to the line have empty spans."""
        spans, (prefix, rest) = super().encode_with_spans(segmented), self.split_tags(segmented)
        if not self.text.encode(rest):
            return spans
        before = [] if prefix else [TokenSpan(id, self.token(id), 0, 0) for id in self._ids(self._before)]
        end = len(segmented)
        return before + spans + [TokenSpan(id, self.token(id), end, end) for id in self._ids(self._after)]

    def decode(self, ids: Sequence[int]) -> str:
        return self.text.decode([id for id in ids if id < len(self.text)])

    def _write(self, folder: Path) -> None:
        self.text.save(folder / TEXT)
        write_json(folder / TAGS, [list(self.tags), self._before.split(), self._after.split(), self._free])

    @classmethod
    def load(cls, folder: Path) -> FramedVocabulary:
        four = TypeAdapter(tuple[list[str], list[str], list[str], bool])
        return cls(load_vocabulary(folder / TEXT), *shaped(read_json(folder / TAGS, list), four, str(folder / TAGS)))
