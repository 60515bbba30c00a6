"""Sentences with those before them in their document, joined by a mark.

A document ends at a line whose source is blank, and where a corpus ends. Here the mark is a line end, which no text has
within it; the vocabulary reads it as a token of its own (see `headway.processing.text.document_vocabulary`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from headway.core.config import Section
from headway.core.errors import UserError
from headway.formats.corpus_config import GivenCorpus
from headway.formats.corpus_format import Broken, Pair, PairSource, content_hash
from headway.formats.pairs import open_source
from headway.processing.text.document_vocabulary import joined


class ContextConfig(Section):
    """How many sentences before a sentence are read, or written, with it; a number alone is that of the source.

    A model with context of the target reads its own earlier outputs there. Only the sentence is learned and scored.
    """

    source: Annotated[int, Field(ge=0, le=1000)] = 0
    target: Annotated[int, Field(ge=0, le=1000)] = 0

    @property
    def most(self) -> int:
        """How many earlier pairs are needed."""
        return max(self.source, self.target)


def _of_source(value: Any) -> Any:
    return value if isinstance(value, Mapping | ContextConfig) else {"source": value}


AnyContext = Annotated[ContextConfig, BeforeValidator(_of_source)]


class Windows(PairSource):
    """The pairs of a source, each with the texts before it in its document; the blank ones between these are left out.

    What outputs are compared with is the sentence alone.
    """

    def __init__(self, pairs: PairSource, context: ContextConfig) -> None:
        super().__init__(pairs.name, pairs.files)
        self.pairs, self.context, self.row_errors = pairs, context, pairs.row_errors

    def rows(self) -> Iterator[Pair | UserError]:
        return self.pairs.rows()

    def with_earlier(self) -> Iterator[tuple[Pair, list[Pair]]]:
        """Each pair, and those before it; a blank one ends a document."""
        before = list[Pair]()
        for pair in self.pairs:
            before = before if pair.source.strip() else []
            yield pair, before
            before = [*before, pair][-self.context.most :] if pair.source.strip() else []

    def __iter__(self) -> Iterator[Pair]:
        for pair, before in self.with_earlier():
            if not (pair.source.strip() or pair.target.strip()):
                continue
            source = joined([each.source for each in before], pair.source, self.context.source)
            target = joined([each.target for each in before], pair.target, self.context.target)
            yield Pair(pair.line, source, target if pair.target.strip() else "", pair.references)

    def fingerprint(self) -> str:
        return content_hash([type(self).__name__, repr(self.context), self.pairs.fingerprint()])

    def origins(self) -> list[tuple[str, int]]:
        return self.pairs.origins()


def open_read(corpus: GivenCorpus, where: str, broken: Broken, context: ContextConfig) -> PairSource:
    """The pairs of a corpus as a recipe with this context reads them. Raises UserError as `open_source`."""
    if not context.most:
        return open_source(corpus, where, broken)
    return Windows(open_source(corpus, where, broken, apart=True), context)
