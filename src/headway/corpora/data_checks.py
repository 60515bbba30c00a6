"""Checks of a recipe's corpora, for `headway data check`."""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from headway.core.errors import UserError
from headway.core.log import counted, say, warn
from headway.core.storage import cache_folder, fingerprint, kept_value, software
from headway.formats.corpus_format import Broken, Pair, PairSource
from headway.processing.text.normalisation import cleaned
from headway.processing.text.segmentation import segmenter
from headway.processing.text.text_processor import PreparationConfig, prepare

WARNED = 0.05  # the share of dev above which scores say little about new text


@dataclass(frozen=True)
class Overlap:
    """The number of dev pairs that also occur in train, as raw text.

    Attributes:
        dev_pairs: the number of dev pairs with text on both sides.
        pairs: the number of them that are also train pairs.
        sources: the number of them whose source is that of a train pair, whatever its target.
    """

    dev_pairs: int
    pairs: int
    sources: int

    @property
    def is_large(self) -> bool:
        """Whether the overlap is so large that dev scores measure memorisation rather than generalisation."""
        return self.sources >= WARNED * self.dev_pairs > 0

    def __str__(self) -> str:
        def share(count: int) -> str:
            return f"{count:,} ({count / max(1, self.dev_pairs):.1%})"

        shared = f"{share(self.pairs)} also stand in train, and {share(self.sources)} with their source alone"
        return f"data.dev: of {self.dev_pairs:,} pairs with text, {shared}"

    def warning(self) -> str:
        return f"{self}; scores of dev say less of new text"

    def tell(self) -> None:
        """Log the overlap, as a warning if it is large."""
        if self.is_large:
            warn(self.warning())
        else:
            say(str(self))


def folded(text: str) -> str:
    """Normalise white space for comparing texts: strip the text and replace runs of white space with one space.

    Texts that differ only in white space have the same tokens, and are therefore one example.
    """
    return " ".join(text.split())


def kept_overlap(train: PairSource, dev: PairSource) -> Overlap:
    """`overlap`, with a cached result if the corpora have not changed."""
    read = [[source.fingerprint(), source.row_errors.broken] for source in (train, dev)]
    path = cache_folder() / "overlaps" / f"{fingerprint([software(), *read])}.json"
    return Overlap(**kept_value(path, lambda: asdict(overlap(train, dev))))


def overlap(train: Iterable[Pair], dev: Iterable[Pair]) -> Overlap:
    """Count the dev pairs that also occur in train. Only dev is held in memory; train is streamed."""
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


CHARACTERS_SHOWN = 20  # the maximum number of characters that are named


@dataclass(frozen=True)
class UnseenCharacters:
    """The counts of dev characters that never occurred in training on the same side."""

    source: Mapping[str, int]
    target: Mapping[str, int]

    def text(self) -> list[str]:
        sides = (("source", self.source), ("target", self.target))
        return [f"data.dev: in the {side}s, {described(counts)}" for side, counts in sides if counts]


def described(counts: Mapping[str, int]) -> str:
    """Describe counts of characters, the most frequent first, with their Unicode names."""
    total, different = sum(counts.values()), len(counts)
    first = sorted(counts, key=lambda character: (-counts[character], character))[:CHARACTERS_SHOWN]
    named = ", ".join(f"{character_name(character)} {counts[character]:,}" for character in first)
    more = ", ..." if different > CHARACTERS_SHOWN else ""
    return f"{counted(total, 'character')} ({different:,} different: {named}{more}) never seen in training"


def character_name(character: str) -> str:
    """A character, if it is visible, with its code point and Unicode name."""
    shown = f"{character} " if character.isprintable() and not character.isspace() else ""
    return f"{shown}U+{ord(character):04X} {unicodedata.name(character, 'without a name')}"


def unseen_characters(train: Iterable[Pair], dev: Iterable[Pair], *, sources: bool = True) -> UnseenCharacters:
    """Count the dev characters that never occurred in training. Both corpora are read once.

    Args:
        train: the training pairs.
        dev: the dev pairs.
        sources: whether sources are texts.
    """
    seen: tuple[set[str], set[str]] = set(), set()
    for pair in train:
        seen[0].update(pair.source if sources else "")
        seen[1].update(pair.target)
    counts = Counter[str](), Counter[str]()
    for pair in dev:
        counts[0].update(pair.source if sources else "")
        # The references of a treebank are trees, not the texts that are learned.
        for text in pair.references if pair.target in pair.references else (pair.target,):
            counts[1].update(text)
    source, target = (
        {character: count for character, count in counted.items() if character not in known}
        for counted, known in zip(counts, seen, strict=True)
    )
    return UnseenCharacters(source, target)


SHOWN = 5  # the maximum number of lines that are named
MOST_SEGMENTED = 100_000  # targets; about 3,000 per second are segmented and detokenised


@dataclass(frozen=True)
class Finding:
    """Pairs of a corpus with the same potential problem.

    Attributes:
        corpus: the recipe key of the corpus.
        what: the problem, in words.
        count: the number of these pairs.
        looked_at: the number of pairs checked.
        lines: the locations of the first of these pairs.
        example: a description of the first of them, if that is helpful.
    """

    corpus: str
    what: str
    count: int
    looked_at: int
    lines: tuple[str, ...]
    example: str

    def text(self) -> str:
        more = ", ..." if self.count > len(self.lines) else ""
        where = f"(line {', '.join(self.lines)}{more})"
        return f"{self.corpus}: {self.count:,} of {self.looked_at:,} {self.what} {where}{self.example}"


def findings(
    name: str,
    pairs: Iterable[Pair],
    target: PreparationConfig,
    location: Callable[[int], str],
    *,
    source: PreparationConfig | None,
) -> list[Finding]:
    """Find pairs with equal source and target, and targets that segmentation and detokenisation do not restore.

    A model cannot produce such a target, because outputs are detokenised from segmented words.

    Args:
        name: the recipe key of the corpus.
        pairs: the corpus, which is read once.
        target: the preparation of its targets.
        location: formats the number of a line.
        source: the preparation of its sources, or None if they are not texts.
    """
    same, unclean, changed, example, read, segmented = list[int](), list[int](), list[int](), "", 0, 0
    plain, named = target.model_copy(update={"segment": "none"}), target.segment
    restore = segmenter(named, target.language).detokenise
    for read, pair in enumerate(pairs, start=1):
        if source is not None and pair.source.strip() and folded(pair.source) == folded(pair.target):
            same.append(pair.line)
        sides = zip(pair[1:3], (source, target), strict=True)
        if any(side and side.clean and cleaned(text) != text for text, side in sides):
            unclean.append(pair.line)
        if named not in ("none", "whitespace") and read <= MOST_SEGMENTED:
            segmented = read
            given, back = (
                folded(text) for text in (prepare(pair.target, plain), restore(prepare(pair.target, target)))
            )
            if given != back:
                example = example or f"; {given!r} becomes {back!r}"
                changed.append(pair.line)
    kind = named if isinstance(named, str) else named.get("kind")
    found = (
        ("pairs have the same text on both sides", same, read, ""),
        ("pairs have other white space, invisible signs or split letters, which are cleaned", unclean, read, ""),
        (f"targets do not come back as they were from text.target.segment: {kind}", changed, segmented, example),
    )
    return [
        Finding(name, what, len(lines), looked_at, tuple(map(location, lines[:SHOWN])), example)
        for what, lines, looked_at, example in found
        if lines
    ]


class CorpusAccount(Protocol):
    """The report of a corpus, for any type of examples."""

    @property
    def name(self) -> str:
        """The recipe key of the corpus."""

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""

    def text(self) -> str:
        """The report as text of a few lines."""


@dataclass(frozen=True)
class DataCheck:
    """The reports of train and dev (if there is one), what they share, and everything that is unreadable.

    Attributes:
        reports: the reports of the corpora, without unreadable rows.
        broken: by corpus, the error of each unreadable row.
        allowed: the setting that skips unreadable rows, or None if they are already skipped.
        overlap: the dev pairs that also occur in train.
        unseen: the dev characters that never occurred in training.
        findings: pairs that are probably unintended.
        refused: the error that training would raise even without unreadable rows.
    """

    reports: Sequence[CorpusAccount]
    broken: Mapping[str, Sequence[str]]
    allowed: str | None
    overlap: Overlap | None = None
    unseen: UnseenCharacters | None = None
    findings: Sequence[Finding] = ()
    refused: UserError | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "train": None,
            "dev": None,
            **{report.name.removeprefix("data."): report.to_json() for report in self.reports},
            "overlap": self.overlap and asdict(self.overlap),
            "unseen_characters": self.unseen and asdict(self.unseen),
            "findings": [asdict(finding) for finding in self.findings],
            "broken": {name.removeprefix("data."): list(rows) for name, rows in self.broken.items()},
        }

    def text(self) -> str:
        """The check as text: a few lines, and a line for each unreadable row."""
        lines = [report.text() for report in self.reports]
        if self.overlap is not None:
            lines.append(f"warning: {self.overlap.warning()}" if self.overlap.is_large else str(self.overlap))
        lines += self.unseen.text() if self.unseen is not None else []
        lines += [finding.text() for finding in self.findings]
        for name, rows in self.broken.items():
            if rows:
                lines.append(f"{name}: {len(rows):,} rows cannot be read")
                lines += [f"  {row}" for row in rows]
        return "\n".join(lines)

    def refuse(self) -> None:
        """Raise UserError if training would stop at an unreadable row, or find nothing usable in a corpus."""
        count = sum(map(len, self.broken.values()))
        if count and self.allowed is not None:
            where = ", ".join(name for name, rows in self.broken.items() if rows)
            what = f"training would end here: {count:,} rows cannot be read"
            raise UserError(what, where=where, allowed=self.allowed)
        if self.refused is not None:
            raise self.refused


def allowed_by(broken: Broken, key: str = "data.broken") -> str | None:
    """The setting that makes training skip unreadable rows, or None if it is already set."""
    return f"{key}: skip leaves them out" if broken == "error" else None


def refusal(check: Callable[[], Any]) -> UserError | None:
    """The UserError that `check` raises, or None."""
    try:
        check()
    except UserError as error:
        return error
    return None


def every_error(source: PairSource) -> list[str]:
    """The error of each unreadable row of a corpus whose unreadable rows are skipped."""
    source.row_errors.shown = None
    for _ in source:
        pass
    return source.row_errors.all()


def shared_by(
    train: Iterable[Pair], dev: Iterable[Pair] | None, *, source_is_text: bool = True
) -> tuple[Overlap | None, UnseenCharacters | None]:
    """The overlap of dev with train, and the characters that only occur in dev; None for both without dev."""
    if dev is None:
        return None, None
    return overlap(train, dev), unseen_characters(train, dev, sources=source_is_text)
