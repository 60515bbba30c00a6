"""Every registered metric takes part: verdicts, parts of the test set, sentences and the page."""

import json

import pytest

import headway
from headway.comparison.cells import CellOutput, CellResult, EvaluationSet
from headway.comparison.report import payload, report_of
from headway.metrics import METRICS, build_metric
from tests.comparison.toys import LINES, REFERENCES

TREE, OTHER = "(TOP (S (NP (D the) (N cat)) (VP (V sat))))", "(TOP (S (NP (D the)) (VP (N cat) (V sat))))"
LABELS = (("i c c", "c c i"), ("c c c", "i c i"))
SEGMENTS = {
    "aer": (("0-0 1-1", "0-1"), ("0-0 1?1", "0-1 1-0")),
    "uas": (("2 0", "0 1"), ("2 0", "2 0")),
    "deviation": ((".2 .01", "0 .1"), ("0 0", "0 0")),
}


def segments(name: str) -> tuple[list[str], list[str], list[str]]:
    """Outputs of two systems, and references."""
    module = METRICS.get(name).__module__
    if module.endswith("brackets"):
        return [TREE, OTHER] * 4, [OTHER, OTHER] * 4, [TREE] * 8
    if module.endswith("label_metrics"):
        return [*LABELS[0]] * 4, [*LABELS[1]] * 4, ["i c c", "c c i"] * 4
    if name in SEGMENTS:
        outputs, references = SEGMENTS[name]
        return [*outputs] * 4, [*outputs[::-1]] * 4, [*references] * 4
    return LINES, REFERENCES, REFERENCES


@pytest.mark.parametrize("name", METRICS)
def test_the_metric_takes_part(name: str) -> None:
    first, second, references = segments(name)
    test = EvaluationSet("test", (tuple(references),), tuple(REFERENCES), ("1", "2") * 4)
    cells = [
        CellResult(variant, seed, (CellOutput(test, tuple(lines)),))
        for variant, lines in (("a", first), ("b", second))
        for seed in (1, 2)
    ]
    compared = headway.compare(cells, [build_metric(name)])
    (pair,) = compared.pairs
    low, high = pair.estimate.interval()
    assert low <= pair.difference <= high
    scores = compared.variants[0].scores[name].scores
    assert scores[0] == build_metric(name).score(first, [references]).value
    report = report_of(compared, {"the": 3})
    assert any(bucketing.axis == "group" for bucketing in report.buckets)
    json.dumps([compared.to_json(), payload(report, {}, title="t")], allow_nan=False)
