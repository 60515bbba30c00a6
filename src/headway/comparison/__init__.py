"""Comparing systems: from a grid of runs to verdicts with confidence intervals over seeds and segments.

The package is not named `compare`, because it would shadow the function `headway.compare`.
"""
