"""The notebooks of the lessons are kept clean, ask for what is checked, and run with the solutions and without."""

import json
import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from headway.lessons import check_file, exercise_name
from tests.docs.pages import ROOT

LESSONS = ROOT / "lessons"
NOTEBOOKS = sorted(LESSONS.glob("*.ipynb"))
MINUTES = 10


def test_there_are_eight() -> None:
    assert [path.name[0] for path in NOTEBOOKS] == list("12345678")
    text = (LESSONS / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((\d-[\w-]+\.ipynb)\)", text) == [path.name for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_clean(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert 'find_spec("headway") is None' in code[0].source
    assert not any("%pip" in cell.source or "://" in cell.source for cell in code[1:])  # no network after it
    (exercise,) = [cell for cell in code if "exercise" in cell.metadata.get("tags", [])]
    name = exercise_name(int(path.name[0]))
    assert re.search(rf"^(def|class) {name}\(", exercise.source, re.MULTILINE)
    assert any(f"check({path.name[0]}, {name})" in cell.source for cell in code)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_cell_that_is_not_filled_in_is_told(path: Path) -> None:
    found = check_file(int(path.name[0]), path)
    assert not found.right
    assert found.said.endswith(" is not written yet: fill in its cell, run that, and check again")


@pytest.mark.slow
@pytest.mark.timeout(2 * MINUTES * 60)
@pytest.mark.parametrize("solved", [True, False], ids=["solved", "as it is"])
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, solved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "1")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    notebook = nbformat.read(path, as_version=4)
    name = exercise_name(int(path.name[0]))
    for cell in notebook.cells:
        # Trainings in miniature: what is learned is not what is tested.
        cell.source = re.sub(r'("(?:updates|checkpoint_every)": )\d+', r"\g<1>8", cell.source).replace(
            '"warmup": 50', '"warmup": 2'
        )
        if solved and "exercise" in cell.metadata.get("tags", []):
            cell.source = (LESSONS / "solutions" / f"{name.lower()}.py").read_text(encoding="utf-8")
    client = NotebookClient(
        notebook, timeout=MINUTES * 60, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    shown = json.dumps([cell.get("outputs", []) for cell in notebook.cells])
    assert ('"right"' in shown) == solved
    assert (f"{name} is not written yet" in shown) != solved
