"""The contract of a campaign: what it draws, how a case is tried, and what a case may do."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, Literal, TypeVar

from hypothesis.strategies import SearchStrategy

Case = TypeVar("Case")
Kind = Literal["right", "refused", "exception", "wrong", "unclear", "hang", "allocation", "crash"]
SURVIVED: tuple[Kind, ...] = ("right", "refused")


@dataclass(frozen=True)
class Limits:
    """What a case may use.

    Attributes:
        seconds: of processor time; and three times as many by the clock, since other processes may be at work.
        bytes: of memory beyond what the process has at its start.
    """

    seconds: float = 10.0
    bytes: int = 1 << 30


@dataclass(frozen=True)
class Outcome:
    """The end of a case.

    Attributes:
        kind: `right`; `refused` with one clear error; or a failure: another `exception`, a `wrong` result (an
            AssertionError of the campaign), an `unclear` error, a `hang`, an `allocation`, a `crash` by a signal.
        signature: of failures: equal for cases that fail in the same way.
        message: the error, or the end of a traceback.
        trials: how many things the case tried.
    """

    kind: Kind
    signature: str = ""
    message: str = ""
    trials: int = 1

    @property
    def survived(self) -> bool:
        """Whether the case is no failure."""
        return self.kind in SURVIVED


class Campaign(ABC, Generic[Case]):
    """Draws cases and tries them.

    Cases are dataclasses (or tuples) whose `repr` says all about them: it is stored when the case fails.

    Attributes:
        name: the name in `CAMPAIGNS`.
        about: what is attacked, for the table of results.
        limits: of one case.
        quick: how many cases the test suite tries; they take about two seconds.
        together: how many cases follow one another in one copy of the process, where they leave nothing behind that
            matters to the next: copies take time.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    limits: ClassVar[Limits] = Limits()
    quick: ClassVar[int] = 100
    together: ClassVar[int] = 1

    def prepare(self, folder: Path) -> None:
        """Make what all cases share, in `folder`, before the first of them: import modules, train a run.

        Cases begin in a copy of the process as this leaves it. No threads may be left running.
        """

    def first(self) -> Sequence[Case]:
        """The cases that every run of the campaign begins with, for what random draws seldom meet."""
        return ()

    @abstractmethod
    def cases(self) -> SearchStrategy[Case]:
        """The cases, by hypothesis: shrunk from left to right, so that small and harmless values come first."""

    @abstractmethod
    def check(self, case: Case, folder: Path) -> int | None:
        """Try a case, in a process and an empty folder that are thrown away afterwards.

        Returns:
            The number of things that were tried, where it is not one.

        Raises:
            HeadwayError: headway refuses the case, which is as good as a right result.
            AssertionError: a result is wrong.
            Exception: a failure, as are the limits.
        """


@contextmanager
def unharmed(*paths: Path) -> Iterator[None]:
    """Asserts that all files in these files and folders are afterwards as they were, whatever is raised."""
    before = {path: _contents(path) for path in paths}
    try:
        yield
    finally:
        for path, contents in before.items():
            after = _contents(path)
            lost = sorted(name for name in contents if after.get(name) != contents[name])
            assert not lost, f"files lost or changed in {path}: {lost}"


def _contents(path: Path) -> dict[str, str]:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
