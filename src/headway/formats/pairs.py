"""Corpora of pairs: several as one, and the opening of those that a recipe names."""

from collections.abc import Iterator, Sequence

from headway.formats.corpus_config import GivenCorpus
from headway.formats.corpus_format import PAIRS, Pair, PairSource, content_hash, open_corpora

__all__ = ["Concatenation", "Pair", "PairSource", "joined", "open_source"]


class Concatenation(PairSource):
    """Several sources, one after the other; lines are counted through all of them."""

    def __init__(self, sources: Sequence[PairSource]) -> None:
        self.sources = tuple(sources)
        self._ends: list[int] = []
        files = [path for source in sources for path in source.files]
        super().__init__(" and ".join(source.name for source in sources), files)

    def __iter__(self) -> Iterator[Pair]:
        ends, before = list[int](), 0
        for source in self.sources:
            last = before
            for pair in source:
                last = before + pair.line
                yield pair._replace(line=last)
            ends.append(last)
            before = last
        self._ends = ends

    def origins(self) -> list[tuple[str, int]]:
        return list(zip((source.name for source in self.sources), self._ends, strict=False))

    def fingerprint(self) -> str:
        return content_hash([type(self).__name__, *(source.fingerprint() for source in self.sources)])


def open_source(corpus: GivenCorpus, where: str) -> PairSource:
    """The pairs of a corpus, or of several.

    Args:
        corpus: as the recipe names it; a mapping is read like a part of a recipe.
        where: its key, such as `data.train`, for messages.

    Raises:
        UserError: a file that is missing, unreadable or empty; a data set that cannot be loaded.
    """
    return joined([format.pairs() for format in open_corpora(corpus, where, PAIRS)])


def joined(sources: Sequence[PairSource]) -> PairSource:
    """Several sources as one."""
    return sources[0] if len(sources) == 1 else Concatenation(sources)
