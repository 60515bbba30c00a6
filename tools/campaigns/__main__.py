"""`python -m tools.campaigns NAME... --seed N --minutes M`, and `python -m tools.campaigns report`."""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tools.campaigns import CAMPAIGNS, build_campaign
from tools.campaigns.faults import FAULTS, break_headway

if TYPE_CHECKING:  # a fault is made before anything of headway is imported
    from tools.campaigns.engine import Record


def main() -> int:
    """Run the campaigns that are named; the exit code is 1 where a case failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.campaigns", description=__doc__)
    names = [*CAMPAIGNS, "all", "report"]
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--seed", type=int, default=1, help="of all draws (default: 1)")
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument("--minutes", type=float, help="for each campaign (default: 1)")
    ends.add_argument("--cases", type=int, help="for each campaign, in place of minutes")
    ends.add_argument("--quick", action="store_true", help="the few cases of the test suite")
    parser.add_argument("--record", type=Path, metavar="FOLDER", help="store records there, as in results/reliability")
    parser.add_argument("--json", action="store_true", help="write the records to standard output")
    parser.add_argument("--fault", choices=FAULTS, metavar="NAME", help="break headway, and run the campaign that must "
                        "notice up to its first failure: " + "; ".join(FAULTS))  # fmt: skip
    options = parser.parse_args()
    if options.fault is not None:
        if options.names or options.record is not None:
            parser.error("--fault names its campaign, and what it finds is no record of headway")
        options.names = [break_headway(options.fault).campaign]
    if not options.names or not set(options.names) <= set(names):
        parser.error(f"name a fault, or some of {', '.join(names)}")
    one_thread()
    from tools.campaigns.history import commit
    from tools.campaigns.report import write_page

    if options.record is not None and commit().endswith("+"):
        parser.error("a record names a commit, and the working tree has changes; commit them first")
    if "report" in options.names:
        for refused in write_page():
            print(refused, file=sys.stderr)
        return 0
    records = [_run(name, options) for name in (CAMPAIGNS if "all" in options.names else options.names)]
    if options.json:
        print(json.dumps([record.to_json() for record in records]))
    return int(any(record.failures for record in records))


def one_thread() -> None:
    """Copies of a process with threads hang: libraries are told to have none, before they are imported.

    Threads that a case asks for sleep while they wait: where other processes have the cores, spinning uses up the
    processor time of the case.
    """
    os.environ.update(
        OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false",
        OMP_WAIT_POLICY="PASSIVE",
    )  # fmt: skip
    import torch

    torch.set_num_threads(1)


def _run(name: str, options: argparse.Namespace) -> "Record":
    from tools.campaigns.engine import report_failures, run_campaign
    from tools.campaigns.report import store

    campaign = build_campaign(name)
    cases = campaign.quick if options.quick else options.cases
    minutes = None if cases is not None else 1.0 if options.minutes is None else options.minutes
    began, told = time.monotonic(), set[str]()

    def progress(record: "Record") -> None:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(record.outcomes.items()))
        report_failures(failure for failure in record.failures if failure.signature not in told)
        told.update(failure.signature for failure in record.failures)
        print(f"{name}: {time.monotonic() - began:,.0f} s, {record.tried:,} tried: {counts}", file=sys.stderr)

    noticed = options.fault is not None
    record = run_campaign(
        campaign, options.seed, minutes=minutes, cases=cases, progress=progress, to_the_first_failure=noticed
    )
    report_failures(record.failures)
    if options.record is not None:
        print(f"{name}: {store(record, options.record)}", file=sys.stderr)
    return record


if __name__ == "__main__":
    sys.exit(main())
