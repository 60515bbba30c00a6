"""Vocabularies: trained from prepared lines, stored in a folder that says what kind it holds."""

from collections.abc import Iterable
from pathlib import Path

from headway.documents import read_json
from headway.errors import UserError
from headway.processing import VOCABULARIES
from headway.processing.text.vocabulary import DESCRIPTION, FORMAT, TokensConfig, Vocabulary
from headway.registry import is_foreign, names_of_a_run


def train_vocabulary(
    config: TokensConfig, segmented_lines: Iterable[str], where: str = "vocabulary", side: str = "training text"
) -> Vocabulary:
    """Train a vocabulary on prepared lines.

    Args:
        where: the recipe key that errors name.
        side: what errors call the text.

    Raises:
        UserError: the text is empty, or a setting does not fit it or the kind.
    """
    return VOCABULARIES.get(config.kind, f"{where}.kind").train(config, segmented_lines, where, side)


def load_vocabulary(folder: Path) -> Vocabulary:
    """Read what `Vocabulary.save` wrote.

    Raises:
        UserError: a file is missing, damaged or of another format.
    """
    description = read_description(folder / DESCRIPTION, FORMAT)
    vocabulary = _family(str(description.get("family")), str(folder / DESCRIPTION)).load(folder)
    if len(vocabulary) != description.get("size"):
        raise UserError(
            "the vocabulary is not the one that was saved: its size differs", where=str(folder),
            received=len(vocabulary), allowed=str(description.get("size")),
        )  # fmt: skip
    return vocabulary


def _family(name: str, where: str) -> type[Vocabulary]:
    """The class of a stored vocabulary. Raises UserError, also for foreign code where none is allowed."""
    if is_foreign(name):
        with names_of_a_run():
            return VOCABULARIES.get(name, where)
    known = {VOCABULARIES.get(kind).family: VOCABULARIES.get(kind) for kind in VOCABULARIES}
    if name not in known:
        raise UserError("an unknown family of vocabularies", where=where, received=name, allowed=known)
    return known[name]


def read_description(path: Path, version: int) -> dict[str, object]:
    """A JSON object with the format number `version`.

    Raises:
        UserError: it is missing, damaged or of another format.
    """
    if not path.is_file():
        raise UserError("the vocabulary's description is missing", where=str(path))
    description: dict[str, object] = read_json(path, what="vocabulary's description")
    if description.get("format") != version:
        received = description.get("format")
        raise UserError(
            "a format that this headway does not read", where=str(path), received=received, allowed=str(version)
        )
    return description
