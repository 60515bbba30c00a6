"""A record of `bench.py race`, from runs that were trained before.

python benchmarks/race_record.py results/tanaka-race.json --title "Time to 37.7 BLEU" --goal 37.7 \
    --command "headway train recipes/tanaka/fast.yaml training.seed=SEED --output runs/fast-SEED" \
    runs/transformer-small-1 runs/transformer-small-2 runs/fast-1 runs/fast-2

The record has the tables of the goal, and not the curves. `--test SOURCE REFERENCES` or `--test PAIRS.tsv` adds the
scores of the finished runs on a test set; RUN in these paths is the run's folder.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench_race import Racer, run_bench_race

from headway.claims.reproduce import ResultRecord, measured_now, write_record
from headway.comparison.cells import CellName, NamedCorpus
from headway.core.tables import Cell, Column, Table
from headway.formats.corpus_config import parse_corpus
from headway.grids.compare import Existing, name_runs
from headway.grids.run import result_of_run
from headway.runs.run import open_run
from headway.tasks import dev_metrics


def on_test(racers: Sequence[Racer], tests: Sequence[Sequence[str]]) -> Table:
    """The scores of finished runs on test sets, by the first metric of their dev sets."""
    metric = dev_metrics(open_run(racers[0].run).recipe)[0]
    rows: list[list[Cell]] = []
    for racer in racers:
        corpora = [_corpus(test, racer.run) for test in tests]
        outputs = result_of_run(CellName(racer.system, racer.seed, racer.run), corpora).outputs
        scores = [metric.score(output.hypotheses, output.test.references).value for output in outputs]
        rows.append([str(racer), *scores])
    scored = [Column(f"{metric.label} on {Path(test[0]).stem}", format=".2f") for test in tests]
    return Table([Column("run"), *scored], rows, title="Test", notes=[f"{metric.label}: {metric.signature()}"])


def _corpus(test: Sequence[str], run: Path) -> NamedCorpus:
    """The files of a test set: a source and its references, or pairs in one file."""
    keys = ["tsv"] if len(test) == 1 else ["source", "target"]
    files = {key: path.replace("RUN", str(run)) for key, path in zip(keys, test, strict=True)}
    return NamedCorpus(Path(test[0]).stem, parse_corpus(files, "test"))


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="the record, as JSON")
    parser.add_argument("runs", nargs="+", help="run folders, or NAME=RUN, as bench.py race takes them")
    parser.add_argument("--title", required=True)
    parser.add_argument("--goal", type=float, required=True)
    parser.add_argument("--metric", help="of dev; by default the first")
    parser.add_argument("--text", action="append", default=[], help="a sentence above the tables; several times")
    parser.add_argument(
        "--test", nargs="+", action="append", default=[], metavar="FILE", help="a test set; several times"
    )
    parser.add_argument("--command", action="append", default=[], help="one that trained the runs; several times")
    given = parser.parse_args()
    runs = [Existing.parse(run, "runs") for run in given.runs]
    racers = [Racer(cell.variant, cell.seed, run.path) for run, cell in zip(runs, name_runs(runs), strict=True)]
    _, way, systems = run_bench_race(racers, given.metric, given.goal)
    named = any("=" in run for run in given.runs)
    names = " ".join(given.runs if named else dict.fromkeys(f"runs/{racer.system}-*" for racer in racers))
    race = f"python benchmarks/bench.py race {names} --goal {given.goal:g}"
    tables = [systems, way, on_test(racers, given.test)] if given.test else [systems, way]
    record = ResultRecord(
        title=given.title,
        measured=measured_now([*given.command, race], sorted({racer.seed for racer in racers})),
        text=tuple(given.text),
        tables=tuple(table.to_json() for table in tables),
    )
    write_record(given.output, record)


if __name__ == "__main__":
    main()
