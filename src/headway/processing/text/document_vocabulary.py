"""The vocabulary of document-level models: another vocabulary, and a separator of sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from headway.core.documents import read_json, shaped
from headway.core.errors import UserError
from headway.core.files import write_json
from headway.processing.processor import Truncation
from headway.processing.text.vocabulary import TEXT, TokensConfig, TokenSpan, Vocabulary, load_vocabulary

JOINT = "\n"  # between sentences: a line end, which never occurs within a text
MARK = "<sep>"
LIMIT = "limit.json"


def joined(earlier: Sequence[str], sentence: str, count: int) -> str:
    """The sentence after the last `count` of the earlier sentences, without blank ones, joined by `JOINT`."""
    kept = earlier[max(0, len(earlier) - count) :]
    return JOINT.join([*filter(str.strip, kept), sentence])


class DocumentVocabulary(Vocabulary):
    """The tokens of another vocabulary, and a separator of sentences, which has the last id.

    Args:
        text: the vocabulary of sentences.
        limit: the maximum length of joined sentences; the earliest sentences are dropped beyond it.
    """

    family = "document"

    def __init__(self, text: Vocabulary, limit: Truncation) -> None:
        self.text, self.limit = text, limit

    @classmethod
    def train(cls, config: TokensConfig, lines: Iterable[str], where: str, side: str) -> DocumentVocabulary:
        what = "the mark between sentences comes with the context, whatever the kind of vocabulary"
        raise UserError(what, where=f"{where}.kind", received=config.kind, allowed="data.context")

    @property
    def no_text(self) -> frozenset[int]:
        return self.text.no_text

    @property
    def untagged(self) -> Vocabulary:
        return self.text.untagged

    @property
    def mark(self) -> int | None:
        return len(self.text)

    def within_limit(self, sentences: Sequence[str]) -> list[str]:
        by_pieces = self.limit.unit == "pieces"
        lengths = [len(ids) for ids in self.text.encode_lines(sentences)] if by_pieces else []
        lengths = lengths or [len(sentence.split()) for sentence in sentences]
        first, total = len(sentences) - 1, lengths[-1]
        while first and (total := total + lengths[first - 1] + 1) <= self.limit.length:
            first -= 1
        return list(sentences[first:])

    def __len__(self) -> int:
        return len(self.text) + 1

    def encode(self, segmented: str) -> list[int]:
        return self.encode_lines([segmented])[0]

    def encode_lines(self, segmented: Sequence[str]) -> list[list[int]]:
        split = [line.split(JOINT) for line in segmented]
        encoded = iter(self.text.encode_lines([sentence for sentences in split for sentence in sentences]))
        lines = list[list[int]]()
        for sentences in split:
            ids = next(encoded)
            for _ in sentences[1:]:
                ids = [*ids, len(self.text), *next(encoded)]
            lines.append(ids)
        return lines

    def encode_with_spans(self, segmented: str) -> list[TokenSpan]:
        spans, start = list[TokenSpan](), 0
        for sentence in segmented.split(JOINT):
            spans += [TokenSpan(len(self.text), MARK, start - 1, start)] if start else []
            of_sentence = self.text.encode_with_spans(sentence)
            spans += [TokenSpan(id, surface, start + begin, start + end) for id, surface, begin, end in of_sentence]
            start += len(sentence) + len(JOINT)
        return spans

    def decode(self, ids: Sequence[int]) -> str:
        return self.text.decode([id for id in ids if id != len(self.text)])

    def token(self, id: int) -> str:
        return MARK if id == len(self.text) else self.text.token(id)

    def starts_word(self, id: int) -> bool:
        return id == len(self.text) or self.text.starts_word(id)

    def _write(self, folder: Path) -> None:
        self.text.save(folder / TEXT)
        write_json(folder / LIMIT, [self.limit.length, self.limit.unit])

    @classmethod
    def load(cls, folder: Path) -> DocumentVocabulary:
        limit = shaped(read_json(folder / LIMIT, list), TypeAdapter(tuple[int, str]), str(folder / LIMIT))
        return cls(load_vocabulary(folder / TEXT), Truncation(limit[0], "words" if limit[1] == "words" else "pieces"))
