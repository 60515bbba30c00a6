"""The machine: which cores are free, and how many threads that makes."""

import itertools
import platform
import subprocess
import sys
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch

from headway.core import device
from headway.core.device import choose_threads, machine, peak_memory, pick_device, threads_set
from headway.core.errors import UserError
from tests.command_server import commands


class CoreTimes(NamedTuple):
    """Seconds of a core since the machine started, as psutil counts them."""

    user: float
    nice: float
    idle: float
    guest: float  # counted within user too


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch):
    """Sets the cores of this process and the percentage of a fifth of a second that each is idle."""
    for name in device.SET_BY:
        monkeypatch.delenv(name, raising=False)

    def set_to(*idle: float, allowed: list[int] | None = None, nice: float = 0.0, torch_threads: int = 64) -> None:
        start = [CoreTimes(40.0, 2.0, 500.0, 10.0) for _ in idle]
        spent = [[100 - share - nice, nice, share, 7.0] for share in idle]
        end = [
            CoreTimes(*(count + device.LISTEN * percent / 100 for count, percent in zip(core, percents, strict=True)))
            for core, percents in zip(start, spent, strict=True)
        ]
        counts = itertools.cycle([start, end])
        own = list(range(len(idle))) if allowed is None else allowed
        monkeypatch.setattr("psutil.cpu_times", lambda percpu: next(counts))
        monkeypatch.setattr(device.time, "sleep", lambda seconds: None)
        monkeypatch.setattr("psutil.Process", lambda: SimpleNamespace(cpu_affinity=lambda: own))
        monkeypatch.setattr(device, "cores", lambda: len(own))
        monkeypatch.setattr(torch, "get_num_threads", lambda: torch_threads)

    return set_to


def test_threads_are_as_many_as_cores_are_free(cores) -> None:
    cores(98, 97, 99, 100)
    assert choose_threads() == (4, "4 of 4 cores are free", False)
    cores(98, 0, 99, 3)
    assert choose_threads() == (2, "2 of 4 cores are free", False)
    cores(0, 2)
    assert choose_threads() == (1, "0 of 2 cores are free", False)
    cores(60, 70)  # what others leave is more than one core
    assert choose_threads().number == 1
    cores(90, 70)
    assert choose_threads().number == 2


def test_niced_processes_step_aside(cores) -> None:
    cores(50, 10, nice=50)
    assert choose_threads().number == 2


def test_cores_of_others_do_not_count(cores) -> None:
    cores(100, 100, 0, 100, allowed=[1, 2])
    assert choose_threads() == (1, "1 of 2 cores are free", False)


def test_torch_and_environment_are_obeyed(cores, monkeypatch: pytest.MonkeyPatch) -> None:
    cores(100, 100, 100, 100, torch_threads=2)
    assert choose_threads().number == 2
    cores(100, 100, torch_threads=1)
    assert choose_threads() == (1, "torch is set to 1", False)
    cores(100, allowed=[0])
    assert choose_threads() == (1, "there is 1 core", False)
    cores(0, 0, torch_threads=3)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert choose_threads() == (3, "set by OMP_NUM_THREADS", True)


def test_the_load_is_really_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in device.SET_BY:
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    assert 1 <= choose_threads().number <= before
    assert torch.get_num_threads() == before


def test_threads_are_set_for_a_while() -> None:
    before = torch.get_num_threads()
    with threads_set(before + 1):
        assert torch.get_num_threads() == before + 1
        assert choose_threads() == (before + 1, "as asked for", True)
    assert torch.get_num_threads() == before


def test_the_machine_says_its_instructions() -> None:
    assert machine()["instruction_set"] == torch.backends.cpu.get_cpu_capability()


@pytest.mark.parametrize("name", ["meta", "cuda:99", "nosuch", "", "cpu cpu"])
def test_a_device_that_holds_no_numbers_here_is_none(name: str) -> None:
    with pytest.raises(UserError, match="this device cannot be used here"):
        pick_device(name)


def test_a_device() -> None:
    assert pick_device("cpu") == torch.device("cpu")


def test_attention_on_a_gpu_makes_no_plans_for_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.backends.cuda.cudnn_sdp_enabled()
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda check_available: torch.device("cuda"))
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        assert pick_device("cpu").type == "cpu"
        assert torch.backends.cuda.cudnn_sdp_enabled()
        assert pick_device("auto").type == "cuda"
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def test_the_memory_of_a_process_that_used_no_gpu_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert peak_memory() > 10 * 2**20


def test_kept_memory_is_given_back_when_that_is_asked_for(tmp_path):
    """In a process of its own, whose allocator is told to keep what is freed."""
    script = """
import os, torch
from headway.core.device import give_back_freed_memory, keep_freed_memory
def resident(): return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
keep_freed_memory()
tensors = [torch.ones(2**20) for _ in range(100)]
del tensors
kept = resident()
give_back_freed_memory()
print(kept - resident())
"""
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        pytest.skip("the C library is not glibc")
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    done = subprocess.run([commands() / "python", tmp_path / "script.py"], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 300  # MiB, of 400


def test_a_gpu_is_named_with_its_model(monkeypatch):
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda check_available: torch.device("cuda"))
    monkeypatch.setattr("torch.cuda.get_device_name", lambda given: f"model of {given}")
    assert machine()["accelerator"] == "cuda (model of cuda)"
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda check_available: torch.device("mps"))
    assert machine()["accelerator"] == "mps"
