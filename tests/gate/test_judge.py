"""Words of the gate: what is kept, dropped, the same, asked for; what stays sealed; and what it refuses."""

import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from headway.core.errors import RunError, UserError
from headway.gate.judge import CLOSING_SEEDS, begin, judging
from headway.gate.ledger import Ledger, unsealed
from headway.gate.loop import Loop
from headway.gate.options import GateOptions, NewOptions
from headway.gate.page import write_gate_page
from tests.conftest import Command
from tests.gate.loops import SEEDS, asked, begun, propose, write_scores

PROGRAM = """
import os, random, sys
seed, scores = int(sys.argv[1]), sys.argv[2]
random.seed(f"{os.path.basename(os.getcwd())}{seed}")
quality = random.gauss(float(open("effect").read()), 1)
if os.path.exists("fails"):
    sys.exit("no luck")
print("quality", quality)
with open(scores, "w") as file:
    file.write("seed\\tsegment\\tscore\\n")
    for segment in range(800):
        file.write(f"{seed}\\t{segment}\\t{quality + random.Random(segment).gauss(0, 2) + random.gauss(0, .1)}\\n")
"""


def test_a_gain_is_kept_and_becomes_the_baseline(tmp_path: Path) -> None:
    path = begun(tmp_path)
    answer = propose(path, write_scores(tmp_path / "gain.tsv", 4))
    assert (answer["word"], answer["baseline"], answer["confirmation"]) == ("keep", "base", 1)
    assert answer["sealed_low"] < 4 < answer["sealed_high"]
    assert answer["sealed_difference"] > answer["bound"]
    assert answer["error_spent"] == pytest.approx(0.05 / 2.6123753)
    assert answer["runs"] == 4 + 2 + 12 + 3
    # The old word again, though the baseline is another one now.
    assert propose(path, tmp_path / "gain.tsv") == answer
    assert propose(path, write_scores(tmp_path / "idle.tsv", 0))["word"] == "drop"  # 4 worse than the new baseline
    loop = Loop(Ledger(path))
    assert (loop.baseline.name, loop.bank_seeds("public")) == ("gain", (1001, 1002, 1003, 1004))
    second = propose(path, write_scores(tmp_path / "second.tsv", 8))
    assert (second["word"], second["baseline"], second["confirmation"]) == ("keep", "gain", 2)
    gained = Loop(Ledger(path)).baselines[1].anew
    assert gained is not None
    assert gained.seeds == gained.bank == 12


def test_a_loop_is_closed_by_a_comparison_of_fresh_seeds(tmp_path: Path) -> None:
    path, gain = begun(tmp_path, segments=20), tmp_path / "gain.tsv"
    propose(path, write_scores(tmp_path / "loss.tsv", -4, segments=20))
    with judging(path, GateOptions()) as judge, pytest.raises(UserError, match="nothing was kept"):
        judge.compared(None)
    propose(path, write_scores(gain, 4, segments=20))
    seeds = [*SEEDS, *range(CLOSING_SEEDS + 1, CLOSING_SEEDS + 13)]
    for file, effect in ((tmp_path / "base.tsv", 0), (gain, 4)):
        write_scores(file, effect, seeds, segments=20)
    with judging(path, GateOptions()) as judge:
        answer = judge.compared(None)
    assert (answer["first"], answer["last"], answer["seeds"]) == ("base", "gain", 12)
    assert answer["pairs"][0]["verdict"] == "better"
    assert answer["pairs"][0]["low"] < 4 < answer["pairs"][0]["high"]
    with pytest.raises(UserError, match="this loop is closed"):
        propose(path, write_scores(tmp_path / "late.tsv", 4, segments=20))


def test_a_loss_costs_a_seed_or_two_and_no_error(tmp_path: Path) -> None:
    answer = propose(begun(tmp_path), write_scores(tmp_path / "loss.tsv", -3))
    assert (answer["word"], answer["seeds"], answer["error_spent"]) == ("drop", 1, 0)
    assert answer["low"] < answer["difference"] < answer["high"]


def test_less_may_be_better(tmp_path: Path) -> None:
    path = begun(tmp_path, lower=True)
    assert propose(path, write_scores(tmp_path / "less.tsv", -4))["word"] == "keep"
    assert propose(path, write_scores(tmp_path / "more.tsv", 0))["word"] == "drop"


def test_the_least_effect_must_be_exceeded(tmp_path: Path) -> None:
    path = begun(tmp_path, least=6)
    assert propose(path, write_scores(tmp_path / "gain.tsv", 4))["word"] == "drop"
    (tmp_path / "other").mkdir()
    path = begun(tmp_path / "other", least=-4)
    assert propose(path, write_scores(tmp_path / "simpler.tsv", 0))["word"] == "keep"


def test_copies_are_the_same(tmp_path: Path) -> None:
    """By their outputs: a file of scores has no content until it is complete."""
    path, base = begun(tmp_path, segments=3), tmp_path / "base.tsv"
    with judging(path, GateOptions()) as judge:
        for number in range(10):
            copy = tmp_path / f"copy{number}.tsv"
            copy.write_bytes(base.read_bytes())
            answer = asked(judge, copy)
            assert (answer["word"], answer["error_spent"]) == ("same", 0)
            assert answer["reason"].endswith("base")


@pytest.mark.slow
def test_a_thousand_copies_are_the_same(tmp_path: Path) -> None:
    path, base = begun(tmp_path), tmp_path / "base.tsv"
    with judging(path, GateOptions()) as judge:
        for number in range(1000):
            copy = tmp_path / f"copy{number}.tsv"
            copy.write_bytes(base.read_bytes())
            assert asked(judge, copy)["word"] == "same"
    assert Loop(Ledger(path)).confirmations == 0


def test_missing_seeds_are_asked_for(tmp_path: Path) -> None:
    path, scores = begun(tmp_path), tmp_path / "gain.tsv"
    write_scores(scores, 4, seeds=[1])
    answer = propose(path, scores)
    assert (answer["word"], answer["missing"]) == ("more", {"system": "gain", "set": "public", "seeds": [2]})
    write_scores(scores, 4, seeds=[1, 2])
    assert propose(path, scores)["missing"] == {"system": "gain", "set": "sealed", "seeds": [101, 102, 103]}
    assert propose(path, write_scores(scores, 4))["word"] == "keep"


def test_scores_that_were_read_may_not_change(tmp_path: Path) -> None:
    path, scores = begun(tmp_path), tmp_path / "gain.tsv"
    propose(path, write_scores(scores, 4, seeds=[1]))
    with pytest.raises(UserError, match="gain, seed 1: the scores of this seed have changed"):
        propose(path, write_scores(scores, 5))


def test_a_seed_that_diverges_drops_its_proposal(tmp_path: Path) -> None:
    path = begun(tmp_path)
    answer = propose(path, write_scores(tmp_path / "public.tsv", 9, odd={2: math.nan}))
    assert (answer["word"], answer["reason"], answer["confirmation"]) == ("drop", "seed 2 diverged", None)
    answer = propose(path, write_scores(tmp_path / "hidden.tsv", 9, odd={102: math.inf}))
    assert (answer["word"], answer["reason"], answer["confirmation"]) == ("drop", "seed 102 diverged", 1)


def test_a_baseline_that_diverges_is_no_baseline(tmp_path: Path) -> None:
    path = begun(tmp_path)
    write_scores(tmp_path / "base.tsv", odd={3: math.nan})
    with pytest.raises(UserError, match="base: seed 3 diverged"):
        propose(path, write_scores(tmp_path / "gain.tsv", 4))
    assert [line["kind"] for line in Ledger(path).lines] == ["settings", "proposal"]


def test_two_groups_of_seeds_are_open(tmp_path: Path) -> None:
    """The mean of nine seeds far above and three beside the baseline is above its bound, and says little."""
    path, near = begun(tmp_path), (101, 102, 103)
    scores = {seed: 0.8 + 0.01 * (seed % 7) + (0 if seed in near else 40) for seed in range(101, 113)}
    answer = propose(path, write_scores(tmp_path / "groups.tsv", 4, odd=scores))
    assert (answer["word"], answer["reason"][:30]) == ("open", "the seeds fall in two groups, ")
    assert "sealed_difference" not in answer


def test_one_confirmation_at_a_time(tmp_path: Path) -> None:
    path = begun(tmp_path)
    first = write_scores(tmp_path / "first.tsv", 4, seeds=[1, 2])
    assert propose(path, first)["word"] == "more"
    with pytest.raises(UserError, match="the confirmation of first has begun"):
        propose(path, write_scores(tmp_path / "second.tsv", 4))
    answer = propose(path, first, withdraw=True)
    assert (answer["word"], answer["reason"]) == ("drop", "withdrawn")
    assert answer["error_spent"] > 0  # what was begun stays spent
    assert propose(path, tmp_path / "second.tsv")["confirmation"] == 2


def test_another_process_waits_for_the_ledger(tmp_path: Path) -> None:
    path = begun(tmp_path)
    with judging(path, GateOptions()), pytest.raises(UserError, match="another process is at work"):
        propose(path, write_scores(tmp_path / "gain.tsv", 4))


def drawn_program(folder: Path, name: str, effect: float) -> Path:
    (folder / name).mkdir()
    (folder / name / "train.py").write_text(PROGRAM)
    (folder / name / "effect").write_text(str(effect))
    return folder / name


def by_program(path: Path, folder: Path, **options: Any) -> dict[str, Any]:
    with judging(path, GateOptions(propose=(str(folder),), wait=0, **options)) as judge:
        return judge.propose(())


def test_programs_are_run_and_their_sealed_scores_stay_sealed(tmp_path: Path) -> None:
    """Nothing but the ledger and the kept scores, which are encoded, has a sealed score of what was not kept."""
    base, path = drawn_program(tmp_path, "base", 0), tmp_path / "loop.jsonl"
    command = f"{sys.executable} train.py {{seed}} {{scores}}"
    begin(path, NewOptions(baseline=(str(base),), run=command))
    fails = drawn_program(tmp_path, "fails", 1)
    (fails / "fails").touch()
    with pytest.raises(RunError, match=r"fails, seed 1: the program failed \(exit code 1\)"):
        by_program(path, fails)
    # An idle proposal that passes the screen.
    names = (f"idle{number}" for number in range(50))
    answers = (by_program(path, drawn_program(tmp_path, name, 0.7), workers=2) for name in names)
    answer = next(one for one in answers if one["confirmation"])
    assert answer["word"] in ("drop", "open")
    write_gate_page(Loop(Ledger(path)), tmp_path / "page.html")
    ledger = Ledger(path)
    looks = [unsealed(line["sealed"]) for line in ledger.lines if line["kind"] == "look"]
    secret = [f"{score:.7}"[:-1] for look in looks for score in look["measures"]["score"]["scores"]]
    assert secret
    found = [
        file for file in tmp_path.rglob("*") if file.is_file() for text in secret if text.encode() in file.read_bytes()
    ]
    assert found == []
    assert not list(path.parent.glob("loop.jsonl.cells/scores/*-10?.txt"))
    assert list(path.parent.glob("loop.jsonl.cells/scores/*-1.txt"))
    # A copy of the folder; a folder that has changed.
    copied = drawn_program(tmp_path, "copied", 0)
    assert by_program(path, copied)["word"] == "same"
    (copied / "effect").write_text("1")
    with pytest.raises(UserError, match="this name had another content"):
        by_program(path, copied)


def test_the_command_of_a_ledger_runs_by_leave(
    tmp_path: Path, run_headway: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may have written the ledger."""
    base, path = drawn_program(tmp_path, "base", 0), tmp_path / "loop.jsonl"
    begin(path, NewOptions(baseline=(str(base),), run=f"{sys.executable} train.py {{seed}} {{scores}}"))
    given = ["gate", path, "--propose", drawn_program(tmp_path, "loss", -9)]
    lines = path.read_bytes()
    unasked = run_headway(*given)
    assert (unasked.code, f"{path}: this command was not allowed" in unasked.err) == (2, True)
    assert path.read_bytes() == lines
    question = Mock(return_value=True)
    monkeypatch.setattr("headway.cli.console.confirmed", question)
    assert run_headway(*given).code == 3
    assert question.call_args.args[0].rows == ((f"{sys.executable} train.py {{seed}} {{scores}}",),)
    question.return_value = False
    assert run_headway(*given, "--yes").code == 3


def new(folder: Path, **options: Any) -> None:
    begin(folder / "loop.jsonl", NewOptions(**options))


MISTAKES: dict[str, tuple[Callable[[Path], None], str]] = {
    "neither a set nor a program": (lambda folder: new(folder, baseline=("base",)), "there is no such file"),
    "a metric of a program": (
        lambda folder: new(folder, baseline=("base",), scores=folder / "x.tsv", metric="bleu"),
        "metric: a program writes",
    ),
    "a command without a place": (lambda folder: new(folder, baseline=("a",), run="train"), "run: a command has"),
    "a name that is none": (lambda folder: new(folder, baseline=("a b",), scores=folder / "x.tsv"), "a name becomes"),
    "a margin that is none": (lambda folder: new(folder, baseline=("a",), not_worse=("chrf",)), "METRIC=NUMBER"),
}  # fmt: skip


@pytest.mark.parametrize(("mistake", "match"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_refused_and_nothing_is_written(
    mistake: Callable[[Path], None], match: str, tmp_path: Path
) -> None:
    with pytest.raises((UserError, ValueError), match=re.escape(match)):
        mistake(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("seed\tscore\n1\t2\n", "base.tsv:1: the first line names the columns"),
        ("seed\tsegment\tscore\n1\ta\t2\n1\tb\n", "base.tsv:3: a line is a seed, a segment and a number"),
        ("seed\tsegment\tscore\n1\ta\t2\n1\ta\t3\n", "base.tsv:3: this segment has two scores"),
        ("seed\tsegment\tscore\n1\ta\t2\n1\tb\t3\n", "segments or more; received 2"),
    ],
)
def test_mistakes_in_scores_name_the_line(text: str, match: str, tmp_path: Path) -> None:
    path = begun(tmp_path)
    (tmp_path / "base.tsv").write_text(text)
    with pytest.raises(UserError, match=match):
        propose(path, write_scores(tmp_path / "gain.tsv", 4))


def test_answers_are_json(tmp_path: Path) -> None:
    path = begun(tmp_path)
    for name, effect in (("gain", 4), ("loss", -4)):
        answer = propose(path, write_scores(tmp_path / f"{name}.tsv", effect))
        assert json.loads(json.dumps(answer, allow_nan=False)) == answer
