"""A record of claims on what is left of a variant without its parts, where the other variants of the file have no runs.

python benchmarks/cut_record.py headway/cut results/headway-cut.json --data runs/headway-cut/data --variant ngram \
    runs/headway-cut/cells/ngram-1 runs/headway-cut/cells/ngram-2 runs/headway-cut/cells/ngram-3

`headway reproduce` makes the record where all variants have runs.
"""

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean, stdev

import numpy as np

import headway
from headway.comparison.claims import ClaimPath, chosen_files, claims_folder, claims_table, read_claims
from headway.comparison.reproduce import ResultRecord, cut_variants, decide_cut, measured_now, write_record
from headway.core.tables import Cell, Column, Spread, Table
from headway.formats.lines import read_lines
from headway.runs.inspect.capture import contributions
from headway.runs.run import open_run

PAIRS = 60  # that gradients are taken of


def gradient_table(runs: Sequence[Path], sources: Path, targets: Path) -> Table:
    """The mean absolute value of gradient x input of each offset in the encoder, over heads, tokens and layers."""
    given = [[*islice(read_lines(path), PAIRS)] for path in (sources, targets)]
    found = dict[str, list[float]]()
    for run in runs:
        of_run = defaultdict[str, list[float]](list)
        for layers in contributions(headway.load(run), *given):
            for name, layer in layers.items():
                for span, values in zip(layer.spans, np.abs(layer.gradient_input).mean((0, 1)), strict=True):
                    if name.startswith("encoder."):
                        of_run[str(span.name)].append(1000 * float(values))
        for span, values in of_run.items():
            found.setdefault(span, []).append(fmean(values))
    rows: list[list[Cell]] = [[span, Spread(fmean(each), stdev(each))] for span, each in found.items()]
    notes = [f"{PAIRS} pairs; ±: standard deviation between seeds"]
    columns = [Column("offset"), Column("gradient x input", "1/1,000 nats", ".2f")]
    return Table(columns, rows, title="Gradient x input, the mean of its absolute value", notes=notes)


def main() -> None:
    """Cut the runs, decide the claims, and write the record."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("claims", help="as in headway reproduce")
    parser.add_argument("output", type=Path, help="the record, as JSON")
    parser.add_argument("runs", nargs="+", type=Path, help="the run folders of the variant, a seed each")
    parser.add_argument("--data", required=True, type=Path, help="the folder of the data")
    parser.add_argument("--variant", required=True)
    parser.add_argument("--regime", default="unknown", choices=["early", "plateau", "unknown"], help="of the training")
    parser.add_argument("--gradients", nargs=2, type=Path, metavar="FILE", help="sources and targets, for n-grams")
    parser.add_argument("--text", action="append", default=[], help="a sentence above the table; several times")
    parser.add_argument("--command", action="append", default=[], help="what was run before; several times")
    given = parser.parse_args()
    ((_, path),) = chosen_files(claims_folder(), ClaimPath.parse(given.claims)).items()
    claims = read_claims(path)
    cuts, tables = cut_variants(claims, {given.variant: given.runs}, given.data)
    if given.gradients:
        tables.append(gradient_table(given.runs, *given.gradients))
    found = {claim.says: decide_cut(claim, claims, cuts, {given.variant: given.regime}) for claim in claims.claims}
    print(claims_table(found, claims, as_printed=False).text(), *(table.text() for table in tables), sep="\n\n")
    command = f"python benchmarks/cut_record.py {given.claims} {given.output} --data FOLDER --variant {given.variant}"
    seeds = sorted(open_run(run).recipe.training.seed for run in given.runs)
    record = ResultRecord(
        title=claims.title,
        measured=measured_now([*given.command, f"{command} runs/{given.variant}-*"], seeds),
        text=tuple(given.text),
        tables=tuple(table.to_json() for table in tables),
        claims=tuple(one.to_json() for one in found.values() if one is not None),
        looks=claims.looks,
    )
    write_record(given.output, record)


if __name__ == "__main__":
    main()
