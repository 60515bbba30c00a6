"""Minimum Bayes risk decoding (Eikema and Aziz 2020): choose the output with the highest expected utility.

Shapes: C candidates, R distinct samples.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from headway.core.errors import UserError, option
from headway.core.processes import check_waited_for
from headway.metrics import Metric, check_kind, metric_in
from headway.predictors.backend import Backend, SearchRequest
from headway.predictors.predict_options import PredictOptions
from headway.processing.text.document_vocabulary import JOINT
from headway.search.decoding_options import SearchOptions
from headway.search.limits import Hypothesis


@lru_cache(maxsize=4)
def utility_of(name: str, language: str | None, *, of_texts: bool) -> Metric:
    """Build the metric that compares outputs, from its name with options. Raises UserError if it compares no texts."""
    where = option("utility")
    metric = metric_in(language, {"name": name}, where)
    check_kind([metric], "text", where, of_texts=of_texts)
    if not metric.reads_references:
        raise UserError("a utility compares outputs, and this metric reads no references", where=where, received=name)
    return metric


class MinimumRiskBackend(Backend):
    """Draws samples from another backend, and ranks them by their expected utility.

    If `beam_candidates` is set, the hypotheses of a beam search are candidates, too.
    """

    def __init__(self, inner: Backend, utility: Metric, decode: Callable[[Sequence[int]], str]) -> None:
        self.name, self._inner, self._utility, self._decode = inner.name, inner, utility, decode

    def longest(self, source_length: int) -> int | None:
        return self._inner.longest(source_length)

    def width(self, options: PredictOptions, search: SearchOptions) -> int:
        return search.samples + (self._inner.width(options, _by_beam(search)) if search.beam_candidates else 0)

    def hypotheses(self, request: SearchRequest) -> list[list[Hypothesis]]:
        drawn = self._inner.hypotheses(request)
        others: list[list[Hypothesis]] = [[]] * len(drawn)
        if request.search.beam_candidates:
            others = self._inner.hypotheses(replace(request, search=_by_beam(request.search)))
        texts = [row.text.rpartition(JOINT)[2] if self._utility.reads_sources else "" for row in request.rows]
        return [
            least_risk(samples, more, self._decode, self._utility, text)
            for samples, more, text in zip(drawn, others, texts, strict=True)
        ]


def _by_beam(search: SearchOptions) -> SearchOptions:
    return search.model_copy(update={"kind": "beam"})


def least_risk(
    samples: Sequence[Hypothesis],
    others: Sequence[Hypothesis],
    decode: Callable[[Sequence[int]], str],
    utility: Metric,
    source: str,
) -> list[Hypothesis]:
    """The distinct texts of all hypotheses, best first. Their scores are the mean utility, with all samples as
    references.

    A sample is a reference of itself, too, as often as it was drawn. Ties, and hypotheses with the same text, are
    decided by the model's score. `others` are candidates, but not references.
    """
    check_waited_for()
    drawn = Counter(decode(sample.ids) for sample in samples)
    candidates: dict[str, Hypothesis] = {}
    for hypothesis in sorted([*samples, *others], key=lambda each: -each.score):
        candidates.setdefault(decode(hypothesis.ids), hypothesis)
    table = utility.utilities(list(candidates), list(drawn), source)
    expected = table @ np.array([*drawn.values()]) / len(samples)
    ranked = sorted(zip(candidates.values(), expected.tolist(), strict=True), key=lambda pair: -pair[1])
    return [replace(hypothesis, score=score) for hypothesis, score in ranked]
