"""`python -m tests.campaigns NAME... --seed N --minutes M`, and `python -m tests.campaigns report`."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from tests.campaigns import CAMPAIGNS, build_campaign
from tests.campaigns.engine import Record, report_failures, run_campaign
from tests.campaigns.report import store, write_page


def main() -> int:
    """Run the campaigns that are named; the exit code is 1 where a case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns", description=__doc__)
    names = [*CAMPAIGNS, "all", "report"]
    parser.add_argument("names", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--seed", type=int, default=1, help="of all draws (default: 1)")
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument("--minutes", type=float, help="for each campaign (default: 1)")
    ends.add_argument("--cases", type=int, help="for each campaign, in place of minutes")
    ends.add_argument("--quick", action="store_true", help="the few cases of the test suite")
    parser.add_argument("--record", type=Path, metavar="FOLDER", help="store records there, as in results/reliability")
    parser.add_argument("--json", action="store_true", help="write the records to standard output")
    options = parser.parse_args()
    if "report" in options.names:
        write_page()
        return 0
    one_thread()
    records = [_run(name, options) for name in (CAMPAIGNS if "all" in options.names else options.names)]
    if options.json:
        print(json.dumps([record.to_json() for record in records]))
    return int(any(record.failures for record in records))


def one_thread() -> None:
    """Copies of a process with threads hang: libraries are told to have none, before they are imported."""
    os.environ.update(
        OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false"
    )
    import torch

    torch.set_num_threads(1)


def _run(name: str, options: argparse.Namespace) -> Record:
    campaign = build_campaign(name)
    cases = campaign.quick if options.quick else options.cases
    minutes = None if cases is not None else 1.0 if options.minutes is None else options.minutes
    began, told = time.monotonic(), set[str]()

    def progress(record: Record) -> None:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(record.outcomes.items()))
        report_failures(failure for failure in record.failures if failure.signature not in told)
        told.update(failure.signature for failure in record.failures)
        print(f"{name}: {time.monotonic() - began:,.0f} s, {record.tried:,} tried: {counts}", file=sys.stderr)

    record = run_campaign(campaign, options.seed, minutes=minutes, cases=cases, progress=progress)
    report_failures(record.failures)
    if options.record is not None:
        print(f"{name}: {store(record, options.record)}", file=sys.stderr)
    return record


if __name__ == "__main__":
    sys.exit(main())
