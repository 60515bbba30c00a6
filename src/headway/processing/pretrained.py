"""Words in the pieces of a pretrained encoder's tokenizer, cut into windows that the encoder can read."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from headway.errors import UserError

PACKAGE = "package:"


class Window(NamedTuple):
    """Some consecutive words of a sentence as the encoder reads them.

    Attributes:
        sentence: which one.
        start: the first word's place in it.
        ids: the pieces, with the encoder's marks around them.
        first: for each word, the place of its first piece in `ids`.
    """

    sentence: int
    start: int
    ids: tuple[int, ...]
    first: tuple[int, ...]


@contextmanager
def transformers_quiet() -> Iterator[Any]:
    """The library, without its progress bars and notices. Raises UserError where it is not installed."""
    try:
        import transformers
    except ImportError as error:
        message = "pretrained encoders need a package that is not installed: pip install 'headway[pretrained]'"
        raise UserError(message, where="model.encoder") from error
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


def encoder_place(name: str) -> str:
    """What Hugging Face loads: a name, a folder, or `package:NAME/FOLDER` in an installed Python package.

    Raises:
        UserError: there is no such package or folder.
    """
    if not name.startswith(PACKAGE):
        return name
    package, _, folder = name.removeprefix(PACKAGE).partition("/")
    found = importlib.util.find_spec(package) if package.isidentifier() else None
    if found is None or not found.submodule_search_locations:
        raise UserError("this package is not installed", where="model.encoder", received=package)
    place = Path(next(iter(found.submodule_search_locations))) / folder
    if not place.is_dir():
        raise UserError("the package has no such folder", where="model.encoder", received=name)
    return str(place)


class WordPieces:
    """A pretrained encoder's tokenizer, given sentences that are cut into words already."""

    def __init__(self, tokenizer: Any) -> None:
        if not tokenizer.is_fast:
            raise UserError("this tokenizer cannot tell which pieces are whose word's", where="model.encoder",
                            received=type(tokenizer).__name__, allowed="a fast tokenizer")  # fmt: skip
        self.tokenizer = tokenizer

    @classmethod
    def load(cls, place: str) -> WordPieces:
        """The tokenizer of a Hugging Face name or folder. Raises UserError where there is none."""
        with transformers_quiet() as transformers:
            try:
                return cls(transformers.AutoTokenizer.from_pretrained(place, add_prefix_space=True))
            except (OSError, ValueError) as error:
                raise UserError(
                    f"cannot load this encoder's tokenizer ({str(error).splitlines()[0]})",
                    where="model.encoder", received=place, allowed="a Hugging Face name or folder",
                ) from error  # fmt: skip

    def save(self, folder: Path) -> None:
        """Write all that `load` needs into `folder`."""
        self.tokenizer.save_pretrained(str(folder))

    @property
    def padding(self) -> int:
        """The id that fills shorter rows."""
        return self.tokenizer.pad_token_id or 0

    @property
    def longest(self) -> int:
        """The most pieces, marks included, that the tokenizer says its encoder reads; huge where it does not say."""
        return int(self.tokenizer.model_max_length)

    @cached_property
    def marks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids that stand before and after every sentence."""
        encoded = self.tokenizer(["a"], is_split_into_words=True)
        ids, words = encoded["input_ids"], encoded.word_ids()
        real = [place for place, word in enumerate(words) if word is not None]
        return tuple(ids[: real[0]]), tuple(ids[real[-1] + 1 :])

    def pieces(self, words: Sequence[str]) -> list[list[int]]:
        """The ids of each word, one at least: a word that the tokenizer drops becomes the unknown piece."""
        result: list[list[int]] = [[] for _ in words]
        if words:
            encoded = self.tokenizer(list(words), is_split_into_words=True, add_special_tokens=False)
            for id, word in zip(encoded["input_ids"], encoded.word_ids(), strict=True):
                result[word].append(id)
        unknown = self.tokenizer.unk_token_id
        return [ids or [self.padding if unknown is None else unknown] for ids in result]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The pieces with these ids, marks included."""
        return list(map(str, self.tokenizer.convert_ids_to_tokens(list(ids))))

    def windows(self, words: Sequence[str], longest: int, sentence: int = 0) -> list[Window]:
        """A sentence in as few windows of at most `longest` pieces, marks included, as it takes; every word in one.

        Windows of a sentence that takes several are about equally long; of a word that is longer than a window, the
        beginning is read.
        """
        before, after = self.marks
        room = longest - len(before) - len(after)
        assert room > 0
        pieces = [ids[:room] for ids in self.pieces(words)]
        windows, start = list[Window](), 0
        for end in _cuts([len(ids) for ids in pieces], room):
            ids, first = list(before), list[int]()
            for word in pieces[start:end]:
                first.append(len(ids))
                ids += word
            windows.append(Window(sentence, start, (*ids, *after), tuple(first)))
            start = end
        return windows


def _cuts(lengths: Sequence[int], room: int) -> list[int]:
    """Where windows end, so that none is longer than `room` and all are about equally long."""
    if not lengths:
        return []
    total = sum(lengths)
    share = -(-total // -(-total // room))
    cuts, filled = list[int](), 0
    for place, length in enumerate(lengths):
        if filled and (filled >= share or filled + length > room):
            cuts.append(place)
            filled = 0
        filled += length
    return [*cuts, len(lengths)]
