"""Training, grids and commands that write whole files, killed at drawn moments and gone on with until they end."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import shutil
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import yaml
from hypothesis.strategies import SearchStrategy

from headway.cli import main
from tests.conftest import REVERSAL, write_reversal
from tests.grids import grid_attempts
from tests.grids.grids import write_grid
from tests.runs.old_runs import copied
from tests.training.attempts import die_before_change
from tests.training.kills import TIMINGS, assert_same
from tools.campaigns.campaign import Campaign, Limits

MODEL = {
    "dim": 16, "feed_forward": 16, "heads": 2, "dropout": 0.2, "encoder": {"layers": 1}, "decoder": {"layers": 1},
}  # fmt: skip
RECURRENT = {"kind": "recurrent", "dim": 8, "dropout": 0.2, "encoder": {"hidden": 8}, "decoder": {"hidden": 8}}
TRAINING = {
    "updates": 13, "batch_tokens": 64, "checkpoint_every": 2, "evaluate_every": 4, "log_every": 3, "keep_last": 2,
    "dev_metrics": ["exact_match"], "precision": "float32",
}  # fmt: skip
# What a killed run has to go on with: sections of a recipe in place of those above.
SETUPS: dict[str, dict[str, Any]] = {
    "last": {"training": {"accumulate": 2, "average": {"of": "last", "count": 2}}},
    "best": {
        "training": {"checkpoint_every": 3, "evaluate_every": 3, "average": {"of": "best", "count": 2}, "patience": 3}
    },
    "epochs": {
        "model": RECURRENT,
        "training": {"updates": None, "epochs": 2, "batch_tokens": 100},
        "optimizer": {"schedule": "inverse_sqrt"},
    },
    "no-dev": {"data": {"dev": None}, "training": {"evaluate_every": None, "dev_metrics": [], "checkpoint_every": 3}},
}
OLD = ("speech_recognition",)  # committed recipes, whose data are prepared otherwise
SHORTER = {"updates": 7, "checkpoint_every": 2, "evaluate_every": 4, "log_every": 3, "precision": "float32"}
GRID = "grid"
# Commands that write files whole or not at all, below `out`.
WRITERS = {
    "pack": ("pack", "{run}", "out/run.zip"),
    "page": ("inspect", "{run}", "--text", "abc", "--output", "out/page.html"),
    "split": ("data", "split", "{data}/split.s", "{data}/split.t", "--output", "out"),
}
NUMBERS = {"SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT, "SIGKILL": signal.SIGKILL}
STOPS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True)
class Death:
    """The end of one attempt.

    Attributes:
        kind: `change` (a signal just before a change to files), `moment` (a signal), `storm` (several), `stop` (STOP,
            a second training beside it, CONT and no end), `stop-kill` (STOP, then KILL), `double` (two at once).
        at: the number of the change, or thousandths of the time of an undisturbed run.
        signal: its name.
    """

    kind: str
    at: int
    signal: str = "SIGKILL"


@dataclass(frozen=True)
class KillCase:
    """What is made, and the ends of the attempts before the one that is left alone."""

    what: str
    deaths: tuple[Death, ...]


def _deaths() -> SearchStrategy[Death]:
    names = st.sampled_from(("SIGKILL", "SIGKILL", "SIGKILL", "SIGTERM", "SIGINT"))
    changes = st.builds(Death, st.just("change"), st.integers(1, 120), names)
    moments = st.builds(Death, st.just("moment"), st.integers(0, 700), names)
    others = st.builds(Death, st.sampled_from(("storm", "stop", "stop-kill", "double")), st.integers(0, 700))
    return st.one_of(changes, changes, changes, moments, moments, others)


def _cases() -> SearchStrategy[KillCase]:
    def several(what: str, death: SearchStrategy[Death], most: int) -> SearchStrategy[KillCase]:
        return st.lists(death, min_size=1, max_size=most).map(lambda deaths: KillCase(what, tuple(deaths)))

    def training(what: str) -> SearchStrategy[KillCase]:
        twice = st.tuples(several(what, _deaths(), 12), several(what, _deaths(), 12))
        return twice.map(lambda both: KillCase(what, both[0].deaths + both[1].deaths))

    trained = st.sampled_from((*SETUPS, *SETUPS, *OLD)).flatmap(training)
    of_cells = st.builds(Death, st.sampled_from(("all", "call", "files")), st.integers(1, 120))
    in_writers = st.builds(Death, st.just("change"), st.integers(1, 12))
    writers = st.sampled_from(tuple(WRITERS)).flatmap(lambda what: several(what, in_writers, 3))
    return st.one_of(trained, trained, trained, trained, trained, several(GRID, of_cells, 4), writers)


class KillsCampaign(Campaign[KillCase]):
    """Compares what is left at the end, byte for byte, with what nothing disturbed has made."""

    name = "kills"
    about = "training, grids and writers of files, ended by SIGKILL, SIGTERM and SIGINT, stopped, or begun twice"
    limits = Limits(seconds=60)  # a case is a dozen trainings
    quick = 1

    def prepare(self, folder: Path) -> None:
        self.folder, self.seconds = folder, dict[str, float]()
        os.environ["HEADWAY_CACHE"] = str(folder / "cache")
        write_reversal(folder)
        rows = (folder / "train.tsv").read_text().splitlines(keepends=True)
        (folder / "train.tsv").write_text("".join(rows[:60]))
        for side in "st":
            shutil.copy(folder / "train.tsv", folder / f"split.{side}")
        self._warm_up()

    def _warm_up(self) -> None:
        """Import all that training needs, so that its copies begin at once."""
        recipe = self._recipe("last")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            assert run_here("train", str(recipe), "--output", str(self.folder / "warm")) == 0, said.getvalue()
        assert len(list(Path("/proc/self/task").iterdir())) == 1

    def first(self) -> list[KillCase]:
        """A process killed while it writes, between checkpoints, and beside another."""
        while_it_writes = [Death("change", number) for number in (12, 30, 81, 86, 93, 98, 116, 121)]
        stopped = [Death("moment", 500, "SIGTERM"), Death("double", 300), Death("change", 12, "SIGTERM")]
        return [KillCase("last", (*while_it_writes, *stopped))]

    def cases(self) -> SearchStrategy[KillCase]:
        return _cases()

    def check(self, case: KillCase, folder: Path) -> int:
        os.environ["HEADWAY_CACHE"] = str(folder / "cache")
        if case.what == GRID:
            return self._check_grid(case, folder)
        return self._check_writer(case, folder) if case.what in WRITERS else self._check_training(case, folder)

    def _recipe(self, what: str) -> Path:
        """The recipe of a setup, which lies beside its data."""
        path = self.folder / f"{what}.yaml"
        if what in OLD:
            old = self.folder / what
            if not old.exists():
                copied(what, old)
                tree = yaml.safe_load((old / "recipe.yaml").read_text())
                tree["training"] |= SHORTER
                (old / "short.yaml").write_text(yaml.safe_dump(tree))
            return old / "short.yaml"
        sections = REVERSAL | {"model": MODEL, "training": TRAINING}
        tree = {name: section | SETUPS[what].get(name, {}) for name, section in sections.items()}
        tree["model"] = SETUPS[what].get("model", MODEL)
        path.write_text(yaml.safe_dump(without_none(tree)))
        return path

    def _alone(self, what: str) -> Path:
        """The run of a setup that nothing disturbs, made at its first use and kept for all cases."""
        run, times = self.folder / f"alone-{what}", self.folder / f"alone-{what}.time"
        if not times.exists():
            shutil.rmtree(run, ignore_errors=True)
            began = time.monotonic()
            os.environ["HEADWAY_CACHE"] = str(self.folder / f"cache-{what}")
            arguments = ("train", str(self._recipe(what)), "--output", str(run))
            log = self.folder / f"alone-{what}.log"
            assert ended(forked(arguments, log)) == 0, log.read_text()[-2000:]
            times.write_text(str(time.monotonic() - began))
        self.seconds[what] = float(times.read_text())
        return run

    def _check_training(self, case: KillCase, folder: Path) -> int:
        alone, run, log = self._alone(case.what), folder / "run", folder / "log"
        os.environ["HEADWAY_CACHE"] = str(folder / "cache")
        arguments = ("train", str(self._recipe(case.what)), "--output", str(run), "--resume")
        start, hits = partial(forked, arguments, log), 0
        for death in case.deaths:
            try:
                hits += _attempt(death, start, run, self.seconds[case.what])
            except AssertionError as error:
                raise AssertionError(f"{death}: {error}\n{log.read_text()[-2000:]}") from error
        assert ended(start()) == 0, log.read_text()[-2000:]
        said = log.read_text()
        assert "damaged" not in said, said[-2000:]
        assert "Traceback" not in said, said[said.find("Traceback") :][:3000]
        assert_same(alone, run)
        assert _states(alone) == _states(run)
        for name in ("recipe.yaml", *(f"vocabulary/{path.name}" for path in (alone / "vocabulary").glob("*.*"))):
            assert (alone / name).read_bytes() == (run / name).read_bytes(), name
        manifest = json.loads((run / "manifest.json").read_text())
        assert (manifest["status"], manifest["updates"]) == ("finished", _states(run)[-1]["state"]["update"])
        assert (run / "report.html").is_file()
        return hits

    def _check_grid(self, case: KillCase, folder: Path) -> int:
        """No cell is lost, none is made twice, and all have the weights and outputs of those that were left alone."""
        alone, grid = self.folder / "grid-alone", self.folder / "grid" / "grid.yaml"
        if not (self.folder / "grid-made").exists():
            shutil.rmtree(grid.parent, ignore_errors=True)
            grid.parent.mkdir()
            write_grid(grid.parent, variants={"attention": {}, "ngram": "ngram.yaml"}, seeds=[1], metrics=["chrf"])
            assert grid_attempts.attempt(str(grid), str(alone)) == 0
            (self.folder / "grid-made").touch()
        out, hits = folder / "out", 0
        for death in case.deaths:
            hits += grid_attempts.attempt(str(grid), str(out), death.kind, death.at) != 0
        assert grid_attempts.attempt(str(grid), str(out)) == 0
        cells = {path.parent.name: path for path in sorted(out.glob("cells/*/cell.json"))}
        assert list(cells) == ["attention-1", "ngram-1"]
        for name, path in cells.items():
            assert_same(alone / "cells" / name, path.parent)
            assert _outputs(path) == _outputs(alone / "cells" / name / "cell.json")
            log = (out / "logs" / f"cells-{name}.txt").read_text()
            assert log.count(": finished\n") <= 1, log[-2000:]
            assert "Traceback" not in log, log[-2000:]
        return hits

    def _check_writer(self, case: KillCase, folder: Path) -> int:
        """A file has all that it should, or is not there; the next call makes what is missing."""
        command = [part.format(run=self._alone("last"), data=self.folder) for part in WRITERS[case.what]]
        whole, hits = folder / "whole", 0
        for place in (whole, folder / "killed"):
            (place / "out").mkdir(parents=True)
        assert ended(forked(command, folder / "log", place=whole)) == 0, (folder / "log").read_text()[-2000:]
        for death in case.deaths:
            dies = partial(die_before_change, death.at, str(folder / "killed"))
            code = ended(forked(command, folder / "log", dies, place=folder / "killed"))
            hits += code == -signal.SIGKILL
            _assert_whole(whole / "out", folder / "killed" / "out")
            if code == 0:
                break
        else:
            assert ended(forked(command, folder / "log", place=folder / "killed")) == 0, (folder / "log").read_text()
        names = {path.relative_to(whole) for path in whole.rglob("*") if path.is_file()}
        assert all((folder / "killed" / name).is_file() for name in names), names
        return hits


def without_none(tree: dict[str, Any]) -> dict[str, Any]:
    """A recipe without the keys whose value is None."""
    return {
        name: without_none(value) if isinstance(value, dict) else value
        for name, value in tree.items()
        if value is not None
    }


def run_here(*arguments: str) -> int:
    """The exit code of a command line in this process."""
    try:
        main(list(arguments))
    except SystemExit as end:
        return int(end.code or 0)
    raise AssertionError("the command did not end")


def forked(
    arguments: tuple[str, ...] | list[str],
    log: Path,
    prepare_death: Callable[[], None] = lambda: None,
    place: Path | None = None,
) -> int:
    """Start a command line in a copy of this process, in a folder, and give its number; what it says goes to `log`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # one that comes at once must not reach what the copy was made of
    child = os.fork()
    if child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        return child
    code = 128 + signal.SIGINT  # by a second signal, which is meant to end it at once, or by more while it ends
    try:
        gc.callbacks.clear()  # hypothesis has one, which would swallow a signal that comes within it
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(output, stream)
        if place is not None:
            os.chdir(place)
        prepare_death()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        code = run_here(*arguments)
    except KeyboardInterrupt:
        pass
    except BaseException:
        code = 99
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(process: int) -> int:
    """The exit code of a copy once it has ended; below zero where a signal killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _attempt(death: Death, start: Callable[..., int], run: Path, seconds: float) -> int:
    """Make an attempt that ends as it is drawn, and give how many processes were disturbed."""
    if death.kind == "change":
        return _checked(start(partial(die_before_change, death.at, str(run), NUMBERS[death.signal]))) != 0
    first = start()
    second = start() if death.kind == "double" else None
    time.sleep(seconds * death.at / 1000)
    if second is not None:
        return int(_checked(first, may_wait=True) != 0) + int(_checked(second, may_wait=True) != 0)
    if death.kind == "moment":
        os.kill(first, NUMBERS[death.signal])
    elif death.kind == "storm":
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            os.kill(first, number)
            time.sleep(0.004)
    else:
        os.kill(first, signal.SIGSTOP)
        if death.kind == "stop":
            _checked(start(), may_wait=True)  # refused, unless the first had not begun
        os.kill(first, signal.SIGCONT if death.kind == "stop" else signal.SIGKILL)
        code = _checked(first, may_wait=True)
        return int(death.kind == "stop" or code != 0)
    return int(_checked(first) != 0)


def _checked(process: int, *, may_wait: bool = False) -> int:
    """The exit code of an attempt, which has ended well, by the signal, or because another process trains there."""
    code = ended(process)
    signals = {-number for number in NUMBERS.values()} | {128 + number for number in NUMBERS.values()}
    assert code in {0, *signals} | ({2} if may_wait else set()), f"exit code {code}"
    return code


def _states(run: Path) -> list[dict[str, Any]]:
    """The states of all checkpoints, without times."""
    states = [json.loads(path.read_text()) for path in sorted(run.glob("checkpoints/*/state.json"))]
    for state in states:
        del state["own_sha256"], state["state"]["window"]["began"]
        for name in TIMINGS:
            state["state"].pop(name, None)
    return states


def _outputs(cell: Path) -> Any:
    """What a cell of a grid has decoded."""
    return json.loads(cell.read_text())["result"]["outputs"]


def _assert_whole(whole: Path, killed: Path) -> None:
    """Every file that is there is as long, and but for its times the same, as that of a call that was not killed."""
    for path in killed.rglob("*"):
        if path.is_file() and not any(part.endswith(".tmp") for part in path.relative_to(killed).parts):
            assert path.read_bytes() == (whole / path.relative_to(killed)).read_bytes(), path.name
