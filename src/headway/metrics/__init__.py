"""Scoring: metrics over per-segment statistics, significance, and reports on files."""

from headway.metrics.groups import GroupScore, scores_by_group
from headway.metrics.metric import METRICS, Metric, Score, build_metric, build_metrics
from headway.metrics.significance import (
    Comparison,
    Interval,
    approximate_randomisation,
    bootstrap_interval,
    paired_bootstrap,
)

__all__ = [
    "METRICS",
    "Comparison",
    "GroupScore",
    "Interval",
    "Metric",
    "Score",
    "approximate_randomisation",
    "bootstrap_interval",
    "build_metric",
    "build_metrics",
    "paired_bootstrap",
    "scores_by_group",
]
