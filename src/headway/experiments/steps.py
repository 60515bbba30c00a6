"""Steps of a long piece of work in a folder, each with an estimate of its time. After a kill, the same call goes on.

`steps.json` in the folder has what the work was begun with, and a stamp for each step that is complete. A step is
repeated from its beginning or continues by itself, as its command does.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from headway.core.documents import read_json
from headway.core.errors import UserError, option
from headway.core.files import exists, write_json, write_text
from headway.core.log import duration, say, warn
from headway.core.storage import locked
from headway.core.tables import Cell, Column, Table
from headway.runs.run_folder import RunFolder

STAMPS, COMMANDS = "steps.json", "steps.txt"


class Commands(NamedTuple):
    """The command line of headway.

    Attributes:
        spell: returns the words of a command with options by their names.
        execute: runs the words, and returns the exit code.
    """

    spell: Callable[[Sequence[str], Mapping[str, Any]], list[str]]
    execute: Callable[[Sequence[str]], int]


class Step(NamedTuple):
    """A command of headway or a function.

    Attributes:
        name: unique among the steps.
        words: the command; for a function, the text that describes it.
        seconds: returns the estimated time.
        options: the options of the command by their names.
        work: the function, or None for a command.
        made: a file or folder that appears when the work is complete.
        run: the run folder of a training.
        report: a file in `made` whose `passed` says whether the work is sound.
    """

    name: str
    words: tuple[str, ...]
    seconds: Callable[[], float]
    options: Mapping[str, Any] = MappingProxyType({})
    work: Callable[[], None] | None = None
    made: Path | None = None
    run: Path | None = None
    report: Path | None = None

    def make(self, commands: Commands) -> int:
        """Do the work, or continue it. Returns its exit code: a report may fail although its files are complete.

        If a call was killed after the files were complete, their report has the code.
        """
        if self.is_made():
            return 0 if self.report is None or read_json(self.report, what="report")["passed"] else 1
        if self.work is not None:
            self.work()
            return 0
        resume = self.run is not None and RunFolder(self.run).has_begun()
        return commands.execute(commands.spell(self.words, {**self.options, **({"resume": True} if resume else {})}))

    def is_made(self) -> bool:
        return self.made is not None and exists(self.made)


def run_steps(steps: Sequence[Step], folder: Path, begun: Mapping[str, Any], commands: Commands) -> int:
    """Make all steps that are not complete yet, in order.

    Args:
        steps: the steps.
        folder: the folder of the work.
        begun: what the work depends on, as JSON. It must be the same in all calls.
        commands: the command line.

    Returns:
        0, the exit code of the step that stopped, or that of a complete step whose report failed.

    Raises:
        UserError: other work was begun in the folder, or another process works there.
    """
    with locked(folder / ".lock"):
        stamps = _stamps(folder, begun)
        done: dict[str, Any] = stamps["done"]
        write_text(folder / COMMANDS, "".join(f"# {step.name}\n{_shown(step, commands)}\n" for step in steps))
        say(steps_table(steps, done).text())
        for number, step in enumerate(steps, start=1):
            if step.name in done:
                continue
            own, left = step.seconds(), sum(each.seconds() for each in steps if each.name not in done)
            share = f"{own / max(left, 1):.0%} of the {duration(left)} that are left"
            say(f"\nstep {number} of {len(steps)}, {step.name}: about {duration(own)}, {share}")
            began = time.monotonic()
            code = step.make(commands)
            if code and not step.is_made():
                say(f"step {number} of {len(steps)}, {step.name}, has stopped: the command of all steps goes on there")
                return code
            done[step.name] = {"seconds": round(time.monotonic() - began, 1), "code": code}
            write_json(folder / STAMPS, stamps)
        say(f"\n{steps_table(steps, done).text()}")
        for name, stamp in done.items():
            if stamp["code"]:
                warn(f"{name}: its files are complete, and its report says what is wrong with them")
        return max(int(stamp["code"]) for stamp in done.values())


def steps_table(steps: Sequence[Step], done: Mapping[str, Any]) -> Table:
    """The steps with their estimated time, their share of it, and the time of the last attempt if they are complete."""
    total = sum(step.seconds() for step in steps)
    rows: list[list[Cell]] = [
        [step.name, duration(step.seconds()), 100 * step.seconds() / total, _took(done.get(step.name))]
        for step in steps
    ]
    columns: list[str | Column] = [
        "step",
        Column("about", align="right"),
        Column("share", "%", ".0f"),
        Column("took", align="right"),
    ]
    return Table(columns, rows, notes=[f"about {duration(total)} in all"])


def _took(stamp: Mapping[str, Any] | None) -> str:
    return "" if stamp is None else duration(stamp["seconds"])


def _shown(step: Step, commands: Commands) -> str:
    words = commands.spell(step.words, step.options)
    return shlex.join(("headway", *words)) if step.work is None else f"# {' '.join(words)}"


def _stamps(folder: Path, begun: Mapping[str, Any]) -> dict[str, Any]:
    """The stamps of the folder, new ones if there are none. Raises UserError if other work was begun there."""
    path = folder / STAMPS
    if not path.is_file():
        if folder.exists() and any(file.name != ".lock" for file in folder.iterdir()):
            raise UserError("this folder holds something else", where=option("student"), received=str(folder))
        stamps: dict[str, Any] = {"begun": dict(begun), "done": {}}
        write_json(path, stamps)
        return stamps
    stamps = read_json(path, what="stamps of the steps")
    before = stamps.get("begun", {})
    if changed := [name for name in begun if before.get(name) != begun[name]]:
        raise UserError(
            f"other work was begun here; it differs in {', '.join(changed)}", where=option("student"),
            received=str(folder), allowed="the same options and data, or another folder",
        )  # fmt: skip
    return stamps
