"""Pairs that training takes as they are, and that people may not have meant."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headway.corpora.overlap import folded
from headway.formats.corpus_format import Pair
from headway.processing.text.segmentation import segmenter
from headway.processing.text.text_processor import PreparationConfig, prepare

SHOWN = 5  # lines that are named
MOST_SEGMENTED = 100_000  # targets, of which some 3,000 a second go there and back


@dataclass(frozen=True)
class Finding:
    """The account of some pairs of a corpus.

    Attributes:
        corpus: the recipe key of the corpus.
        what: what they have in common.
        count: how many there are.
        looked_at: of how many.
        lines: where the first of them stand.
        example: the first of them in words, where that says more.
    """

    corpus: str
    what: str
    count: int
    looked_at: int
    lines: tuple[str, ...]
    example: str

    def text(self) -> str:
        """The account in one line."""
        more = ", ..." if self.count > len(self.lines) else ""
        where = f"(line {', '.join(self.lines)}{more})"
        return f"{self.corpus}: {self.count:,} of {self.looked_at:,} {self.what} {where}{self.example}"


def findings(
    name: str,
    pairs: Iterable[Pair],
    target: PreparationConfig,
    location: Callable[[int], str],
    *,
    source_is_text: bool = True,
) -> list[Finding]:
    """Look for pairs whose sides are one text, and for targets that a segmenter does not give back.

    Outputs are put together again from segmented words, so that a model cannot write such a target.

    Args:
        name: the recipe key of the corpus.
        pairs: the corpus, read once.
        target: the preparation of its targets.
        location: writes the number of a line.
        source_is_text: whether sources are texts.
    """
    same, changed, example, read, segmented = list[int](), list[int](), "", 0, 0
    plain, named = target.model_copy(update={"segment": "none"}), target.segment
    restore = segmenter(named, target.language).detokenise
    for read, pair in enumerate(pairs, start=1):
        if source_is_text and pair.source.strip() and folded(pair.source) == folded(pair.target):
            same.append(pair.line)
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
        (f"targets do not come back as they were from text.target.segment: {kind}", changed, segmented, example),
    )
    return [
        Finding(name, what, len(lines), looked_at, tuple(map(location, lines[:SHOWN])), example)
        for what, lines, looked_at, example in found
        if lines
    ]
