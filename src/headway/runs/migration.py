"""Run folders of older formats, brought to today's when they are read: the only place that knows older ones.

The manifest of a run says its format. Where a format changes, `FORMAT` grows by one, and a function that brings a
recipe, or weights, of the format before to the new one is added below.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

FORMAT = 1

Tree = dict[str, Any]
Weights = dict[str, Tensor]

# By the format that they start from.
RECIPES: dict[int, Callable[[Tree], Tree]] = {}
WEIGHTS: dict[int, Callable[[Weights], Weights]] = {}


def todays_recipe(tree: Tree, version: int) -> Tree:
    """The tree of a recipe, with today's keys, of a run of the format `version`."""
    for older in range(version, FORMAT):
        tree = RECIPES[older](tree) if older in RECIPES else tree
    return tree


def todays_weights(weights: Weights, version: int) -> Weights:
    """Weights, with today's names, of a run of the format `version`."""
    for older in range(version, FORMAT):
        weights = WEIGHTS[older](weights) if older in WEIGHTS else weights
    return weights
