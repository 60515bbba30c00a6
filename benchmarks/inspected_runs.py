"""Records of what is read from several runs of each system, with its mean and spread between seeds."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from headway.claims.reproduce import ResultRecord, measured_now, write_record
from headway.core.tables import Cell, Column, Spread, Table
from headway.grids.compare import Existing, name_runs

Values = Mapping[str, float]  # by column


def parser_of(doc: str | None) -> ArgumentParser:
    """The arguments that all such scripts have: the record, its title and text, and the runs."""
    parser = ArgumentParser(description=doc, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="the record, as JSON")
    parser.add_argument("runs", nargs="+", help="run folders, or NAME=RUN, as headway compare takes them")
    parser.add_argument("--title", required=True)
    parser.add_argument("--text", action="append", default=[], help="a sentence above the table; several times")
    return parser


def table_of(read: Mapping[str, Sequence[Values]], title: str) -> Table:
    """A row a system, whose runs have their values by column; a value that no run of a system has is left out."""
    names = list(dict.fromkeys(name for runs in read.values() for values in runs for name in values))
    rows: list[list[Cell]] = []
    for system, runs in read.items():
        columns = [[values[name] for values in runs if name in values] for name in names]
        rows.append([system, *(_cell(seeds) for seeds in columns)])
    notes = ["±: standard deviation between seeds"]
    return Table([Column("system"), *(Column(name, format=".1f") for name in names)], rows, title=title, notes=notes)


def _cell(seeds: Sequence[float]) -> Cell:
    if len(seeds) < 2:
        return seeds[0] if seeds else None
    return Spread(fmean(seeds), stdev(seeds))


def keep(given: Namespace, measure: Callable[[Path], Values], title: str, command: str) -> None:
    """Read all runs, and write the record.

    Args:
        given: the arguments of `parser_of`.
        measure: the values of one run, by column.
        title: that of the table.
        command: the script with the options that are its own.
    """
    runs = [Existing.parse(run, "runs") for run in given.runs]
    cells, read = name_runs(runs), dict[str, list[Values]]()
    for run, cell in zip(runs, cells, strict=True):
        read.setdefault(cell.variant, []).append(measure(run.path))
    names = " ".join(f"runs/{name}-*" for name in read)
    record = ResultRecord(
        title=given.title,
        measured=measured_now([f"{command} {given.output} {names}"], sorted({cell.seed for cell in cells})),
        text=tuple(given.text),
        tables=(table_of(read, title).to_json(),),
    )
    write_record(given.output, record)
