"""One side's way from a raw line to ids and back, with every piece knowing the raw characters it came from."""

from __future__ import annotations

import random
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from headway.errors import UserError
from headway.files import write_json
from headway.processing.text.normalisation import STEPS
from headway.processing.text.segmentation import SEGMENTERS
from headway.processing.text.spans import Span, align, compose, identity
from headway.processing.text.text_config import PiecesConfig, SideConfig, TextConfig, VocabularyConfig
from headway.processing.text.truncation import Truncation, encode_beginnings
from headway.processing.text.vocabularies import load_vocabulary, read_description, train_vocabulary
from headway.processing.text.vocabulary import Vocabulary

FILE = "sides.json"
SIDE_FILE = "side.json"
FORMAT = 1
# More examples cost preparation, memory and time, and move hardly any piece of a SentencePiece model.
SAMPLE = 2_000_000
Pairs = Callable[[], Iterable[tuple[str, str]]]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Piece:
    """One piece of a line: `start` and `end` are characters [start, end) of the raw line.

    `text` is the piece as the vocabulary writes it (an unknown one as it stands in the text). The white space that a
    SentencePiece mark stands for is not part of the span, unless the piece is nothing else. `word` is the number, from
    0, of the segmented word that the piece is a part of; a mark alone is a part of the word after it.
    """

    id: int
    text: str
    start: int
    end: int
    word: int


@dataclass(frozen=True)
class Words:
    """The words of a prepared line, which spaces separate: their texts, and for each piece the number of its word."""

    texts: tuple[str, ...]
    of: tuple[int, ...]


def prepare(line: str, config: SideConfig) -> str:
    """Normalise and segment a raw line."""
    for step in config.normalise:
        line = STEPS[step].apply(line, config.language)
    return SEGMENTERS[config.segment].segment(line, config.language)


def prepare_with_spans(line: str, config: SideConfig) -> tuple[str, list[Span]]:
    """`prepare`, and for each character of the result the characters [start, end) of `line` it came from."""
    text, spans = line, identity(len(line))
    for step in config.normalise:
        result = STEPS[step].apply(text, config.language)
        spans = compose(spans, STEPS[step].spans(text, result), len(line))
        text = result
    segmented = SEGMENTERS[config.segment].segment(text, config.language)
    return segmented, compose(spans, align(text, segmented), len(line))


@dataclass(frozen=True)
class Side:
    """A side's settings and its vocabulary. Can be sent to another process."""

    config: SideConfig
    vocabulary: Vocabulary

    @property
    def size(self) -> int:
        """How many pieces the vocabulary has."""
        return len(self.vocabulary)

    def name(self, line: str) -> str:
        """What a raw line is called: itself."""
        return line

    def prepare(self, line: str) -> str:
        """Normalise and segment a raw line."""
        return prepare(line, self.config)

    def encode(self, line: str) -> list[int]:
        """The ids of a raw line, without BOS and EOS; an empty list for a blank line."""
        return self.vocabulary.encode(self.prepare(line))

    def read(self, line: str, truncation: Truncation | None) -> tuple[list[int], bool]:
        """The ids of as much of a raw line as `truncation` says, and whether it has more."""
        ((ids,), (truncated,)) = encode_beginnings(self.vocabulary, [self.prepare(line)], truncation)
        return ids, truncated

    def encode_lines(self, lines: Sequence[str]) -> list[list[int]]:
        """`encode` of each line, faster for many."""
        return self.vocabulary.encode_lines([self.prepare(line) for line in lines])

    def pieces(self, line: str) -> list[Piece]:
        """The same ids as `encode`, each with its piece and its characters in the raw line."""
        prepared, spans = prepare_with_spans(line, self.config)
        ends = [found.end() for found in re.finditer(r"\S+", prepared)]
        pieces = []
        for id, text, start, end in self.vocabulary.encode_with_spans(prepared):
            first = end - len(prepared[start:end].lstrip())  # the first visible character, or what follows the mark
            word = bisect_right(ends, first)
            pieces.append(Piece(id, text, *_raw_span(prepared, spans, start, end, len(line)), word))
        return pieces

    def decode(self, ids: Sequence[int]) -> str:
        """Text as people write it; PAD, BOS and EOS are left out, UNKNOWN is written `<unk>`."""
        return SEGMENTERS[self.config.segment].detokenise(self.vocabulary.decode(ids), self.config.language)

    def words(self, ids: Sequence[int]) -> Words:
        """The words that the pieces with these ids make."""
        groups: list[list[int]] = []
        for id in ids:
            if not groups or self.vocabulary.starts_word(id):
                groups.append([])
            groups[-1].append(id)
        texts = tuple(self.vocabulary.decode(group) for group in groups)
        return Words(texts, tuple(number for number, group in enumerate(groups) for _ in group))

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The pieces with these ids, specials included."""
        return [self.vocabulary.piece(id) for id in ids]

    def seconds(self, positions: object) -> list[str]:
        """Text takes no time."""
        return []

    def same(self, other: object) -> bool:
        """Whether the other side has the same pieces."""
        if not isinstance(other, Side) or self.size != other.size:
            return False
        return self.tokens(range(self.size)) == other.tokens(range(other.size))


def _raw_span(prepared: str, spans: list[Span], start: int, end: int, length: int) -> Span:
    """The raw characters of prepared[start:end], without the spaces it begins with unless it has nothing else."""
    if start == end:
        place = spans[start][0] if start < len(spans) else length
        return place, place
    first = end - len(prepared[start:end].lstrip(" "))
    return spans[first if first < end else start][0], spans[end - 1][1]


def train_sides(text: TextConfig, vocabulary: VocabularyConfig, pairs: Pairs) -> tuple[Side, Side]:
    """Train the vocabulary of each side, or one for both where it is shared.

    SentencePiece models of larger corpora are trained on `SAMPLE` of the pairs, drawn evenly and always the same ones;
    the other kinds count the tokens of every line.

    Args:
        pairs: gives a fresh iterator over the raw pairs each time it is called; it is called once per vocabulary.

    Raises:
        UserError: as `train_vocabulary`.
    """
    if vocabulary.shared:
        lines = (
            prepare(line, config)
            for pair in _chosen(vocabulary, pairs())
            for line, config in zip(pair, (text.source, text.target), strict=True)
        )
        both = train_vocabulary(vocabulary, lines, side="text of both sides")
        return Side(text.source, both), Side(text.target, both)
    source = train_side(text.source, vocabulary, (pair[0] for pair in pairs()), "source text")
    return source, train_target(text.target, vocabulary, (pair[1] for pair in pairs()), "target text")


def train_target(config: SideConfig, vocabulary: VocabularyConfig, lines: Iterable[str], name: str) -> Side:
    """Train the vocabulary of the target, which may be of a kind and size of its own, as `train_side` does."""
    if vocabulary.target is None:
        return train_side(config, vocabulary, lines, name)
    return train_side(config, vocabulary.target, lines, name, "vocabulary.target")


def train_side(
    config: SideConfig, pieces: PiecesConfig, lines: Iterable[str], name: str, where: str = "vocabulary"
) -> Side:
    """Train the vocabulary of one side, as `train_sides` does, on raw lines.

    Args:
        name: what errors call the text.
        where: the recipe key that errors name.
    """
    prepared = (prepare(line, config) for line in _chosen(pieces, lines))
    return Side(config, train_vocabulary(pieces, prepared, where, side=name))


def _chosen(pieces: PiecesConfig, items: Iterable[Item]) -> Iterable[Item]:
    return items if pieces.kind in ("word", "whitespace") else _sample(items, SAMPLE)


def _sample(items: Iterable[Item], count: int) -> list[Item]:
    """At most `count` of the items, each with the same probability (Vitter 1985, algorithm R), always the same ones.

    SentencePiece's own sampling draws others in every process.
    """
    generator = random.Random(1)
    sample: list[Item] = []
    for number, item in enumerate(items, start=1):
        if number <= count:
            sample.append(item)
        elif (slot := generator.randrange(number)) < count:
            sample[slot] = item
    return sample


def save_side(side: Side, folder: Path) -> None:
    """Write one side, settings and vocabulary, into `folder`, which is made where it does not exist."""
    side.vocabulary.save(folder)
    write_json(folder / SIDE_FILE, {"format": FORMAT, "text": side.config.model_dump(mode="json")})


def load_side(folder: Path) -> Side:
    """Read what `save_side` wrote. Raises UserError where a file is missing, damaged or of another format."""
    description = read_description(folder / SIDE_FILE, FORMAT)
    return Side(_settings(description, "text", folder / SIDE_FILE), load_vocabulary(folder))


def save_sides(sides: tuple[Side, Side], folder: Path) -> None:
    """Write both sides, settings and vocabularies, into `folder`, which is made where it does not exist."""
    source, target = sides
    shared = source.vocabulary is target.vocabulary
    folders = ("shared",) if shared else ("source", "target")
    for name, side in zip(folders, sides, strict=False):
        side.vocabulary.save(folder / name)
    write_json(
        folder / FILE,
        {
            "format": FORMAT,
            "shared": shared,
            "source": source.config.model_dump(mode="json"),
            "target": target.config.model_dump(mode="json"),
        },
    )


def load_sides(folder: Path) -> tuple[Side, Side]:
    """Read what `save_sides` wrote; a shared vocabulary is one object again.

    Raises:
        UserError: a file is missing, damaged or of another format.
    """
    description = read_description(folder / FILE, FORMAT)
    source, target = (_settings(description, name, folder / FILE) for name in ("source", "target"))
    if description.get("shared"):
        both = load_vocabulary(folder / "shared")
        return Side(source, both), Side(target, both)
    return Side(source, load_vocabulary(folder / "source")), Side(target, load_vocabulary(folder / "target"))


def _settings(description: Mapping[str, object], name: str, file: Path) -> SideConfig:
    try:
        return SideConfig.model_validate(description.get(name))
    except ValidationError as error:
        raise UserError("the settings of the text are damaged", where=str(file)) from error
