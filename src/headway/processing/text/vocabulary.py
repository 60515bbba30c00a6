"""Vocabularies: their interface, their storage, and the kinds for words, bytes and tags."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    SerializeAsAny,
    TypeAdapter,
    ValidationError,
    create_model,
    model_validator,
)

from headway.core.config import Count, Section, mistakes_within
from headway.core.documents import read_json, shaped
from headway.core.errors import UserError
from headway.core.files import write_json, write_text
from headway.core.registry import is_foreign, is_own, names_of_a_run
from headway.processing import VOCABULARIES
from headway.tensors.batch import EOS, SPECIALS, UNKNOWN

DESCRIPTION, FORMAT = "vocabulary.json", 1
SPACE_BYTE = len(SPECIALS) + 0x20  # the id of a space in a byte vocabulary
WORDS = "vocabulary.txt"  # one token per line: the line number, from 0, is its id
OF_PIECES = ("character_coverage", "byte_fallback", "split_digits")  # options of SentencePiece models
TEXT, TAGS = "text", "tags.json"  # in the folder of a vocabulary with tags


class TokensConfig(Section):
    """The kind and number of tokens of a vocabulary, including the four special tokens.

    `kind`: `bpe`, `unigram` and `char` are SentencePiece models; `word` keeps the most frequent segmented tokens;
    `whitespace` keeps all tokens separated by white space; `byte` has the 256 bytes of UTF-8. `size`: the number of
    tokens; not for `char`, `whitespace` and `byte`. `min_frequency`: rarer words are unknown
    to `word`. `character_coverage`: the share of the text's characters that SentencePiece keeps. `byte_fallback`:
    whether `bpe` and `unigram` spell other characters in bytes, with 256 tokens for them, so that none is unknown.
    `split_digits`: whether each digit is a token of its own to `bpe` and `unigram`.
    """

    kind: str = "bpe"
    size: Annotated[int, Field(gt=4, le=10**7)] = 8000
    min_frequency: Count = 1
    character_coverage: Annotated[float, Field(ge=0.98, le=1)] = 1.0
    byte_fallback: bool = False
    split_digits: bool = False


def _section_of(value: Any) -> Any:
    return VOCABULARIES.section({"kind": "bpe", **value}) if isinstance(value, Mapping) else value


AnyTokens = Annotated[SerializeAsAny[TokensConfig], BeforeValidator(_section_of)]


class VocabularyConfig(TokensConfig):
    """The vocabularies of both sides.

    `shared`: whether both sides have one vocabulary. `target`: the target vocabulary, if it is of another kind or size.
    """

    shared: bool = False
    target: AnyTokens | None = None

    @model_validator(mode="after")
    def _one_or_two(self) -> VocabularyConfig:
        if self.shared and self.target:
            raise ValueError("a shared vocabulary has no target of its own")
        return self


@cache
def _of_both_sides(options: type[BaseModel]) -> type[BaseModel]:
    """The config class of a vocabulary with additional options, combined with `VocabularyConfig`."""
    if issubclass(VocabularyConfig, options):
        return VocabularyConfig
    return create_model("VocabularyConfig", __base__=(VocabularyConfig, options))


def _with_sides(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    section = _of_both_sides(VOCABULARIES.config(value.get("kind", "bpe")))
    try:
        return section.model_validate(dict(value))
    except ValidationError as error:
        raise mistakes_within(error, section) from error


AnyVocabulary = Annotated[SerializeAsAny[VocabularyConfig], BeforeValidator(_with_sides)]


class TokenSpan(NamedTuple):
    """A token, as the vocabulary writes it (or as in the text if it is unknown), and its characters [start, end)."""

    id: int
    surface: str
    start: int
    end: int


class Vocabulary(ABC):
    """Maps prepared text to token ids and back. Vocabularies are immutable and can be pickled.

    Attributes:
        Config: the class of its options.
        family: identifies the class when the vocabulary is loaded from its folder: a word, or
            `my_package.module:Class`, which external classes need not set themselves.
        extensible: whether `extended` is implemented.
    """

    Config: ClassVar[type[TokensConfig]] = TokensConfig
    family: ClassVar[str]
    extensible: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def train(cls, config: TokensConfig, lines: Iterable[str], where: str, side: str) -> Vocabulary:
        """Train a vocabulary on prepared lines.

        Args:
            config: an instance of `Config`.
            lines: an iterable that is read once.
            where: the recipe key in error messages.
            side: the name of the text in error messages.

        Raises:
            UserError: the text is empty, or a setting does not fit the text or the kind.
        """

    def extended(self, lines: Iterable[str], count: int, where: str, side: str) -> Vocabulary:
        """The vocabulary with up to `count` further tokens of prepared lines; the old ids stay the same.

        Args:
            lines: an iterable that is read once.
            count: the maximum number of new tokens.
            where: the recipe key in error messages.
            side: the name of the text in error messages.
        """
        raise NotImplementedError

    @property
    def no_text(self) -> frozenset[int]:
        """The ids of tokens without text: the special tokens."""
        return frozenset(range(len(SPECIALS)))

    @property
    def tags(self) -> tuple[str, ...]:
        """The tokens, such as `<2de>`, that are recognised only before the text of a line."""
        return ()

    @property
    def beginning(self) -> tuple[int, ...]:
        """The ids that every encoded line begins with, unless it has tags."""
        return ()

    @property
    def untagged(self) -> Vocabulary:
        """The vocabulary without tags."""
        return self

    @property
    def mark(self) -> int | None:
        """The id of the separator of sentences, or None if sentences are translated on their own."""
        return None

    def within_limit(self, sentences: Sequence[str]) -> list[str]:
        """The last of the prepared sentences, as many as can be read together, joined by separators."""
        return list(sentences[-1:])

    def split_tags(self, line: str) -> tuple[str, str]:
        """Split a line into its leading tags, with the white space around them, and the rest."""
        return "", line

    @abstractmethod
    def __len__(self) -> int:
        """The number of tokens, including the four special tokens."""

    def shares_ids_with(self, other: Vocabulary) -> bool:
        """Whether both vocabularies have the same ids for the same tokens, so that the sides can share an embedding."""
        return self is other

    @abstractmethod
    def encode(self, segmented: str) -> list[int]:
        """The ids of a prepared line, without BOS and EOS; an empty list for a blank line."""

    def encode_lines(self, segmented: Sequence[str]) -> list[list[int]]:
        """`encode` for each line, possibly faster."""
        return [self.encode(line) for line in segmented]

    @abstractmethod
    def encode_with_spans(self, segmented: str) -> list[TokenSpan]:
        """The same ids as `encode`, each with its token and its characters in `segmented`."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """The prepared text of ids. PAD, BOS and EOS are left out; UNKNOWN is written `<unk>`."""

    @abstractmethod
    def token(self, id: int) -> str:
        """The token with this id. Raises IndexError if there is none."""

    @abstractmethod
    def starts_word(self, id: int) -> bool:
        """Whether the token always has a space before it."""

    def save(self, folder: Path) -> None:
        """Write the vocabulary and its family into `folder`, which is created if it does not exist."""
        folder.mkdir(parents=True, exist_ok=True)
        self._write(folder)
        kind = type(self)  # an external class must not be loaded as its parent
        own = is_own(self) or "family" in vars(kind)
        family = self.family if own else f"{kind.__module__}:{kind.__qualname__}"
        write_json(folder / DESCRIPTION, {"format": FORMAT, "family": family, "size": len(self)})

    @abstractmethod
    def _write(self, folder: Path) -> None:
        """Write the tokens into `folder`."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path) -> Vocabulary:
        """Load a vocabulary of this class that `save` wrote. `load_vocabulary` also determines the class.

        Raises:
            UserError: a file is missing or damaged.
        """


def check_unused(config: TokensConfig, where: str, *names: str) -> None:
    """Raise UserError if an option that this kind of vocabulary does not have differs from its default."""
    for name in names:
        value, default = getattr(config, name), TokensConfig.model_fields[name].default
        if value != default:
            what = f"a {config.kind} vocabulary has no such option"
            raise UserError(what, where=f"{where}.{name}", received=value, allowed=f"{default}, or another kind")


class WordVocabulary(Vocabulary):
    """Tokens separated by white space (`str.split`), with ids after those of the special tokens.

    A token in the text that is spelled like a special token (`<s>`) is an ordinary token.
    """

    family = "words"
    extensible = True

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = (*SPECIALS, *tokens)
        self._ids = {token: id for id, token in enumerate(tokens, start=len(SPECIALS))}

    @classmethod
    def train(cls, config: TokensConfig, lines: Iterable[str], where: str, side: str) -> WordVocabulary:
        """The most frequent tokens, `size` with the special ones, or all (`whitespace`); ties keep the text's order."""
        check_unused(config, where, *OF_PIECES, *(["min_frequency"] if config.kind == "whitespace" else []))
        counts = Counter(token for line in lines for token in line.split())
        frequent = counts.most_common(config.size - len(SPECIALS) if config.kind == "word" else None)
        tokens = [token for token, count in frequent if count >= config.min_frequency]
        if not tokens:
            raise UserError(f"the {side} has no token that often: nothing to make a vocabulary of", where=where)
        return cls(tokens)

    def extended(self, lines: Iterable[str], count: int, where: str, side: str) -> WordVocabulary:
        """Add the most frequent new tokens; ties keep the order of the text."""
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
        write_text(folder / WORDS, "".join(f"{token}\n" for token in self._tokens))

    @classmethod
    def load(cls, folder: Path) -> WordVocabulary:
        path = folder / WORDS
        try:
            tokens = path.read_bytes().decode().split("\n")
            if tuple(tokens[: len(SPECIALS)]) != SPECIALS or tokens[-1] or len(set(tokens[4:])) != len(tokens[4:]):
                raise ValueError("it does not have each token once, after the special ones")
        except (OSError, ValueError) as error:
            raise UserError(f"the vocabulary cannot be read ({error})", where=str(path)) from error
        return cls(tokens[len(SPECIALS) : -1])


class ByteVocabulary(Vocabulary):
    """The 256 bytes of UTF-8, after the special tokens, so that no text has an unknown token.

    If ids are not valid UTF-8, as in the output of an untrained model, the invalid bytes are decoded as U+FFFD.
    """

    family = "bytes"

    @classmethod
    def train(cls, config: TokensConfig, lines: Iterable[str], where: str, side: str) -> ByteVocabulary:
        check_unused(config, where, "min_frequency", *OF_PIECES)
        return cls()

    @property
    def no_text(self) -> frozenset[int]:
        return super().no_text | {SPACE_BYTE}

    def __len__(self) -> int:
        return len(SPECIALS) + 256

    def shares_ids_with(self, other: Vocabulary) -> bool:
        return isinstance(other, ByteVocabulary)

    def encode(self, segmented: str) -> list[int]:
        if not segmented.strip():
            return []
        return [byte + len(SPECIALS) for byte in segmented.encode("utf-8", errors="replace")]

    def encode_with_spans(self, segmented: str) -> list[TokenSpan]:
        """As in `Vocabulary`; all bytes of a character have the span of the character."""
        ids, tokens = iter(self.encode(segmented)), list[TokenSpan]()
        for start, character in enumerate(segmented if segmented.strip() else ""):
            for id in islice(ids, len(character.encode("utf-8", errors="replace"))):
                tokens.append(TokenSpan(id, self.token(id), start, start + 1))
        return tokens

    def decode(self, ids: Sequence[int]) -> str:
        unknown = SPECIALS[UNKNOWN].encode()
        parts = [unknown if id == UNKNOWN else bytes([int(id) - len(SPECIALS)]) for id in ids if id > EOS]
        return b"".join(parts).decode("utf-8", errors="replace")

    def token(self, id: int) -> str:
        """A visible ASCII character, `▁` for a space, or a number such as `<0xE3>`."""
        if id < len(SPECIALS):
            return SPECIALS[id]
        if id == SPACE_BYTE:
            return "\u2581"
        byte = range(256)[id - len(SPECIALS)]
        return chr(byte) if 0x20 < byte < 0x7F else f"<0x{byte:02X}>"

    def starts_word(self, id: int) -> bool:
        return id == SPACE_BYTE

    def _write(self, folder: Path) -> None:
        pass  # the description is enough

    @classmethod
    def load(cls, folder: Path) -> ByteVocabulary:
        return cls()


class TaggedVocabulary(Vocabulary):
    """The tokens of another vocabulary, and tags, such as `<2de>` for the target language.

    A tag is a token before a line that tells a multi-task model what to do with the text (Johnson et al. 2017). The ids
    of tags come after all others, so the ids of the other tokens are the same as without tags.

    Args:
        text: the vocabulary without tags.
        tags: such as `<2de>`.
    """

    family = "tagged"

    def __init__(self, text: Vocabulary, tags: Sequence[str]) -> None:
        self.text, self._tags = text, tuple(tags)
        names = "|".join(map(re.escape, sorted(tags, key=len, reverse=True)))
        self._prefix = re.compile(rf"\s*(?:(?:{names})(?:\s+|$))+")

    @classmethod
    def train(cls, config: TokensConfig, lines: Iterable[str], where: str, side: str) -> TaggedVocabulary:
        what = "tags are those of the corpora, whatever the kind of vocabulary"
        raise UserError(what, where=f"{where}.kind", received=config.kind, allowed="tag, in a corpus of data.train")

    @property
    def tags(self) -> tuple[str, ...]:
        return self._tags

    @property
    def untagged(self) -> Vocabulary:
        return self.text.untagged

    @property
    def mark(self) -> int | None:
        return self.text.mark

    def within_limit(self, sentences: Sequence[str]) -> list[str]:
        return self.text.within_limit(sentences)

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
        tags: list[str] = shaped(read_json(folder / TAGS, list), TypeAdapter(list[str]), str(folder / TAGS))
        return cls(load_vocabulary(folder / TEXT), tags)


def train_vocabulary(
    config: TokensConfig, segmented_lines: Iterable[str], where: str = "vocabulary", side: str = "training text"
) -> Vocabulary:
    """Train a vocabulary on prepared lines.

    Args:
        where: the recipe key in error messages.
        side: the name of the text in error messages.

    Raises:
        UserError: the text is empty, or a setting does not fit the text or the kind.
    """
    return VOCABULARIES.get(config.kind, f"{where}.kind").train(config, segmented_lines, where, side)


def load_vocabulary(folder: Path) -> Vocabulary:
    """Load a vocabulary of any family that `Vocabulary.save` wrote.

    Raises:
        UserError: a file is missing, damaged or of another format, or the class is external and not allowed.
    """
    description, where = read_description(folder / DESCRIPTION, FORMAT), str(folder / DESCRIPTION)
    family = str(description.get("family"))
    if is_foreign(family):
        with names_of_a_run():
            kind = VOCABULARIES.get(family, where)
    else:
        known = {VOCABULARIES.get(name).family: VOCABULARIES.get(name) for name in VOCABULARIES}
        if family not in known:
            raise UserError("an unknown family of vocabularies", where=where, received=family, allowed=known)
        kind = known[family]
    vocabulary = kind.load(folder)
    if len(vocabulary) != description.get("size"):
        raise UserError(
            "the vocabulary is not the one that was saved: its size differs", where=str(folder),
            received=len(vocabulary), allowed=str(description.get("size")),
        )  # fmt: skip
    return vocabulary


def read_description(path: Path, version: int) -> dict[str, object]:
    """Read a JSON object that has the format number `version`.

    Raises:
        UserError: the file is missing, damaged or of another format.
    """
    description: dict[str, object] = read_json(path, what="vocabulary's description")
    if description.get("format") != version:
        received = description.get("format")
        raise UserError(
            "a format that this headway does not read", where=str(path), received=received, allowed=str(version)
        )
    return description
