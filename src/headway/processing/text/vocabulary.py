"""The contract of a vocabulary, whatever its kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    SerializeAsAny,
    ValidationError,
    create_model,
    model_validator,
)

from headway.config import Count, Section, mistakes_within
from headway.errors import UserError
from headway.files import write_json
from headway.processing import VOCABULARIES
from headway.registry import is_own
from headway.tensors.batch import SPECIALS

DESCRIPTION = "vocabulary.json"
FORMAT = 1


class TokensConfig(Section):
    """The tokens of text: their kind and number (with the four special symbols).

    `bpe`, `unigram` and `char` are SentencePiece models; `word` keeps the most frequent segmented tokens; `whitespace`
    keeps every token that whitespace separates and gives it back unchanged. `size` does not bind `char`/`whitespace`.
    """

    kind: str = "bpe"
    size: Annotated[int, Field(gt=4, le=10**7)] = 8000
    min_frequency: Count = 1
    character_coverage: Annotated[float, Field(ge=0.98, le=1)] = 1.0


def _section_of(value: Any) -> Any:
    return VOCABULARIES.section({"kind": "bpe", **value}) if isinstance(value, Mapping) else value


AnyTokens = Annotated[SerializeAsAny[TokensConfig], BeforeValidator(_section_of)]


class VocabularyConfig(TokensConfig):
    """The vocabulary of either side, or one that both share. `target`: what the target's is, where it is of its own."""

    shared: bool = False
    target: AnyTokens | None = None

    @model_validator(mode="after")
    def _one_or_two(self) -> VocabularyConfig:
        if self.shared and self.target:
            raise ValueError("a shared vocabulary has no target of its own")
        return self


@cache
def _of_both_sides(options: type[BaseModel]) -> type[BaseModel]:
    """The section of a vocabulary that has options of its own, those of `VocabularyConfig` beside them."""
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
    """A token, as the vocabulary writes it (an unknown one as in the text), and its characters [start, end)."""

    id: int
    surface: str
    start: int
    end: int


class Vocabulary(ABC):
    """Tokens and their ids: the way from prepared text to ids and back.

    A vocabulary is immutable and can be sent to another process.

    Attributes:
        Config: its options.
        family: what tells in its folder how it is read: a word, or `my_package.module:Class` of one from elsewhere,
            which need not say so itself.
        extensible: whether it has `extended`.
    """

    Config: ClassVar[type[TokensConfig]] = TokensConfig
    family: ClassVar[str]
    extensible: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def train(cls, config: TokensConfig, lines: Iterable[str], where: str, side: str) -> Vocabulary:
        """A vocabulary of prepared lines.

        Args:
            config: of the class `Config`.
            lines: they are read once.
            where: the recipe key that errors name.
            side: what errors call the text.

        Raises:
            UserError: the text is empty, or a setting does not fit it or the kind.
        """

    def extended(self, lines: Iterable[str], count: int, where: str, side: str) -> Vocabulary:
        """The vocabulary with up to `count` further tokens of prepared lines; the old ones keep their ids.

        Args:
            lines: they are read once.
            count: of new tokens.
            where: the recipe key that errors name.
            side: what errors call the text.
        """
        raise NotImplementedError

    @property
    def no_text(self) -> frozenset[int]:
        """The ids of tokens that stand for no text of their own: the specials."""
        return frozenset(range(len(SPECIALS)))

    @property
    def tags(self) -> tuple[str, ...]:
        """The tokens that are read as such only before the text of a line, such as `<2de>`."""
        return ()

    @property
    def untagged(self) -> Vocabulary:
        """The vocabulary of what is no tag."""
        return self

    def split_tags(self, line: str) -> tuple[str, str]:
        """The tags that a line begins with, with the white space around them, and the rest of it."""
        return "", line

    @abstractmethod
    def __len__(self) -> int:
        """The number of tokens, the four specials included."""

    def shares_ids_with(self, other: Vocabulary) -> bool:
        """Whether both sides of a model have one table of pieces, so that they can have one embedding."""
        return self is other

    @abstractmethod
    def encode(self, segmented: str) -> list[int]:
        """The ids of one prepared line, without BOS and EOS; an empty list for a blank line."""

    def encode_lines(self, segmented: Sequence[str]) -> list[list[int]]:
        """`encode` of each line, at least as fast."""
        return [self.encode(line) for line in segmented]

    @abstractmethod
    def encode_with_spans(self, segmented: str) -> list[TokenSpan]:
        """The same ids as `encode`, each with its token and its characters in `segmented`."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Prepared text: PAD, BOS and EOS are left out, UNKNOWN is written `<unk>`."""

    @abstractmethod
    def token(self, id: int) -> str:
        """The token with this id; IndexError where there is none."""

    @abstractmethod
    def starts_word(self, id: int) -> bool:
        """Whether a space stands before this token wherever it occurs."""

    def save(self, folder: Path) -> None:
        """Write the vocabulary, and what kind it is, into `folder`, which is made where it does not exist."""
        folder.mkdir(parents=True, exist_ok=True)
        self._write(folder)
        write_json(folder / DESCRIPTION, {"format": FORMAT, "family": self._own_family(), "size": len(self)})

    def _own_family(self) -> str:
        """The family; that of a parent would read a class from elsewhere as the parent."""
        if is_own(self) or "family" in vars(type(self)):
            return self.family
        return f"{type(self).__module__}:{type(self).__qualname__}"

    @abstractmethod
    def _write(self, folder: Path) -> None:
        """Write the tokens into `folder`."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path) -> Vocabulary:
        """Read what `save` wrote; where the kind is not known, `load_vocabulary` finds it.

        Raises:
            UserError: a file is missing or damaged.
        """


def check_no_frequency(config: TokensConfig, where: str) -> None:
    """Raise UserError where a smallest frequency is asked of a kind that has none."""
    if config.min_frequency > 1:
        raise UserError(
            f"a {config.kind} vocabulary has no smallest frequency", where=f"{where}.min_frequency",
            received=config.min_frequency, allowed="1, or kind: word",
        )  # fmt: skip
