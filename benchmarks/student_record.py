"""The record of a student that `headway new --student` has made: minutes, scores, parity and outputs.

python benchmarks/student_record.py results/my-language.json en-ast --command "headway new --student en-ast ..."

The folder is that of the command, all of whose steps have ended. Outputs are shown by the rank of their chrF beside the
teacher's, from the worst to the best of all, in equal steps.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engines import megabytes, parity_table

from headway.claims.reproduce import ResultRecord, measured_now, write_record
from headway.core.tables import Cell, Column, Table
from headway.formats.lines import read_lines
from headway.metrics import build_metric
from headway.runs.run import open_run

SHOWN = 20
METRICS: dict[str, dict[str, Any]] = {"bleu": {"force": True}, "chrf": {}}


def table_of_steps(folder: Path) -> Table:
    """The minutes of each step, as `steps.json` has them."""
    done: dict[str, dict[str, Any]] = json.loads((folder / "steps.json").read_text(encoding="utf-8"))["done"]
    rows: list[list[Cell]] = [[name, step["seconds"] / 60, str(step["code"])] for name, step in done.items()]
    rows.append(["all", sum(step["seconds"] for step in done.values()) / 60, ""])
    return Table(
        [Column("step"), Column("minutes", format=".1f"), Column("exit code", align="right")], rows, title="Steps"
    )


def table_of_causes(parity: dict[str, Any]) -> Table:
    """For how many lines the outputs of floats stay the same with one rounding alone."""
    rows: list[list[Cell]] = [[name, 100 * cause["equal"]] for name, cause in parity["causes"].items()]
    columns = [Column("rounded"), Column("outputs of floats that stay", "%", ".1f")]
    return Table(columns, rows, title="Causes", notes=["The shortlist is a choice of tokens, and rounds nothing."])


def table_of_outputs(sources: Sequence[str], teacher: Sequence[str], engine: Sequence[str]) -> Table:
    """Twenty lines, from the worst to the best by chrF."""
    chrf = build_metric("chrf")
    scores = [chrf.score([one], [[other]]).value for one, other in zip(engine, teacher, strict=True)]
    ranks = sorted(range(len(scores)), key=scores.__getitem__)
    shown = [ranks[round(number * (len(ranks) - 1) / (SHOWN - 1))] for number in range(SHOWN)]
    rows: list[list[Cell]] = [[scores[line], sources[line], teacher[line], engine[line]] for line in shown]
    columns = [Column("chrF", format=".0f"), Column("source"), Column("teacher"), Column("student in the engine")]
    return Table(
        columns, rows, title="Outputs", notes=["Lines of test, in equal steps from the worst to the best by chrF."]
    )


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="the record, as JSON")
    parser.add_argument("folder", type=Path, help="of `headway new --student`")
    parser.add_argument("--title", default="My language into Firefox")
    parser.add_argument("--text", action="append", default=[], help="a sentence above the tables; several times")
    parser.add_argument("--command", action="append", default=[], help="one that made the folder; several times")
    given = parser.parse_args()
    parity_file = given.folder / "firefox" / "parity.json"
    parity = json.loads(parity_file.read_text(encoding="utf-8"))
    test = given.folder / "distilled" / "test"
    sources, teacher = (list(read_lines(test / name)) for name in ("source.txt", "target.txt"))
    engine = list(read_lines(given.folder / "evaluation" / "firefox.txt"))
    run = open_run(given.folder / "runs" / "rounded").loaded()
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    scores = [build_metric(name, **options).score(engine, [teacher]).value for name, options in METRICS.items()]
    size = megabytes(given.folder / "firefox")
    quality: list[Cell] = [given.folder.name, parameters, size, len(sources), *scores]
    columns = [Column("direction"), Column("parameters", format=","), Column("weights", "MB", ".1f")]
    columns += [Column("lines of test", format=","), Column("BLEU", format=".1f"), Column("chrF", format=".1f")]
    tables = [
        Table(columns, [quality], title="The engine's outputs beside the teacher's"),
        parity_table([f"{given.folder.name}={parity_file}"]),
        table_of_causes(parity),
        table_of_steps(given.folder),
        table_of_outputs(sources, teacher, engine),
    ]
    record = ResultRecord(
        title=given.title,
        text=tuple(given.text),
        measured=measured_now(given.command, [run.recipe.training.seed]),
        tables=tuple(table.to_json() for table in tables),
    )
    write_record(given.output, record)


if __name__ == "__main__":
    main()
