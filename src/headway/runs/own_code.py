"""The code that a recipe names by import path, with what it imports from beside itself: where its source is, and
whether it is the code of training."""

import ast
import importlib.util
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from headway.files import sha256
from headway.registry import IMPORT_PATH

INIT = "__init__.py"


class Source(NamedTuple):
    """The file of a module: its name below a folder of sources, and where it is."""

    name: str
    path: Path

    @property
    def root(self) -> Path:
        """The folder on Python's path that the module was found in."""
        return self.path.parents[self.name.count("/")]

    def is_installed(self) -> bool:
        """Whether the module is one of Python's own, or of an installed package, as torch is."""
        installed = {Path(folder).resolve() for folder in sysconfig.get_paths().values()}
        return self.root.resolve() in installed or self.root.name in ("site-packages", "dist-packages")


def named_modules(tree: Any) -> list[str]:
    """The modules that a raw recipe names by import path."""
    return sorted(set(_modules(tree)))


def code_hashes(tree: Any) -> dict[str, str]:
    """The SHA-256 of each file of the modules that a raw recipe names by import path.

    Names are those below a folder of sources. Of modules that are not installed, these are also the packages that they
    are in, and what they import from their own package and folder. Modules without a file, as a notebook's own, are
    left out. Nothing is imported.
    """
    return {name: sha256(path) for name, path in _with_helpers(named_modules(tree)).items()}


def code_versions(tree: Any) -> dict[str, str]:
    """The versions of the installed packages that have the modules which a raw recipe names by import path."""
    tops = {module.partition(".")[0] for module in named_modules(tree)}
    packages = metadata.packages_distributions() if tops else {}
    return {name: metadata.version(name) for top in sorted(tops) for name in packages.get(top, ())}


def changed_code(known: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The files with a hash in `known` that have another one in `now`, or none."""
    return [name for name, expected in known.items() if now.get(name) != expected]


def find_source(module: str) -> Source | None:
    """The file that Python would import a module from; None where there is none. Nothing is imported."""
    # A script or notebook has no module that others could import.
    try:
        top = None if module == "__main__" else importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return None
    if top is None:
        return None
    stem, places = module.replace(".", "/"), [*(top.submodule_search_locations or ())]
    if not places and "." not in module:
        origin = Path(top.origin or "")
        return Source(f"{stem}.py", origin) if origin.suffix == ".py" else None  # others are compiled, or Python's own
    for place in places:
        for name in (f"{stem}/{INIT}", f"{stem}.py"):
            path = Path(place).parent / name
            if path.is_file():
                return Source(name, path)
    return None


def _modules(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        # Columns are the names of a file's own fields, such as dc:title.
        value = [below for key, below in value.items() if key != "columns"]
    if isinstance(value, list | tuple):
        for below in value:
            yield from _modules(below)
    elif isinstance(value, str) and IMPORT_PATH.fullmatch(value):
        yield value.partition(":")[0]


def _with_helpers(modules: Sequence[str]) -> dict[str, Path]:
    """The files of modules and, unless these are installed, of their packages and of what they import from beside."""
    found, waiting, known = dict[str, Path](), list(modules), set(modules)
    while waiting:
        module = waiting.pop()
        source = find_source(module)
        if source is None:
            continue
        found[source.name] = source.path
        if source.is_installed():
            continue
        above = [module.rpartition(".")[0]] if "." in module else []
        for other in (*above, *_imported(module, source)):
            if other in known:
                continue
            top = other.partition(".")[0]
            if top != module.partition(".")[0]:  # of another package: it counts where it is in the same folder
                beside = None if top == "headway" else find_source(top)
                if beside is None or beside.root != source.root:
                    continue
            known.add(other)
            waiting.append(other)
    return dict(sorted(found.items()))


def _imported(module: str, source: Source) -> Iterator[str]:
    """The modules that a file imports, wherever in it; what is imported from a module may be one as well."""
    try:
        tree = ast.parse(source.path.read_bytes())
    except (SyntaxError, ValueError):
        return
    package = module.split(".") if source.name.endswith(f"/{INIT}") else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *filter(None, [node.module])])
            yield from (origin, *(f"{origin}.{alias.name}" for alias in node.names))
