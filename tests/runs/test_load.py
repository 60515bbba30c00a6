"""Loading a run: of every task, and never with code that nobody allowed."""

import sys
from pathlib import Path

import pytest
import torch
import yaml

import headway
from headway.errors import NotFiniteError, UserError
from headway.predictors.label_predictor import LabelPredictor
from headway.predictors.sequence_predictor import SequencePredictor, SpeechPredictor, TreePredictor
from headway.runs.load import load_run, task_of
from headway.runs.run_folder import model_weights
from tests.conftest import Command
from tests.runs.old_runs import copied

KINDS = {
    "translation-transformer": SequencePredictor,
    "summarization": SequencePredictor,
    "parsing": TreePredictor,
    "speech_recognition": SpeechPredictor,
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
    run = load_run(case.run, torch.device("cpu"))
    assert run.path == case.run
    assert not run.model.training
    assert run.source.same(predictor.runs[0].source)
    with pytest.raises(UserError, match="unknown option of predict"):
        predictor.predict([], beams=3)


def test_weights_of_a_tagger_come_from_the_run_alone(tmp_path: Path) -> None:
    case = copied("error_detection", tmp_path / "case")
    (case.run / "vocabulary" / "modeling_evil.py").write_text("raise AssertionError", encoding="utf-8")
    assert set(model_weights(load_run(case.run, torch.device("cpu")).model))


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
    for refused in (headway.load, lambda path: load_run(path, torch.device("cpu")), lambda path: task_of([path])):
        with pytest.raises(UserError, match=message):
            refused(run)  # type: ignore[operator]
    assert "spelling_task" not in sys.modules
    ended = run_headway("predict", run, stdin="a\n")
    assert (ended.code, "--allow-code where you trust that code" in ended.err) == (2, True)
    assert "spelling_task" not in sys.modules
    assert run_headway("predict", run, "--allow-code", stdin="a\n").code == 0
    assert isinstance(headway.load(run, allow_code=True), SequencePredictor)
    assert task_of([run], allow_code=True).name == "spelling"


def test_runs_of_different_tasks_cannot_predict_together(tmp_path: Path) -> None:
    runs = [copied(name, tmp_path / name).run for name in ("parsing", "translation-transformer")]
    with pytest.raises(UserError, match="runs of different tasks cannot predict together"):
        headway.load(*runs)
