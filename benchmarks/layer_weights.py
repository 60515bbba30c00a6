"""A record of what taggers read from the layers of their encoder: table 2 of Kaneko and Komachi (2019).

python benchmarks/layer_weights.py results/realec-layers.json --title "Weights of layers" --data test.tsv \
    runs/shmla-1 runs/shmla-2 runs/mhmla-1 runs/mhmla-2

A cell is the mean weight of a layer over all words and heads, with the standard deviation between seeds.
"""

import argparse
from pathlib import Path
from statistics import fmean, stdev

from headway.comparison.existing_results import Existing, name_runs
from headway.comparison.results import ResultRecord, measured_now, write_record
from headway.errors import UserError
from headway.runs.inspect.inspect_options import LayerOptions
from headway.runs.inspect.layer_report import inspect_layers
from headway.tables import Cell, Column, Spread, Table


def weights_of(run: Path, data: Path) -> list[float]:
    """The mean weight of each layer, lowest first, times 100. Raises UserError where the model weighs no layers."""
    weights = inspect_layers(run, LayerOptions(data=data)).weights
    if weights is None:
        raise UserError("this model does not attend to layers", where=str(run))
    mean: list[float] = (100 * weights.mean.mean(0)).tolist()
    return mean


def table_of(weights: dict[str, list[list[float]]]) -> Table:
    """A row a system, whose runs have their weights by layer."""
    rows: list[list[Cell]] = []
    for name, runs in weights.items():
        layers = list(zip(*runs, strict=True))
        rows.append([name, *(Spread(fmean(seeds), stdev(seeds)) if len(seeds) > 1 else seeds[0] for seeds in layers)])
    depth = max(len(row) for row in rows) - 1
    columns = [Column("system"), *(Column(f"layer {layer}", format=".1f") for layer in range(1, depth + 1))]
    return Table(columns, rows, title="Weights of layers, times 100", notes=["±: standard deviation between seeds"])


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="the record, as JSON")
    parser.add_argument("runs", nargs="+", help="run folders, or NAME=RUN, as headway compare takes them")
    parser.add_argument("--title", required=True)
    parser.add_argument("--data", type=Path, required=True, help="labelled words, a word a line")
    parser.add_argument("--text", action="append", default=[], help="a sentence above the table; several times")
    given = parser.parse_args()
    runs = [Existing.parse(run, "runs") for run in given.runs]
    cells, weights = name_runs(runs), dict[str, list[list[float]]]()
    for run, cell in zip(runs, cells, strict=True):
        weights.setdefault(cell.variant, []).append(weights_of(run.path, given.data))
    names = " ".join(f"runs/{name}-*" for name in weights)
    command = f"python benchmarks/layer_weights.py {given.output} --data FOLDER/{given.data.name} {names}"
    record = ResultRecord(
        title=given.title,
        measured=measured_now([command], sorted({cell.seed for cell in cells})),
        text=tuple(given.text),
        tables=(table_of(weights).to_json(),),
    )
    write_record(given.output, record)


if __name__ == "__main__":
    main()
