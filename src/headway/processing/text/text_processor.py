"""The processor of text: from a raw line to ids and back, with the raw characters of every token."""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from headway.core.config import Section
from headway.core.errors import UserError, check_characters
from headway.core.files import exists, write_json
from headway.core.languages import UNDETERMINED, base_language, is_language, language_name, nearest_language
from headway.core.log import warn
from headway.core.registry import import_paths
from headway.core.storage import cache_folder, fingerprint, hashes_of, kept_folder, software
from headway.processing.processor import Encoded, Processor, Truncation, Words, encode_beginnings
from headway.processing.text.document_vocabulary import JOINT, MARK
from headway.processing.text.line_ends import on_one_line
from headway.processing.text.normalisation import PUNCTUATION_RULES, STEPS, Span, align, compose, identity
from headway.processing.text.segmentation import AnySegmenter, moses_has_rules, segmenter
from headway.processing.text.vocabulary import (
    TokensConfig,
    Vocabulary,
    VocabularyConfig,
    load_vocabulary,
    read_description,
    train_vocabulary,
)
from headway.tensors.batch import EOS, SPECIALS, UNKNOWN

FILE = "sides.json"
SIDE_FILE = "side.json"
FORMAT = 1
TWO_TEXTS = TypeAdapter(tuple[str, str])
# More examples cost time and memory, and change hardly any piece of a SentencePiece model.
SAMPLE = 2_000_000
Pairs = Callable[[], Iterable[tuple[str, str]]]
Item = TypeVar("Item")


class PreparationConfig(Section):
    """How the text of one side is prepared for the vocabulary.

    `language`: a code such as `ja` or `pt-BR`; `und` if it is not known. `clean`: all white space (a tab, U+00A0,
    U+202F, U+2009, U+3000, ...) becomes a space, text is in Unicode's form NFC, and characters that Unicode calls
    default-ignorable are removed (U+200B, U+00AD, U+2060, U+FEFF, marks of direction, variation selectors), except
    those that change their neighbours (U+200C, U+200D, the selectors of Mongolian letters, the tags of flags).
    `normalise`: further steps, in order. `segment`: the segmenter, which cuts text into words.
    """

    language: str = UNDETERMINED
    clean: bool = True
    normalise: tuple[Literal["nfkc", "punctuation", "lower"], ...] = ()
    segment: AnySegmenter = "none"

    @property
    def steps(self) -> tuple[str, ...]:
        return (*(["clean"] if self.clean else []), *self.normalise)

    def stored(self) -> dict[str, Any]:
        """The settings as JSON, without `clean` if it is off, for compatibility with older runs."""
        return self.model_dump(mode="json", exclude=None if self.clean else {"clean"})


class TextConfig(Section):
    """Preparation of both sides. `source`, `target`: the preparation of that side."""

    source: PreparationConfig = PreparationConfig()
    target: PreparationConfig = PreparationConfig()

    def stored(self) -> dict[str, Any]:
        return {"source": self.source.stored(), "target": self.target.stored()}


def check_languages(text: TextConfig) -> None:
    """Raise UserError for an unknown language code, or a missing one if language-specific rules are used."""
    for side, config in (("source", text.source), ("target", text.target)):
        if not is_language(config.language):
            what, where = f"there is no such language{nearest_language(config.language)}", f"text.{side}.language"
            raise UserError(what, where=where, received=config.language, allowed="a code such as fr or pt-BR")
        if config.segment == "moses" or "punctuation" in config.normalise:
            check_determined(text, "moses and punctuation follow rules of a language", side)


def undetermined(text: TextConfig) -> list[str]:
    return [side for side in ("source", "target") if getattr(text, side).language == UNDETERMINED]


def check_determined(text: TextConfig, why: str, *sides: str) -> None:
    """Raise UserError, naming the recipe key, if the language of one of `sides` is not known."""
    for side in undetermined(text):
        if side in sides:
            what, allowed = f"{why}, and the recipe names none", "a code such as fr, also in a run's recipe.yaml"
            raise UserError(what, where=f"text.{side}.language", received=UNDETERMINED, allowed=allowed)


def with_languages(text: TextConfig, run: TextConfig) -> TextConfig:
    """A copy of `text` with the languages of the run `run` where `text` names none."""
    known = {side: {"language": getattr(run, side).language} for side in undetermined(text)}
    return text.model_copy(update={side: getattr(text, side).model_copy(update=known[side]) for side in known})


@dataclass(frozen=True)
class TextToken:
    """A token of a line, and its characters [start, end) in the raw line.

    `text` is the token as the vocabulary writes it, or as it is spelled in the line if it is unknown. The white space
    that a SentencePiece mark represents is not part of the span, unless the token has no other characters. `word` is
    the index, from 0, of the segmented word that contains the token; a mark alone belongs to the word after it.
    """

    id: int
    text: str
    start: int
    end: int
    word: int


def normalised(line: str, config: PreparationConfig) -> str:
    """Apply the normalisation steps to a raw line, and replace characters that end a line with spaces.

    All text that a model reads passes through here or through `prepare_with_spans`. Raises UserError if it is not text.
    """
    check_characters(line)
    line = on_one_line(line)
    for step in config.steps:
        line = STEPS[step].apply(line, config.language)
    return line


def as_written(texts: Iterable[str], config: PreparationConfig) -> list[str]:
    """Normalise reference texts, with single spaces, to the form in which a model can write them."""
    return [re.sub(" +", " ", normalised(text, config)).strip(" ") for text in texts]


def prepare(line: str, config: PreparationConfig) -> str:
    """Normalise and segment a raw line. Characters that end a line become spaces; a blank line becomes empty."""
    segmented = segmenter(config.segment, config.language).segment(normalised(line, config))
    return segmented if segmented.strip() else ""


def prepare_with_spans(line: str, config: PreparationConfig) -> tuple[str, list[Span]]:
    """`prepare`, and for each character of the result the characters [start, end) of `line` that it came from."""
    check_characters(line)
    text, spans = on_one_line(line), identity(len(line))
    for step in config.steps:
        result = STEPS[step].apply(text, config.language)
        spans = compose(spans, STEPS[step].spans(text, result), len(line))
        text = result
    segmented = segmenter(config.segment, config.language).segment(text)
    if not segmented.strip():
        return "", []
    return segmented, compose(spans, align(text, segmented), len(line))


@dataclass(frozen=True)
class TextProcessor(Processor):
    """Converts lines of text to ids and back.

    Attributes:
        config: how lines are prepared for the vocabulary.
        vocabulary: the tokens.
        characters: the characters of the training texts, raw and prepared; empty if they are not known.
    """

    unit: ClassVar[str] = "tokens"
    noun: ClassVar[str] = "line"

    config: PreparationConfig
    vocabulary: Vocabulary
    characters: frozenset[str] = frozenset()

    def unseen(self, characters: Iterable[str]) -> list[str]:
        """The characters that did not occur in training, raw or prepared; none if those of training are unknown."""
        if not self.characters:
            return []
        new = [character for character in characters if character not in self.characters]
        spaces = [sign for sign in new if sign.isspace() and self.encode(f"a{sign}a") != self.encode("a a")]
        return spaces + [sign for sign in new if not self.characters.issuperset("".join(self.prepare(sign).split()))]

    @property
    def size(self) -> int:
        return len(self.vocabulary)

    def prepare(self, line: str) -> str:
        """Normalise and segment a raw line; the tags that it begins with stay unchanged.

        If the vocabulary has a separator of sentences, earlier sentences precede the line, as many as its limit allows.
        """
        tags, sentences = self._split(line)
        prepared = [prepare(text, self.config) for _, text in sentences]
        kept = self.vocabulary.within_limit([*filter(None, prepared[:-1]), prepared[-1]]) if prepared[-1] else [""]
        return "".join([*(f"{tag[0]} " for tag in tags), JOINT.join(kept)])

    def _split(self, line: str) -> tuple[list[re.Match[str]], list[tuple[int, str]]]:
        """Split a line into tags (of joined sentences, those of the last) and sentences, each with its start offset."""
        last = 0 if self.vocabulary.mark is None else line.rfind(JOINT) + 1
        sentences, start = list[tuple[int, str]](), 0
        for text in [*line[:last].split(JOINT)[:-1], line[last:]]:
            tags, rest = self.vocabulary.split_tags(text)
            sentences.append((start + len(tags), rest))
            start += len(text) + 1
        end = last + len(line[last:]) - len(sentences[-1][1])
        return list(re.compile(r"\S+").finditer(line, last, end)), sentences

    def encode(self, raw: str, truncation: Truncation | None = None) -> Encoded:
        """The ids of a raw line, without BOS and EOS; an empty list for a blank line."""
        ((ids,), (truncated,)) = encode_beginnings(self.vocabulary, [self.prepare(raw)], truncation)
        return Encoded(ids, truncated)

    def encode_lines(self, lines: Sequence[str]) -> list[list[int]]:
        return self.vocabulary.encode_lines([self.prepare(line) for line in lines])

    def encode_with_spans(self, line: str) -> list[TextToken]:
        """The tokens of a line, in the order of the ids of `encode`, with their characters in the raw line."""
        names, sentences = self._split(line)
        texts, places = list[str](), list[list[Span]]()
        for start, text in sentences:
            prepared, spans = prepare_with_spans(text, self.config)
            if prepared or start == sentences[-1][0]:
                texts.append(prepared)
                places.append([(start + begin, start + end) for begin, end in spans])
        kept = self.vocabulary.within_limit(texts)
        prepared = "".join(f"{name[0]} " for name in names) + JOINT.join(kept)
        spans = [(at, at + 1) for name in names for at in (*range(*name.span()), name.end())]
        for number, of_sentence in enumerate(places[-len(kept) :]):
            spans += [(of_sentence[0][0], of_sentence[0][0])] if number else []
            spans += of_sentence
        ends = [match.end() for match in re.finditer(r"\S+", prepared)]
        tokens = []
        for id, text, start, end in self.vocabulary.encode_with_spans(prepared):
            first = end - len(prepared[start:end].lstrip())  # the first visible character after the mark
            word = bisect_right(ends, first)
            if start == end:
                raw = (spans[start][0] if start < len(spans) else len(line),) * 2
            else:  # without leading spaces, unless there is nothing else
                first = end - len(prepared[start:end].lstrip(" "))
                raw = spans[first if first < end else start][0], spans[end - 1][1]
            tokens.append(TextToken(id, text, *raw, word))
        return tokens

    def decode(self, ids: Sequence[int]) -> str:
        """Detokenised text on one line. PAD, BOS and EOS are left out; UNKNOWN is written `<unk>`."""
        return on_one_line(segmenter(self.config.segment, self.config.language).detokenise(self.vocabulary.decode(ids)))

    def decode_words(self, ids: Sequence[int], unknown: Iterable[str]) -> str:
        """`decode` for ids of whole words, with the words `unknown` instead of unknown tokens."""
        words = iter(unknown)
        tokens = [next(words) if id == UNKNOWN else self.vocabulary.token(id) for id in ids if id > EOS]
        return on_one_line(segmenter(self.config.segment, self.config.language).detokenise(" ".join(tokens)))

    def length(self, encoded: Sequence[int]) -> int:
        return len(encoded) + 1

    def labels(self, encoded: Sequence[int], positions: Sequence[int]) -> list[str]:
        """The tokens at `positions`; the last position is that of the end-of-sentence token."""
        tokens = self.tokens([*encoded, EOS])
        return [tokens[position] for position in positions]

    def words(self, encoded: Sequence[int], raw: str | None = None) -> Words:
        """Group the ids into words, which are separated by spaces in the prepared line.

        A word with unknown tokens is spelled as in the raw line, if `raw` is given.
        """
        groups, spaces = list[list[int]](), self.vocabulary.no_text.difference(range(len(SPECIALS)))
        for id in encoded:
            if not groups or (self.vocabulary.starts_word(id) and not spaces.issuperset(groups[-1])):
                groups.append([])
            groups[-1].append(id)
        if len(groups) > 1 and spaces.issuperset(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
        mark = self.vocabulary.mark
        texts = [MARK if group == [mark] else on_one_line(self.vocabulary.decode(group)).strip(" ") for group in groups]
        if raw is not None and UNKNOWN in encoded:
            tokens = iter(self.encode_with_spans(raw))
            for index, group in enumerate(groups):
                of_word = list(islice(tokens, len(group)))
                if UNKNOWN in group:
                    texts[index] = on_one_line(raw[of_word[0].start : of_word[-1].end].strip())
        of = [index for index, group in enumerate(groups) for _ in group]
        earlier = self.after_mark(encoded)
        tags = of[earlier - 1] + 1 if earlier else sum(id >= len(self.vocabulary.untagged) for id in encoded)
        return Words(tuple(texts), tuple(of), tags)

    def after_mark(self, ids: Sequence[int]) -> int:
        """The position after the last separator of sentences in `ids`, or 0 if there is none."""
        mark = self.vocabulary.mark
        return max((place for place, id in enumerate(ids, start=1) if id == mark), default=0)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [self.vocabulary.token(id) for id in ids]

    def same(self, other: Processor) -> bool:
        """Whether both processors prepare text in the same way and have the same tokens."""
        if not isinstance(other, TextProcessor) or self.config != other.config or self.size != other.size:
            return False
        return self.tokens(range(self.size)) == other.tokens(range(other.size))

    def save(self, folder: Path) -> None:
        self.vocabulary.save(folder)
        write_json(folder / SIDE_FILE, {"format": FORMAT, "text": self.config.stored()} | _rules(self.config))

    @classmethod
    def load(cls, folder: Path) -> TextProcessor:
        description = read_description(folder / SIDE_FILE, FORMAT)
        return cls(_settings(description, "text", folder / SIDE_FILE), load_vocabulary(folder))


def train_processors(
    text: TextConfig, vocabulary: VocabularyConfig, pairs: Pairs
) -> tuple[TextProcessor, TextProcessor]:
    """Train the vocabulary of each side, or one vocabulary if it is shared.

    For larger corpora, SentencePiece models are trained on a fixed sample of `SAMPLE` pairs. The other kinds of
    vocabulary count the tokens of every line.

    Args:
        pairs: returns a fresh iterator over the raw pairs; it is called once per vocabulary.

    Raises:
        UserError: as `train_vocabulary`.
    """
    if vocabulary.shared:
        for config in [text.source, text.target][: 1 if text.source == text.target else 2]:
            _warn_without_rules(config)
        lines = (
            prepare(line, config)
            for pair in _chosen(vocabulary, pairs())
            for line, config in zip(pair, (text.source, text.target), strict=True)
        )
        both = train_vocabulary(vocabulary, lines, side="text of both sides")
        return TextProcessor(text.source, both), TextProcessor(text.target, both)
    source = train_processor(text.source, vocabulary, (pair[0] for pair in pairs()), "source text")
    return source, train_target(text.target, vocabulary, (pair[1] for pair in pairs()), "target text")


def train_target(
    config: PreparationConfig, vocabulary: VocabularyConfig, lines: Iterable[str], name: str
) -> TextProcessor:
    """Train the target vocabulary, which may have its own kind and size, as `train_processor` does."""
    if vocabulary.target is None:
        return train_processor(config, vocabulary, lines, name)
    return train_processor(config, vocabulary.target, lines, name, "vocabulary.target")


def train_processor(
    config: PreparationConfig, vocabulary: TokensConfig, lines: Iterable[str], name: str, where: str = "vocabulary"
) -> TextProcessor:
    """Train the vocabulary of one side on raw lines, as `train_processors` does.

    Args:
        name: the name of the text in error messages.
        where: the recipe key in error messages.
    """
    _warn_without_rules(config)
    prepared = (prepare(line, config) for line in _chosen(vocabulary, lines))
    return TextProcessor(config, train_vocabulary(vocabulary, prepared, where, side=name))


def _chosen(vocabulary: TokensConfig, items: Iterable[Item]) -> Iterable[Item]:
    return items if vocabulary.kind in ("word", "whitespace") else sampled(items, SAMPLE)


def sampled(items: Iterable[Item], count: int) -> list[Item]:
    """A uniform random sample of at most `count` items (Vitter 1985, algorithm R), the same in every call.

    SentencePiece's own sampling differs between processes.
    """
    generator = random.Random(1)
    sample: list[Item] = []
    for number, item in enumerate(items, start=1):
        if number <= count:
            sample.append(item)
        elif (slot := generator.randrange(number)) < count:
            sample[slot] = item
    return sample


def with_characters(processor: TextProcessor, raw: Iterable[str]) -> TextProcessor:
    """The processor with the characters of the training texts; `raw` are the characters before preparation."""
    given = frozenset(raw)
    return replace(processor, characters=given.union(*map(processor.prepare, given)))


def save_processors(processors: tuple[TextProcessor, TextProcessor], folder: Path) -> None:
    """Write the settings and vocabularies of both processors into `folder`, which is created if it does not exist."""
    source, target = processors
    shared = source.vocabulary is target.vocabulary
    folders = ("shared",) if shared else ("source", "target")
    for name, processor in zip(folders, processors, strict=False):
        processor.vocabulary.save(folder / name)
    description: dict[str, Any] = {
        "format": FORMAT,
        "shared": shared,
        "source": source.config.stored(),
        "target": target.config.stored(),
        **_rules(source.config, target.config),
    }
    characters = ["".join(sorted(processor.characters)) for processor in processors]
    if any(characters):  # unknown in older runs, whose files stay unchanged
        description["characters"] = characters
    write_json(folder / FILE, description)


def load_processors(folder: Path) -> tuple[TextProcessor, TextProcessor]:
    """Load the processors that `save_processors` wrote. A shared vocabulary is again one object.

    Raises:
        UserError: a file is missing, damaged or of another format.
    """
    description = read_description(folder / FILE, FORMAT)
    source, target = (_settings(description, name, folder / FILE) for name in ("source", "target"))
    characters = description.get("characters", ["", ""])
    try:
        known = [frozenset(text) for text in TWO_TEXTS.validate_python(characters)]
    except ValidationError as error:
        raise UserError("the characters of training are damaged", where=str(folder / FILE)) from error
    if description.get("shared"):
        first = second = load_vocabulary(folder / "shared")
    else:
        first, second = load_vocabulary(folder / "source"), load_vocabulary(folder / "target")
    return TextProcessor(source, first, known[0]), TextProcessor(target, second, known[1])


def _rules(*sides: PreparationConfig) -> dict[str, Any]:
    """A note that codes such as `fr-FR` use the rules of their base language, which older runs did not."""
    rules = [base_language(config.language) for config in sides]
    return {} if rules == [config.language for config in sides] else {"rules": rules}


def _settings(description: Mapping[str, object], name: str, file: Path) -> PreparationConfig:
    """Read the stored settings of a side. A code that had no rules when its text was prepared still has none."""
    try:
        stored = description.get(name)
        config = PreparationConfig.model_validate({"clean": False, **stored} if isinstance(stored, dict) else stored)
    except ValidationError as error:
        raise UserError("the settings of the text are damaged", where=str(file)) from error
    by_rules = config.segment == "moses" or "punctuation" in config.normalise
    if "rules" in description or not _rules(config) or not by_rules:
        return config
    return config.model_copy(update={"language": UNDETERMINED})


def _warn_without_rules(config: PreparationConfig) -> None:
    """Warn if a side is to be prepared by language-specific rules, but its language has none."""
    code = base_language(config.language)
    for step, has_rules in (
        ("moses", config.segment != "moses" or moses_has_rules(code)),
        ("punctuation", "punctuation" not in config.normalise or code in PUNCTUATION_RULES),
    ):
        if not has_rules:
            name = f"{language_name(code)} ({config.language})"
            warn(f"text: {step} has no rules for {name}; general ones and those of English are used")


Made = TypeVar("Made")


def trained_once(
    made_of: Any, train: Callable[[], Made], save: Callable[[Made, Path], object], load: Callable[[Path], Made]
) -> Made:
    """Load processors from the cache if the same ones were trained before; otherwise train and cache them.

    Args:
        made_of: everything that determines the processors, as JSON: hashes of texts, and options. The software version
            and the content of files named in options are added. Options that name external code disable the cache.
        train: makes the processors.
        save: writes them into a folder.
        load: reads them from a folder.
    """
    if import_paths(made_of):
        return train()
    files = sorted({text for text in _texts(made_of) if exists(Path(text), "file")})
    key = fingerprint([software(), made_of, hashes_of([Path(name) for name in files])])
    return kept_folder(cache_folder() / "vocabularies" / key, lambda folder: save(train(), folder), load)


def _texts(tree: Any) -> Iterator[str]:
    """All strings in a JSON value, at any depth."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict | list | tuple):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from _texts(value)


class Labeller(ABC):
    """Labels the tokens of one side of a corpus, or links the tokens of both sides. Labellers can be pickled.

    Attributes:
        name: the name of the labels.
        side: 0 for the source, 1 for the target, None for links.
        counted: the names of the counts per line, for the report.
    """

    name: str
    side: int | None
    counted: ClassVar[tuple[str, ...]]

    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of everything that determines the labels of a line, besides the line and the side."""

    @abstractmethod
    def label(
        self, texts: tuple[str, str], sides: tuple[TextProcessor, TextProcessor]
    ) -> tuple[NDArray[np.integer], Sequence[int]]:
        """The labels of a raw pair, and the value of each count in `counted`.

        Labels are (L,), one per token of the side, with -1 for none; or `links` (N, 3) as in batches.
        """

    @abstractmethod
    def check(self, counts: Mapping[str, int]) -> None:
        """Warn about lines without labels, judging by the total counts. Raises UserError if no line has labels."""
