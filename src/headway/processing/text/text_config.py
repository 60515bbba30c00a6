"""The `text` and `vocabulary` sections of a recipe."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from headway.config import Section


class PreparationConfig(Section):
    """How the text of one side is prepared before the vocabulary cuts it into pieces."""

    language: str = "en"
    normalise: tuple[Literal["nfkc", "punctuation", "lower"], ...] = ()
    segment: Literal["none", "whitespace", "moses"] = "none"


class TextConfig(Section):
    """Preparation of both sides."""

    source: PreparationConfig = PreparationConfig()
    target: PreparationConfig = PreparationConfig()


class PiecesConfig(Section):
    """The pieces of text: their kind and number (with the four special symbols).

    `bpe`, `unigram` and `char` are SentencePiece models; `word` keeps the most frequent segmented tokens; `whitespace`
    keeps every token that whitespace separates and gives it back unchanged. `size` does not bind `char`/`whitespace`.
    """

    kind: Literal["bpe", "unigram", "char", "word", "whitespace"] = "bpe"
    size: Annotated[int, Field(gt=4)] = 8000
    min_frequency: PositiveInt = 1
    character_coverage: Annotated[float, Field(gt=0, le=1)] = 1.0


class VocabularyConfig(PiecesConfig):
    """The vocabulary of either side, or one that both share. `target`: what the target's is, where it is of its own."""

    shared: bool = False
    target: PiecesConfig | None = None

    @model_validator(mode="after")
    def _one_or_two(self) -> VocabularyConfig:
        if self.shared and self.target:
            raise ValueError("a shared vocabulary has no target of its own")
        return self
