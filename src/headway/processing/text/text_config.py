"""The `text` and `vocabulary` sections of a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    PositiveInt,
    SerializeAsAny,
    ValidationError,
    create_model,
    model_validator,
)

from headway.config import Section, mistakes_within
from headway.processing import VOCABULARIES
from headway.processing.text.segmentation import AnySegmenter


class PreparationConfig(Section):
    """How the text of one side is prepared before the vocabulary cuts it into pieces."""

    language: str = "en"
    normalise: tuple[Literal["nfkc", "punctuation", "lower"], ...] = ()
    segment: AnySegmenter = "none"


class TextConfig(Section):
    """Preparation of both sides."""

    source: PreparationConfig = PreparationConfig()
    target: PreparationConfig = PreparationConfig()


class PiecesConfig(Section):
    """The pieces of text: their kind and number (with the four special symbols).

    `bpe`, `unigram` and `char` are SentencePiece models; `word` keeps the most frequent segmented tokens; `whitespace`
    keeps every token that whitespace separates and gives it back unchanged. `size` does not bind `char`/`whitespace`.
    """

    kind: str = "bpe"
    size: Annotated[int, Field(gt=4)] = 8000
    min_frequency: PositiveInt = 1
    character_coverage: Annotated[float, Field(gt=0, le=1)] = 1.0


def _section_of(value: Any) -> Any:
    return VOCABULARIES.section({"kind": "bpe", **value}) if isinstance(value, Mapping) else value


AnyPieces = Annotated[SerializeAsAny[PiecesConfig], BeforeValidator(_section_of)]


class VocabularyConfig(PiecesConfig):
    """The vocabulary of either side, or one that both share. `target`: what the target's is, where it is of its own."""

    shared: bool = False
    target: AnyPieces | None = None

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
    section = _of_both_sides(VOCABULARIES.config(str(value.get("kind", "bpe"))))
    try:
        return section.model_validate(dict(value))
    except ValidationError as error:
        raise mistakes_within(error, section) from error


AnyVocabulary = Annotated[SerializeAsAny[VocabularyConfig], BeforeValidator(_with_sides)]
