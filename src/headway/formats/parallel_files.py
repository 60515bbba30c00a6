"""Line-aligned files: sources with their targets, or with several references."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Self, cast

from pydantic import model_validator

from headway.errors import UserError
from headway.formats.corpus_config import CorpusConfig
from headway.formats.corpus_format import ERRORS, PAIRS, CorpusFormat, Labelled, Pair, PairSource
from headway.formats.edits import wrong_words
from headway.formats.lines import read_rows
from headway.formats.row_errors import RowErrors
from headway.log import counted

MOST_COMPARISONS = 4_000_000  # of words of a line with those of its correction


class ParallelFiles(PairSource):
    """A file of sources and one or more of references; line n of the one belongs to line n of the others."""

    def __init__(self, source: Path, *references: Path) -> None:
        super().__init__(" and ".join(map(str, (source, *references))), (source, *references))

    def rows(self) -> Iterator[Pair | UserError]:
        streams = [read_rows(path) for path in self.files]
        for line, texts in enumerate(zip_longest(*streams), start=1):
            if None in texts:
                raise self._uneven(line, texts, streams)
            error = next((text for text in texts if isinstance(text, UserError)), None)
            yield error or Pair.of(line, cast(tuple[str, ...], texts))

    def _uneven(
        self, line: int, texts: Sequence[str | UserError | None], streams: Sequence[Iterator[str | UserError]]
    ) -> UserError:
        counts = [
            line - 1 if text is None else line + sum(1 for _ in rest) for text, rest in zip(texts, streams, strict=True)
        ]
        named = zip(self.files, counts, strict=True)
        received = ", ".join(f"{path} has {counted(count, 'line')}" for path, count in named)
        longer = self.files[counts.index(max(counts))]
        return UserError(f"this line has no partner: {received}", where=f"{longer}:{line}")


class ParallelLines(CorpusFormat):
    """Line-aligned files. With corrections as `references`, a source says which words are wrong."""

    class Config(CorpusConfig):
        """A `source` and its `target`, or `references` in its place, of which training learns the first.

        Files may be compressed (.gz, .xz).
        """

        source: Path | None = None
        target: Path | None = None
        references: tuple[Path, ...] = ()

        @model_validator(mode="after")
        def _complete(self) -> Self:
            if self.source is None or (self.target is None) != bool(self.references):
                raise ValueError("a corpus of several files needs a source, and a target or references")
            return self

    config: Config
    products = (PAIRS, ERRORS)

    @property
    def source(self) -> Path:
        """The file of sources."""
        assert self.config.source is not None
        return self.config.source

    @property
    def references(self) -> tuple[Path, ...]:
        """The files of targets, or corrections."""
        return (self.config.target,) if self.config.target is not None else self.config.references

    def pairs(self) -> PairSource:
        return ParallelFiles(self.source, *self.references)

    def labelled(self, labels: Sequence[str] | None) -> list[Labelled]:
        return list(read_corrections(self.source, self.references, self.row_errors))

    def annotations(self, side: str) -> Path:
        return self.source if side == "source" else self.references[0]


def read_corrections(source: Path, references: Sequence[Path], row_errors: RowErrors) -> Iterator[Labelled]:
    """Lines of words with their corrections, one labelling from each reference (see `wrong_words`); no blank lines.

    A blank correction beside others is none. Its labels are those of the first that has words.

    Raises:
        UserError: files with different numbers of lines; a line that is not UTF-8, or that is too long to be compared,
            unless `row_errors` leaves it out.
    """
    for row in ParallelFiles(source, *references).rows():
        if isinstance(row, UserError):
            row_errors.add(row)
            continue
        words, others = tuple(row.source.split()), [text.split() for text in row.references]
        first = next((other for other in others if other), [])
        others = [other or first for other in others]
        if len(words) * max(map(len, others)) > MOST_COMPARISONS:
            what, received = "these words are too many to be compared", f"{len(words)} and {max(map(len, others))}"
            row_errors.add(UserError(what, where=f"{source}:{row.line}", received=received))
        elif words:
            yield Labelled(row.line, words, tuple(tuple(wrong_words(words, other)) for other in others))
