"""`headway new` for browsers: steps that go on after a kill, and their order, options and estimates."""

import json
from pathlib import Path

import pytest
import yaml

from headway.core.errors import UserError
from headway.experiments.steps import Commands, Step, run_steps
from headway.experiments.student import Road
from headway.experiments.student_options import StudentOptions
from headway.export.page_export import ENGINE
from headway.runs.run import open_run
from tests.conftest import Command
from tests.export.student import lines
from tests.export.test_page_export import PACKAGE

TEACHER = "import sys\nfor line in sys.stdin:\n    print(line.strip().upper(), flush=True)\n"


class Killed(BaseException):
    pass


class Shop:
    """A command line that notes its commands, and is killed within some of them."""

    def __init__(self, *killed: str, codes: dict[str, int] | None = None) -> None:
        self.said, self.killed, self.codes = list[str](), set(killed), codes or {}

    def execute(self, words) -> int:
        self.said.append(" ".join(words))
        if words[0] in self.killed:
            self.killed.remove(words[0])
            raise Killed
        if words[0] == "export":
            Path(words[1]).mkdir()
            report = {"passed": "export" not in self.codes}
            (Path(words[1]) / "parity.json").write_text(json.dumps(report), encoding="utf-8")
        return self.codes.get(words[0], 0)

    @property
    def commands(self) -> Commands:
        return Commands(lambda words, options: [*words, *options], self.execute)


def steps_in(folder: Path) -> list[Step]:
    (folder / "run").mkdir(parents=True, exist_ok=True)
    run, export = folder / "run", folder / "export"
    return [
        Step("read", ("read",), lambda: 1),
        Step("train", ("train",), lambda: 8, run=run),
        Step("note", ("write a note",), lambda: 1, work=lambda: (folder / "note").write_text("x") and None),
        Step("export", ("export", str(export)), lambda: 2, made=export, report=export / "parity.json"),
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "student"
    folder.mkdir()
    return folder


def test_after_kills_each_step_is_made_once_and_training_goes_on(folder: Path, tmp_path: Path) -> None:
    steps, shop = steps_in(tmp_path / "work"), Shop("read", "train")
    for expected in (["read"], ["read", "train"]):
        with pytest.raises(Killed):
            run_steps(steps, folder, {"data": 1}, shop.commands)
        assert shop.said[-len(expected) :] == expected
    (tmp_path / "work" / "run" / "manifest.json").write_text('{"format": 1, "status": "stopped"}', encoding="utf-8")
    assert run_steps(steps, folder, {"data": 1}, shop.commands) == 0
    assert shop.said[3:] == ["train resume", f"export {tmp_path}/work/export"]
    assert run_steps(steps, folder, {"data": 1}, shop.commands) == 0
    assert len(shop.said) == 5
    assert list(json.loads((folder / "steps.json").read_text("utf-8"))["done"]) == ["read", "train", "note", "export"]
    assert "headway train" in (folder / "steps.txt").read_text("utf-8")


def test_a_step_that_fails_stops_the_work_unless_its_files_are_there(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[str]()
    monkeypatch.setattr("headway.experiments.steps.say", told.append)
    steps, shop = steps_in(tmp_path / "work"), Shop(codes={"train": 143, "export": 1})
    assert run_steps(steps, folder, {}, shop.commands) == 143
    assert told[-1] == "step 2 of 4, train, has stopped: the command of all steps goes on there"
    assert shop.said == ["read", "train"]
    shop.codes["train"] = 0
    assert run_steps(steps, folder, {}, shop.commands) == 1, "the report of the export says what is wrong"
    assert run_steps(steps, folder, {}, shop.commands) == 1
    assert len(shop.said) == 4
    stamps = json.loads((folder / "steps.json").read_text("utf-8"))
    del stamps["done"]["export"]
    (folder / "steps.json").write_text(json.dumps(stamps), encoding="utf-8")
    assert run_steps(steps, folder, {}, shop.commands) == 1, "also after a kill between the export and its stamp"
    assert len(shop.said) == 4


def test_other_work_in_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    steps, shop = steps_in(tmp_path / "work"), Shop()
    run_steps(steps, folder, {"data": "a", "teacher": "b"}, shop.commands)
    with pytest.raises(UserError, match="it differs in teacher"):
        run_steps(steps, folder, {"data": "a", "teacher": "c"}, shop.commands)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "letter").touch()
    with pytest.raises(UserError, match="something else"):
        run_steps(steps, tmp_path / "own", {}, shop.commands)
    assert [path.name for path in (tmp_path / "own").iterdir() if path.name != ".lock"] == ["letter"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "pairs"
    folder.mkdir()
    for part, count, seed in (("train", 500, 1), ("dev", 20, 2), ("test", 20, 3)):
        rows = "".join(f"{source}\t{target}\n" for source, target in lines(count, seed))
        (folder / f"{part}.tsv").write_text(rows, encoding="utf-8")
    return folder


def options(tmp_path: Path, data: Path, **given) -> StudentOptions:
    return StudentOptions(student=tmp_path / "student", data=data, **given)


TEACHERS = {
    "run": {"teacher": "."},
    "hub": {"teacher": "hf:someone/model", "licence": "cc-by-4.0"},
    "command": {"teacher": "command: cat", "licence": "gpl-2.0"},
    "through": {"teacher": "command: cat", "licence": "gpl-2.0", "through": 2},
    "outputs": {"teacher": "a system", "licence": "cc0-1.0", "outputs": "outputs.txt"},
}


@pytest.mark.parametrize("kind", TEACHERS)
def test_the_steps_suit_the_teacher(kind: str, tmp_path: Path, data: Path) -> None:
    road = Road(options(tmp_path, data, **TEACHERS[kind]), ("en", "de"))
    steps = {step.name: step for step in road.steps()}
    assert ("import of the teacher" in steps) == (kind == "hub")
    assert kind != "hub" or steps["import of the teacher"].made is not None, "an import is never repeated"
    assert ("teacher, dev" in steps) == (kind == "through"), "dev has the teacher's outputs if people's are others"
    assert ("teacher, test" in steps) == (kind != "outputs")
    assert ("scores of the teacher" in steps) == (kind in ("run", "hub", "command"))
    taught = steps["teacher, train"]
    assert taught.options.get("through") == (2 if kind == "through" else None)
    assert ("beam=4" in taught.words) == (kind in ("run", "hub"))
    assert taught.options.get("licence") == (None if kind in ("run", "hub") else TEACHERS[kind]["licence"])
    assert all(step.seconds() > 0 for step in steps.values())
    assert [*steps][-1] == "final evaluation"


def test_the_filter_judges_each_column_by_its_language(tmp_path: Path, data: Path) -> None:
    for through, expected in ((None, ("en", "de")), (2, ("en", "de")), (1, ("en", "de")[::-1])):
        road = Road(options(tmp_path, data, **TEACHERS["command"], through=through), ("en", "de"))
        road.pivot = "de"
        given = next(step.options for step in road.steps() if step.name == "filter")
        assert (given["source_language"], given["target_language"]) == expected


def test_outputs_must_be_those_of_the_pairs(tmp_path: Path, data: Path) -> None:
    outputs = tmp_path / "outputs.txt"
    outputs.write_text("EINS\n" * 499, encoding="utf-8")
    road = Road(options(tmp_path, data, **TEACHERS["outputs"] | {"outputs": outputs}), ("en", "de"))
    with pytest.raises(UserError, match="500 pairs and 499 outputs"):
        road.write_data()
    assert not (tmp_path / "student" / "data").exists()
    outputs.write_text("EINS\n" * 500, encoding="utf-8")
    road.write_data()
    assert (tmp_path / "student" / "data" / "train.target").read_text("utf-8") == "EINS\n" * 500


def test_a_table_alone_is_split(tmp_path: Path, data: Path) -> None:
    road = Road(options(tmp_path, data / "train.tsv", **TEACHERS["run"]), ("en", "de"))
    road.write_data()
    made = {part: set((tmp_path / "student/data" / f"{part}.source").read_text("utf-8").splitlines())
            for part in ("train", "dev", "test")}  # fmt: skip
    assert not made["train"] & made["test"]
    assert made["dev"]


@pytest.mark.parametrize("preset", [None, "firefox-base-memory"])
def test_a_student_has_the_size_that_is_asked_for(preset: str | None, tmp_path: Path, data: Path) -> None:
    taught = tmp_path / "student" / "distilled" / "train"
    taught.mkdir(parents=True)
    for name, texts in zip(("source", "target"), zip(*lines(500, 1), strict=True), strict=True):
        (taught / f"{name}.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    Road(options(tmp_path, data, teacher=".", preset=preset), ("en", "de")).write_corpus_recipe()
    recipe = yaml.safe_load((tmp_path / "student" / "recipes" / "corpus.yaml").read_text("utf-8"))
    assert recipe["model"]["preset"] == (preset or "student-tiny")
    assert recipe["objective"]["losses"][0]["layer"] == ("decoder.4.cross" if preset else "decoder.2.cross")


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"teacher": None}, "teacher"),
        ({"teacher": "runs/missing"}, "no such run"),
        ({"teacher": "command: cat"}, "licence"),
        ({"data": None}, "data"),
        ({"teacher": "x", "licence": "y", "outputs": "o", "through": 1}, "through"),
    ],
)
def test_what_is_missing_is_named(given: dict, where: str, tmp_path: Path, data: Path) -> None:
    whole = {"student": tmp_path / "student", "data": data, "teacher": "."} | given
    with pytest.raises(UserError) as raised:
        Road(StudentOptions(**whole), ("en", "de"))
    assert where in str(raised.value)
    assert not (tmp_path / "student").exists()


def test_the_command_line(tmp_path: Path, data: Path, run_headway: Command) -> None:
    given = ["--student", tmp_path / "student", "--data", data, "--source-language", "en", "--target-language", "de"]
    teacher = ["--teacher", "command: cat", "--licence", "gpl-2.0"]
    ended = run_headway("new", *given, *teacher, "--dry-run")
    assert ended.code == 0, ended.err
    assert "final evaluation" in ended.err
    ended = run_headway("new", *given, *teacher)
    assert ended.code == 2
    assert "this command was not allowed" in ended.err
    for wrong in (["new", data / "train.tsv", *given], ["new", data / "train.tsv", "--through", "2"], ["new"],
                  ["new", *given, *teacher, "--minutes", "5"]):  # fmt: skip
        assert run_headway(*wrong).code == 2
    assert not (tmp_path / "student").exists()


@pytest.mark.slow
def test_the_whole_road(tmp_path: Path, data: Path, run_headway: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("eflomal")
    pytest.importorskip("fxtranslate")
    if not (PACKAGE / f"{ENGINE.replace('@', '-')}.tgz").exists():
        pytest.skip("the engine of pages is not there")
    monkeypatch.setenv("HEADWAY_CACHE", str(PACKAGE.parent))
    (tmp_path / "teacher.py").write_text(TEACHER, encoding="utf-8")
    given = ["--student", tmp_path / "student", "--data", data, "--source-language", "en", "--target-language", "de"]
    given += ["--teacher", f"command: python {tmp_path / 'teacher.py'}", "--licence", "gpl-2.0", "--through", "2"]
    given += ["--data-licence", "mpl-2.0", "--passes", "2", "--rounded", "4", "--yes"]
    ended = run_headway("new", *given)
    assert ended.code in (0, 1), ended.err  # so short a training leaves thin margins, which the export reports
    student = tmp_path / "student"
    provenance = open_run(student / "runs" / "rounded").manifest["provenance"]
    assert provenance["teacher"]["licence"] == "gpl-2.0"
    assert provenance["data"]["licence"] == "mpl-2.0"
    card, page = ((student / name).read_text("utf-8") for name in ("firefox/README.md", "page/index.html"))
    assert "gpl-2.0" in card
    assert provenance["outputs"]["sha256"] in card
    assert "gpl-2.0" in page
    recipe = yaml.safe_load((student / "recipes" / "corpus.yaml").read_text("utf-8"))
    assert recipe["vocabulary"]["size"] % 8 == 0
    evals = student / "evaluation" / "final-evals" / "en-de" / "teacher" / "headway" / "rounded" / "latest"
    assert json.loads((evals / "chrf.metrics.json").read_text("utf-8"))["score"] >= 0
    assert run_headway("new", *given).code == ended.code
