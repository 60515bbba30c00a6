"""Measure the size of the house: lines, files, errors, options, functions that run, floors, words and start times.

    python tools/measure_house.py            # one Markdown table
    python tools/measure_house.py --rooms    # the table of tests/test_house.py

 The work that is profiled is a toy of 400 pairs on the CPU, in a temporary folder. Functions
count by name: lambdas, comprehensions and class bodies are left out. They run in the main process, in any thread, from
the first import on.
"""

import ast
import inspect
import json
import os
import random
import resource
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any, NamedTuple

HOUSE = Path(__file__).resolve().parents[1]
SOURCE = HOUSE / "src" / "headway"
STARTS = 5  # of which the median is told
PARTS = (".py", ".js", ".css", ".html")
LINE = "bas cot dir"  # that is predicted
RECIPE: dict[str, Any] = {
    "data": {"train": {"tsv": "train.tsv"}, "dev": {"tsv": "dev.tsv"}},
    "vocabulary": {"kind": "bpe", "size": 40},
    "model": {"dim": 32, "feed_forward": 64, "heads": 2, "encoder": {"layers": 1}, "decoder": {"layers": 1}},
    "optimizer": {"warmup": 5},
    "training": {"updates": 20, "batch_tokens": 512, "checkpoint_every": 10, "precision": "float32"},
}
GRID: dict[str, Any] = {
    "recipe": "recipe.yaml",
    "variants": {"narrow": {}, "wide": {"model.feed_forward": 128}},
    "seeds": [1, 2],
    "test": {"test": {"tsv": "dev.tsv"}},
    "metrics": ["bleu"],
    "margin": {"bleu": 1},
}


def modules(folder: Path) -> list[Path]:
    """The files of Python below a folder; links are not followed."""
    found = (Path(where) / name for where, _, names in os.walk(folder) for name in names)
    return sorted(path for path in found if path.suffix == ".py")


def lines(folder: Path) -> int:
    """The lines of all modules below a folder."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in modules(folder))


@cache
def trees() -> tuple[tuple[str, ast.Module], ...]:
    """The room of each module of the package, which is its first folder or its own name, and its syntax tree."""
    return tuple((_room(path), ast.parse(path.read_text(encoding="utf-8"))) for path in modules(SOURCE))


def raises() -> int:
    """The `raise` statements of the package."""
    return sum(isinstance(node, ast.Raise) for _, tree in trees() for node in ast.walk(tree))


class Room(NamedTuple):
    """The size of a room and of its doors.

    Attributes:
        lines: the lines of its Python, scripts and styles.
        raises: its `raise` statements.
        names: how many different names of other rooms, and of files of `core`, it imports.
        kinds: how often it asks which kind of Predictor or Processor an object is.
    """

    lines: int
    raises: int
    names: int
    kinds: int


def rooms() -> dict[str, Room]:
    """The sizes of all rooms; a module beside the folders is a room of its own."""
    lines, raised, kinds = Counter[str](), Counter[str](), Counter[str]()
    names: dict[str, set[str]] = defaultdict(set)
    asked = _kinds()
    for path in sorted(SOURCE.rglob("*")):
        if path.is_file() and path.suffix in PARTS and not any(part.is_symlink() for part in path.parents):
            lines[_room(path)] += len(path.read_text(encoding="utf-8").splitlines())
    for room, tree in trees():
        for node in ast.walk(tree):
            raised[room] += isinstance(node, ast.Raise)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                kinds[room] += bool({name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)} & asked)
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("headway."):
                other = str(node.module).split(".")[1]
                names[room] |= {f"{node.module}.{name.name}" for name in node.names if other != room}
            named = [name for name in strings(node) if name.startswith("headway.")]
            names[room] |= {name for name in named if name.split(".")[1] != room}
    return {room: Room(lines[room], raised[room], len(names[room]), kinds[room]) for room in sorted(lines)}


def _room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _kinds() -> set[str]:
    """The names of Predictor, Processor and all classes made from them."""
    bases: dict[str, set[str]] = {}
    for _, tree in trees():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                found = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
                bases[node.name] = {base.id for base in found if isinstance(base, ast.Name)}
    kinds, before = {"Predictor", "Processor"}, set[str]()
    while kinds != before:
        before = set(kinds)
        kinds |= {name for name, above in bases.items() if above & kinds}
    return kinds


def strings(node: ast.AST) -> Iterator[str]:
    """The module that a call of `import_module` names."""
    if isinstance(node, ast.Call) and "import_module" in (getattr(node.func, each, "") for each in ("attr", "id")):
        yield from (word.value for word in node.args[:1] if isinstance(word, ast.Constant))


def imported(tree: ast.AST) -> Iterator[str]:
    """The full names that a module imports, wherever in it."""
    for node in ast.walk(tree):
        yield from strings(node)
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            whole = node.module == "headway"
            yield from (f"headway.{name.name}" for name in node.names) if whole else [str(node.module)]


def ways() -> dict[str, set[str]]:
    """The rooms that each room imports."""
    found: dict[str, set[str]] = {}
    for room, tree in trees():
        others = {name.split(".")[1] for name in imported(tree) if name.startswith("headway.")}
        found.setdefault(room, set()).update(others - {room})
    return {room: others & found.keys() for room, others in found.items()}


def floors(graph: Mapping[str, set[str]]) -> tuple[int, int]:
    """The rooms of the longest chain of imports, where a circle counts as one room, and the circles."""

    @cache
    def reached(room: str) -> frozenset[str]:
        seen, left = set[str](), [room]
        while left:
            new = graph[left.pop()] - seen
            seen |= new
            left += new
        return frozenset(seen)

    def circle(room: str) -> frozenset[str]:
        return frozenset({room, *(other for other in reached(room) if room in reached(other))})

    @cache
    def height(rooms: frozenset[str]) -> int:
        below = {circle(other) for room in rooms for other in graph[room]} - {rooms}
        return 1 + max(map(height, below), default=0)

    all_circles = {circle(room) for room in graph}
    return max(map(height, all_circles)), sum(len(rooms) > 1 for rooms in all_circles)


def slots() -> tuple[int, int, int]:
    """The verbs of the command line, and the options and the arguments of all of them, those of `headway` left out."""
    sys.path.insert(0, str(SOURCE.parent))
    from headway.cli.shell import verbs
    from headway.cli.verbs import app

    found = [verb for _, verb in verbs(app)]
    taken = [each.name[:2] for verb in found for each in verb.assemble_argument_collection() if not each.children]
    return len(found), taken.count("--"), len(taken) - taken.count("--")


def profile(report: Path, arguments: list[str]) -> None:
    """Run a command line in this process, and write which functions of the package ran, by file."""
    ran = set[CodeType]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            ran.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        from headway.cli import main

        main(arguments)
    finally:
        sys.setprofile(None)
        functions = (code for code in ran if not code.co_name.startswith("<") and code.co_flags & inspect.CO_NEWLOCALS)
        ours = [code.co_filename for code in functions if Path(code.co_filename).is_relative_to(SOURCE)]
        report.write_text(json.dumps(ours), encoding="utf-8")


def environment(folder: Path) -> dict[str, str]:
    """That of all processes: this package, one thread, no accelerator, a cache of their own, products of any processor.

    Processors with more instructions choose among more ways to multiply.
    """
    ours = {"PYTHONPATH": str(SOURCE.parent), "HEADWAY_CACHE": str(folder / "cache")}
    return os.environ | ours | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "ATEN_CPU_CAPABILITY": "default"}


def run(folder: Path, *arguments: str) -> None:
    """Run Python in a folder, with a line on its standard input; what it says is shown where it fails."""
    command, given = [sys.executable, *arguments], environment(folder)
    ended = subprocess.run(command, cwd=folder, env=given, input=f"{LINE}\n", text=True, capture_output=True)
    if ended.returncode:
        sys.exit(f"{' '.join(command)}\n{ended.stderr}")


def ran(folder: Path, *arguments: str) -> tuple[int, int]:
    """How many functions ran for a command line in a folder, and of how many files they are."""
    report = folder / "report.json"
    run(folder, str(Path(__file__).resolve()), str(report), *arguments)
    files = json.loads(report.read_text(encoding="utf-8"))
    return len(files), len(set(files))


def functions(folder: Path) -> dict[str, tuple[int, int]]:
    """How many functions, of how many files, run for commands that ask for nothing special."""
    write_toy(folder)
    return {
        "train": ran(folder, "train", "recipe.yaml", "--output", "run"),
        "predict": ran(folder, "predict", "run"),
        "compare": ran(folder, "compare", "grid.yaml", "--output", "grid"),
    }


def start_seconds(folder: Path, *arguments: str) -> str:
    """The processor time of a command line in a folder."""
    taken = []
    for _ in range(STARTS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run(folder, "-m", "headway", *arguments)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return f"{median(taken):.2f} s"


def write_toy(folder: Path) -> None:
    """A recipe and a grid of 400 pairs; JSON is YAML."""
    draw, words = random.Random(1), [a + b + c for a in "abcd" for b in "aeio" for c in "rst"]
    for name, count in (("train", 400), ("dev", 20)):
        sentences = [draw.choices(words, k=draw.randint(3, 8)) for _ in range(count)]
        rows = "".join(f"{' '.join(each)}\t{' '.join(reversed(each))}\n" for each in sentences)
        (folder / f"{name}.tsv").write_text(rows, encoding="utf-8")
    for name, content in (("recipe", RECIPE), ("grid", GRID)):
        (folder / f"{name}.yaml").write_text(json.dumps(content), encoding="utf-8")


def measures() -> Iterator[tuple[str, str]]:
    """The rows of the table."""
    source, tests = HOUSE / "src", HOUSE / "tests"
    yield "src, lines / files", f"{lines(source):,} / {len(modules(source))}"
    yield "tests, lines / files", f"{lines(tests):,} / {len(modules(tests))}"
    yield "`raise` in src", f"{raises():,}"
    number, options, arguments = slots()
    yield "verbs / option slots of the command line (arguments)", f"{number} / {options} ({arguments})"
    with TemporaryDirectory(prefix="measure-house-") as name:
        folder = Path(name)
        for verb, (number, files) in functions(folder).items():
            yield f"functions and files that run: `{verb}`", f"{number:,} in {files:,}"
        yield "floors / circles", "{} / {}".format(*floors(ways()))
        pages = (HOUSE / "docs" / "results.md").read_text(encoding="utf-8")
        yield "docs/results.md", f"{len(pages.split()):,} words"
        yield "start, processor time: `headway --help`", start_seconds(folder, "--help")
        yield "the same, `predict` of one line", start_seconds(folder, "predict", "run")


def main() -> None:
    """Print the table."""
    rows = "".join(f"| {measure} | {value} |\n" for measure, value in measures())
    sys.stdout.write(f"| measure | value |\n|---|---|\n{rows}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--rooms"]:
        for room, size in rooms().items():
            sys.stdout.write(f'    "{room}": Room({", ".join(map(str, size))}),\n')
    elif len(sys.argv) > 1:
        profile(Path(sys.argv[1]), sys.argv[2:])
    else:
        main()
