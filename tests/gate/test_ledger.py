"""Ledgers that were cut, edited, reordered, or written by killed processes."""

import itertools
import json
import os
import random
import signal
import warnings
from pathlib import Path

import pytest

from headway.core.errors import UserError
from headway.gate.ledger import Ledger
from headway.gate.loop import Loop
from tests.gate.loops import begun, propose, write_scores

KILLS = 50


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The lines of a loop with a loss and a gain."""
    folder = tmp_path_factory.mktemp("loop")
    path = begun(folder)
    for name, effect in (("loss", -4), ("gain", 4)):
        propose(path, write_scores(folder / f"{name}.tsv", effect))
    return path.read_bytes()


def read(folder: Path, lines: list[bytes]) -> Loop:
    path = folder / "loop.jsonl"
    path.write_bytes(b"".join(lines))
    return Loop(Ledger(path))


def test_every_line_is_what_the_rules_demand(ledger: bytes, tmp_path: Path) -> None:
    lines = ledger.splitlines(keepends=True)
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds == [
        "settings", "proposal", "bank", "screened", "word",
        "proposal", "screened", "screened", "bank", "confirm", "look", "word",
    ]  # fmt: skip
    assert read(tmp_path, lines).confirmations == 1


def test_an_unfinished_line_is_cut_off(ledger: bytes, tmp_path: Path) -> None:
    lines = ledger.splitlines(keepends=True)
    assert read(tmp_path, [*lines[:-1], lines[-1][:40]]).trials["gain"].word is None
    assert read(tmp_path, [*lines[:-1], lines[-1][:-1]]).trials["gain"].word is None


def test_faults_end_with_the_number_of_the_line(ledger: bytes, tmp_path: Path) -> None:
    lines = ledger.splitlines(keepends=True)
    edited = lines[4].replace(b'"word": "drop"', b'"word": "keep"')
    assert edited != lines[4]
    faults = {
        "loop.jsonl:6": [*lines[:4], edited, *lines[5:]],  # its hash is in the next line
        "loop.jsonl:4": [*lines[:3], *lines[4:]],
        "loop.jsonl:7": [*lines[:6], lines[7], lines[6], *lines[8:]],
        "loop.jsonl:3": [*lines[:2], b"{}\n"],
        "loop.jsonl:1": lines[1:],
    }
    for where, given in faults.items():
        with pytest.raises(UserError, match=where):
            read(tmp_path, given)


def test_a_word_that_the_numbers_do_not_have_is_found(ledger: bytes, tmp_path: Path) -> None:
    """Whoever forges the chain as well cannot forge the word."""
    lines = [json.loads(line) for line in ledger.splitlines()]
    path = tmp_path / "loop.jsonl"
    written = Ledger(path)
    for line in lines:
        fields = {key: value for key, value in line.items() if key not in ("kind", "time", "previous")}
        if line["kind"] == "word" and line["name"] == "loss":
            fields["word"] = "open"
        written.append(line["kind"], fields)
    with pytest.raises(UserError, match=r"loop.jsonl:5: the rules do not lead to this line"):
        Loop(Ledger(path))


def test_lines_that_are_missing_at_the_end_are_missed(tmp_path: Path) -> None:
    """Such as a confirmation that somebody would like not to have spent."""
    path = begun(tmp_path)
    propose(path, write_scores(tmp_path / "gain.tsv", 4, seeds=[1, 2]))
    lines = path.read_bytes().splitlines(keepends=True)
    assert json.loads(lines[-1])["kind"] == "confirm"
    path.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(UserError, match=rf"loop.jsonl:{len(lines)}: this line has been written, and is missing"):
        Ledger(path)


def content(path: Path) -> list[dict[str, object]]:
    """The lines of a ledger, without their times, on which their hashes depend."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in ("time", "previous")} for line in lines]


def is_killed(path: Path, scores: Path, flush: int, torn: bool) -> bool:
    """Propose in another process, which is killed when it flushes for this time, in the midst of a line if `torn`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads of torch, which are idle
        process = os.fork()
    if process:
        return os.WIFSIGNALED(os.waitpid(process, 0)[1])
    sync, flushed = os.fsync, itertools.count(1)

    def fsync(file: int) -> None:
        if next(flushed) == flush:
            if torn:
                os.ftruncate(file, max(0, os.fstat(file).st_size - 7))
            os.kill(os.getpid(), signal.SIGKILL)
        sync(file)

    os.fsync = fsync
    try:
        propose(path, scores)
    finally:
        os._exit(0)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_any_moment_the_same_call_goes_on(tmp_path: Path) -> None:
    """Fifty kills; the ledger ends as if there had been none."""
    kills, rng, whole = 0, random.Random(1), list[list[dict[str, object]]]()
    for attempt in ("killed", "undisturbed"):
        (tmp_path / attempt).mkdir()
        path = begun(tmp_path / attempt)
        for number in range(16):
            scores = write_scores(tmp_path / attempt / f"p{number}.tsv", 4.0 * (number % 5 == 1))
            while attempt == "killed" and kills < KILLS:
                if not is_killed(path, scores, rng.randrange(1, 5), rng.random() < 0.5):
                    break
                kills += 1
            propose(path, scores)
        whole.append([{key: value for key, value in line.items() if key != "content"} for line in content(path)])
    assert kills == KILLS
    assert whole[0] == whole[1]
    assert any(line.get("word") == "keep" for line in whole[0])
