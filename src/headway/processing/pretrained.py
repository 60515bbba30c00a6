"""The processors of a tagger: words as subword tokens of a pretrained encoder, and their labels."""

from __future__ import annotations

import importlib.util
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from pydantic import TypeAdapter

from headway.core.documents import read_json, shaped
from headway.core.errors import HeadwayError, UserError, check_characters, is_out_of_memory, not_installed
from headway.core.files import exists, write_json
from headway.processing.hub import check_on_hub, files_of_bounded_size
from headway.processing.processor import Encoded, Processor, Truncation

LABELS = "labels.json"
PACKAGE = "package:"
UNHEARD_OF = "\U00012031\ua66e"
PANIC = "PanicException"  # raised by Rust code in tokenizers; not a subclass of Exception
LIST_OF_LABELS = TypeAdapter(list[str])


class Window(NamedTuple):
    """Consecutive words of a sentence, tokenized for the encoder.

    Attributes:
        sentence: the index of the sentence.
        start: the index of the window's first word in the sentence.
        ids: the token ids, including the encoder's special tokens.
        first: for each word, the position of its first token in `ids`.
    """

    sentence: int
    start: int
    ids: tuple[int, ...]
    first: tuple[int, ...]


@contextmanager
def transformers_quiet(where: str | None = None) -> Iterator[Any]:
    """Import transformers without progress bars and notices. Raises UserError, at `where`, if it is not installed."""
    try:
        import transformers
    except ImportError as error:
        raise not_installed("this", ["transformers"], "pretrained", where) from error
    logging: Any = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield transformers
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def loading(part: str, received: str, where: str = "model.encoder") -> Iterator[Any]:
    """A context for loading files with transformers. Raises UserError, with the library's message, if loading fails.

    Args:
        part: the object to load, as in `this encoder`.
        received: its name or folder.
        where: the option that names it.
    """
    with transformers_quiet(where) as transformers, files_of_bounded_size():
        try:
            yield transformers
        except (HeadwayError, MemoryError):
            raise
        except BaseException as error:  # the library can raise anything for files from elsewhere
            if is_out_of_memory(error) or not (isinstance(error, Exception) or type(error).__name__ == PANIC):
                raise
            first = next(iter(str(error).splitlines()), "")
            known = isinstance(error, OSError | ValueError)
            raise UserError(
                f"cannot load {part} ({first if known else f'{type(error).__name__}: {first}'})",
                where=where,
                received=received,
                allowed="a Hugging Face name or folder",
            ) from error


def encoder_location(name: str) -> str:
    """The location of an encoder: a name, a folder, or `package:NAME/FOLDER` in an installed Python package.

    Raises:
        UserError: there is no such package, folder or repository.
        RunError: the hub does not answer.
    """
    if not name.startswith(PACKAGE):
        if not exists(Path(name), "folder"):
            with transformers_quiet("model.encoder"):
                check_on_hub(name, "model.encoder")
        return name
    package, _, folder = name.removeprefix(PACKAGE).partition("/")
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise UserError("this package is not installed", where="model.encoder", received=package)
    return str(Path(next(iter(spec.submodule_search_locations))) / folder)


class WordProcessor(Processor):
    """Encodes sentences, split into words, with the tokenizer of a pretrained encoder.

    Args:
        tokenizer: a fast tokenizer of Hugging Face.
        location: the name or folder that the tokenizer and the encoder's configuration are read from.

    Attributes:
        special_tokens: the ids before and after every sentence.
    """

    unit: ClassVar[str] = "tokens"
    noun: ClassVar[str] = "sentence"

    def __init__(self, tokenizer: Any, location: str) -> None:
        self.tokenizer, self.location = tokenizer, location
        # Encode characters that hardly any tokenizer knows, to see whether it uses its unknown token.
        encoded = tokenizer(["a", UNHEARD_OF], is_split_into_words=True)
        ids, words = encoded["input_ids"], encoded.word_ids()
        real = [position for position, word in enumerate(words) if word is not None]
        self.special_tokens = tuple(ids[: real[0]]), tuple(ids[real[-1] + 1 :])

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load the tokenizer of a Hugging Face name or folder, without running any of its code.

        Raises:
            UserError: there is no tokenizer, its settings are damaged, or it needs code of its repository.
        """
        location = str(folder)
        with loading("this encoder's tokenizer", location) as transformers:
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                location, add_prefix_space=True, trust_remote_code=False
            )
            code = tokenizer.init_kwargs.get("auto_map")
            if code:  # the library has loaded another class instead, whose tokens may differ
                raise UserError("this tokenizer needs code that comes with it, which is never executed",
                                where="model.encoder", received=code)  # fmt: skip
            return cls(tokenizer, location)

    def save(self, folder: Path) -> None:
        self.tokenizer.save_pretrained(str(folder))

    @property
    def size(self) -> int:
        return len(self.tokenizer)

    def encode(self, raw: str | Sequence[str], truncation: Truncation | None = None) -> Encoded:
        """Encode a sentence into one window with all of its words. The words of a text are separated by white space."""
        assert truncation is None
        words = raw.split() if isinstance(raw, str) else raw
        before, after = self.special_tokens
        ids = self.word_ids(words)
        first = [len(before) + sum(map(len, ids[:index])) for index in range(len(words))]
        return Encoded(Window(0, 0, (*before, *chain.from_iterable(ids), *after), tuple(first)))

    def length(self, encoded: Window) -> int:
        return len(encoded.ids)

    def labels(self, encoded: Window, positions: Sequence[int]) -> list[str]:
        return self.tokens([encoded.ids[position] for position in positions])

    def same(self, other: Processor) -> bool:
        return isinstance(other, WordProcessor) and self.tokenizer.get_vocab() == other.tokenizer.get_vocab()

    @property
    def padding(self) -> int:
        return self.tokenizer.pad_token_id or 0

    def word_ids(self, words: Sequence[str]) -> list[list[int]]:
        """The ids of each word, at least one: a word that the tokenizer drops becomes the unknown token."""
        result: list[list[int]] = [[] for _ in words]
        check_characters(" ".join(words))
        if words:
            # Not verbose: sentences that exceed the encoder's maximum length are split into windows.
            encoded = self.tokenizer(list(words), is_split_into_words=True, add_special_tokens=False, verbose=False)
            for id, word in zip(encoded["input_ids"], encoded.word_ids(), strict=True):
                result[word].append(id)
        unknown = self.tokenizer.unk_token_id
        return [ids or [self.padding if unknown is None else unknown] for ids in result]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return list(map(str, self.tokenizer.convert_ids_to_tokens(list(ids))))

    def windows(self, words: Sequence[str], longest: int, sentence: int = 0) -> list[Window]:
        """Split a sentence into as few windows of at most `longest` tokens as possible; every word is in one window.

        The windows of a sentence have about the same length. A word that is longer than a window is truncated.

        Raises:
            UserError: `longest` leaves no room for a token beside the special tokens.
        """
        before, after = self.special_tokens
        room = longest - len(before) - len(after)
        if room < 1:
            what, allowed = "a sentence of so many tokens has no room for a word", f"{1 + longest - room} or more"
            raise UserError(what, where="data.max_length", received=longest, allowed=allowed)
        words_ids = [ids[:room] for ids in self.word_ids(words)]
        windows, start = list[Window](), 0
        for end in _cuts([len(ids) for ids in words_ids], room):
            ids, first = list(before), list[int]()
            for word in words_ids[start:end]:
                first.append(len(ids))
                ids += word
            windows.append(Window(sentence, start, (*ids, *after), tuple(first)))
            start = end
        return windows


def _cuts(lengths: Sequence[int], room: int) -> list[int]:
    """The ends of as few windows of `room` tokens as possible, with the longest as short as possible.

    No word exceeds `room`.
    """
    if not lengths:
        return []
    fewest = len(_filled(lengths, room))
    if fewest == 1:
        return [len(lengths)]
    shortest = bisect_left(range(room), True, lo=max(lengths), key=lambda share: len(_filled(lengths, share)) <= fewest)
    return _filled(lengths, shortest)


def _filled(lengths: Sequence[int], room: int) -> list[int]:
    """The end indices of windows that are filled greedily, each with as many words as fit into `room` tokens."""
    cuts, filled = list[int](), 0
    for index, length in enumerate(lengths):
        if filled + length > room:
            cuts.append(index)
            filled = 0
        filled += length
    return [*cuts, len(lengths)]


class LabelProcessor(Processor):
    """Encodes labels of words: a line has one label per word, separated by spaces.

    Args:
        names: the V labels, in the order of their ids.
    """

    unit: ClassVar[str] = "labels"
    noun: ClassVar[str] = "line of labels"

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    @property
    def size(self) -> int:
        return len(self.names)

    def encode(self, raw: str | Sequence[str], truncation: Truncation | None = None) -> Encoded:
        """The label ids of a line. Raises UserError for an unknown label."""
        assert truncation is None
        given = raw.split() if isinstance(raw, str) else raw
        if unknown := [label for label in given if label not in self.names]:
            raise UserError("there is no such label", received=unknown[0], allowed=self.names)
        return Encoded([self.names.index(label) for label in given])

    def length(self, encoded: Sequence[int]) -> int:
        return len(encoded)

    def labels(self, encoded: Sequence[int], positions: Sequence[int]) -> list[str]:
        return [self.names[encoded[position]] for position in positions]

    def same(self, other: Processor) -> bool:
        return isinstance(other, LabelProcessor) and self.names == other.names

    def save(self, folder: Path) -> None:
        write_json(folder / LABELS, list(self.names))

    @classmethod
    def load(cls, folder: Path) -> Self:
        file = folder / LABELS
        names: list[str] = shaped(read_json(file, list), LIST_OF_LABELS, str(file))
        if any(name.split() != [name] or not name.isprintable() for name in names):
            raise UserError("a label is one word of printable characters", where=str(file), received=names)
        return cls(names)
