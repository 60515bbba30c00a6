"""Minimum Bayes risk: the sample with the highest mean utility, against plain loops over pairs of texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.core.errors import UserError
from headway.core.registry import foreign_code
from headway.metrics import Metric, build_metric
from headway.predictors.minimum_risk import least_risk, utility_of
from headway.predictors.predictor import Run
from headway.predictors.sequence_predictor import SequencePredictor
from headway.search.decoding_options import SearchOptions
from headway.search.limits import Hypothesis
from tests.metrics.made_comet import write_checkpoint

WORDS = ["", "the", "cat", "sees", "a", "dog", "."]
LINES = ["abc", "hgfed", "", "aabbcc"]


def decode(ids: Sequence[int]) -> str:
    return " ".join(WORDS[id] for id in ids)


def hypothesis(ids: Sequence[int], score: float) -> Hypothesis:
    return Hypothesis(tuple(ids), (score,), score)


SAMPLES = [
    hypothesis(ids, -number / 10)
    for number, ids in enumerate([(1, 2, 3), (1, 2, 3, 4, 5), (4, 5), (1, 2, 3), (5, 3, 2, 6), (1, 2, 3, 4, 5, 6)])
]  # fmt: skip


def segment_score(metric: Metric, output: str, reference: str, source: str) -> float:
    score = metric.segment_scores(metric.counted([output], [[reference]], [source]))[0]
    return float(score if metric.higher_is_better else -score)


def risk_by_loops(
    texts: Sequence[str], references: Sequence[str], metric: Metric, source: str
) -> dict[str, float]:  # fmt: skip
    """The mean utility of each text by all samples."""
    expected = {}
    for text in texts:
        total = 0.0
        for reference in references:
            total += segment_score(metric, text, reference, source)
        expected[text] = total / len(references)
    return expected


def utility(name: str, tmp_path: Path) -> Metric:
    own = {"model": str(write_checkpoint(tmp_path, "regression")), "device": "cpu"} if name == "comet" else {}
    return build_metric(name, **own)


@pytest.mark.parametrize("name", ["chrf", "bleu", "ter", "exact_match", "wer", "rouge-l", "comet"])
@pytest.mark.parametrize("others", [[], [hypothesis((1, 2, 3, 4, 5), 5.0), hypothesis((1, 2, 4, 5), 4.0)]])
def test_hypotheses_are_ranked_by_the_mean_over_all_samples(
    name: str, others: list[Hypothesis], tmp_path: Path
) -> None:  # fmt: skip
    metric = utility(name, tmp_path)
    ranked = least_risk(SAMPLES, others, decode, metric, "le chat")
    texts = [decode(each.ids) for each in [*SAMPLES, *others]]
    expected = risk_by_loops(texts, texts[: len(SAMPLES)], metric, "le chat")
    assert {decode(each.ids): each.score for each in ranked} == pytest.approx(expected, abs=1e-4)
    assert len(ranked) == len(set(texts)) == len(expected)
    scores = [each.score for each in ranked]
    assert scores == sorted(scores, reverse=True)
    assert ranked[0].score == pytest.approx(max(expected.values()), abs=1e-4)
    kept = {decode(each.ids): each.log_probabilities for each in ranked}
    assert kept["the cat sees"] == (-0.0,)  # of two drawings of a text, the more probable one


@pytest.mark.parametrize(
    "options", [{}, {"word_order": 2}, {"lowercase": True, "whitespace": True}, {"eps_smoothing": True}]
)
def test_utilities_of_chrf_are_its_scores_of_segments(options: dict[str, Any]) -> None:
    metric, texts = build_metric("chrf", **options), ["The cat.", "", "a cat sat (there)", "the CAT sat", "x"]
    table = metric.utilities(texts, texts[::-1], "")
    assert table == pytest.approx(Metric.utilities(metric, texts, texts[::-1], ""))
    assert table == pytest.approx(np.array([[segment_score(metric, a, b, "") for b in texts[::-1]] for a in texts]))


def test_equal_utilities_leave_the_order_of_the_model() -> None:
    apart = [hypothesis((id,), -id) for id in (3, 1, 2)]
    assert [each.ids for each in least_risk(apart, [], decode, build_metric("exact_match"), "")] == [(1,), (2,), (3,)]


@pytest.mark.parametrize("name", ["chrf", "exact_match"])
def test_a_predictor_writes_the_sample_of_least_risk(predictor: SequencePredictor, name: str) -> None:
    given: dict[str, Any] = {"temperature": 3.0, "seed": 4}
    found = predictor.predict(LINES, kind="mbr", samples=12, utility=name, nbest=3, **given)
    drawn = predictor.predict(LINES, sample=True, nbest=12, **given)
    metric = build_metric(name)
    for output, samples in zip(found, drawn, strict=True):
        if not output.source:
            assert [each.text for each in output.hypotheses] == ["", "", ""]
            continue
        texts = [each.text for each in samples.hypotheses]
        expected = risk_by_loops(texts, texts, metric, output.source)
        best = sorted(expected.values(), reverse=True)[:3]
        assert [each.score for each in output.hypotheses] == pytest.approx(best)
        assert output.score == pytest.approx(expected[output.text])
        assert output.log_probabilities in [each.log_probabilities for each in samples.hypotheses]
    again = predictor.predict(LINES[:1], kind="mbr", samples=12, utility=name, nbest=3, batch_tokens=1, **given)
    assert [each.text for each in again[0].hypotheses] == [each.text for each in found[0].hypotheses]


def test_the_beam_gives_candidates_and_no_references(predictor: SequencePredictor) -> None:
    given: dict[str, Any] = {"kind": "mbr", "samples": 5, "temperature": 50.0, "nbest": 5}
    plain, more = (predictor.predict(LINES[:2], **given, beam_candidates=beam) for beam in (False, True))
    by_beam = predictor.predict(LINES[:2], kind="beam", beam=4, nbest=4)
    drawn = predictor.predict(LINES[:2], sample=True, temperature=50.0, nbest=5)
    for one, other, beam, samples in zip(plain, more, by_beam, drawn, strict=True):
        texts = [each.text for each in samples.hypotheses]
        candidates = [*texts, *(each.text for each in beam.hypotheses)]
        expected = risk_by_loops(candidates, texts, build_metric("chrf"), "")
        assert [each.score for each in other.hypotheses] == pytest.approx(sorted(expected.values(), reverse=True)[:5])
        assert {each.text for each in one.hypotheses} == set(texts)


def test_a_source_is_what_comet_compares_outputs_for(predictor: SequencePredictor, tmp_path: Path) -> None:
    name = f"comet:model={write_checkpoint(tmp_path / 'made', 'regression')},device=cpu"
    (output,) = predictor.predict(["abc"], kind="mbr", samples=6, temperature=3.0, utility=name)
    texts = [each.text for each in predictor.predict(["abc"], sample=True, nbest=6, temperature=3.0)[0].hypotheses]
    expected = risk_by_loops(texts, texts, utility_of(name, None, of_texts=True), "abc")
    assert output.score == pytest.approx(max(expected.values()), abs=1e-3)
    other = risk_by_loops(texts, texts, utility_of(name, None, of_texts=True), "hgf")
    assert np.ptp([expected[text] - other[text] for text in expected]) > 1e-4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("chr", "utility: unknown metric; did you mean 'chrf'"),
        ("aer", "utility: this metric scores links, and the outputs are text"),
        ("chrf:order=2", "chrf.order: unknown key"),
    ],
)
def test_a_utility_that_compares_no_texts_is_refused(predictor: SequencePredictor, name: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        predictor.predict(["abc"], kind="mbr", utility=name)
    assert str(error.value).startswith(message)


def test_a_utility_reads_references_and_no_recordings(tmp_path: Path) -> None:
    referenceless, regression = (write_checkpoint(tmp_path / case, case) for case in ("referenceless", "regression"))
    with pytest.raises(UserError, match="compares outputs, and this metric reads no references"):
        utility_of(f"comet:model={referenceless}", None, of_texts=True)
    with pytest.raises(UserError, match="reads sources, and these are no texts"):
        utility_of(f"comet:model={regression}", None, of_texts=False)


@pytest.mark.parametrize("name", ["elsewhere:Metric", "elsewhere:Metric:option=1"])
def test_the_utility_of_a_run_is_not_imported_without_leave(predictor: SequencePredictor, name: str) -> None:
    run = predictor.runs[0]
    recipe = run.recipe.model_copy(update={"decoding": SearchOptions(utility=name)})
    with foreign_code(False), pytest.raises(UserError, match=r"decoding.utility: loading this would import the metric"):
        SequencePredictor([Run(recipe, run.source, run.target, run.model)], predictor.device)
