"""What all tests share: a cache of their own, the command line, and one small trained run."""

import gc
import importlib
import io
import itertools
import os
import random
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import NamedTuple

if "HEADWAY_WITHOUT_UNIX" in os.environ:  # here, and in the processes that tests start
    WITHOUT_UNIX = str(Path(__file__).with_name("without_unix"))
    sys.path.insert(0, WITHOUT_UNIX)
    sys.modules.pop("sitecustomize", None)
    importlib.import_module("sitecustomize")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [WITHOUT_UNIX, os.environ.get("PYTHONPATH")]))

import hypothesis
import pytest
import torch
import yaml

import headway
from headway.cli import main
from headway.core.log import logger
from headway.tensors.precision import Speed
from tests.shared_runs import shared_run

if "HEADWAY_WITHOUT_UNIX" in os.environ or not hasattr(os, "fork"):  # what is attacked there is a copy of this process
    collect_ignore_glob = ["campaigns/*", "cli/test_terminals.py", "cli/test_interruption.py"]

# The same examples in every run, half as many as by default; no limit on the time of the first, which builds tables.
hypothesis.settings.register_profile("headway", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("headway")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests never touch the user's cache, nor do the processes they start; what they print is 100 columns wide."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWAY_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("COLUMNS", "100")
        yield


@pytest.fixture(scope="session", autouse=True)
def _on_the_processor() -> Iterator[None]:
    """Tests compute on the CPU, as the processes that they start do, but for those that name a CUDA device."""
    torch.cuda.is_available()  # reads the variable for this process, which goes on seeing its devices
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        patch.setattr("torch.accelerator.current_accelerator", lambda check_available=False: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_waits_for_the_disk() -> Iterator[None]:
    """A disk takes milliseconds to keep a file, and every run has dozens; power cuts are made in other ways."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _float32_suits() -> Iterator[None]:
    """Runs whose recipe leaves the precision open compute in float32, whatever this machine is quick in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headway.training.arithmetic.bf16_speed", lambda *given: Speed(1.0, 1.0))
        yield


def pytest_collection_finish() -> None:
    """What all tests share is not looked at by the garbage collector any more, nor copied by it in forked processes."""
    gc.collect()
    gc.freeze()


def _state() -> tuple[object, ...]:
    """Settings of the process that no test may leave changed."""
    torch_settings = torch.is_grad_enabled(), torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    return logger.level, list(logger.handlers), torch_settings, Path.cwd()


@pytest.fixture(autouse=True)
def _process_as_before() -> Iterator[None]:
    """A test that leaves the process changed fails itself, in place of a later one."""
    before = _state()
    yield
    assert _state() == before


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """A test and what it sets up draw the same numbers, whichever tests ran before it in this process."""
    torch.manual_seed(0)
    random.seed(0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """A test that itself needs what Unix alone has, such as `os.fork`, is skipped elsewhere."""
    try:
        return (yield)
    except (AttributeError, ModuleNotFoundError) as error:
        frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
        *_, last = (name for frame in frames if (name := str(frame.f_globals.get("__name__"))) != "sitecustomize")
        module = error.obj.__name__ if isinstance(getattr(error, "obj", None), ModuleType) else error.name
        if module in ("os", "pty", "signal", "socket") and last.startswith("tests."):
            pytest.skip(f"needs {module}, {error.name}")
        raise


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Callable[[str, bytes], Path]]:
    """Makes named pipes that give a content once."""
    writers: list[Thread] = []

    def made(name: str, content: bytes) -> Path:
        if not hasattr(os, "mkfifo"):
            pytest.skip("needs os.mkfifo")
        path = tmp_path / name
        os.mkfifo(path)
        writers.append(Thread(target=path.write_bytes, args=(content,), daemon=True))
        writers[-1].start()
        return path

    yield made
    for writer in writers:
        writer.join(timeout=10)


class Finished(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


Command = Callable[..., Finished]


@pytest.fixture
def run_headway(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command line in this process, which spares the imports."""

    def run(*arguments: str | Path, stdin: str | bytes = b"") -> Finished:
        raw = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        written = capsys.readouterr()
        return Finished(int(ended.value.code or 0), written.out, plain(written.err))

    return run


def start_headway(*arguments: str | Path, stdin: str | bytes = b"", **environment: str) -> Finished:
    """Runs `python -m headway` as users do, in a process of its own."""
    ended = subprocess.run(
        [sys.executable, "-m", "headway", *map(str, arguments)],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        timeout=120,
    )
    return Finished(ended.returncode, ended.stdout.decode(), plain(ended.stderr.decode()))


def plain(text: str) -> str:
    """Text without the escape sequences of colours, which the help has in some environments."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@dataclass(frozen=True)
class Reversal:
    """A run that has learned to write words of a, b, c and d backwards."""

    run: Path
    recipe: Path
    words: tuple[str, ...]


REVERSAL = {
    "data": {"train": {"tsv": "train.tsv"}, "dev": {"tsv": "dev.tsv"}},
    "text": {"source": {"language": "en"}, "target": {"language": "en"}},
    "vocabulary": {"kind": "char", "shared": True},
    "model": {
        "dim": 32, "feed_forward": 64, "heads": 2, "dropout": 0.0, "encoder": {"layers": 1}, "decoder": {"layers": 2},
    },
    "objective": {"label_smoothing": 0.0},
    "optimizer": {"learning_rate": 1e-2, "schedule": "linear", "warmup": 20},
    "training": {
        "updates": 400, "batch_tokens": 512, "checkpoint_every": 200, "dev_metrics": ["exact_match"], "best_by": "loss",
    },
    "decoding": {"max_length_offset": 8},
}  # fmt: skip


def reversal_words() -> tuple[str, ...]:
    """All words of two to four letters, shuffled."""
    words = ["".join(letters) for length in (2, 3, 4) for letters in itertools.product("abcd", repeat=length)]
    random.Random(1).shuffle(words)
    return tuple(words)


def write_reversal(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """A recipe and its data, all words of two to four letters; gives the recipe's path and the words."""
    words = reversal_words()
    for name, part in (("dev", words[:16]), ("train", words[16:])):
        rows = "".join(f"{word}\t{word[::-1]}\n" for word in part)
        (folder / f"{name}.tsv").write_text(rows, encoding="utf-8")
    recipe = folder / "reversal.yaml"
    recipe.write_text(yaml.safe_dump(REVERSAL), encoding="utf-8")
    return recipe, words


@pytest.fixture(scope="session")
def reversal(pytestconfig: pytest.Config) -> Iterator[Reversal]:
    """Trained once, report included; all share it, and none adds to it."""
    folder = shared_run(pytestconfig.cache.mkdir("runs"), "reversal", lambda folder: write_reversal(folder)[0])
    files = set((folder / "run").rglob("*"))
    yield Reversal(folder / "run", folder / "reversal.yaml", reversal_words())
    assert set((folder / "run").rglob("*")) == files, "a test changed the run that all share"


@pytest.fixture(scope="session")
def predictor(reversal: Reversal) -> "headway.predictors.sequence_predictor.SequencePredictor":
    """The run, loaded."""
    return headway.load(reversal.run, device="cpu")
