"""Vocabularies of whole tokens, one line each in vocabulary.txt: a token's line number, from 0, is its id."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from headway.errors import UserError
from headway.files import write_text
from headway.processing.text.vocabulary import TokensConfig, TokenSpan, Vocabulary, check_no_frequency
from headway.tensors.batch import EOS, SPECIALS, UNKNOWN

FILE = "vocabulary.txt"


class WordVocabulary(Vocabulary):
    """Tokens are what white space separates (`str.split`); their ids follow those of the specials.

    A token of the text that is spelled like a special (`<s>`) is a token like any other.
    """

    family = "words"
    extensible = True

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = (*SPECIALS, *tokens)
        self._ids = {token: id for id, token in enumerate(tokens, start=len(SPECIALS))}

    @classmethod
    def train(cls, config: TokensConfig, lines: Iterable[str], where: str, side: str) -> WordVocabulary:
        """The most frequent tokens, `size` with the specials, or all (`whitespace`); of equal ones the first."""
        if config.character_coverage < 1:
            raise UserError(
                f"a {config.kind} vocabulary has no character coverage", where=f"{where}.character_coverage",
                received=config.character_coverage, allowed="1.0, or kind: bpe, unigram or char",
            )  # fmt: skip
        if config.kind == "whitespace":
            check_no_frequency(config, where)
        counts = Counter(token for line in lines for token in line.split())
        frequent = counts.most_common(config.size - len(SPECIALS) if config.kind == "word" else None)
        tokens = [token for token, count in frequent if count >= config.min_frequency]
        if not tokens:
            raise UserError(f"the {side} has no token that often: nothing to make a vocabulary of", where=where)
        return cls(tokens)

    def extended(self, lines: Iterable[str], count: int, where: str, side: str) -> WordVocabulary:
        """The most frequent tokens that are new; of equal ones the first."""
        counts = Counter(token for line in lines for token in line.split() if token not in self._ids)
        return type(self)([*self._tokens[len(SPECIALS) :], *(token for token, _ in counts.most_common(count))])

    def __len__(self) -> int:
        return len(self._tokens)

    def encode(self, segmented: str) -> list[int]:
        return [self._ids.get(token, UNKNOWN) for token in segmented.split()]

    def encode_with_spans(self, segmented: str) -> list[TokenSpan]:
        return [
            TokenSpan(self._ids.get(token[0], UNKNOWN), token[0], *token.span())
            for token in re.finditer(r"\S+", segmented)
        ]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self._tokens[id] for id in ids if id > EOS)

    def token(self, id: int) -> str:
        return self._tokens[id]

    def starts_word(self, id: int) -> bool:
        return True

    def _write(self, folder: Path) -> None:
        write_text(folder / FILE, "".join(f"{token}\n" for token in self._tokens))

    @classmethod
    def load(cls, folder: Path) -> WordVocabulary:
        path = folder / FILE
        try:
            tokens = path.read_bytes().decode().split("\n")
        except FileNotFoundError:
            raise UserError("the vocabulary's file is missing", where=str(path)) from None
        except UnicodeDecodeError:
            raise UserError("the vocabulary's file is damaged: not UTF-8", where=str(path)) from None
        if tuple(tokens[: len(SPECIALS)]) != SPECIALS or tokens[-1] or len(set(tokens[4:])) != len(tokens[4:]):
            raise UserError("the vocabulary's file is damaged", where=str(path))
        return cls(tokens[len(SPECIALS) : -1])
