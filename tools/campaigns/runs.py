"""Damaged run folders, of every task, and what users do with them: predict, go on training, score, look inside."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import yaml
from hypothesis.strategies import SearchStrategy

from headway.runs.run import open_run
from headway.runs.run_folder import RunFolder
from tools.campaigns.campaign import Campaign, unharmed
from tools.campaigns.command_line import Ended, run_command
from tools.campaigns.damage import Damage, damages, files_of, forge, places_of, share
from tools.campaigns.mutations import Change
from tools.campaigns.sample_files import prepared_files

# By the name of a run: what is on standard input of predict, and what is scored.
LINES = {
    "run": b"a dog .\n2012\n", "other": b"a dog .\n\n", "tagger": b"A dog runs .\n", "detector": b"A dog run .\n",
    "parser": b"a dog\n", "dependency": b"a dog\n", "recurrent": b"a dog\n", "speech": b"",
}  # fmt: skip
SCORED = {"tagger": "--source @tsv@", "detector": "--source @tsv@", "speech": "--source @spoken@"}
MINE = (
    "mine.txt", ".mine.tmp", "checkpoints/update-notes.txt", "checkpoints/update-notes/x", "checkpoints/mine/x",
    "checkpoints/.mine.tmp", "checkpoints/update-00000002-copy/x",
)  # fmt: skip
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
    quick, together = 20, 16

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

    def first(self) -> list[RunCase]:
        """A byte of each kind of file, and the recipe, changed."""
        names = [path.relative_to(self.paths["run"]).as_posix() for path in files_of(self.paths["run"])]
        names = sorted([*names, *(name for name in MINE)])
        recipe = yaml.load((self.paths["run"] / "recipe.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
        places = list(places_of(recipe))
        local = next(mixer for mixer in recipe["model"]["decoder"]["mixer"] if mixer["kind"] == "local")
        width = share(places.index((local, "n")), len(places))  # which the shapes of weights do not depend on

        def case(name: str, verb: str, kind: str = "bytes", place: int = 990) -> RunCase:
            flip = (Change("flip", place, 1, (b"", 0)),)
            return RunCase("run", verb, (Damage(kind, share(names.index(name), len(names)), width, 1, flip),))

        pieces = next(name for name in names if name.endswith("spm.model"))  # with numbers that nothing depends on
        checkpoint = max(name for name in names if name.endswith("/model.safetensors"))
        return [
            case("model.safetensors", "predict"), case("model.safetensors", "score"), case(checkpoint, "average"),
            case("recipe.yaml", "predict", "value"), case("mine.txt", "resume", "empty"),
            *(case(pieces, "predict", place=place) for place in range(100, 1000, 150)),
        ]  # fmt: skip

    def cases(self) -> SearchStrategy[RunCase]:
        return st.builds(
            RunCase, st.sampled_from(("run", "run", *LINES)), st.sampled_from(VERBS), damages(), st.booleans()
        )

    def check(self, case: RunCase, folder: Path) -> None:
        run, other = folder / "run", self.paths["other" if case.run == "run" else "run"]
        shutil.copytree(self.paths[case.run], run)
        notes = folder / "notes"
        mine = [run / name for name in MINE]
        for path in mine:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("mine", encoding="utf-8")
        touched = {name for damage in case.damages for name in damage.apply(run, other)}
        if case.forged:
            forge(run, sorted(touched))
        kept = [path for path in mine if path.exists() and not path.is_symlink()]
        notes.mkdir()
        with unharmed(self.shared, *kept):
            ended = self._use(case.run, case.verb, run, notes)
            ended.check()
        if case.forged or "manifest.json" in touched:
            return
        if case.verb == "predict" and "recipe.yaml" not in touched:
            assert ended.out == self.expected[case.run], "damage is used in silence"
        changed = self._changed(case, run)
        assert not changed, f"{changed} is used, and is not what training wrote"

    def _changed(self, case: RunCase, run: Path) -> str:
        """A file that the verb reads and whose hash is known, where its content is another one than before."""
        whole = self.paths[case.run]
        if case.verb != "resume" and _of_weights(run / "recipe.yaml") != _of_weights(whole / "recipe.yaml"):
            return "recipe.yaml"
        read = [path for path in files_of(whole / "vocabulary") if case.verb != "parameters"]
        if case.verb in ("predict", "score"):
            read.append(whole / "model.safetensors")
        if case.verb == "average":
            read.append(max((whole / "checkpoints").glob("update-*")) / "model.safetensors")
        names = [path.relative_to(whole) for path in read]
        return next((str(name) for name in names if _content(run / name) != _content(whole / name)), "")

    def _use(self, name: str, verb: str, run: Path, folder: Path) -> Ended:
        arguments = {
            "predict": ["predict", str(run), "--device", "cpu"],
            "average": ["predict", str(run), "--device", "cpu", "--average", "1"],
            "parameters": ["inspect", "tables", "parameters", str(run)],
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
        updates = open_run(self.paths[name]).manifest["updates"]
        return [f"training.updates={updates + 2}"]


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() and not path.is_symlink() else None


def _of_weights(recipe: Path) -> dict[str, Any]:
    """The keys of a recipe that say what weights are of."""
    tree = yaml.load(recipe.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return {name: tree.get(name) for name in ("task", "model")}
