"""`headway new`: from pairs of sentences and a teacher to a model for browsers, in steps.

A small model learns more easily from what a teacher writes than from what people wrote (Kim and Rush 2016), so it is
trained on the teacher's outputs alone, and at last with the engine's rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

from headway.core.documents import dump_yaml, read_json
from headway.core.errors import UserError, option
from headway.core.files import sha256, write_json, write_text
from headway.core.languages import CHARACTER_OR_WORD, LanguageCode
from headway.core.log import counted, say
from headway.core.storage import put_in_place, workspace
from headway.corpora.split import PARTS, SplitOptions, split_table
from headway.experiments.new import (
    BROWSER,
    EVALUATIONS,
    FALL,
    FEW,
    IDENTIFIED,
    LOOKED_AT,
    PASSES,
    language_of_side,
    recipe_tree,
)
from headway.experiments.steps import Commands, Step, run_steps, steps_table
from headway.experiments.student_options import StudentOptions
from headway.formats.lines import read_lines
from headway.formats.pairs import open_source
from headway.models.transformer import TransformerConfig
from headway.recipe import load_recipe, parse_recipe
from headway.runs.model_card import write_card
from headway.runs.run import open_run
from headway.training.trained import dry_run

COMMAND, HUB = "command:", "hf:"  # the beginnings of teachers that are no runs
ROUNDING = "fixed"  # training.int8_rounding of the last training
ROUNDED_RATE = 3e-4  # the learning rate at the beginning of training with rounding
BEAM = 4  # of a teacher that is a run
# Words, pairs or lines a second, on two idle cores.
COMMAND_SPEED, RUN_SPEED, FILTER_SPEED, LINK_SPEED, ENGINE_SPEED = 7000, 300, 1200, 7000, 25
PAIR_SPEED, BATCH_PAIRS, ROUNDED_COST = 280, 85, 1.5  # pairs a second and an update; the cost of rounding
WITH_BYTES = 2000  # the least vocabulary that has pieces for all 256 bytes
TRIAL = "trial.json"
TEST = 40  # the number of times that train is larger than test, about
SHORT, EXPORT = 10, 60  # seconds of short steps, and of an export, which decodes 300 lines


def make_student(
    options: StudentOptions, languages: tuple[LanguageCode | None, LanguageCode | None], commands: Commands,
    allow: Callable[[str], None],
) -> int:  # fmt: skip
    """Make a student, or continue. Returns 0, or the exit code of the step that stopped, or of a failed report.

    Args:
        options: the options; `student` is the folder.
        languages: of source and target.
        commands: the command line.
        allow: asks whether a teacher's command may run, and raises UserError if not.

    Raises:
        UserError: an option is missing, the data cannot be read, or the command was not allowed.
    """
    road = Road(options, languages)
    if options.dry_run:
        say(steps_table(road.steps(), {}).text())
        return 0
    if road.command:
        allow(road.command)
    return run_steps(road.steps(), road.folder, road.begun, commands)


class Road:
    """The steps to a student.

    Args:
        options: the options.
        languages: of source and target.

    Raises:
        UserError: an option is missing or has no effect, or the data cannot be read.
    """

    def __init__(self, options: StudentOptions, languages: tuple[LanguageCode | None, LanguageCode | None]) -> None:
        self.options = options
        self.teacher = self._named("teacher", options.teacher)
        self.data, self.folder = self._named("data", options.data), self._named("student", options.student).absolute()
        self.source, self.target = map(self._named, ("source_language", "target_language"), languages)
        self.command = self.teacher.removeprefix(COMMAND).strip() if self.teacher.startswith(COMMAND) else None
        self.is_run = self.command is None and options.outputs is None
        if not self.is_run:
            self._named("licence", options.licence)
        elif not (self.teacher.startswith(HUB) or Path(self.teacher).exists()):
            allowed = f"a run, {HUB}NAME, '{COMMAND} PROGRAM ...', or a name beside {option('outputs')}"
            raise UserError("there is no such run", where=option("teacher"), received=self.teacher, allowed=allowed)
        if options.outputs is not None and options.through is not None:
            raise UserError("outputs that are there already are not translated", where=option("through"))
        if options.outputs is not None and self.data.is_file():
            allowed = "a folder with train, dev and test"
            raise UserError("outputs are of lines in their order", where=option("data"), allowed=allowed)
        sample = list(islice(self._pairs(self._corpora(self.data)["train"]), LOOKED_AT))
        self.count = sum(1 for _ in self._pairs(self._corpora(self.data)["train"]))
        self.words = self.count * sum(len(source.split()) for source, _ in sample) / len(sample)
        aligned = sum(len(CHARACTER_OR_WORD.findall(text)) for pair in sample for text in pair)
        self.aligned = self.count * aligned / len(sample)
        read = [pair[options.through - 1] for pair in sample[:IDENTIFIED]] if options.through else []
        self.pivot = language_of_side("target", None, None, read)[0] if read else self.target

    @staticmethod
    def _named(name: str, value: Any) -> Any:
        if value is None:
            raise UserError("a student needs this option", where=option(name), allowed=option(name))
        return value

    @cached_property
    def begun(self) -> dict[str, Any]:
        """The options and hashes that the student depends on."""
        free = {"student", "data", "outputs", "yes", "dry_run"}
        return {
            **self.options.model_dump(mode="json", exclude=free),
            "source_language": self.source, "target_language": self.target,
            "data": {file.name: sha256(file) for file in self._files()},
            "outputs": self.options.outputs and sha256(self.options.outputs),
        }  # fmt: skip

    def _corpora(self, data: Path) -> dict[str, dict[str, str]]:
        """The corpora of a folder of parts by part, or of a table. Raises UserError if a part is missing."""
        if data.is_file():
            return {part: {"tsv": str(data)} for part in PARTS}
        corpora = dict[str, dict[str, str]]()
        for part in PARTS:
            table, sides = data / f"{part}.tsv", [data / f"{part}.{code}" for code in (self.source, self.target)]
            if not (table.is_file() or all(side.is_file() for side in sides)):
                allowed = f"{table.name}, or {' and '.join(side.name for side in sides)}"
                raise UserError(f"the data have no {part}", where=option("data"), received=str(data), allowed=allowed)
            files = {"source": str(sides[0]), "target": str(sides[1])}
            corpora[part] = {"tsv": str(table)} if table.is_file() else files
        return corpora

    def _files(self) -> list[Path]:
        named = (Path(file) for corpus in self._corpora(self.data).values() for file in corpus.values())
        return list(dict.fromkeys(named))

    def _pairs(self, corpus: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """The pairs of a corpus, each text on one line."""
        for pair in open_source(corpus, option("data")):
            yield " ".join(pair.source.split()), " ".join(pair.target.split())

    def steps(self) -> list[Step]:
        """All steps, in order."""
        return [*self._corpus_steps(), *self._training_steps(), *self._export_steps()]

    def _step(self, name: str, seconds: float, words: str, /, *more: Path | str, **options: Any) -> Step:
        """A command with its options. `made`, relative to the folder, appears when it is complete."""
        made = None if "made" not in options else self.folder / options.pop("made")
        whole, report = (*words.split(), *map(str, more)), options.pop("report", None)
        return Step(name, whole, lambda: seconds, options, made=made, report=report)

    def _cell(self, name: str, seconds: float, about: str, work: Callable[[], None], made: str | None = None) -> Step:
        """A function, which is described by `about`."""
        made_there = None if made is None else self.folder / made
        return Step(name, (about,), lambda: seconds, work=work, made=made_there)

    def _corpus_steps(self) -> Iterator[Step]:
        folder, given = self.folder, self.options
        data = folder / "data"
        yield self._cell("data", 2, "write train, dev and test", self.write_data, "data")
        files = [data / "train.tsv"] if given.through else [data / "train.source", data / "train.target"]
        sides = ("source_language", self.source), ("target_language", self.pivot)
        if given.through == 1:  # the source is the second column
            sides = ("target_language", self.source), ("source_language", self.pivot)
        judged = {name: code for name, code in sides if code is not None}
        seconds, into = self.count / FILTER_SPEED, folder / "filtered"
        yield self._step("filter", seconds, "data filter", *files, output=into, **judged, made="filtered")
        run: str | Path = self.teacher
        if self.teacher.startswith(HUB):
            run, own = folder / "teacher", {"licence": given.licence} if given.licence else {}
            yield self._step("import of the teacher", EXPORT, "import", self.teacher, output=run, **own, made="teacher")
        who: list[str | Path] = [run, f"beam={BEAM}"] if self.is_run else []
        other = {} if self.is_run else {"teacher": self.teacher, "licence": given.licence}
        other |= {"yes": True} if self.command else {}
        other |= {"outputs": folder / "filtered" / "kept.target"} if given.outputs else {}
        speed = RUN_SPEED if self.is_run else COMMAND_SPEED
        for part in ("train",) if given.outputs else ("train", "dev", "test") if given.through else ("train", "test"):
            seconds = (self.words if part == "train" else self.words / TEST) / speed
            options = other | self._read_by_teacher(part) | {"output": folder / "distilled" / part}
            yield self._step(f"teacher, {part}", seconds, "augment distill", *who, **options)

    def _read_by_teacher(self, part: str) -> dict[str, Any]:
        """The lines that the teacher reads. Its outputs for test are paired with people's targets."""
        filtered = self.folder / ("filtered" if part == "train" else "data")
        if self.options.through is None and part == "train":
            return {"input": filtered / "kept.source"}
        table = filtered / ("kept.tsv" if part == "train" else f"{part}.tsv")
        return {"input": table, "through": self.options.through or 1}

    def _training_steps(self) -> Iterator[Step]:
        recipes, runs = self.folder / "recipes", self.folder / "runs"
        corpus = recipes / "corpus.yaml"
        yield self._cell("recipe", 2, "write the recipe of the corpus", self.write_corpus_recipe, "recipes/corpus.yaml")
        yield self._step("links", self.aligned / LINK_SPEED, "data annotate", corpus, links=True)
        yield self._step("vocabulary", SHORT, "data check", corpus)
        about = "measure the time of updates, and write the recipes of training"
        yield self._cell("trial", SHORT, about, self.write_training_recipes, TRIAL)
        for name in ("student", "rounded"):
            words, seconds = ("train", str(recipes / f"{name}.yaml")), partial(self._training_seconds, name)
            yield Step(name, words, seconds, {"output": runs / name}, run=runs / name)
        yield self._cell("provenance", 1, "write where data and outputs are from", self.write_provenance)

    def _export_steps(self) -> Iterator[Step]:
        folder, given, run = self.folder, self.options, self.folder / "runs" / "rounded"
        for form in ("firefox", "page"):
            own = {"made": form, "report": folder / form / "parity.json"}
            yield self._step(f"export of {form}", EXPORT, f"export {form}", run, output=folder / form, **own)
        test = folder / "distilled" / "test" if given.through else folder / "data"
        names = ("source.txt", "target.txt") if given.through else ("test.source", "test.target")
        sources, targets = (test / name for name in names)
        said = folder / "evaluation" / "firefox.txt"
        seconds = self.count / TEST / ENGINE_SPEED
        yield self._step("translation of test", seconds, "predict", run, engine="firefox", input=sources, output=said)
        metrics = ("chrf", "bleu")
        scored = {"metric": metrics, "hypotheses": said, "references": targets}
        yield self._step("scores of the student", SHORT, "score", **scored)
        if not (given.through or given.outputs):
            own = {
                "hypotheses": folder / "distilled/test/target.txt",
                "references": folder / "distilled/test/source.txt",
            }
            yield self._step("scores of the teacher", SHORT, "score", metric=metrics, **own)
        named = {"pair": f"{self.source}-{self.target}", "dataset": "teacher" if given.through else "people"}
        named |= {"final_evals": folder / "evaluation" / "final-evals", "source": sources}
        files = {"hypotheses": f"rounded={said}", "references": targets}
        yield self._step("final evaluation", SHORT, "score", **named, **files)

    def write_data(self) -> None:
        """Write train, dev and test: a table each, and its sides as lines."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with workspace(self.folder, self.folder / "data") as space:
            corpora = self._corpora(self._split(space) if self.data.is_file() else self.data)
            (built := space / "data").mkdir()
            for part, corpus in corpora.items():
                pairs = list(self._pairs(corpus))
                if part == "train" and self.options.outputs is not None:
                    pairs = self._with_outputs(pairs, self.options.outputs)
                texts = {"tsv": ["\t".join(pair) for pair in pairs]}
                texts |= {side: [pair[column] for pair in pairs] for column, side in enumerate(("source", "target"))}
                for suffix, lines in texts.items():
                    write_text(built / f"{part}.{suffix}", "".join(f"{line}\n" for line in lines))
            put_in_place(built, self.folder / "data")

    def _split(self, space: Path) -> Path:
        """A folder with the parts of a single table. No source is in two of them."""
        split = split_table(self.data, ("1", "2"), space / "split", SplitOptions(seed=1, disjoint_sources=True))
        say(split.text())
        return space / "split"

    @staticmethod
    def _with_outputs(pairs: list[tuple[str, str]], file: Path) -> list[tuple[str, str]]:
        """The sources with another system's outputs. Raises UserError unless each source has one."""
        outputs = [" ".join(line.split()) for line in read_lines(file)]
        if len(outputs) != len(pairs):
            received = f"{counted(len(pairs), 'pair')} and {counted(len(outputs), 'output')}"
            raise UserError("each pair in train needs one output", where=str(file), received=received)
        return [(source, output) for (source, _), output in zip(pairs, outputs, strict=True)]

    def _taught(self, part: str) -> dict[str, str]:
        """The corpus that the teacher wrote of a part."""
        folder = self.folder / "distilled" / part
        return {"source": str(folder / "source.txt"), "target": str(folder / "target.txt")}

    def write_corpus_recipe(self) -> None:
        """Write the recipe of data, vocabulary and model, of a size that suits the pairs, and make folders."""
        train = self._taught("train")
        pairs = [(pair.source, pair.target) for pair in islice(open_source(train, "data.train"), LOOKED_AT)]
        tree = recipe_tree(self.count, pairs, (self.source, self.target), BROWSER)
        data = self.folder / "data"
        people = {"source": str(data / "dev.source"), "target": str(data / "dev.target")}
        dev = self._taught("dev") if self.options.through else people
        tree["data"] = {"train": train, "dev": dev, "links": "eflomal", **tree["data"]}
        size = tree["vocabulary"]["size"] = 8 * max(1, tree["vocabulary"]["size"] // 8)
        if size >= WITH_BYTES:
            tree["vocabulary"] |= {"byte_fallback": True, "split_digits": True}
        if self.options.preset is not None:
            tree["model"]["preset"] = self.options.preset
        model = parse_recipe(tree).model
        assert isinstance(model, TransformerConfig)
        guided = {"kind": "guided_alignment", "layer": f"decoder.{model.decoder.layers}.cross", "head": 1}
        tree["objective"] = {"label_smoothing": 0.0, "losses": [guided | {"weight": 0.05}]}
        for name in ("recipes", "evaluation"):
            (self.folder / name).mkdir(exist_ok=True)
        comment = "# What the teacher wrote, the vocabulary and the model.\n"
        write_text(self.folder / "recipes" / "corpus.yaml", comment + dump_yaml(tree, flow=True))

    def write_training_recipes(self) -> None:
        """Write the recipes of both trainings, and their time by a trial of a few updates on this machine."""
        recipes, passes = self.folder / "recipes", self.options.passes
        base = load_recipe(recipes / "corpus.yaml")
        cost = dry_run(base)
        passes = passes or math.ceil(PASSES * (FEW / max(self.count, FEW)) ** FALL)
        updates, rounded = passes * cost.updates_per_epoch, self.options.rounded
        student = {
            "base": "corpus.yaml",
            "optimizer": {"warmup": max(1, min(4000, updates // 12))},
            "training": {"updates": updates, "checkpoint_every": math.ceil(updates / EVALUATIONS)},
        }
        origin = str(self.folder / "runs" / "student")
        training = {"from": origin, "updates": rounded, "checkpoint_every": math.ceil(rounded / EVALUATIONS)}
        last = {
            "base": "corpus.yaml",
            "optimizer": {"learning_rate": ROUNDED_RATE, "warmup": 0},
            "training": training | {"int8_rounding": ROUNDING},
        }
        for name, tree in (("student", student), ("rounded", last)):
            write_text(recipes / f"{name}.yaml", dump_yaml(tree, flow=True))
        evaluations, each = EVALUATIONS * cost.evaluation_seconds, cost.update_seconds
        seconds = {"student": updates * each, "rounded": rounded * each * ROUNDED_COST}
        write_json(self.folder / TRIAL, {name: round(time + evaluations) for name, time in seconds.items()})

    def _training_seconds(self, name: str) -> float:
        """The time of a training, by the trial if it is complete."""
        measured = self.folder / TRIAL
        if measured.is_file():
            return float(read_json(measured, what="trial")[name])
        passes = self.options.passes or PASSES * (FEW / max(self.count, FEW)) ** FALL
        updates_cost = self.options.rounded * ROUNDED_COST * BATCH_PAIRS
        return (self.count * passes if name == "student" else updates_cost) / PAIR_SPEED

    def write_provenance(self) -> None:
        """Write into the manifests and cards of the runs where data and the teacher's outputs are from."""
        taught = read_json(self.folder / "distilled" / "train" / "manifest.json", what="manifest of the teacher")
        filtered = read_json(self.folder / "filtered" / "manifest.json", what="manifest of the filter")
        teacher = taught.get("teacher") or {"runs": taught["runs"], "licence": self.options.licence}
        provenance = {
            "data": {"files": self.begun["data"], "licence": self.options.data_licence},
            "filter": filtered["counts"],
            "teacher": teacher,
            "outputs": taught["counts"] | {"sha256": taught["sha256"]["target.txt"]},
        }
        if "unknown_words" in taught:
            provenance["outputs"]["unknown_words"] = taught["unknown_words"]
        for name in ("student", "rounded"):
            run = open_run(self.folder / "runs" / name)
            run.folder.write_manifest({"provenance": provenance})
            run.folder.card.unlink(missing_ok=True)
            write_card(run)
