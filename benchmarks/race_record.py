"""A record of `headway bench race`, from runs that were trained before.

python benchmarks/race_record.py results/tanaka-race.json --title "Time to 37.7 BLEU" --goal 37.7 \
    --command "headway train recipes/tanaka/fast.yaml training.seed=SEED --output runs/fast-SEED" \
    runs/transformer-small-1 runs/transformer-small-2 runs/fast-1 runs/fast-2

The record has the tables of the goal, and not the curves.
"""

import argparse
from pathlib import Path

from headway.bench.bench_race import Racer, run_bench_race
from headway.comparison.existing_results import Existing, name_runs
from headway.comparison.results import ResultRecord, measured_now, write_record


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="the record, as JSON")
    parser.add_argument("runs", nargs="+", help="run folders, or NAME=RUN, as headway bench race takes them")
    parser.add_argument("--title", required=True)
    parser.add_argument("--goal", type=float, required=True)
    parser.add_argument("--metric", help="of dev; by default the first")
    parser.add_argument("--text", action="append", default=[], help="a sentence above the tables; several times")
    parser.add_argument("--command", action="append", default=[], help="one that trained the runs; several times")
    given = parser.parse_args()
    runs = [Existing.parse(run, "runs") for run in given.runs]
    racers = [Racer(cell.variant, cell.seed, run.path) for run, cell in zip(runs, name_runs(runs), strict=True)]
    _, way, systems = run_bench_race(racers, given.metric, given.goal)
    names = " ".join(dict.fromkeys(f"runs/{racer.system}-*" for racer in racers))
    race = f"headway bench race {names} --goal {given.goal:g}"
    record = ResultRecord(
        title=given.title,
        measured=measured_now([*given.command, race], sorted({racer.seed for racer in racers})),
        text=tuple(given.text),
        tables=(systems.to_json(), way.to_json()),
    )
    write_record(given.output, record)


if __name__ == "__main__":
    main()
