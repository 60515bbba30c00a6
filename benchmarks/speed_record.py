"""A record of a verb of `bench.py`, for each instruction set that this processor has.

python benchmarks/speed_record.py train results/speed/training.json -- --size small --precision float32

What stands behind `--` goes to `bench.py`. Libraries are told by their own variables to do without AVX-512. With
`--wide`, which comes first, that is not measured. `--figure FILE` keeps the figure of `mixers`, with all instructions.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from rounds import BenchReport

from headway.claims.reproduce import Figure, ResultRecord, measured_now, write_record
from headway.core.device import instruction_set
from headway.core.tables import Cell, Column, Table

AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "FBGEMM_ENABLE_INSTRUCTIONS": "AVX2",
    "CT2_FORCE_CPU_ISA": "AVX2",
}
TITLES = {
    "train": "Training",
    "decode": "Decoding",
    "file": "Whole files",
    "lengths": "Training on long sentences",
    "mixers": "Mixers by length",
    "steps": "Decoding steps of mixers",
}


def measured(verb: str, options: list[str], narrow: bool) -> BenchReport:
    """What `bench.py` has measured, with or without AVX-512."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, str(Path(__file__).with_name("bench.py")), verb, *options, "--output", str(report)]
        subprocess.run(command, check=True, env=os.environ | (AVX2 if narrow else {}))
        return BenchReport.read(report)


def by_length(report: BenchReport) -> Table:
    """The times of mixers, a column a length, as multiples of the baseline's; what else was measured stands below."""
    passes = [measurement for measurement in report.measurements if "length" in measurement.facts]
    lengths = dict.fromkeys(measurement.facts["length"] for measurement in passes)
    times: dict[str, list[Cell]] = {}
    for measurement in passes:
        ratios = measurement.ratios(report.baseline_of(measurement))
        times.setdefault(measurement.contender, []).append(1 / statistics.median(ratios))
    columns = [Column("times as long as"), *(Column(f"L={length:,}", format=".2f") for length in lengths)]
    rows: list[list[Cell]] = [[name, *row] for name, row in times.items()]
    return Table(columns, rows, title=report.title, notes=report.table().notes)


def named(option: str) -> str:
    """An option of `bench.py` for the record: RUN instead of a folder, and FILE instead of a file."""
    return "RUN" if Path(option).is_dir() else "FILE" if Path(option).is_file() else option


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=TITLES)
    parser.add_argument("output", type=Path, help="the record, as JSON")
    parser.add_argument("options", nargs="*", help="those of bench.py")
    parser.add_argument("--wide", action="store_true", help="only with all instructions of this processor")
    parser.add_argument("--figure", type=Path, help="of mixers, in docs/")
    given = parser.parse_args()
    drawn = [] if given.figure is None else ["--figure", str(given.figure)]
    sets = [False, True] if instruction_set().startswith("AVX512") and not given.wide else [False]
    reports = [measured(given.verb, given.options + (drawn if not narrow else []), narrow) for narrow in sets]
    words = [named(word) if word in given.options else word for word in sys.argv[1:]]
    command = " ".join(["python benchmarks/speed_record.py", *words])
    titled = [
        replace(report, title="{instruction_set}, {threads} threads".format_map(report.machine)) for report in reports
    ]
    tables = [by_length(report) if given.verb == "mixers" else report.table() for report in titled]
    record = ResultRecord(
        title=TITLES[given.verb],
        measured=measured_now([command], [1]),
        tables=tuple(table.to_json() for table in tables),
        figures=() if given.figure is None else (Figure(file=given.figure.name, title="Time by length"),),
    )
    write_record(given.output, record)


if __name__ == "__main__":
    main()
