"""The notebook of the documentation runs, with fewer updates, and is kept with the outputs of a whole run."""

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.docs.pages import ROOT

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def outputs(notebook: Any) -> list[str]:
    """The outputs of a notebook as text; those that are pictures by their kind. Bars of progress are none."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    data = [output.get("data", {}) for cell in cells for output in cell.outputs]
    data = [each for each in data if each.get("text/plain") != "<IPython.core.display.HTML object>"]
    return ["image/png" if "image/png" in each else each.get("text/plain", "") for each in data]


@pytest.mark.slow
def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "1")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace('"updates": 400', '"updates": 12').replace('every": 400', 'every": 12')
        cell.source = cell.source.replace('"warmup": 20', '"warmup": 2')
    NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = outputs(notebook)
    assert "complete, exact_match" in shown[0]
    assert shown[2].startswith("<SequencePredictor ")
    assert "image/png" in shown
    assert shown[-1].startswith("Comparison(2 variants, seeds: 1;")


def test_what_is_kept_is_of_a_whole_run() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    shown = outputs(notebook)
    assert len(shown) == 7
    assert "image/png" in shown
    assert all(output.output_type != "error" for cell in notebook.cells for output in cell.get("outputs", []))
    assert NOTEBOOK.stat().st_size < 200_000
