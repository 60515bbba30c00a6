"""The frame of the campaigns: limits hold, failures are told apart and made small, records become a table."""

import ctypes
import os
import resource
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis.strategies import SearchStrategy
from pydantic import BaseModel, field_serializer

import headway.cli
from headway.core.errors import RunError, UserError
from tests.tiers import tiered
from tools.campaigns.campaign import Campaign, Limits, unharmed
from tools.campaigns.command_line import run_command
from tools.campaigns.engine import run_campaign
from tools.campaigns.history import commit, git, moved_too_far
from tools.campaigns.isolation import try_case
from tools.campaigns.mutations import Change, changed, expanded
from tools.campaigns.report import BEGIN, END, PAGE, page_with_table, sound_records, store, table


class Toy(Campaign[int]):
    """Numbers, each of which ends in another way."""

    name, about, limits = "toy", "numbers", Limits(seconds=1, bytes=64 << 20)

    def cases(self) -> SearchStrategy[int]:
        return st.integers(0, 1000)

    def check(self, case: int, folder: Path) -> int | None:
        assert list(folder.iterdir()) == []
        if case >= 300:
            raise ValueError(case)
        match case:
            case 1:
                raise UserError("refused", where="here")
            case 2:
                raise RunError("")
            case 3:
                raise AssertionError("not equal")
            case 4:
                time.sleep(60)
            case 5:
                while True:
                    pass
            case 6:
                b"x" * (100 << 20)
            case 7:
                bytearray(1 << 40)
            case 8:
                ctypes.string_at(0)
            case 9:
                try:
                    bytearray(1 << 40)
                except MemoryError as error:
                    raise UserError("too large") from error
            case 10:
                os._exit(3)
            case 11:
                return 20
        return None


@pytest.mark.parametrize(
    ("case", "kind", "signature"),
    [
        (0, "right", ""),
        (1, "refused", ""),
        (2, "unclear", "unclear: test_frame.py:check"),
        (3, "wrong", "wrong: test_frame.py:check not equal"),
        (4, "hang", "hang"),
        tiered(5, "hang", "hang", slow=True),
        (6, "allocation", "allocation: right"),
        (7, "allocation", "allocation: test_frame.py:check"),
        (8, "crash", "crash: signal 11"),
        (9, "allocation", "allocation: test_frame.py:check"),
        (10, "crash", "crash: no answer"),
        (300, "exception", "ValueError: test_frame.py:check"),
    ],
)
def test_outcomes(tmp_path: Path, case: int, kind: str, signature: str) -> None:
    outcome = try_case(Toy(), case, tmp_path)
    if (
        kind == "allocation"
        and outcome.kind == "right"
        and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 1 << 20
    ):
        pytest.skip("a copy of this process begins with the peak of memory that earlier tests left")
    assert outcome.kind == kind, outcome
    assert outcome.signature == signature
    assert outcome.survived == (kind in ("right", "refused"))
    assert list(tmp_path.iterdir()) == []


class Large(Toy):
    """Numbers that fail from 300 on."""

    def check(self, case: int, folder: Path) -> int | None:
        return super().check(max(case, 12), folder)


def test_a_failure_is_made_small_and_counted_once(tmp_path: Path) -> None:
    record = run_campaign(Large(), 1, cases=12)
    assert record.cases == 12
    assert record.tried == sum(record.outcomes.values()) == 12
    assert set(record.outcomes) == {"right", "exception"}
    (failure,) = record.failures
    assert (failure.kind, failure.case, failure.count) == ("exception", "300", record.outcomes["exception"])
    assert "ValueError: 300" in failure.message
    again = run_campaign(Large(), 1, cases=12)
    assert again.to_json() | {"minutes": 0} == record.to_json() | {"minutes": 0}


def test_the_seed_decides_the_cases() -> None:
    def drawn(seed: int) -> list[int]:
        numbers: list[int] = []

        class Drawn(Toy):
            def cases(self) -> SearchStrategy[int]:
                return st.integers(12, 299).map(lambda number: numbers.append(number) or number)

        run_campaign(Drawn(), seed, cases=5)
        return numbers

    assert drawn(1) == drawn(1) != drawn(2)


def test_trials_and_time() -> None:
    class Eleven(Toy):
        def cases(self) -> SearchStrategy[int]:
            return st.just(11)

    record = run_campaign(Eleven(), 1, minutes=1)  # ends when there is nothing new to try
    assert (record.cases, record.tried, record.survived) == (1, 20, 20)
    assert run_campaign(Toy(), 1, minutes=0).cases == 0


def test_records_become_a_table(tmp_path: Path) -> None:
    record = run_campaign(Large(), 7, cases=5)
    record.commit = commit().removesuffix("+")
    assert store(record, tmp_path).name == "toy-7.json"
    records, refused = sound_records(tmp_path)
    assert refused == []
    rows = table(records).splitlines()
    assert rows[-1].startswith("| toy")
    assert f"| {record.commit} |" in rows[-1]
    page = page_with_table(f"before\n{BEGIN}\nold\n{END}\nafter\n", table(records))
    assert page.startswith(f"before\n{BEGIN}\n\n| campaign")
    assert page.endswith(f"|\n\n{END}\nafter\n")
    assert "old" not in page


def test_the_page_is_not_stale() -> None:
    page = PAGE.read_text(encoding="utf-8")
    records, _ = sound_records()
    assert page == page_with_table(page, table(records)), "run `python -m tools.campaigns report`"


def repository(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Callable[[str], str]:
    """Makes another repository that of the campaigns; gives what commits a file of src and names the commit."""
    monkeypatch.setattr("tools.campaigns.history.ROOT", folder)
    (folder / "src").mkdir()
    git("init", "--quiet")
    git("config", "user.name", "a")
    git("config", "user.email", "a@example.org")

    def committed(text: str) -> str:
        (folder / "src" / "a.py").write_text(text)
        git("add", "src")
        git("commit", "--quiet", "--message", "a")
        return commit()

    return committed


def test_a_record_is_refused_once_src_has_moved_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = repository(monkeypatch, tmp_path)
    first = committed("a\n" * 100)
    assert moved_too_far(first) == ""
    committed("b\n" * 5 + "a\n" * 95)
    assert moved_too_far(first) == ""
    record = run_campaign(Large(), 7, cases=1)
    record.commit = first
    store(record, tmp_path / "records")
    assert len(sound_records(tmp_path / "records")[0]) == 1
    committed("b\n" * 15 + "a\n" * 85)
    assert (
        moved_too_far(first) == f"15% of the lines of src were written or removed since {first}: run the campaign again"
    )
    assert sound_records(tmp_path / "records") == ([], [f"toy-7.json: {moved_too_far(first)}"])
    assert "no commit of this repository" in moved_too_far("0123456789")


def test_a_record_names_a_commit_without_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = repository(monkeypatch, tmp_path)
    name = committed("a\n")
    (tmp_path / "src" / "a.py").write_text("b\n")
    assert commit() == f"{name}+"
    record = run_campaign(Large(), 7, cases=1)
    with pytest.raises(AssertionError, match="the working tree had changes"):
        store(record, tmp_path / "records")


def test_a_campaign_begins_with_its_first_cases() -> None:
    class First(Toy):
        def first(self) -> list[int]:
            return [400, 20]

    record = run_campaign(First(), 1, cases=2)
    assert (record.cases, record.outcomes) == (2, {"exception": 1, "right": 1})
    assert [failure.case for failure in record.failures] == ["400"]
    record = run_campaign(First(), 1, cases=50, to_the_first_failure=True)
    assert (record.cases, len(record.failures)) == (1, 1)


def test_files_that_are_lost_are_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    with unharmed(tmp_path):
        (tmp_path / "b").write_text("b")
    with pytest.raises(AssertionError, match="files lost or changed"), unharmed(tmp_path):
        (tmp_path / "a").unlink()


class Slow(BaseModel):
    """A value that takes long to be written out."""

    number: int

    @field_serializer("number")
    def _written(self, number: int) -> int:
        time.sleep(5)
        return number


def test_a_command_at_work_is_stopped_within_a_library_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headway.cli, "main", lambda _: Slow(number=1).model_dump())  # pydantic's error is raised
    assert run_command([], tmp_path, seconds=0.1).code == 0

    def fail(_: object) -> None:
        raise ValueError("no such number") from KeyError("other")

    monkeypatch.setattr(headway.cli, "main", fail)
    with pytest.raises(ValueError, match="no such number"):
        run_command([], tmp_path, seconds=5)


def test_a_command_whose_end_a_callback_swallowed_is_ended_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(_: object) -> None:
        value = {1}
        kept = weakref.ref(value, lambda _: time.sleep(0.3))
        del value
        time.sleep(20)
        del kept

    monkeypatch.setattr(headway.cli, "main", work)
    run_command([], tmp_path, seconds=0.1).check()


@pytest.mark.parametrize("kind", ["insert", "replace", "delete", "cut", "double", "flip"])
def test_changes_are_those_of_the_whole_bytes(kind: str) -> None:
    content = ((b"abc", 4), (b"-", 1), (b"xy", 3))
    whole = expanded(content)
    for at in range(0, 1000, 37):
        change = Change(kind, at, 3, (b"T", 2))
        position = at * (len(whole) + 1) // 1000
        before, after = whole[:position], whole[position:]
        flipped = bytes(byte ^ 8 for byte in after[:1])
        wanted = {
            "insert": before + b"TT" + after, "replace": before + b"TT" + after[3:], "delete": before + after[3:],
            "cut": before, "double": before + after[:3] + after, "flip": before + flipped + after[1:],
        }  # fmt: skip
        assert expanded(changed(content, [change])) == wanted[kind]
