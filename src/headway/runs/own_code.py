"""The code that a recipe names by import path: where its source is, and whether it is the code of training."""

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headway.errors import UserError
from headway.files import sha256
from headway.registry import IMPORT_PATH


def own_sources(tree: Any) -> dict[str, Path]:
    """The files of the modules that a raw recipe names by import path, by their names below a folder of sources.

    Nothing is imported.

    Raises:
        UserError: a module without a source that others could import.
    """
    sources = {}
    for module in sorted(set(_modules(tree))):
        found = _source(module)
        if found is None:
            what = f"the source of {module}, which the run names, is not found here"
            raise UserError(what, where="recipe.yaml", received=module, allowed="a module in a folder on PYTHONPATH")
        sources[found[0]] = found[1]
    return sources


def code_hashes(tree: Any) -> dict[str, str]:
    """The SHA-256 of each file of `own_sources`; modules without a file, as a notebook's own, are left out."""
    found = filter(None, map(_source, sorted(set(_modules(tree)))))
    return {name: sha256(path) for name, path in found}


def changed_code(known: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The files with a hash in `known` that have another one in `now`, or none."""
    return [name for name, expected in known.items() if now.get(name) != expected]


def _modules(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        # Columns are the names of a file's own fields, such as dc:title.
        value = [below for key, below in value.items() if key != "columns"]
    if isinstance(value, list | tuple):
        for below in value:
            yield from _modules(below)
    elif isinstance(value, str) and IMPORT_PATH.fullmatch(value):
        yield value.partition(":")[0]


def _source(module: str) -> tuple[str, Path] | None:
    """The name of a module's file below a folder of sources, and the file; None where there is none."""
    stem = module.replace(".", "/")
    # A script or notebook has no module that others could import.
    top = None if module == "__main__" else importlib.util.find_spec(module.partition(".")[0])
    places = [] if top is None else [*(top.submodule_search_locations or ())]
    if top is not None and top.origin and not places and "." not in module:
        return f"{stem}.py", Path(top.origin)
    for place in places:
        for name in (f"{stem}.py", f"{stem}/__init__.py"):
            path = Path(place).parent / name
            if path.is_file():
                return name, path
    return None
