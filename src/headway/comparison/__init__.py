"""Comparing systems: from a grid of runs and their outputs to verdicts with intervals over seeds and segments.

The room is not named `compare`, which is the function `headway.compare`: a package of this name would hide it.
"""
