"""Corpora of pairs: concatenation, tags and terms, and opening the corpora of a recipe."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from headway.core.errors import UserError
from headway.formats.corpus_config import GivenCorpus
from headway.formats.corpus_format import PAIRS, Broken, Pair, PairSource, RowErrors, content_hash, open_corpora
from headway.formats.terms import Glossary

__all__ = [
    "Concatenation",
    "Pair",
    "PairSource",
    "Side",
    "SideLines",
    "check_references",
    "check_sides",
    "joined",
    "open_source",
]

Side = Literal["source", "target"]
TERM_SHARE = 0.5  # share of the pairs with terms: if all were annotated, the model would depend on annotations


class Concatenation(PairSource):
    """Several sources, one after the other, with lines counted across all of them.

    With `apart`, a blank pair, which has no line of its own, separates them.
    """

    def __init__(self, sources: Sequence[PairSource], apart: bool = False) -> None:
        self.sources, self.apart = tuple(sources), apart
        self._ends: list[int] = []
        files = [path for source in sources for path in source.files]
        super().__init__(" and ".join(source.name for source in sources), files)

    @property
    def source_is_text(self) -> bool:  # type: ignore[override]  # depends on the sources
        return self.sources[0].source_is_text

    def rows(self) -> Iterator[Pair | UserError]:
        ends, before = list[int](), 0
        for source in self.sources:
            last = before
            if self.apart and ends:
                yield Pair(before, "", "")
            for row in source.rows():
                if isinstance(row, UserError):
                    yield row
                    continue
                last = before + row.line
                yield row._replace(line=last)
            ends.append(last)
            before = last
        self._ends = ends

    def origins(self) -> list[tuple[str, int]]:
        return list(zip((source.name for source in self.sources), self._ends, strict=False))

    def fingerprint(self) -> str:
        return content_hash([type(self).__name__, *(source.fingerprint() for source in self.sources)])


class SideLines(Iterable[str]):
    """The lines of one side of a source of pairs, as an iterable that reads them anew each time."""

    def __init__(self, pairs: PairSource, side: Side) -> None:
        self.pairs, self.side = pairs, side

    def __iter__(self) -> Iterator[str]:
        return (pair.source if self.side == "source" else pair.target for pair in self.pairs)


class TaggedPairs(PairSource):
    """The pairs of a source, with a tag before each source text that is not blank."""

    def __init__(self, source: PairSource, tag: str) -> None:
        super().__init__(source.name, source.files, (*source.columns, tag))
        self.untagged, self.tag = source, tag

    def rows(self) -> Iterator[Pair | UserError]:
        for row in self.untagged.rows():
            if isinstance(row, UserError) or not row.source.strip():
                yield row
            else:
                yield row._replace(source=f"{self.tag} {row.source}")

    def fingerprint(self) -> str:
        return content_hash([type(self).__name__, self.tag, self.untagged.fingerprint()])

    def origins(self) -> list[tuple[str, int]]:
        return self.untagged.origins()


class TermPairs(PairSource):
    """The pairs of a source; `TERM_SHARE` of the pairs that translate a term are annotated with the translation."""

    def __init__(self, source: PairSource, path: Path) -> None:
        super().__init__(source.name, (*source.files, path), source.columns)
        self.plain, self.glossary = source, Glossary.read(path)

    def rows(self) -> Iterator[Pair | UserError]:
        for row in self.plain.rows():
            if isinstance(row, UserError) or int(content_hash(row[1:3])[:8], 16) >= TERM_SHARE * 16**8:
                yield row
            else:
                yield row._replace(source=self.glossary.annotated(row.source, row.target))

    def fingerprint(self) -> str:
        return content_hash([type(self).__name__, *map(str, self.glossary.terms.items()), self.plain.fingerprint()])

    def origins(self) -> list[tuple[str, int]]:
        return self.plain.origins()


def open_source(
    corpus: GivenCorpus, where: str, broken: Broken = "error", *, tags: bool = True, apart: bool = False
) -> PairSource:
    """Open the pairs of a corpus, or of several.

    Args:
        corpus: the corpus as in a recipe; a mapping is parsed like a part of a recipe.
        where: its recipe key, such as `data.train`, for messages.
        broken: how unreadable rows are treated.
        tags: whether to prefix sources with the tags of their corpora.
        apart: whether to separate the corpora by a blank pair.

    Raises:
        UserError: a file is missing, unreadable or empty; a data set cannot be loaded.
    """
    sources = list[PairSource]()
    for format in open_corpora(corpus, where, PAIRS):
        pairs, config = format.pairs(), format.config
        pairs = TermPairs(pairs, config.terms) if config.terms else pairs
        sources.append(TaggedPairs(pairs, config.tag) if tags and config.tag else pairs)
    return joined(sources, broken, apart)


def joined(sources: Sequence[PairSource], broken: Broken, apart: bool = False) -> PairSource:
    """Concatenate sources, and set how unreadable rows are treated."""
    whole = sources[0] if len(sources) == 1 else Concatenation(sources, apart)
    whole.row_errors = RowErrors(broken, remedy="data.broken=skip")
    return whole


def check_sides(source: PairSource) -> None:
    """Raise UserError unless some pair has text as its source, and some pair has text as its target."""
    missing, pair = ["source", "target"], None
    for pair in source:
        missing = [side for side in missing if not getattr(pair, side).strip()]
        if not missing:
            return
    what = f"no pair has any text as its {missing[0]}"
    if pair is None and source.row_errors.errors:
        what = f"no row can be read; the first: {source.row_errors.errors[0]}"
    raise UserError(what, where=source.name)


def check_references(source: PairSource, where: str) -> None:
    """Raise UserError, at the key `where`, unless all pairs have the same number of references, as metrics require."""
    first: Pair | None = None
    for pair in source:
        first = first or pair
        if len(pair.references) != len(first.references):
            raise UserError(
                "the corpora of a list need equally many references", where=where,
                received=f"{len(first.references)} in line {first.line}, {len(pair.references)} in line {pair.line}",
            )  # fmt: skip
