"""Disks that are full, closed or without power: what was whole stays whole, and training goes on from it."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import headway
from headway.core.errors import HeadwayError, RunError
from headway.runs.run_folder import damage, list_checkpoints
from headway.training.loop import train
from tests.conftest import Reversal
from tests.training import toys
from tests.training.kills import assert_same
from tests.training.power_cuts import KINDS, Disk, noted

SETTINGS = {"updates": 7, "dev_metrics": ["exact_match"], "average": {"of": "best", "count": 2}, "log_every": 3}
NOBODY = 65534
ROOT = getattr(os, "geteuid", int)() == 0


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data, and a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("alone")
    return toys.run(folder, **SETTINGS)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not ROOT or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", folder]).returncode:
        pytest.skip("only root may mount a small file system")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_file_system_loses_nothing_whole(alone: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, recipe = small_disk / "run", toys.recipe(alone.parent, **SETTINGS)
    whole: list[str] = []
    for size in ("24k", "64k", "300k", "700k", "1200k", "1600k"):
        subprocess.run(["mount", "-o", f"remount,size={size}", small_disk], check=True)
        with pytest.raises(RunError, match="No space left on device"):
            train(recipe, run, resume=run.joinpath("recipe.yaml").exists())
        names = [folder.name for folder in list_checkpoints(run / "checkpoints")]
        assert names[: len(whole)] == whole
        assert [damage(folder) for folder in list_checkpoints(run / "checkpoints")] == [None] * len(names)
        whole = names
    assert whole
    subprocess.run(["mount", "-o", "remount,size=20m", small_disk], check=True)
    assert train(recipe, run, resume=True) == 0
    assert_same(alone, run)


def as_nobody(work: Callable[[], object]) -> str:
    """The result of `work`, or its error, in a copy of this process that belongs to an ordinary user."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        try:
            message = str(work())
        except HeadwayError as error:
            message = f"{type(error).__name__}: {error}"
        except BaseException as error:
            message = f"unexpected: {error!r}"
        os.write(send, message.encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        message = pipe.read().decode()
    os.waitpid(child, 0)
    return message


@pytest.fixture
def shared_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that every user can enter, and a cache that every user can write to."""
    if not ROOT:
        pytest.skip("only root may become another user")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "cache").mkdir(mode=0o777)
        (folder / "cache").chmod(0o777)
        monkeypatch.setenv("HEADWAY_CACHE", str(folder / "cache"))
        yield folder


def opened(folder: Path) -> None:
    """Let every user read what is in a folder."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def test_a_folder_that_an_ordinary_user_cannot_write_to(shared_folder: Path) -> None:
    recipe = toys.recipe(shared_folder, **SETTINGS)
    opened(shared_folder)
    (shared_folder / "cache").chmod(0o777)
    message = as_nobody(lambda: train(recipe, shared_folder / "run"))
    assert message == (f"UserError: output {shared_folder}/run: the run folder cannot be made (Permission denied)")
    run = toys.run(shared_folder, **SETTINGS)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    opened(run)
    message = as_nobody(lambda: train(recipe, run, resume=True))
    assert message == f"UserError: {run}: the run folder cannot be written (Permission denied)"
    mine = shared_folder / "mine"
    mine.mkdir()
    mine.chmod(0o777)
    shutil.copytree(run, mine / "run")
    for path in (mine / "run", *(mine / "run").iterdir()):
        os.chown(path, NOBODY, NOBODY)
    os.chown(mine / "run" / "checkpoints", 0, 0)
    message = as_nobody(
        lambda: train(toys.recipe(shared_folder, **SETTINGS | {"updates": 8}), mine / "run", resume=True)
    )
    assert message.startswith("RunError: "), message
    assert "Permission denied" in message
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_an_ordinary_user_predicts_with_a_run_that_cannot_be_written(reversal: Reversal, shared_folder: Path) -> None:
    run = Path(shutil.copytree(reversal.run, shared_folder / "run"))
    opened(run)
    message = as_nobody(lambda: headway.load(run, device="cpu").predict("abcd")[0].text)
    assert message == "dcba"


def cuts(recipe, kind: str, folder: Path, wanted: Callable[[int], bool]) -> list[Path]:
    """What power cuts leave of a run at some of its changes to files; gives the folders, each with a `run`."""
    left: list[Path] = []
    disk = folder / "disk"
    disk.mkdir()

    def cut(noted: Disk, changes: int) -> None:
        if wanted(changes):
            left.append(folder / f"cut-{changes}")
            noted.after_a_cut(kind, left[-1], seed=changes)

    with noted(disk, cut):
        assert train(recipe, disk / "run") == 0
    return left


@pytest.mark.parametrize("kind", KINDS)
def test_a_power_cut_loses_no_checkpoint(alone: Path, tmp_path: Path, kind: str) -> None:
    recipe, begun = toys.recipe(alone.parent, **SETTINGS), 0
    offset = 9 + 13 * KINDS.index(kind)
    left = cuts(recipe, kind, tmp_path, lambda changes: changes % 59 == offset)
    assert len(left) >= 3
    for folder in left:
        resume = (folder / "run" / "recipe.yaml").exists()
        begun += resume
        assert train(recipe, folder / "run", resume=resume) == 0
        assert_same(alone, folder / "run")
        shutil.rmtree(folder)
    assert begun >= 2


def test_a_synced_checkpoint_survives_every_cut_after_it(alone: Path, tmp_path: Path) -> None:
    """On a disk where only what was synced lasts, the newest checkpoint is never more than one interval old."""
    ages: list[int] = []
    disk = tmp_path / "disk"
    disk.mkdir()

    def cut(noted: Disk, changes: int) -> None:
        if changes % 29 == 0:
            left = tmp_path / "left"
            noted.after_a_cut("forgetful", left)
            made, kept = (list_checkpoints(folder / "run" / "checkpoints") for folder in (disk, left))
            ages.append(len(made) - len([folder for folder in kept if damage(folder) is None]))
            shutil.rmtree(left)

    with noted(disk, cut):
        train(toys.recipe(alone.parent, **SETTINGS | {"keep_last": 10}), disk / "run")
    assert set(ages) <= {0, 1}
    assert ages[-1] == 0
