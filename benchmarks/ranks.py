"""Training in 1, 2 and 4 processes on this machine: target tokens a second beside one process.

python benchmarks/ranks.py --data shared/data/tanaka --scratch FOLDER --output results/speed/ranks.json

The processes share the cores. Each round trains with all of them in turn, and a ratio compares runs of one round.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from large_corpora import SEED, write_corpus
from rounds import BenchReport, Measurement

from headway.claims.reproduce import ResultRecord, measured_now, write_record
from headway.cli.console import show
from headway.core.device import processor
from headway.core.documents import read_json
from headway.core.errors import RunError
from headway.core.log import progress
from headway.core.processes import cores

PROCESSES = (1, 2, 4)
STRATEGIES = ("ddp", "fsdp")
PAIRS, UPDATES = 20_000, 40
NOTES = (
    "tokens/s: target tokens of all updates by the time of updates, median over the rounds",
    "the processes have the same batches: each takes its rows of all of them, and the cores are divided among them",
)


def trained(recipe: Path, output: Path, processes: int, settings: list[str]) -> tuple[int, float, float]:
    """Train with so many processes: target tokens, and the seconds and processor seconds of updates."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"]
    command += ["headway", "train", str(recipe), *settings, "--output", str(output)]
    threads = {"OMP_NUM_THREADS": str(max(1, cores() // processes))}
    ended = subprocess.run(command, env=os.environ | threads, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RunError(f"training in {processes} processes failed: {ended.stderr[-2000:]}")
    manifest = read_json(output / "manifest.json")
    return manifest["target_tokens"], manifest["seconds"], manifest["cpu_seconds"]


def compared(data: Path, folder: Path, size: str, rounds: int, updates: int) -> BenchReport:
    """Let all numbers of processes and strategies take turns for so many rounds."""
    os.environ["HEADWAY_CACHE"] = str(folder / "cache")
    recipe = write_corpus(data, folder, PAIRS)
    settings = [f"model={{preset: transformer-{size}}}", f"training.updates={updates}", "training.batch_tokens=4096"]
    trained(recipe, folder / "warm", 1, [*settings, "training.updates=1"])  # with the corpus in the cache
    contenders = {
        f"{count} processes, {strategy}" if count > 1 else "1 process": (count, strategy)
        for count in PROCESSES
        for strategy in STRATEGIES[: 1 if count == 1 else None]
    }
    results = {name: Measurement(size, "", name, {}, "1 process") for name in contenders}
    with progress("training", rounds * len(contenders), "runs") as line:
        for number in range(rounds):
            for place, (name, (count, strategy)) in enumerate(contenders.items()):
                line.update(number * len(contenders) + place)
                output = folder / f"{number}-{place}"
                tokens, seconds, processor_seconds = trained(
                    recipe, output, count, [*settings, f"training.strategy={strategy}"]
                )
                results[name].tokens.append(tokens)
                results[name].seconds.append(seconds)
                results[name].cpu_seconds.append(processor_seconds)
    title = f"Training in several processes, {processor()}, {cores()} cores"
    return BenchReport(title, "", list(results.values()), {}, NOTES)


def main() -> None:
    """Measure, print the table, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, help="the Tanaka corpus: train.ja, train.en, dev.ja, dev.en"
    )
    parser.add_argument("--scratch", type=Path, required=True, help="a folder for the corpus, the cache and the runs")
    parser.add_argument("--size", choices=("tiny", "small", "base"), default="small", help="of the model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=UPDATES, help="of each run")
    parser.add_argument("--output", type=Path, help="the record, as JSON")
    given = parser.parse_args()
    given.scratch.mkdir(parents=True, exist_ok=True)
    with show(), tempfile.TemporaryDirectory(dir=given.scratch) as folder:
        report = compared(given.data, Path(folder), given.size, given.rounds, given.updates)
    print(report.text())
    if given.output is not None:
        measured = measured_now([" ".join(["python", *sys.argv])], [SEED])
        record = ResultRecord(title="Several processes", measured=measured, tables=(report.table().to_json(),))
        write_record(given.output, record)


if __name__ == "__main__":
    main()
