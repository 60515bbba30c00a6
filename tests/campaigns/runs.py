"""Damaged run folders, of every task, and what users do with them: predict, go on training, score, look inside."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import hypothesis.strategies as st
from hypothesis.strategies import SearchStrategy

from headway.runs.run_folder import RunFolder
from tests.campaigns.campaign import Campaign, unharmed
from tests.campaigns.command_line import Ended, run_command
from tests.campaigns.damage import Damage, damages, forge
from tests.campaigns.sample_files import prepared_files

# By the name of a run: what is on standard input of predict, and what is scored.
LINES = {
    "run": b"a dog .\n2012\n", "other": b"a dog .\n\n", "tagger": b"A dog runs .\n", "detector": b"A dog run .\n",
    "parser": b"a dog\n", "dependency": b"a dog\n", "recurrent": b"a dog\n", "speech": b"",
}  # fmt: skip
SCORED = {"tagger": "--source @tsv@", "detector": "--source @tsv@", "speech": "--source @spoken@"}
VERBS = ("predict",) * 6 + ("resume",) * 2 + ("score", "parameters", "average")


@dataclass(frozen=True)
class RunCase:
    """A run of `write_files`, what is damaged in it, whether the hashes that it holds are made to fit, and a verb."""

    run: str
    verb: str
    damages: tuple[Damage, ...]
    forged: bool = False


class RunsCampaign(Campaign[RunCase]):
    """Uses each damaged run; where the hashes are those of before, nothing but the right answer is right."""

    name = "runs"
    about = "damaged run folders of every task: predict, resume, score, inspect"
    quick, together = 16, 16

    def prepare(self, folder: Path) -> None:
        """Make runs, and use each once."""
        self.shared, self.paths = prepared_files(folder)
        self.expected: dict[str, str] = {}
        for name in LINES:
            place = folder / f"use-{name}"
            place.mkdir()
            ended = self._use(name, "predict", self.paths[name], place)
            assert ended.code == 0, ended.err
            self.expected[name] = ended.out

    def cases(self) -> SearchStrategy[RunCase]:
        return st.builds(
            RunCase, st.sampled_from(("run", "run", *LINES)), st.sampled_from(VERBS), damages(), st.booleans()
        )

    def check(self, case: RunCase, folder: Path) -> None:
        run, other = folder / "run", self.paths["other" if case.run == "run" else "run"]
        shutil.copytree(self.paths[case.run], run)
        notes = folder / "notes"
        for mine in (run / "mine.txt", run / "checkpoints" / "update-notes.txt", run / "checkpoints" / "mine" / "x"):
            mine.parent.mkdir(parents=True, exist_ok=True)
            mine.write_text("mine", encoding="utf-8")
        mine = [run / "mine.txt", run / "checkpoints" / "update-notes.txt", run / "checkpoints" / "mine"]
        touched = {name for damage in case.damages for name in damage.apply(run, other)}
        if case.forged:
            forge(run, sorted(touched))
        kept = [path for path in mine if path.exists() and not path.is_symlink()]
        notes.mkdir()
        with unharmed(self.shared, *kept):
            ended = self._use(case.run, case.verb, run, notes)
            ended.check()
        if case.verb == "predict" and not case.forged and not touched & {"recipe.yaml", "manifest.json"}:
            assert ended.out == self.expected[case.run], "damage is used in silence"

    def _use(self, name: str, verb: str, run: Path, folder: Path) -> Ended:
        arguments = {
            "predict": ["predict", str(run), "--device", "cpu"],
            "average": ["predict", str(run), "--device", "cpu", "--average", "1"],
            "parameters": ["inspect", "parameters", str(run)],
            "score": ["score", str(run), *self._scored(name)],
            "resume": ["train", str(RunFolder(run).recipe_file), *self._end(name), "--output", str(run), "--resume"],
        }[verb]
        if name == "speech" and verb in ("predict", "average"):
            arguments.insert(2, str(self.paths["wav"]))
        # A run whose checkpoints are all damaged begins again: two seconds of that are enough.
        return run_command(arguments, folder, stdin=LINES[name], seconds=2.0 if verb == "resume" else 0.0)

    def _scored(self, name: str) -> list[str]:
        text = str(self.paths["text"])
        given = SCORED.get(name)
        if given is None:
            return ["--source", text, "--target", text]
        spoken = self.paths["speech"].parent / "data" / "test.tsv"
        return given.replace("@tsv@", str(self.paths["tsv"])).replace("@spoken@", str(spoken)).split()

    def _end(self, name: str) -> list[str]:
        """Two more updates than the run has made."""
        updates = RunFolder(self.paths[name]).read_manifest()["updates"]
        return [f"training.updates={updates + 2}"]
