"""`headway gate ...`: judge the proposals of a loop."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from headway.cli.console import allow_command
from headway.cli.shell import Overrides, argument, command, flag, new_app, with_flags
from headway.cli.standard_streams import write
from headway.core.config import WRITES_FILE
from headway.core.errors import UserError, option
from headway.gate.options import GateOptions, NewOptions

if TYPE_CHECKING:
    from headway.gate.judge import Judge
    from headway.gate.loop import Loop

gate_app = new_app("gate")
LedgerArgument = Annotated[Path, argument("LEDGER", "The file of the loop, such as loop.jsonl.")]


@command(gate_app, "propose")
def gate_propose(ledger: LedgerArgument, /, *overrides: Overrides, options: GateOptions) -> int:
    """Judge a proposal: one JSON, one word. The exit code is 0 for keep, 3 drop, 4 open, 5 same, 6 more."""
    from headway.gate.judge import judging
    from headway.gate.rules import EXIT_CODES

    if not options.propose:
        raise UserError("there is nothing to judge", where=option("propose"), allowed="a proposal")
    with judging(ledger, options) as judge:
        _allow(judge)
        answer = judge.propose(overrides)
    write(json.dumps(answer, ensure_ascii=False))
    return EXIT_CODES[answer["word"]]


gate_app.default(with_flags(gate_propose))


@command(gate_app, "new")
def gate_new(ledger: LedgerArgument, /, *, options: NewOptions) -> None:
    """Begin a loop: its baseline, its sets and its rules, which stay as they are."""
    from headway.gate.judge import begin

    begin(ledger, options)


@command(gate_app, "plan")
def gate_plan(ledger: LedgerArgument, /) -> None:
    """Say which effects are in reach, and how many seeds they cost."""
    from headway.gate.page import plan_table

    write(plan_table(_loop(ledger)).text())


@command(gate_app, "simulate")
def gate_simulate(
    *,
    loops: Annotated[int, Field(ge=10, le=10**5), flag("Loops of each preset.", "1000")] = 1000,
    of_segments: Annotated[
        float, Field(ge=0, le=100), flag("Deviation of a difference by segments, in deviations of seeds.", "0")
    ] = 0.0,
) -> None:
    """Simulate loops by the rules: how many keep what does not help, and which gains are kept."""
    from headway.gate.simulation import simulated

    write(simulated(loops, of_segments).text())


@command(gate_app, "check")
def gate_check(ledger: LedgerArgument, /) -> None:
    """Recompute the chain and the words of a ledger. It exits with 2 if a line is not what the rules demand."""
    loop = _loop(ledger)
    words = [trial.word for trial in loop.trials.values() if trial.word]
    write(json.dumps({"lines": len(loop.ledger.lines), "words": len(words), "kept": words.count("keep")}))


@command(gate_app, "page")
def gate_page(
    ledger: LedgerArgument,
    /,
    *,
    output: Annotated[Path | None, WRITES_FILE, flag("The file of the page.", "LEDGER.html")] = None,
) -> None:
    """Write a page: a row for each proposal, the baseline's level, the error spent, and what is in reach."""
    from headway.gate.page import write_gate_page

    path = output or ledger.with_name(f"{ledger.name}.html")
    write_gate_page(_loop(ledger), path)
    write(str(path))


@command(gate_app, "close")
def gate_close(
    ledger: LedgerArgument,
    /,
    *,
    test: Annotated[str | None, flag("The third test set, as the other sets.")] = None,
    options: GateOptions,
) -> None:
    """Compare fresh seeds of the first and the last baseline on a third test set, and end the loop."""
    from headway.gate.judge import judging

    with judging(ledger, options) as judge:
        _allow(judge)
        answer = judge.compared(test)
    write(json.dumps(answer, ensure_ascii=False))


def _allow(judge: "Judge") -> None:
    """Ask whether the command of a loop may run: anybody may have written the ledger. Raises UserError."""
    if (command := judge.bench.command) is not None:
        allow_command(command, "the loop", str(judge.loop.ledger.path), yes=judge.options.yes)


def _loop(path: Path) -> "Loop":
    """The state of a ledger that other processes may be writing."""
    from headway.gate.ledger import existing
    from headway.gate.loop import Loop

    return Loop(existing(path))
