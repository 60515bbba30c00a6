"""headway: train, compare, look inside and ship attention models for sequence transduction."""

import importlib
from typing import TYPE_CHECKING, Any

from headway.core.version import VERSION

if TYPE_CHECKING:
    from headway.grids.compare import compare
    from headway.grids.run import evaluate
    from headway.inspect.inspection import show
    from headway.mixers import build_mixer
    from headway.models import build_model
    from headway.recipe import Recipe, load_recipe
    from headway.runs.load import load
    from headway.training.trained import train

__version__ = VERSION
__all__ = [
    "Recipe", "__version__", "build_mixer", "build_model", "compare", "evaluate", "load", "load_recipe", "show",
    "train",
]  # fmt: skip

_HOMES = {
    "build_mixer": "headway.mixers",
    "build_model": "headway.models",
    "compare": "headway.grids.compare",
    "evaluate": "headway.grids.run",
    "load": "headway.runs.load",
    "load_recipe": "headway.recipe",
    "Recipe": "headway.recipe",
    "show": "headway.inspect.inspection",
    "train": "headway.training.trained",
}


def __getattr__(name: str) -> Any:
    """The public names are imported when they are first used, so that the help does not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
