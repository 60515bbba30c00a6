"""Count the inputs that training has not prepared a model for, such as unknown tokens, and warn about them once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from headway.core.log import counted, warn
from headway.corpora.data_checks import described
from headway.formats.corpus_config import TAGS, parts
from headway.formats.lines import row_kind
from headway.predictors.predictor import Run
from headway.processing.processor import Encoded
from headway.processing.text.text_processor import TextProcessor
from headway.processing.text.vocabulary import Vocabulary, WordVocabulary
from headway.tensors.batch import UNKNOWN

SHOWN = 5  # inputs that a warning names
INPUT, TARGETS = "input", "targets"
_BEGINS_WITH_TAG = re.compile(rf"\s*({TAGS.pattern})(?:\s|$)")


class InputAccount:
    """Counts of the inputs and forced targets that a predictor has read. A side is `INPUT` or `TARGETS`.

    Attributes:
        lines: the number of inputs.
        amiss: the number of inputs with a problem, by its description; `first` has their first names.
        characters: by side, the characters that training has not seen.
        tokens: by side, the number of tokens.
        unknown: by side, the number of unknown tokens.
        nouns: by side, the noun for a token in messages.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.amiss, self.first = Counter[str](), dict[str, list[str]]()
        self.characters, self.nouns = dict[str, Counter[str]](), dict[str, str]()
        self.tokens, self.unknown = Counter[str](), Counter[str]()

    def read_inputs(self, run: Run, inputs: Sequence[Any], encoded: Sequence[Encoded], first_line: int = 1) -> None:
        """Count inputs of a run, texts or recordings. `first_line` is the number of the first one."""
        self.lines += len(inputs)
        if isinstance(run.source, TextProcessor):
            self.read_texts(INPUT, run.source, inputs, [source.values for source in encoded])
            self._read_lines(run, run.source.vocabulary, inputs, first_line)
            return
        for raw, source in zip(inputs, encoded, strict=True):
            if source.silent:
                self._note("have no sound: all their samples are alike", run.source.name(raw))

    def _read_lines(self, run: Run, vocabulary: Vocabulary, texts: Sequence[str], first_line: int) -> None:
        """Count texts with unknown or missing tags, and texts that look like rows of a table."""
        tags = ", ".join(vocabulary.tags)
        always = tags and all(corpus.tag for _, corpus in parts(run.recipe.data.train, "data.train"))
        for number, text in enumerate(texts, start=first_line):
            if (kind := row_kind(text)) is not None:
                self._note(f"are {kind}, and are read as texts", f"line {number}")
            if tags and text.strip():
                known, rest = vocabulary.split_tags(text)
                if always and not known:
                    self._note(f"have none of the tags that all sources of training have ({tags})", f"line {number}")
                if other := _BEGINS_WITH_TAG.match(rest):
                    self._note(f"have a tag that training did not have ({tags})", f"line {number}: {other[1]}")

    def _note(self, what: str, which: str) -> None:
        self.amiss[what] += 1
        if self.amiss[what] <= SHOWN:
            self.first.setdefault(what, []).append(which)

    def read_texts(
        self, side: str, processor: TextProcessor, texts: Sequence[str], values: Sequence[Sequence[int]]
    ) -> None:
        """Count the texts of a side, with their ids."""
        vocabulary, read = processor.vocabulary, Counter[str]()
        for text in texts:
            read.update(vocabulary.split_tags(text)[1])
        counts = self.characters.setdefault(side, Counter())
        counts.update({character: read[character] for character in processor.unseen(read)})
        self.nouns[side] = "word" if isinstance(vocabulary.untagged, WordVocabulary) else "token"
        for ids in values:
            self.tokens[side] += len(ids)
            self.unknown[side] += sum(id == UNKNOWN for id in ids)

    def tell(self) -> None:
        """Log a warning for each kind of problem."""
        for what, count in self.amiss.items():
            more = ", ..." if count > SHOWN else ""
            warn(f"{count:,} of {self.lines:,} inputs {what} ({', '.join(self.first[what])}{more})")
        for side, verb in ((INPUT, "has"), (TARGETS, "have")):
            if counts := self.characters.get(side):
                warn(f"the {side} {verb} {described(counts)}")
            if count := self.unknown[side]:
                found = counted(count, f"unknown {self.nouns[side]}")
                warn(f"the {side} {verb} {found} of {self.tokens[side]:,}, all read as the same one")


_account: ContextVar[InputAccount | None] = ContextVar("_account", default=None)


@contextmanager
def accounted(account: InputAccount | None = None) -> Iterator[InputAccount]:
    """The account that predictors use within this context.

    It is `account` if one is passed, or the account of the surrounding context. Otherwise it is a new account, whose
    warnings are logged at the end.
    """
    is_new = account is None and _account.get() is None
    current = account or _account.get() or InputAccount()
    token = _account.set(current)
    try:
        yield current
    finally:
        _account.reset(token)
    if is_new:
        current.tell()
