"""Time and memory of large corpora: checking, encoding, a start from the cache, and training, by the number of pairs.

python benchmarks/large_corpora.py --data shared/data/tanaka --scratch FOLDER --output results/large-corpora.json \\
    --figure docs/large-corpora.svg

The pairs are those of a smaller corpus, recombined: the first half of one pair, then the second half of another, on
both sides. Each stage is a command in a process of its own; the cache holds nothing at first. The scratch folder takes
about 250 bytes a pair, and is emptied after each size.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import yaml

from headway.claims.reproduce import Figure, ResultRecord, measured_now, write_record
from headway.cli.console import show
from headway.core.documents import read_json
from headway.core.errors import RunError
from headway.core.log import say
from headway.core.processes import batched
from headway.core.tables import Column, Table
from headway.formats.lines import read_lines
from headway.pages.charts import Panel, panel_chart

SIZES = (100_000, 1_000_000, 10_000_000)
SEED = 1
AT_ONCE = 100_000  # pairs that are written together
EVERY = 0.1  # seconds between two looks at the memory
STAGES = ("checking", "encoding", "starting from the cache", "training")
MODEL = {
    "preset": "transformer-small", "dim": 128, "heads": 4, "feed_forward": 256, "encoder": {"layers": 2},
    "decoder": {"layers": 2},
}  # fmt: skip


@dataclass(frozen=True)
class Stage:
    """A command on so many pairs: its seconds, the pairs of these, and the most bytes of all its processes.

    `private` is memory without pages of files, which the system takes back where others need it.
    """

    name: str
    pairs: int
    seconds: float
    rate: float | None
    memory: int
    private: int


def halves(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """The first and the second half of each text, by words."""
    words = [text.split() for text in texts]
    return [" ".join(each[: len(each) // 2]) for each in words], [" ".join(each[len(each) // 2 :]) for each in words]


def recombined(sources: Sequence[str], targets: Sequence[str], count: int) -> Iterator[tuple[str, str]]:
    """So many pairs, each the first half of one pair before the second half of another, drawn by `SEED`."""
    (first_source, last_source), (first_target, last_target) = halves(sources), halves(targets)
    random = np.random.default_rng(SEED)
    for begin in range(0, count, AT_ONCE):
        for one, other in random.integers(len(sources), size=(min(AT_ONCE, count - begin), 2)).tolist():
            source = f"{first_source[one]} {last_source[other]}".strip()
            yield source, f"{first_target[one]} {last_target[other]}".strip()


def write_corpus(data: Path, folder: Path, count: int) -> Path:
    """Write the pairs, and the recipe of a small model of them, whose file is given back."""
    sources, targets = (list(read_lines(data / f"train.{language}")) for language in ("ja", "en"))
    with (
        (folder / "train.ja").open("w", encoding="utf-8") as one,
        (folder / "train.en").open("w", encoding="utf-8") as other,
    ):
        for some in batched(recombined(sources, targets, count), AT_ONCE):
            one.writelines(f"{source}\n" for source, _ in some)
            other.writelines(f"{target}\n" for _, target in some)
    recipe = {
        "task": "translation",
        "data": {
            "train": {"source": str(folder / "train.ja"), "target": str(folder / "train.en")},
            "dev": {"source": str(data.absolute() / "dev.ja"), "target": str(data.absolute() / "dev.en")},
        },
        "text": {"source": {"language": "ja"}, "target": {"language": "en"}},
        "vocabulary": {"kind": "bpe", "size": 8000},
        "model": MODEL,
        "optimizer": {"learning_rate": 1e-3, "warmup": 100},
        "training": {
            "updates": 1, "batch_tokens": 2048, "precision": "float32", "checkpoint_every": 100_000, "dev_metrics": [],
        },
    }  # fmt: skip
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return folder / "recipe.yaml"


def watched(command: Sequence[str], folder: Path) -> tuple[float, int, int]:
    """Run a headway command: its seconds, and the most memory of it and its children, with and without pages of files.

    Raises RunError where it fails.
    """
    environment = os.environ | {"HEADWAY_CACHE": str(folder / "cache")}
    most, private, began = 0, 0, time.monotonic()
    with (folder / "said.txt").open("wb") as said:
        process = psutil.Popen(
            [sys.executable, "-m", "headway", *command], stdout=said, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while process.poll() is None:
                held = [used for used in map(memory_of, [process, *children_of(process)]) if used is not None]
                most = max(most, sum(used.rss for used in held))
                private = max(private, sum(used.rss - getattr(used, "shared", 0) for used in held))
                time.sleep(EVERY)
        finally:
            if process.poll() is None:
                process.kill()
    seconds = time.monotonic() - began
    if process.returncode:
        text = (folder / "said.txt").read_text(encoding="utf-8", errors="replace")
        raise RunError(f"headway {' '.join(command)} failed: {text[-2000:]}")
    return seconds, most, private


def children_of(process: psutil.Process) -> list[psutil.Process]:
    """The processes below one; none where it has just ended."""
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def memory_of(process: psutil.Process) -> "psutil._ntuples.pmem | None":
    """What a process holds; None where it has just ended."""
    try:
        return process.memory_info()
    except psutil.NoSuchProcess:
        return None


def measured(data: Path, folder: Path, count: int, updates: int) -> list[Stage]:
    """All stages with so many pairs."""
    say(f"{count:,} pairs: writing")
    recipe, stages = str(write_corpus(data, folder, count)), []
    commands = (
        ("data", "check", recipe),
        ("train", recipe, "--output", str(folder / "first")),
        ("train", recipe, "--output", str(folder / "second")),
        ("train", recipe, f"training.updates={updates}", "--output", str(folder / "third")),
    )
    for name, command in zip(STAGES, commands, strict=True):
        if name == "encoding":  # what checking has encoded; the vocabulary stays
            shutil.rmtree(folder / "cache" / "corpora")
        seconds, memory, private = watched(command, folder)
        rate: float | None = count / seconds
        if name == "starting from the cache":
            rate = None
        if name == "training":
            seconds, rate = trained(folder)
        stages.append(Stage(name, count, seconds, rate, memory, private))
        say(f"{count:,} pairs: {name} took {seconds:.1f} s and {memory / 1e9:.2f} GB, {private / 1e9:.2f} GB its own")
    return stages


def trained(folder: Path) -> tuple[float, float]:
    """The seconds of the updates of the last run, and its pairs a second."""
    manifest = read_json(folder / "third" / "manifest.json")
    reports = [read_json(path) for path in (folder / "cache" / "corpora").glob("*/report.json")]
    report = max(reports, key=lambda one: int(one["pairs_kept"]))
    tokens = report["target"]["tokens"] / report["pairs_kept"] + 1  # with the end mark
    return manifest["seconds"], manifest["target_tokens"] / tokens / manifest["seconds"]


def table_of(stages: Sequence[Stage], updates: int) -> Table:
    """The stages, a row each."""
    columns = [
        "stage", Column("pairs", format=","), Column("time", "s", format=",.1f"), Column("pairs/s", format=",.0f"),
        Column("peak memory", "GB", format=".2f"), Column("without pages of files", "GB", format=".2f"),
    ]  # fmt: skip
    rows = [
        [each.name, each.pairs, each.seconds, each.rate, each.memory / 1e9, each.private / 1e9]
        for each in sorted(stages, key=lambda one: (STAGES.index(one.name), one.pairs))
    ]
    notes = [
        "checking: headway data check, which learns the vocabulary and encodes; nothing is in the cache",
        "encoding: headway train to the end of its first update, with the vocabulary in the cache",
        "starting from the cache: the same, with the encoded corpus in the cache",
        f"training: {updates:,} updates from the cache; time and pairs/s are those of updates",
        "peak memory: resident, of all processes together, so that what they share counts once a process",
    ]
    return Table(columns, rows, title="Large corpora by the number of pairs", notes=notes)


def draw(stages: Sequence[Stage], path: Path) -> None:
    """Draw time and memory by the number of pairs."""

    def points(name: str, value: str, unit: float) -> list[tuple[float, float]]:
        return [(float(each.pairs), getattr(each, value) / unit) for each in stages if each.name == name]

    times = {name: points(name, "seconds", 1.0) for name in STAGES[:3]}
    memory = {name: points(name, "private", 1e9) for name in STAGES}
    panel_chart(
        [
            Panel("time", "pairs", "seconds", times, logarithmic="xy"),
            Panel("memory without pages of files", "pairs", "GB", memory, logarithmic="x"),
        ],
        path,
    )


def main() -> None:
    """Measure all sizes, print the table, and write the record and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, help="the Tanaka corpus: train.ja, train.en, dev.ja, dev.en"
    )
    parser.add_argument("--scratch", type=Path, required=True, help="a folder for the corpora and the cache")
    parser.add_argument("--pairs", type=int, action="append", help="several times; by default 10^5, 10^6 and 10^7")
    parser.add_argument("--updates", type=int, default=200, help="of training")
    parser.add_argument("--output", type=Path, help="the record, as JSON")
    parser.add_argument("--figure", type=Path, help="the figure, in docs/")
    given = parser.parse_args()
    given.scratch.mkdir(parents=True, exist_ok=True)
    stages = []
    with show():
        for count in given.pairs or SIZES:
            with tempfile.TemporaryDirectory(dir=given.scratch) as folder:
                stages += measured(given.data, Path(folder), count, given.updates)
    table = table_of(stages, given.updates)
    print(table.text())
    if given.figure is not None:
        draw(stages, given.figure)
    if given.output is not None:
        record = ResultRecord(
            title="Large corpora",
            measured=measured_now([" ".join(["python", *sys.argv])], [SEED]),
            text=(
                "The pairs are those of the Tanaka corpus, recombined: the first half of one pair before the second"
                " half of another.",
            ),
            tables=(table.to_json(),),
            figures=() if given.figure is None else (Figure(file=given.figure.name, title=table.title or ""),),
        )
        write_record(given.output, record)


if __name__ == "__main__":
    main()
