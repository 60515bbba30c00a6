"""Document-level examples: sentences joined with the preceding sentences of their document.

A document ends at a line with a blank source, and at the end of a corpus. Here the separator is a line end, which never
occurs within a text; the vocabulary has a token for it (see `headway.processing.text.document_vocabulary`).
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
    """The numbers of preceding sentences in the input and the output; a single number is that of the source.

    With target context, a model reads its own earlier outputs there. Only the sentence itself is learned and scored.
    `source`, `target`: the number of sentences of that side.
    """

    source: Annotated[int, Field(ge=0, le=1000)] = 0
    target: Annotated[int, Field(ge=0, le=1000)] = 0

    @property
    def most(self) -> int:
        """The number of preceding pairs that are needed."""
        return max(self.source, self.target)


def _of_source(value: Any) -> Any:
    return value if isinstance(value, Mapping | ContextConfig) else {"source": value}


AnyContext = Annotated[ContextConfig, BeforeValidator(_of_source)]


class Windows(PairSource):
    """The pairs of a source, joined with the preceding texts of their documents, without blank pairs.

    Outputs are compared with the sentence alone.
    """

    def __init__(self, pairs: PairSource, context: ContextConfig) -> None:
        super().__init__(pairs.name, pairs.files)
        self.pairs, self.context, self.row_errors = pairs, context, pairs.row_errors

    def rows(self) -> Iterator[Pair | UserError]:
        return self.pairs.rows()

    def with_earlier(self) -> Iterator[tuple[Pair, list[Pair]]]:
        """Each pair with the preceding pairs of its document; a blank pair ends a document."""
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
    """Open the pairs of a corpus, joined with their context if there is any. Raises UserError as `open_source`."""
    if not context.most:
        return open_source(corpus, where, broken)
    return Windows(open_source(corpus, where, broken, apart=True), context)
