"""The account of a recipe's corpora, for `headway data check`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.corpora.corpus import CorpusReport, build_corpus
from headway.corpora.filters import Filters
from headway.corpora.overlap import Overlap, overlap
from headway.formats.pairs import PairSource
from headway.processing.text.text_processor import TextProcessor


@dataclass(frozen=True)
class DataCheck:
    """The reports of train and, where there is one, dev, and what they share."""

    train: CorpusReport
    dev: CorpusReport | None
    overlap: Overlap | None

    def to_json(self) -> dict[str, Any]:
        """The check as values that JSON can hold."""
        return {
            "train": self.train.to_json(),
            "dev": self.dev and self.dev.to_json(),
            "overlap": self.overlap and vars(self.overlap),
        }

    def text(self) -> str:
        """The check in a few lines, to be read."""
        reports = [report.text() for report in (self.train, self.dev) if report is not None]
        return "\n".join([*reports, *([str(self.overlap)] if self.overlap else [])])


def check(
    train: PairSource,
    dev: PairSource | None,
    processors: tuple[TextProcessor, TextProcessor],
    filters: Filters,
    *,
    progress: Callable[[int], object] | None = None,
    cache: Path | None = None,
) -> DataCheck:
    """Read and encode train and dev as training would, with all its checks and filters.

    Raises:
        UserError: what `build_corpus` raises.
    """

    def build(name: str, source: PairSource, filter: bool) -> CorpusReport:
        corpus = build_corpus(source, processors, filters, name=name, filter=filter, progress=progress, cache=cache)
        return corpus.report

    reports = build("data.train", train, True), build("data.dev", dev, False) if dev is not None else None
    return DataCheck(*reports, overlap(train, dev) if dev is not None else None)
