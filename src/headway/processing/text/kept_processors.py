"""Processors whose vocabularies were trained before are taken from the cache, whatever run asks for them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from headway.files import exists
from headway.registry import import_paths
from headway.storage import cache_folder, fingerprint, hashes_of, kept_folder, software

Made = TypeVar("Made")


def trained_once(
    made_of: Any, train: Callable[[], Made], save: Callable[[Made, Path], object], load: Callable[[Path], Made]
) -> Made:
    """Processors that were made of the same before, else those that `train` makes.

    Args:
        made_of: all that decides the processors, as JSON has it: hashes of texts, and options. The software is known,
            and the content of files that options name. Options that name code from outside are trained each time.
        train: makes the processors.
        save: writes them into a folder.
        load: reads them.
    """
    if import_paths(made_of):
        return train()
    files = sorted({text for text in _texts(made_of) if exists(Path(text), "file")})
    key = fingerprint([software(), made_of, hashes_of([Path(name) for name in files])])
    return kept_folder(cache_folder() / "vocabularies" / key, lambda folder: save(train(), folder), load)


def _texts(tree: Any) -> Iterator[str]:
    """All texts in a value as JSON has it."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict | list | tuple):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from _texts(value)
