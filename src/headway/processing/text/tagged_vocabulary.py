"""A vocabulary with tags, such as `<2de>` for the language that is wanted: each is one token before a line.

Tags say to one model what it shall do with a text (Johnson et al. 2017). They come after all other tokens, so that
these have the ids that they have without tags.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from headway.errors import UserError
from headway.files import write_json
from headway.processing.text.vocabularies import load_vocabulary
from headway.processing.text.vocabulary import TokensConfig, TokenSpan, Vocabulary

TEXT, TAGS = "text", "tags.json"  # in its folder


class TaggedVocabulary(Vocabulary):
    """The tokens of another vocabulary, and tags.

    Args:
        text: the vocabulary of what is no tag.
        tags: such as `<2de>`.
    """

    family = "tagged"

    def __init__(self, text: Vocabulary, tags: Sequence[str]) -> None:
        self.text, self._tags = text, tuple(tags)
        names = "|".join(map(re.escape, sorted(tags, key=len, reverse=True)))
        self._prefix = re.compile(rf"\s*(?:(?:{names})(?:\s+|$))+")

    @classmethod
    def train(cls, config: TokensConfig, lines: Iterable[str], where: str, side: str) -> TaggedVocabulary:
        """Raise UserError: tags are those of the corpora."""
        what, allowed = (
            "tags are those of the corpora, whatever the kind of vocabulary",
            "tag, in a corpus of data.train",
        )
        raise UserError(what, where=f"{where}.kind", received=config.kind, allowed=allowed)

    @property
    def tags(self) -> tuple[str, ...]:
        return self._tags

    @property
    def untagged(self) -> Vocabulary:
        return self.text

    def split_tags(self, line: str) -> tuple[str, str]:
        prefix = self._prefix.match(line)
        end = prefix.end() if prefix else 0
        return line[:end], line[end:]

    def __len__(self) -> int:
        return len(self.text) + len(self._tags)

    def _ids(self, prefix: str) -> list[int]:
        return [len(self.text) + self._tags.index(tag) for tag in prefix.split()]

    def encode(self, segmented: str) -> list[int]:
        prefix, rest = self.split_tags(segmented)
        return self._ids(prefix) + self.text.encode(rest)

    def encode_lines(self, segmented: Sequence[str]) -> list[list[int]]:
        split = [self.split_tags(line) for line in segmented]
        encoded = self.text.encode_lines([rest for _, rest in split])
        return [self._ids(prefix) + ids for (prefix, _), ids in zip(split, encoded, strict=True)]

    def encode_with_spans(self, segmented: str) -> list[TokenSpan]:
        prefix, rest = self.split_tags(segmented)
        names = re.finditer(r"\S+", prefix)
        tags = [TokenSpan(id, name[0], *name.span()) for id, name in zip(self._ids(prefix), names, strict=True)]
        start = len(prefix)
        return tags + [
            TokenSpan(id, surface, start + begin, start + end)
            for id, surface, begin, end in self.text.encode_with_spans(rest)
        ]

    def decode(self, ids: Sequence[int]) -> str:
        tags = [self.token(int(id)) for id in ids if id >= len(self.text)]
        text = self.text.decode([id for id in ids if id < len(self.text)])
        return " ".join([*tags, text] if text else tags)

    def token(self, id: int) -> str:
        return self.text.token(id) if id < len(self.text) else self._tags[id - len(self.text)]

    def starts_word(self, id: int) -> bool:
        return id >= len(self.text) or self.text.starts_word(id)

    def _write(self, folder: Path) -> None:
        self.text.save(folder / TEXT)
        write_json(folder / TAGS, list(self._tags))

    @classmethod
    def load(cls, folder: Path) -> TaggedVocabulary:
        try:
            tags = json.loads((folder / TAGS).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"the vocabulary's tags cannot be read ({error})", where=str(folder / TAGS)) from error
        if not isinstance(tags, list) or not tags or not all(isinstance(tag, str) for tag in tags):
            raise UserError("the vocabulary's tags are damaged", where=str(folder / TAGS))
        return cls(load_vocabulary(folder / TEXT), tags)
