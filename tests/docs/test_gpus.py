"""The job of the page on GPUs and Slurm trains, asks for another turn when it was stopped, and goes on."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.command_server import commands_path
from tests.conftest import write_reversal
from tests.docs.pages import BLOCK, ROOT

STUBS = {"srun": 'exec "$@"', "scontrol": 'echo "$@" >> scontrol.log'}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder with the page's job, a recipe for it, and commands in the place of Slurm's."""
    recipe, _ = write_reversal(tmp_path)
    tree = yaml.safe_load(recipe.read_text(encoding="utf-8"))
    tree["training"] |= {"updates": 40, "checkpoint_every": 20, "dev_metrics": []}
    (tmp_path / "ja-en.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    page = (ROOT / "docs" / "gpus.md").read_text(encoding="utf-8")
    (text,) = (block["text"] for block in BLOCK.finditer(page) if block["file"] == "train.sbatch")
    (tmp_path / "train.sbatch").write_text(text, encoding="utf-8")
    (tmp_path / "bin").mkdir()
    for name, line in STUBS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{line}\n", encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def start(job: Path) -> str:
    """What the job says."""
    path = f"{job / 'bin'}{os.pathsep}{commands_path()}"
    environment = os.environ | {"PATH": path, "SLURM_JOB_ID": "7", "OMP_NUM_THREADS": "1"}
    command = ["bash", "train.sbatch"]
    return subprocess.run(command, cwd=job, env=environment, capture_output=True, text=True, timeout=300).stderr


@pytest.mark.slow
def test_the_job_trains_and_goes_on(job: Path) -> None:
    start(job)
    assert (job / "runs" / "ja-en" / "model.safetensors").is_file()
    assert "complete" in start(job)
    assert not (job / "scontrol.log").exists()


def test_a_stopped_job_asks_for_another_turn(job: Path) -> None:
    (job / "bin" / "srun").write_text("#!/bin/bash\nexit 143\n", encoding="utf-8")
    start(job)
    assert (job / "scontrol.log").read_text(encoding="utf-8") == "requeue 7\n"
