"""Glossary terms in outputs: marked in the source for models trained with such marks, and preferred in search."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from headway.formats.terms import Glossary, TermCount, kept
from headway.predictors.backend import Backend, SearchRequest
from headway.predictors.formatter import Formatted, Formatter
from headway.predictors.output import Example, Output
from headway.predictors.predict_options import PredictOptions
from headway.predictors.predictor import Row
from headway.search.decoding_options import SearchOptions
from headway.search.limits import Hypothesis

WIDER_BEAM = 16


class TermFormatter(Formatter):
    """Marks the terms of a line in the model's input, after another formatter."""

    def __init__(self, inner: Formatter, glossary: Glossary) -> None:
        self._inner, self._glossary, self.in_lines = inner, glossary, inner.in_lines

    def check(self, line: str, where: str) -> None:
        self._inner.check(line, where)

    def source(self, line: str) -> str:
        return self._glossary.annotated(self._inner.source(line))

    def output(self, line: str, text: str) -> Formatted:
        return self._inner.output(line, text)


class TermBackend(Backend):
    """Prefers hypotheses with the most terms of the glossary.

    If no hypothesis of a row has all terms, a beam search with a beam of at least `WIDER_BEAM` adds hypotheses.

    Args:
        inner: the backend that searches.
        glossary: the terms and their translations.
        decode: returns the text of token ids.
        example: returns the Example of a row's raw input, whose source the terms are looked up in.

    Attributes:
        counts: the number of terms of each row that was searched for.
    """

    def __init__(
        self,
        inner: Backend,
        glossary: Glossary,
        decode: Callable[[Sequence[int]], str],
        example: Callable[[object], Example],
    ) -> None:
        self.name, self._inner, self._glossary, self._decode, self._example = (
            inner.name, inner, glossary, decode, example,
        )  # fmt: skip
        self.counts = dict[Row, TermCount]()

    def longest(self, source_length: int) -> int | None:
        return self._inner.longest(source_length)

    def width(self, options: PredictOptions, search: SearchOptions) -> int:
        return self._inner.width(options, search) + self._inner.width(options, _wider(search))

    def hypotheses(self, request: SearchRequest) -> list[list[Hypothesis]]:
        outputs = self._inner.hypotheses(request)
        wanted = [self._glossary.wanted(self._example(row.raw).source) for row in request.rows]

        def count(index: int, hypothesis: Hypothesis) -> int:
            text = self._decode(hypothesis.ids) if hypothesis.text is None else hypothesis.text
            return kept(wanted[index], text)

        def preferred(index: int) -> list[Hypothesis]:
            return sorted(outputs[index], key=lambda one: -count(index, one))

        first = [count(index, hypotheses[0]) for index, hypotheses in enumerate(outputs)]
        outputs = [preferred(index) for index in range(len(outputs))]
        failed = [index for index, some in enumerate(outputs) if count(index, some[0]) < wanted[index].total()]
        if failed:
            asked = request.narrowed(failed, _wider(request.search), max(WIDER_BEAM, request.options.nbest))
            for index, more in zip(failed, self._inner.hypotheses(asked), strict=True):
                outputs[index] = list({one.ids: one for one in [*outputs[index], *more]}.values())
                outputs[index] = preferred(index)
        for index, row in enumerate(request.rows):
            self.counts[row] = TermCount(wanted[index].total(), first[index], count(index, outputs[index][0]))
        return outputs

    def annotated(self, row: Row, output: Output) -> Output:
        return replace(output, terms=self.counts.get(row, output.terms))


def _wider(search: SearchOptions) -> SearchOptions:
    return search.model_copy(update={"beam": max(WIDER_BEAM, search.beam), "beam_candidates": True})
