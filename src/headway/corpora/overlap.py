"""How much of dev stands in train as well."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from headway.formats.corpus_format import Pair, PairSource
from headway.log import say, warn
from headway.storage import cache_folder, fingerprint, kept_value, software

WARNED = 0.05  # the share of dev from which on scores say little of new text


@dataclass(frozen=True)
class Overlap:
    """How much of dev stands in train as well, in raw text.

    Attributes:
        dev_pairs: dev pairs with text on both sides.
        pairs: how many of them are train pairs.
        sources: how many of them have the source of a train pair, whatever its target.
    """

    dev_pairs: int
    pairs: int
    sources: int

    @property
    def is_large(self) -> bool:
        """Whether scores of dev are about what was learned by heart rather than about new text."""
        return self.sources >= WARNED * self.dev_pairs > 0

    def __str__(self) -> str:
        def share(count: int) -> str:
            return f"{count:,} ({count / max(1, self.dev_pairs):.1%})"

        shared = f"{share(self.pairs)} also stand in train, and {share(self.sources)} with their source alone"
        return f"data.dev: of {self.dev_pairs:,} pairs with text, {shared}"

    def warning(self) -> str:
        """The meaning of a large overlap."""
        return f"{self}; scores of dev say less of new text"

    def tell(self) -> None:
        """Log it, as a warning where it is large."""
        if self.is_large:
            warn(self.warning())
        else:
            say(str(self))


def folded(text: str) -> str:
    """A text as it is compared with others: runs of white space of any kind are one space, and none stands around it.

    Vocabularies see words or pieces, so that two texts which differ in white space alone are one example.
    """
    return " ".join(text.split())


def kept_overlap(train: PairSource, dev: PairSource) -> Overlap:
    """`overlap`, which reads the corpora only where it has not been counted yet."""
    read = [[source.fingerprint(), source.row_errors.broken] for source in (train, dev)]
    path = cache_folder() / "overlaps" / f"{fingerprint([software(), *read])}.json"
    return Overlap(**kept_value(path, lambda: asdict(overlap(train, dev))))


def overlap(train: Iterable[Pair], dev: Iterable[Pair]) -> Overlap:
    """Count what dev shares with train. Only dev is held in memory, train streams."""
    pairs = [both for pair in dev if all(both := (folded(pair.source), folded(pair.target)))]
    sources = {source for source, _ in pairs}
    wanted = set(pairs)
    seen_sources, seen_pairs = set(), set()
    for pair in train:
        if (source := folded(pair.source)) in sources:
            seen_sources.add(source)
            if (both := (source, folded(pair.target))) in wanted:
                seen_pairs.add(both)
    return Overlap(
        len(pairs), sum(pair in seen_pairs for pair in pairs), sum(source in seen_sources for source, _ in pairs)
    )
