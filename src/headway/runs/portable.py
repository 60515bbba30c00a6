"""Values of recipes and manifests that say nothing of the machine that they come from."""

from collections.abc import Mapping
from typing import Any

from headway.processing.marian_files import PREFIX


def portable(value: Any) -> Any:
    """Values of a recipe or a manifest with the names of files in the place of absolute paths."""
    if isinstance(value, Mapping):
        return {key: portable(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(map(portable, value))
    if isinstance(value, str) and value.removeprefix(PREFIX).startswith("/"):
        return value[: len(value) - len(value.removeprefix(PREFIX))] + value.rpartition("/")[2]
    return value
