"""Two wings, a hall and thin shells: imports point one way, so that every room can be read and changed by itself."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter

from tests.sources import trees

# What each room may import besides itself.
GROUND: dict[str, set[str]] = {
    "errors": set(),
    "system": set(),
    "files": {"errors", "system"},
    "documents": {"errors"},
    "archives": {"errors"},
    "log": {"errors"},
    "tables": {"errors"},
    "tensors": set(),
    "processes": {"errors", "system"},
    "device": {"errors", "processes", "system"},
    "forks": {"errors", "processes", "system"},
    "workers": {"processes", "forks"},
    "config": {"errors", "files"},
    "storage": {"files", "errors", "log", "system"},
    "figures": {"errors", "files", "tables"},
    "registry": {"errors", "config"},
    "languages": {"errors"},
    "version": set(),
}
TENSOR_WING: dict[str, set[str]] = {
    "mixers": set(),
    "models": {"mixers"},
    "losses": {"mixers", "models"},
    "search": {"mixers", "models"},
    "optimizers": set(),
}
EXAMPLE_WING: dict[str, set[str]] = {
    "processing": set(),
    "markup": {"processing"},
    "trees": set(),
    "formats": {"processing", "trees", "markup"},
    "parses": {"processing", "formats"},
    "metrics": {"processing", "trees", "formats"},
    "corpora": {"processing", "trees", "formats", "parses"},
}
WINGS = TENSOR_WING | EXAMPLE_WING
HALL: dict[str, set[str]] = {"recipe": set(WINGS)}
for room in ("predictors", "pages", "tasks", "runs", "training", "inspect", "augment"):
    HALL[room] = {*WINGS, *HALL}
INSIDE = WINGS | HALL
SHELLS: dict[str, set[str]] = {
    "export": set(INSIDE),
    "importing": set(INSIDE),
    "experiments": set(INSIDE),
    "comparison": set(INSIDE),
    "grids": {*INSIDE, "comparison"},
    "claims": {*INSIDE, "comparison", "grids"},
    "gate": {*INSIDE, "comparison", "grids"},
    "lessons": {"mixers"},
    "serving": set(INSIDE),
    "__init__": {*INSIDE, "grids"},
    "cli": {
        *INSIDE,
        "export",
        "importing",
        "experiments",
        "comparison",
        "grids",
        "claims",
        "gate",
        "lessons",
        "serving",
    },
    "__main__": {"cli"},
    "pytest_plugin": {"mixers", "recipe"},
}
MAY_IMPORT = GROUND | {name: allowed | set(GROUND) for name, allowed in (INSIDE | SHELLS).items()}

# What the wings have no use for: tensors know no text, files or YAML, examples know no model.
FOREIGN = {
    **{room: {"yaml", "json", "csv", "pathlib", "transformers", "rich", "cyclopts"} for room in TENSOR_WING},
    **{room: {"rich", "cyclopts"} for room in GROUND.keys() | EXAMPLE_WING.keys() | HALL.keys()},
}


def imported(tree: ast.AST) -> Iterator[str]:
    """The full names that a module imports, wherever in it, also by `import_module("...")`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and "import_module" in (getattr(node.func, each, "") for each in ("attr", "id")):
            yield from (word.value for word in node.args[:1] if isinstance(word, ast.Constant))
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where they point"
            room = str(node.module)
            whole = room in ("headway", "headway.core")  # `from headway.core import log` names a file
            yield from (f"{room}.{name.name}" for name in node.names) if whole else [room]


def room_of(path: str) -> str:
    """The room of a module, `path` from the package's root; each file of `core` is one."""
    return path.removeprefix("core/").split("/")[0].removesuffix(".py")


def wrong_ways(path: str, tree: ast.Module) -> list[str]:
    """The imports of a module that its room may not have."""
    room = room_of(path)
    names = set(imported(tree))
    rooms = {name: name.replace(".core.", ".").split(".")[1] for name in names if name.startswith("headway.")}
    wrong = [name for name, other in rooms.items() if other != room and other not in MAY_IMPORT[room]]
    return wrong + [name for name in names if name.split(".")[0] in FOREIGN.get(room, set())]


def test_imports_point_one_way() -> None:
    wrong = {path: wrong_ways(path, tree) for path, tree in trees().items() if path != "core/__init__.py"}
    assert {path: names for path, names in wrong.items() if names} == {}


def test_the_rooms_make_no_circle() -> None:
    list(TopologicalSorter(MAY_IMPORT).static_order())
    assert {room_of(path) for path in trees() if path != "core/__init__.py"} == set(MAY_IMPORT)


def test_the_wings_do_not_know_each_other() -> None:
    for name in TENSOR_WING:
        assert not MAY_IMPORT[name] & EXAMPLE_WING.keys()
    for name in EXAMPLE_WING:
        assert not MAY_IMPORT[name] & TENSOR_WING.keys()


def module_of(path: str) -> str:
    """The full name of a module."""
    return ".".join(["headway", *path.removesuffix(".py").split("/")]).removesuffix(".__init__")


def test_the_files_make_no_circle() -> None:
    modules = {module_of(path): tree for path, tree in trees().items()}
    ways: dict[str, set[str]] = {}
    for module, tree in modules.items():
        names = set(imported(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                names |= {f"{node.module}.{name.name}" for name in node.names}
        # The face of a package hands on what its files define; a file below it is not tied by that.
        ways[module] = {name for name in names if name in modules and not module.startswith(f"{name}.")} - {module}
    list(TopologicalSorter(ways).static_order())


def test_a_wrong_way_is_seen() -> None:
    assert wrong_ways("mixers/ngram.py", ast.parse("from headway.formats import lines")) == ["headway.formats"]
    assert wrong_ways("corpora/plan.py", ast.parse("from headway.models import Seq2Seq")) == ["headway.models"]
    assert wrong_ways("models/block.py", ast.parse("import yaml")) == ["yaml"]
    assert wrong_ways("tasks/translation.py", ast.parse("from headway import cli")) == ["headway.cli"]
    assert wrong_ways("tasks/translation.py", ast.parse("from headway.models import Seq2Seq")) == []
    assert wrong_ways("models/block.py", ast.parse("import_module('headway.formats')")) == ["headway.formats"]
