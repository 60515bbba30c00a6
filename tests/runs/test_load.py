"""Loading a run: of every task, and never with code that nobody allowed."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
import yaml

import headway
from headway.core.errors import NotFiniteError, UserError
from headway.core.registry import foreign_code
from headway.models import TaggerConfig
from headway.predictors.label_predictor import LabelPredictor
from headway.predictors.sequence_predictor import SequencePredictor, TreePredictor
from headway.runs.run import NoInitialValues, open_run, task_of
from headway.runs.run_folder import model_weights
from headway.tasks.pretrained_encoder import build_tagger
from tests.conftest import Command, Reversal
from tests.runs.old_runs import copied

KINDS = {
    "translation-transformer": SequencePredictor,
    "summarization": SequencePredictor,
    "parsing": TreePredictor,
    "speech_recognition": SequencePredictor,
    "error_detection": LabelPredictor,
}
FOREIGN = """
from headway.tasks.translation import Translation

class Spelling(Translation):
    name = "spelling"
    metrics = ({"name": "exact_match"},)
"""


@pytest.mark.parametrize("name", list(KINDS))
def test_a_run_of_every_task(name: str, tmp_path: Path) -> None:
    case = copied(name, tmp_path / "case")
    predictor = headway.load(case.run, device="cpu")
    assert type(predictor) is KINDS[name]
    run = open_run(case.run)
    assert run.path == case.run
    assert not run.model.training
    assert run.source.same(predictor.runs[0].source)
    with pytest.raises(UserError, match="unknown option of predict"):
        predictor.predict([], beams=3)


def test_weights_of_a_tagger_come_from_the_run_alone(tmp_path: Path) -> None:
    case = copied("error_detection", tmp_path / "case")
    (case.run / "vocabulary" / "modeling_evil.py").write_text("raise AssertionError", encoding="utf-8")
    assert set(model_weights(open_run(case.run).model))


def test_a_tagger_whose_scores_are_not_finite_is_named(tmp_path: Path) -> None:
    predictor = headway.load(copied("error_detection", tmp_path / "case").run, device="cpu")
    with torch.no_grad():
        for tensor in model_weights(predictor.runs[0].model).values():
            tensor.fill_(float("nan"))
    with pytest.raises(NotFiniteError, match="the model's scores are not finite"):
        predictor.predict(["a dog ."])


def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, name: str) -> Path:
    """A run that names a class of a module which stands outside of headway."""
    (tmp_path / "spelling_task.py").write_text(FOREIGN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "spelling_task", raising=False)
    case = copied("translation-transformer", tmp_path / "case")
    tree = yaml.safe_load((case.run / "recipe.yaml").read_text(encoding="utf-8"))
    section = tree
    *above, last = key.split(".")
    for each in above:
        section = section[each]
    section[last] = name
    (case.run / "recipe.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    return case.run


def test_foreign_code_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_headway: Command) -> None:
    run = foreign(tmp_path, monkeypatch, "task", "spelling_task:Spelling")
    message = "task: loading this would import the task spelling_task:Spelling, which is not a part of headway"
    for refused in (headway.load, lambda path: open_run(path).model, lambda path: task_of([open_run(path)])):
        with pytest.raises(UserError, match=message):
            refused(run)  # type: ignore[operator]
    assert "spelling_task" not in sys.modules
    ended = run_headway("predict", run, stdin="a\n")
    assert (ended.code, "--allow-code where you trust that code" in ended.err) == (2, True)
    assert "spelling_task" not in sys.modules
    assert run_headway("predict", run, "--allow-code", stdin="a\n").code == 0
    assert isinstance(headway.load(run, allow_code=True), SequencePredictor)
    with foreign_code(True):
        assert open_run(run).task.name == "spelling"


def with_own_schedule(reversal: Reversal, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with checkpoints whose schedule stands outside of headway."""
    text = "from headway.optimizers.schedules import Constant\n\n\nclass Saw(Constant):\n    'Of our own.'\n"
    (folder / "own_schedule.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    run = shutil.copytree(reversal.run, folder / "run")
    tree = yaml.safe_load((run / "recipe.yaml").read_text(encoding="utf-8"))
    tree["optimizer"]["schedule"] = {"kind": "own_schedule:Saw"}
    (run / "recipe.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    return run


def test_averages_and_comparisons_of_runs_with_own_code(
    reversal: Reversal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_headway: Command
) -> None:
    """All that reads the recipe again may import what it names, where that is allowed."""
    run = with_own_schedule(reversal, tmp_path, monkeypatch)
    for command in (("predict", run, "--average", "2"), ("compare", f"one={run}", f"other={run}")):
        ended = run_headway(*command, stdin="abcd\n")
        assert (ended.code, "the schedule own_schedule:Saw" in ended.err) == (2, True)
        ended = run_headway(*command, "--allow-code", stdin="abcd\n")
        assert ended.code == 0, ended.err


def test_what_a_component_draws_for_itself_is_drawn_when_a_run_is_loaded() -> None:
    with NoInitialValues():
        constant = torch.zeros(4).normal_(generator=torch.Generator().manual_seed(7))
        weight = torch.nn.Parameter(torch.full((2, 4), 7.0))
        torch.nn.init.normal_(weight)
        for row in weight:
            torch.nn.init.normal_(row)
        with torch.no_grad():
            weight[0].uniform_()
    assert torch.equal(constant, torch.zeros(4).normal_(generator=torch.Generator().manual_seed(7)))
    assert weight.eq(7.0).all()


def test_runs_of_different_tasks_cannot_predict_together(tmp_path: Path) -> None:
    runs = [copied(name, tmp_path / name).run for name in ("parsing", "translation-transformer")]
    with pytest.raises(UserError, match="runs of different tasks cannot predict together"):
        headway.load(*runs)


# Keys of a recipe that name components which are imported when the recipe is read, or when the model is built.
KEYS = ("task", "model.kind", "model.encoder.mixer", "model.norm_kind", "vocabulary.kind", "optimizer.kind",
        "optimizer.schedule", "text.source.segment", "data.train.kind")  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_no_key_of_a_run_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    run = foreign(tmp_path, monkeypatch, key, "spelling_task:Spelling")
    with pytest.raises(UserError, match="would import the"):
        headway.load(run)
    assert "spelling_task" not in sys.modules


VERBS = (
    "predict {run}", "predict {run} {sound}", "score {run} --source {file} --target {file}",
    "inspect {run} --output {out}.html", "inspect figures {run} --output {out}", "inspect tables parameters {run}",
    "inspect tables layers {run} --data {file}", "inspect tables dependencies {run}", "inspect page {run}",
    "inspect figures {run} --text a --output {out}.svg", "compare {run} {sound}",
    "export ctranslate2 {run} --output {out}", "export --list {run}", "train {going_on} --output {out}",
    "train {own} --output {run} --resume",
)  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_imports_what_a_run_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_headway: Command, verb: str
) -> None:
    run = foreign(tmp_path, monkeypatch, "task", "spelling_task:Spelling")
    (tmp_path / "lines").write_text("a b\n", encoding="utf-8")
    training = "training: {updates: 1%s}\n"
    (tmp_path / "own.yaml").write_text(f"data: {{train: {{tsv: lines}}}}\n{training % ''}", encoding="utf-8")
    (tmp_path / "on.yaml").write_text(
        f"data: {{train: {{tsv: lines}}}}\n{training % f', from: {run}'}", encoding="utf-8"
    )
    names = {"run": run, "sound": copied("translation-transformer", tmp_path / "sound").run, "file": tmp_path / "lines",
             "out": tmp_path / "out", "own": tmp_path / "own.yaml", "going_on": tmp_path / "on.yaml"}  # fmt: skip
    ended = run_headway(*(part.format(**names) for part in verb.split()), stdin="1\ny\nyes\n")
    assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
    assert "spelling_task:Spelling" in ended.err
    assert "spelling_task" not in sys.modules


def test_a_recipe_that_names_the_code_itself_may_go_on_from_such_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = foreign(tmp_path, monkeypatch, "task", "spelling_task:Spelling")
    recipe = {"data": {"train": {"tsv": "x"}}, "training": {"updates": 1, "from": str(run)}}
    assert headway.load_recipe(recipe | {"task": "spelling_task:Spelling"}).task == "spelling_task:Spelling"
    with pytest.raises(UserError, match="names code that is no part of headway"):
        headway.load_recipe(recipe)


@pytest.mark.parametrize("file", ["tokenizer_config.json", "config.json"])
@pytest.mark.parametrize("typed", ["1\nA dog .\n", "y\n", "yes\n"])
def test_a_tagger_of_a_stranger_executes_nothing(
    tmp_path: Path, run_headway: Command, file: str, typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the code beside its tokenizer, nor by an answer that data give."""
    monkeypatch.setattr("builtins.input", lambda *prompt: pytest.fail("data are no answers"))
    run = copied("tagging", tmp_path / "case").run
    folder = run / "vocabulary"
    content = json.loads((folder / file).read_text(encoding="utf-8")) if (folder / file).is_file() else {}
    autos = {"AutoTokenizer": ["evil.Evil", None], "AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}
    evil = {"tokenizer_class": "Evil"} if file == "tokenizer_config.json" else {"model_type": "evil"}
    (folder / file).write_text(json.dumps(content | evil | {"auto_map": autos}), encoding="utf-8")
    trap = tmp_path / "executed"
    code = f"import pathlib\npathlib.Path({str(trap)!r}).touch()\nclass Evil: pass\n"
    (folder / "evil.py").write_text(code, encoding="utf-8")
    ended = run_headway("predict", run, stdin=typed)
    assert not trap.exists()
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)


def test_a_tokenizer_with_settings_of_the_wrong_type(tmp_path: Path) -> None:
    run = copied("tagging", tmp_path / "case").run
    settings = run / "vocabulary" / "tokenizer_config.json"
    content = json.loads(settings.read_text(encoding="utf-8"))
    settings.write_text(json.dumps(content | {"model_max_length": "evil"}), encoding="utf-8")
    with pytest.raises(UserError, match="cannot load this encoder's tokenizer"):
        headway.load(run, device="cpu")


@pytest.mark.parametrize("label", ["NOUN\\n", "\\u2028NOUN", "a b", "", "x\\u001b[31m"])
def test_a_label_is_one_word_that_a_line_can_hold(tmp_path: Path, label: str) -> None:
    run = copied("tagging", tmp_path / "case").run
    file = run / "vocabulary" / "labels.json"
    names = json.loads(file.read_text(encoding="utf-8"))
    content = json.dumps(names).replace(json.dumps(names[0]), f'"{label}"')
    file.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match="a label is one word of printable characters"):
        headway.load(run, device="cpu")


def test_weights_of_an_encoder_are_never_unpickled(tmp_path: Path) -> None:
    run = copied("tagging", tmp_path / "case").run
    folder = run / "vocabulary"
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n(S'false'\ntR.")
    encoder = TaggerConfig(encoder=str(folder), pretrained=True)
    with pytest.raises(UserError, match="cannot load this encoder"):
        build_tagger(encoder, 2, folder, initial=True)
