"""What torchrun starts again goes on by itself, exactly, wherever a process of the attempt before has died or hung."""

import os
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from torch.distributed import DistStoreError, TCPStore

from headway.core.errors import UserError
from headway.training.loop import train
from headway.training.parallel import _attempt
from tests.training import kills, toys
from tests.training.test_lost_processes import fail_in_update

WAIT = timedelta(seconds=20)


def restarted(recipe: Path, output: Path, what: str, rank: int) -> str:
    """Two processes train, of which one fails once: what they and torchrun said."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    child = ["-m", "tests.training.failing_rank", what, str(rank), "train", str(recipe), "--output", str(output)]
    ended = subprocess.run(
        [*command, "--max-restarts", "1", *child],
        cwd=kills.ROOT, env=kills.environment(recipe.parent / "cache"), capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stderr


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A recipe and its run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    recipe = kills.write_recipe(folder, updates=8, checkpoint_every=2, evaluate_every=4, log_every=1)
    said = restarted(recipe, folder / "run", "SIGKILL:never", 0)
    assert "going on" not in said
    return recipe, folder / "run"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "rank", "after"),
    [
        ("SIGKILL:checkpoint", 0, 2), ("SIGKILL:start", 0, 0), ("SIGKILL:start", 1, 0), ("SIGKILL:update", 0, 2),
        ("SIGKILL:update", 1, 2), ("SIGKILL:evaluation", 0, 4), ("SIGSTOP:update", 1, 2),
    ],
)  # fmt: skip
def test_the_next_attempt_goes_on(tmp_path: Path, whole: tuple[Path, Path], what: str, rank: int, after: int) -> None:
    recipe, run = whole
    said = restarted(recipe, tmp_path / "run", what, rank)
    assert (f"going on after update {after}" if after else "starting: ") in said
    assert said.count("no sign of life") == what.startswith("SIGSTOP")
    kills.assert_same(run, tmp_path / "run")


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> TCPStore:
    """The store of a job, as torchrun keeps it for the attempts that it starts."""
    store = TCPStore("127.0.0.1", 0, None, is_master=True, timeout=WAIT, wait_for_workers=False)
    for name, value in {"USE_AGENT_STORE": "True", "RESTART_COUNT": "1"}.items():
        monkeypatch.setenv(f"TORCHELASTIC_{name}", value)
    for name, value in {"WORLD_SIZE": 1, "RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port}.items():
        monkeypatch.setenv(name, str(value))
    return store


def test_an_attempt_goes_on_with_its_own_jobs_run_alone(tmp_path: Path, job: TCPStore) -> None:
    recipe = toys.recipe(tmp_path, precision="float32")
    child = os.fork()
    if child == 0:
        fail_in_update(4, lambda: os._exit(9))
        os._exit(train(recipe, tmp_path / "run"))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert train(recipe, tmp_path / "run") == 0
    with pytest.raises(UserError, match="there is a run here already"):  # twice in one process is no new attempt
        train(recipe, tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "other")
    for _ in range(2):
        with pytest.raises(UserError, match="there is a run here already"):
            train(recipe, tmp_path / "other")


def test_an_attempt_hears_nothing_of_dead_ones(job: TCPStore) -> None:
    """Both ranks asked in an attempt that ended before they were answered."""
    for rank in (1, 2):
        job.set(f"headway/{rank}", f"dead {rank}")
    names: dict[int, str] = {}

    def ask(rank: int) -> None:
        time.sleep(0.2 * rank)
        names[rank] = _attempt(job.clone(), rank, 3, WAIT)

    threads = [threading.Thread(target=ask, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names) == 3
    assert len(set(names.values())) == 1


def test_who_never_comes_is_not_waited_for_longer_than_asked(job: TCPStore) -> None:
    with pytest.raises(DistStoreError):
        _attempt(job, 0, 2, timedelta(seconds=0.2))
