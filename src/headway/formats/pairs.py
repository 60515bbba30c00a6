"""Corpora of pairs: several as one, and the opening of those that a recipe names."""

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
TERM_SHARE = 0.5  # of the pairs that have terms: a model that always sees them would need them


class Concatenation(PairSource):
    """Several sources, one after the other; lines are counted through all of them.

    Where they are `apart`, a blank pair without a line of its own comes between them.
    """

    def __init__(self, sources: Sequence[PairSource], apart: bool = False) -> None:
        self.sources, self.apart = tuple(sources), apart
        self._ends: list[int] = []
        files = [path for source in sources for path in source.files]
        super().__init__(" and ".join(source.name for source in sources), files)

    @property
    def source_is_text(self) -> bool:  # type: ignore[override]  # decided by what is concatenated
        """Whether the sources are text."""
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
    """The lines of one side of a source of pairs, read anew each time that they are asked for."""

    def __init__(self, pairs: PairSource, side: Side) -> None:
        self.pairs, self.side = pairs, side

    def __iter__(self) -> Iterator[str]:
        return (pair.source if self.side == "source" else pair.target for pair in self.pairs)


class TaggedPairs(PairSource):
    """The pairs of a source, with a tag before each source that has any text."""

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
    """The pairs of a source; `TERM_SHARE` of those whose targets have a term's translation are annotated with it."""

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
    """The pairs of a corpus, or of several.

    Args:
        corpus: as the recipe names it; a mapping is read like a part of a recipe.
        where: its key, such as `data.train`, for messages.
        broken: what becomes of rows that cannot be read.
        tags: whether sources have the tags of their corpora before them.
        apart: whether a blank pair comes between the corpora.

    Raises:
        UserError: a file that is missing, unreadable or empty; a data set that cannot be loaded.
    """
    sources = list[PairSource]()
    for format in open_corpora(corpus, where, PAIRS):
        pairs, config = format.pairs(), format.config
        pairs = TermPairs(pairs, config.terms) if config.terms else pairs
        sources.append(TaggedPairs(pairs, config.tag) if tags and config.tag else pairs)
    return joined(sources, broken, apart)


def joined(sources: Sequence[PairSource], broken: Broken, apart: bool = False) -> PairSource:
    """Several sources as one, with what becomes of rows that cannot be read."""
    whole = sources[0] if len(sources) == 1 else Concatenation(sources, apart)
    whole.row_errors = RowErrors(broken, remedy="data.broken=skip")
    return whole


def check_sides(source: PairSource) -> None:
    """Raise UserError unless there is a pair that has text as its source, and one that has text as its target."""
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
    """Raise UserError, at the key `where`, unless every pair has equally many references, as metrics need them."""
    first: Pair | None = None
    for pair in source:
        first = first or pair
        if len(pair.references) != len(first.references):
            raise UserError(
                "the corpora of a list need equally many references", where=where,
                received=f"{len(first.references)} in line {first.line}, {len(pair.references)} in line {pair.line}",
            )  # fmt: skip
