"""The dependency heads of subwords as labels of a corpus."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from headway.errors import UserError
from headway.formats.corpus_config import AnyCorpus
from headway.parses.parse_store import ParsesConfig, ParseStore, store_of
from headway.parses.projection import COUNTED, Projection, project
from headway.processing.labeller import Labeller
from headway.processing.text.text_processor import TextProcessor


class HeadLabeller(Labeller):
    """`source_heads` or `target_heads`: where the head of each subword stands; on the target side never to the right.

    Raises:
        UserError: the store is missing or damaged.
    """

    counted: ClassVar[tuple[str, ...]] = COUNTED

    def __init__(self, name: str, store: Path) -> None:
        self.name, self.path = name, store
        self._fingerprint = self._store.fingerprint()

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in vars(self).items() if key != "_store"}

    @cached_property
    def _store(self) -> ParseStore:
        return ParseStore(self.path)

    def fingerprint(self) -> str:
        return self._fingerprint

    def project(self, line: str, side: TextProcessor) -> Projection:
        """The heads of a line's subwords, those to the right included."""
        return project(side.encode_with_spans(line), self._store.get(line), segmented=side.config.segment != "none")

    def label(self, line: str, processor: TextProcessor) -> tuple[NDArray[np.integer], Sequence[int]]:
        projection = self.project(line, processor)
        if self.side == 1:
            projection = projection.left_only()
        return projection.heads, [projection.counts[name] for name in COUNTED]


def head_labellers(corpus: AnyCorpus, parses: ParsesConfig, names: Sequence[str]) -> list[HeadLabeller]:
    """The labellers called `names` for a corpus that was parsed as `parses` says.

    Raises:
        UserError: the recipe names no parser for a side, or its parses are missing.
    """
    labellers = []
    for name in names:
        side = name.removesuffix("_heads")
        if getattr(parses, side) is None:
            raise UserError(
                "the objective learns from parses, and the recipe names no parser",
                where=f"data.parses.{side}",
                allowed="KIND:MODEL, such as spacy:ja_ginza",
            )
        labellers.append(HeadLabeller(name, store_of(corpus, side, parses)))
    return labellers
