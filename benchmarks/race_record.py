"""A record of `headway bench race`, from runs that were trained before.

python benchmarks/race_record.py results/tanaka-race.json --title "Time to 37.7 BLEU" --goal 37.7 \
    --command "headway train recipes/tanaka/fast.yaml training.seed=SEED --output runs/fast-SEED" \
    runs/transformer-small-1 runs/transformer-small-2 runs/fast-1 runs/fast-2

The record has the tables of the goal, and not the curves. `--test SOURCE REFERENCES` adds the scores of the finished
runs on a test set.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from headway.bench.bench_race import Racer, run_bench_race
from headway.comparison.existing_results import Existing, name_runs
from headway.comparison.grid import NamedCorpus
from headway.comparison.results import ResultRecord, measured_now, write_record
from headway.comparison.run_results import result_of_run
from headway.formats.corpus_config import parse_corpus
from headway.runs.run_folder import RunFolder
from headway.tables import Cell, Column, Table
from headway.tasks import dev_metrics


def on_test(racers: Sequence[Racer], source: Path, references: Path) -> Table:
    """The scores of finished runs on a test set, by the first metric of their dev sets."""
    test = NamedCorpus(source.stem, parse_corpus({"source": source, "target": references}, "test"))
    metric = dev_metrics(RunFolder(racers[0].run).read_recipe())[0]
    rows: list[list[Cell]] = []
    for racer in racers:
        (output,) = result_of_run(racer.run, racer.system, racer.seed, [test]).outputs
        score = metric.score(output.hypotheses, output.test.references).value
        rows.append([str(racer), score])
    columns = [Column("run"), Column(f"{metric.label} on {test.name}", format=".2f")]
    return Table(columns, rows, title="Test", notes=[f"{metric.label}: {metric.signature()}"])


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="the record, as JSON")
    parser.add_argument("runs", nargs="+", help="run folders, or NAME=RUN, as headway bench race takes them")
    parser.add_argument("--title", required=True)
    parser.add_argument("--goal", type=float, required=True)
    parser.add_argument("--metric", help="of dev; by default the first")
    parser.add_argument("--text", action="append", default=[], help="a sentence above the tables; several times")
    parser.add_argument("--test", nargs=2, type=Path, metavar=("SOURCE", "REFERENCES"), help="lines of a test set")
    parser.add_argument("--command", action="append", default=[], help="one that trained the runs; several times")
    given = parser.parse_args()
    runs = [Existing.parse(run, "runs") for run in given.runs]
    racers = [Racer(cell.variant, cell.seed, run.path) for run, cell in zip(runs, name_runs(runs), strict=True)]
    _, way, systems = run_bench_race(racers, given.metric, given.goal)
    names = " ".join(dict.fromkeys(f"runs/{racer.system}-*" for racer in racers))
    race = f"headway bench race {names} --goal {given.goal:g}"
    tables = [systems, way] if given.test is None else [systems, way, on_test(racers, *given.test)]
    record = ResultRecord(
        title=given.title,
        measured=measured_now([*given.command, race], sorted({racer.seed for racer in racers})),
        text=tuple(given.text),
        tables=tuple(table.to_json() for table in tables),
    )
    write_record(given.output, record)


if __name__ == "__main__":
    main()
