"""Vocabularies: trained from prepared lines, stored in a folder that says what kind it holds."""

import json
from collections.abc import Iterable
from pathlib import Path

from headway.errors import UserError
from headway.processing.text.subwords import SubwordVocabulary
from headway.processing.text.vocabulary import DESCRIPTION, FORMAT, PiecesConfig, Vocabulary
from headway.processing.text.word_vocabulary import WordVocabulary
from headway.tensors.batch import SPECIALS

FAMILIES: dict[str, type[Vocabulary]] = {family.family: family for family in (SubwordVocabulary, WordVocabulary)}


def train_vocabulary(
    config: PiecesConfig, segmented_lines: Iterable[str], where: str = "vocabulary", side: str = "training text"
) -> Vocabulary:
    """Train a vocabulary on prepared lines.

    Args:
        where: the recipe key that errors name.
        side: what errors call the text.

    Raises:
        UserError: the text is empty, or a setting does not fit it or the kind.
    """
    if config.min_frequency > 1 and config.kind != "word":
        raise UserError(
            f"a {config.kind} vocabulary has no smallest frequency", where=f"{where}.min_frequency",
            received=config.min_frequency, allowed="1, or kind: word",
        )  # fmt: skip
    if config.kind in ("word", "whitespace"):
        if config.character_coverage < 1:
            raise UserError(
                f"a {config.kind} vocabulary has no character coverage", where=f"{where}.character_coverage",
                received=config.character_coverage, allowed="1.0, or kind: bpe, unigram or char",
            )  # fmt: skip
        size = config.size if config.kind == "word" else None
        words = WordVocabulary.train(segmented_lines, size=size, min_frequency=config.min_frequency)
        if len(words) == len(SPECIALS):
            raise UserError(f"the {side} has no token that often: nothing to make a vocabulary of", where=where)
        return words
    return SubwordVocabulary.train(config, segmented_lines, where, side)


def load_vocabulary(folder: Path) -> Vocabulary:
    """Read what `Vocabulary.save` wrote.

    Raises:
        UserError: a file is missing, damaged or of another format.
    """
    description = read_description(folder / DESCRIPTION, FORMAT)
    family = FAMILIES.get(str(description.get("family")))
    if family is None:
        raise UserError(
            "an unknown family of vocabularies", where=str(folder / DESCRIPTION), received=description.get("family"),
            allowed=FAMILIES,
        )  # fmt: skip
    vocabulary = family.load(folder)
    if len(vocabulary) != description.get("size"):
        raise UserError(
            "the vocabulary is not the one that was saved: its size differs", where=str(folder),
            received=len(vocabulary), allowed=str(description.get("size")),
        )  # fmt: skip
    return vocabulary


def read_description(path: Path, version: int) -> dict[str, object]:
    """A JSON object with the format number `version`.

    Raises:
        UserError: it is missing, damaged or of another format.
    """
    try:
        description = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError("the vocabulary's description is missing", where=str(path)) from None
    except ValueError:
        raise UserError("the vocabulary's description is damaged: not JSON", where=str(path)) from None
    if not isinstance(description, dict) or description.get("format") != version:
        received = description.get("format") if isinstance(description, dict) else type(description).__name__
        raise UserError(
            "a format that this headway does not read", where=str(path), received=received, allowed=str(version)
        )
    return description
