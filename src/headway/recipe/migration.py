"""Convert run folders of older formats when they are read. No other module knows older formats.

The manifest of a run has the number of its format. When a format changes, `FORMAT` is incremented, and a function that
converts recipes or weights from the previous format is added below.
"""

import re
from collections.abc import Callable
from typing import Any

from torch import Tensor

from headway.core.config import merge

FORMAT = 4

Tree = dict[str, Any]
Weights = dict[str, Tensor]


def _from_1(recipe: Tree) -> Tree:
    """Count heads of objectives, and layers in name patterns, from 1."""
    objective, training = recipe.get("objective") or {}, recipe.get("training") or {}
    for part in (objective.get("dependency"), objective.get("synchronous"), *objective.get("losses", ())):
        if not isinstance(part, dict) or part.get("kind") not in (None, "dependency", "synchronous"):
            continue
        if part.get("heads") is not None:
            part["heads"] = [head + 1 for head in part["heads"]]
        if part.get("cross_head", "mean") != "mean":
            part["cross_head"] += 1
    if lora := training.get("lora"):
        layer = re.compile(r"(?<=^encoder\.|^decoder\.)[\d\[\]-]+(?=\.|$)|(?<=^\*\.)\d+(?=\.|$)")
        lora["linears"] = [
            layer.sub(lambda found: re.sub(r"\d+", lambda number: str(int(number[0]) + 1), found[0]), pattern)
            for pattern in lora["linears"]
        ]
    return recipe


def _from_2(recipe: Tree) -> Tree:
    """Replace the key `tensorboard` by an entry in the list of loggers."""
    if (recipe.get("training") or {}).pop("tensorboard", False):
        recipe["training"]["loggers"] = [{"kind": "tensorboard"}]
    return recipe


def _from_3(recipe: Tree) -> Tree:
    """Keep all white space and invisible characters of the text."""
    return merge({"text": {side: {"clean": False} for side in ("source", "target")}}, recipe)


# By the format that they convert from.
RECIPES: dict[int, Callable[[Tree], Tree]] = {1: _from_1, 2: _from_2, 3: _from_3}
WEIGHTS: dict[int, Callable[[Weights], Weights]] = {}


def todays_recipe(tree: Tree, version: int) -> Tree:
    """Convert the tree of a recipe from format `version` to the current keys."""
    for older in range(version, FORMAT):
        tree = RECIPES[older](tree) if older in RECIPES else tree
    return tree


def todays_weights(weights: Weights, version: int) -> Weights:
    """Convert weights from format `version` to the current names."""
    for older in range(version, FORMAT):
        weights = WEIGHTS[older](weights) if older in WEIGHTS else weights
    return weights
