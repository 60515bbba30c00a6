"""A campaign from beginning to end: cases are drawn, tried, shrunk where they fail, and counted."""

from __future__ import annotations

import contextlib
import hashlib
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.errors import HypothesisException

from tools.campaigns.campaign import Campaign, Outcome
from tools.campaigns.history import commit
from tools.campaigns.isolation import try_case, try_cases

BATCH = 1000  # cases of one call of hypothesis
SHRINKS = 400  # cases that are tried to make a failing one smaller
SLOW_SHRINKS = 3  # where each of them waits for the limit of time
LONGEST_CASE = 20_000  # characters of a stored case
TELL_EVERY = 30  # seconds between reports of progress


@dataclass
class Failure:
    """A way to fail: how often it was seen, and its smallest case."""

    kind: str
    signature: str
    message: str
    case: str
    count: int = 1


@dataclass
class Record:
    """The account of one run of a campaign."""

    campaign: str
    about: str
    seed: int
    commit: str
    minutes: float = 0.0
    cases: int = 0
    tried: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    python: str = platform.python_version()

    @property
    def survived(self) -> int:
        """How many of those tried were right or refused."""
        return self.outcomes["right"] + self.outcomes["refused"]

    def to_json(self) -> dict[str, Any]:
        """The record as values that JSON can hold."""
        return asdict(self) | {"survived": self.survived, "outcomes": dict(sorted(self.outcomes.items()))}


class _StillFailsError(Exception):
    """Tells hypothesis of the failure that it is to shrink."""


class _Run:
    """The state of a campaign while it runs."""

    def __init__(
        self, campaign: Campaign[Any], record: Record, folder: Path, over: Callable[[Record], bool], *, shrinks: bool
    ) -> None:
        self.campaign, self.record, self.folder, self.over, self.shrinks = campaign, record, folder, over, shrinks
        self.seen: set[bytes] = set()
        self.known: dict[str, Failure] = {}

    def batch(self, seed: str, size: int) -> None:
        """Draw up to `size` cases, try those that were not seen before, and shrink what fails in a new way."""
        drawn = list[Any]()
        _draw(self.campaign, seed, size, drawn.append)
        self.try_new(drawn, seed, size)

    def try_new(self, given: Iterable[Any], seed: str = "", size: int = 0) -> None:
        """Try those cases that were not seen before; `seed` and `size` are those that they were drawn with, if any."""
        cases = list[Any]()
        for case in given:
            key = hashlib.blake2b(repr(case).encode("utf-8", "backslashreplace"), digest_size=16).digest()
            if key not in self.seen:
                self.seen.add(key)
                cases.append(case)
        while cases and not self.over(self.record):
            some = [cases.pop(0) for _ in range(min(len(cases), self.campaign.together))]
            for case, outcome in zip(some, try_cases(self.campaign, some, self.folder), strict=True):
                self._count(case, outcome, seed, size)

    def _count(self, case: Any, outcome: Outcome, seed: str, size: int) -> None:
        self.record.cases += 1
        self.record.tried += outcome.trials
        self.record.outcomes[outcome.kind] += outcome.trials
        if outcome.survived:
            return
        if outcome.signature in self.known:
            self.known[outcome.signature].count += 1
            return
        failure = Failure(outcome.kind, outcome.signature, outcome.message, repr(case))
        self.known[outcome.signature] = failure
        if self.shrinks and seed:
            self._shrink(failure, seed, size)

    def _shrink(self, failure: Failure, seed: str, size: int) -> None:
        """Draw the same cases again up to the one that failed, and let hypothesis make it smaller."""
        first, started = failure.case, False
        left = SLOW_SHRINKS if failure.kind == "hang" else SHRINKS

        def fails(case: Any) -> bool:
            nonlocal started, left
            text = repr(case)
            if not started or left <= 0:
                started = started or text == first
                return text in (first, failure.case)
            left -= 1
            outcome = try_case(self.campaign, case, self.folder)
            if outcome.signature != failure.signature:
                return False
            failure.case, failure.message = text, outcome.message
            return True

        def test(case: Any) -> None:
            if fails(case):
                raise _StillFailsError  # from one line, by which hypothesis knows it again

        with contextlib.suppress(_StillFailsError, HypothesisException, BaseExceptionGroup):
            _draw(self.campaign, seed, size, test)


def _draw(campaign: Campaign[Any], seed: str, size: int, test: Callable[[Any], None]) -> None:
    """Call `test` with up to `size` cases; one that it raises on is shrunk."""
    settings = hypothesis.settings(
        max_examples=size, deadline=None, database=None, derandomize=False, print_blob=False,
        report_multiple_bugs=False, phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )  # fmt: skip

    def run(case: Any) -> None:
        test(case)

    hypothesis.seed(seed)(settings(hypothesis.given(campaign.cases())(run)))()


def run_campaign(
    campaign: Campaign[Any],
    seed: int,
    *,
    minutes: float | None = None,
    cases: int | None = None,
    progress: Callable[[Record], object] = lambda record: None,
    to_the_first_failure: bool = False,
) -> Record:
    """Try cases until the time is over or there were as many as asked for.

    Args:
        campaign: not prepared yet.
        seed: of all draws: the same seed and number of cases try the same cases.
        minutes: the time of the cases, without that of the preparation.
        cases: their number.
        progress: called after each batch, and every half minute in between.
        to_the_first_failure: end there, and leave its case as large as it is.
    """
    record = Record(campaign.name, campaign.about, seed, commit())
    with tempfile.TemporaryDirectory(prefix=f"campaign-{campaign.name}-") as name:
        folder = Path(name)
        (folder / "shared").mkdir()
        (folder / "cases").mkdir()
        campaign.prepare(folder / "shared")
        began = told = time.monotonic()

        def tell() -> None:
            nonlocal told
            told = time.monotonic()
            record.minutes = round((told - began) / 60, 2)
            record.failures = sorted(run.known.values(), key=lambda failure: (failure.kind, failure.signature))
            progress(record)

        def over(record: Record) -> bool:
            now = time.monotonic()
            if now - told >= TELL_EVERY:
                tell()
            return (
                (minutes is not None and now - began >= 60 * minutes)
                or (cases is not None and record.cases >= cases)
                or (to_the_first_failure and bool(run.known))
            )

        run, batch = _Run(campaign, record, folder / "cases", over, shrinks=not to_the_first_failure), 0
        run.try_new(campaign.first())
        tell()
        while not over(record):
            before = record.cases
            run.batch(f"{seed} {batch}", BATCH if cases is None else min(BATCH, cases))
            batch += 1
            tell()
            if record.cases == before:  # the campaign has no further cases
                break
    return record


def report_failures(failures: Iterable[Failure]) -> None:
    """Print failures, each with its smallest case."""
    for failure in failures:
        print(f"\n{failure.kind} ({failure.count}): {failure.signature}", file=sys.stderr)
        print(f"  case: {failure.case[:LONGEST_CASE]}\n  {failure.message}", file=sys.stderr)
