"""Records of a student that `headway new --student` has made: scores and parity, the minutes of steps, and outputs.

python benchmarks/student_record.py results/my-language en-ast --command "headway new --student en-ast ..."

The second folder is that of the command, all of whose steps have ended. Each record has its name: `en-ast.json`,
`en-ast-minutes.json` and `en-ast-outputs.json`. Outputs are shown by the rank of their chrF beside the teacher's.
"""

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engines import PAIRS, megabytes

from headway.claims.reproduce import ResultRecord, measured_now, write_record
from headway.core.tables import Cell, Column, Table
from headway.formats.lines import read_lines
from headway.metrics import build_metric
from headway.runs.run import open_run

SHOWN = 20
REPEATED = re.compile(r"\b(\w+ \w+ \w+)\b.*\b\1\b")
SPACED = re.compile(r" \.$")


def table_of_quality(folder: Path, teacher: Sequence[str], engine: Sequence[str]) -> Table:
    """The size of the student, its scores, and for how many lines all write the same."""
    parity: dict[str, Any] = json.loads((folder / "firefox" / "parity.json").read_text(encoding="utf-8"))
    rows: list[list[Cell]] = [["weights, MB", megabytes(folder / "firefox")]]
    for metric in (build_metric("bleu", force=True), build_metric("chrf")):
        rows.append([f"{metric.label} of the engine beside the teacher", metric.score(engine, [teacher]).value])
    for name, lines in (("the teacher", teacher), ("the engine", engine)):
        for what, found in (("repeat three words", REPEATED), ("end in a full stop behind a space", SPACED)):
            share = sum(found.search(line) is not None for line in lines) / len(lines)
            rows.append([f"lines of {name} that {what}, %", 100 * share])
    rows += [[f"dev: BLEU of {by} beside the teacher", score] for by, score in parity["scores"]["BLEU"].items()]
    rows += [
        [f"dev: lines for which {one} = {other}, %", 100 * parity["shares"][f"{one} equal to {other}"]]
        for one, other in PAIRS
    ]
    rows += [
        [f"dev: lines of floats that stay with {name}, %", 100 * cause["equal"]]
        for name, cause in parity["causes"].items()
    ]
    return Table([Column("measure"), Column("value", format=".1f")], rows)


def table_of_steps(folder: Path) -> Table:
    """The minutes of each step, as `steps.json` has them."""
    done: dict[str, dict[str, Any]] = json.loads((folder / "steps.json").read_text(encoding="utf-8"))["done"]
    rows: list[list[Cell]] = [[name, step["seconds"] / 60, step["code"]] for name, step in done.items()]
    rows.append(["all", sum(step["seconds"] for step in done.values()) / 60, None])
    return Table([Column("step"), Column("minutes", format=".1f"), Column("exit code", format="d")], rows)


def table_of_outputs(sources: Sequence[str], teacher: Sequence[str], engine: Sequence[str]) -> Table:
    """Twenty lines, from the worst to the best by chrF."""
    chrf = build_metric("chrf")
    scores = [chrf.score([one], [[other]]).value for one, other in zip(engine, teacher, strict=True)]
    ranks = sorted(range(len(scores)), key=scores.__getitem__)
    shown = [ranks[round(number * (len(ranks) - 1) / (SHOWN - 1))] for number in range(SHOWN)]
    rows: list[list[Cell]] = [[scores[line], sources[line], teacher[line], engine[line]] for line in shown]
    columns = [Column("chrF", format=".0f"), Column("source"), Column("teacher"), Column("student in the engine")]
    return Table(columns, rows)


def main() -> None:
    """Write the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="a folder for the records")
    parser.add_argument("folder", type=Path, help="of `headway new --student`")
    parser.add_argument("--text", default="", help="sentences above the first table")
    parser.add_argument("--command", action="append", default=[], help="one that made the folder; several times")
    given = parser.parse_args()
    folder, test = given.folder, given.folder / "distilled" / "test"
    sources, teacher = (list(read_lines(test / name)) for name in ("source.txt", "target.txt"))
    engine = list(read_lines(folder / "evaluation" / "firefox.txt"))
    measured = measured_now(given.command, [open_run(folder / "runs" / "rounded").recipe.training.seed])
    ranks = f"{SHOWN} of {len(sources)} lines of test, from the worst to the best by chrF, in equal steps."
    records = {
        "": (
            "Into the engine",
            table_of_quality(folder, teacher, engine),
            f"{given.text} {len(sources)} lines of test.".strip(),
        ),
        "-minutes": ("Minutes of each step", table_of_steps(folder), "As the command has measured them."),
        "-outputs": ("Outputs", table_of_outputs(sources, teacher, engine), ranks),
    }
    given.output.mkdir(parents=True, exist_ok=True)
    for end, (title, table, text) in records.items():
        record = ResultRecord(
            title=f"{title}, {folder.name}", text=(text,), measured=measured, tables=(table.to_json(),)
        )
        write_record(given.output / f"{folder.name}{end}.json", record)


if __name__ == "__main__":
    main()
