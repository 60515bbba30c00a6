"""Training with one process or several (under torchrun), on CPU or GPU; weights are replicated (ddp) or sharded (fsdp).

The result does not depend on the number of processes: the recipe's batches are global, and every process takes a share
of the rows of each batch.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar
from uuid import uuid4

import torch
from torch import Tensor, distributed, nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from headway.core.device import pick_device
from headway.core.errors import RunError, UserError, option
from headway.core.log import last_word, say
from headway.recipe import TrainingConfig
from headway.tensors.exchange import alone
from headway.tensors.precision import autocast

EVERY = 3.0  # seconds between heartbeats
# Seconds without a heartbeat after which a process counts as hung. A thread sends them whatever the process does,
# unless native code holds the interpreter's lock: sorting millions of lines may hold it for some seconds.
SILENCE = 45.0
ENDED, HUNG = "ended", "hung"  # the last value instead of a heartbeat; the key set if a process is silent

Result = TypeVar("Result")


@dataclass(frozen=True)
class Parallel:
    """The settings of this process, which is one of `world_size` processes of a training run."""

    rank: int
    world_size: int
    device: torch.device
    config: TrainingConfig
    control: ProcessGroup | None = None  # for exchanging CPU numbers, for common decisions
    precision: str = "float32"
    job: Store | None = None  # of torchrun, shared by restarted processes

    @property
    def first(self) -> bool:
        """Whether this process has rank 0, which reads, writes and logs."""
        return self.rank == 0

    @property
    def reading_waits(self) -> bool:
        """Whether reading a number from the device waits for the queued work."""
        return self.device.type != "cpu"

    def autocast(self) -> AbstractContextManager[Any]:
        return autocast(self.device, self.precision)

    def wrap(self, module: nn.Module, layers: Sequence[nn.Module]) -> nn.Module:
        """Prepare `module` for several processes. With fsdp, each of `layers` is gathered as a unit."""
        if self.world_size == 1:
            return module
        if self.config.strategy == "ddp":
            return DistributedDataParallel(module)
        mesh = init_device_mesh(self.device.type, (self.world_size,))
        for unit in (*layers, module):
            fully_shard(unit, mesh=mesh)
        return module

    def synchronise(self, module: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """The context of a forward and backward pass. Gradients are exchanged only in the `last` pass of an update."""
        if isinstance(module, FSDPModule):
            module.set_requires_gradient_sync(last)
        return module.no_sync() if isinstance(module, DistributedDataParallel) and not last else nullcontext()

    def sum_on_device(self, values: Tensor) -> Tensor:
        """Sum `values` over all processes, in place, without waiting for the device."""
        if self.world_size > 1:
            distributed.all_reduce(values)
        return values

    def largest_on_device(self, values: Tensor) -> Tensor:
        """The elementwise maximum of `values` over all processes, in place, without waiting for the device."""
        if self.world_size > 1:
            distributed.all_reduce(values, distributed.ReduceOp.MAX)
        return values

    def sum(self, value: float) -> float:
        """The sum of a number over all processes, for common decisions. Does not wait for the device."""
        if self.world_size == 1:
            return value
        tensor = torch.tensor(value, dtype=torch.float64)
        distributed.all_reduce(tensor, group=self.control)
        return float(tensor)

    def claimed(self, output: Path) -> bool:
        """Whether an earlier process of this torchrun job, which has died, began the run in `output`."""
        key = f"headway/{output.absolute()}"
        return self.job is not None and self.job.check([key]) and self.job.get(key).decode() != str(os.getpid())

    def claim(self, output: Path) -> None:
        """Record in the job's store that this process began the run, so that restarted processes may resume it."""
        if self.job is not None:
            self.job.set(f"headway/{output.absolute()}", str(os.getpid()))

    def from_first(self, work: Callable[[], Any]) -> Any:
        """Do `work` in the first process, and return its result in all processes, which exit if it fails."""
        if self.world_size == 1:
            return work()
        result: list[Any] = [None, None]
        if self.first:
            try:
                with alone():
                    result[0] = work()
            except Exception as error:
                distributed.broadcast_object_list([None, str(error)])
                raise
        distributed.broadcast_object_list(result)
        if result[1] is not None:
            raise SystemExit(1)  # the first process says why
        return result[0]

    def on_first(self, work: Callable[[], Result]) -> Result | None:
        """Do `work` in the first process only, and return its result there. The others wait, and exit if it fails."""
        results = list[Result]()
        self.from_first(lambda: results.append(work()))
        return results[0] if results else None


@contextmanager
def joined(config: TrainingConfig) -> Iterator[Parallel]:
    """Join the process group if torchrun started this process, and leave it at the end. Yields the settings."""
    world_size, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        device = torch.device("cpu")
    else:
        device = pick_device(f"{accelerator.type}:{os.environ.get('LOCAL_RANK', 0)}")
        torch.accelerator.set_device_index(device.index)
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # torchrun keeps the store
    wait, job = timedelta(minutes=config.wait_minutes), None
    if world_size > 1 or agent:
        job, _, _ = next(rendezvous("env://", rank, world_size, timeout=wait))
    if job is None or world_size == 1:
        yield Parallel(rank, world_size, device, config, job=job)
        return
    attempt, backend = _attempt(job, rank, world_size, wait), distributed.get_default_backend_for_device(device)
    host = f"the store of this run at {os.environ['MASTER_ADDR']}" if agent else "rank 0"
    with closing(Heartbeat(PrefixStore(f"{attempt}/beats", job.clone()), rank, world_size, host)):
        try:
            store = PrefixStore(attempt, job)
            distributed.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=wait)
            control = distributed.new_group(backend="gloo", timeout=wait) if device.type != "cpu" else None
            yield Parallel(rank, world_size, device, config, control, job=job)
        finally:
            if distributed.is_initialized():  # otherwise the process may abort at exit
                # Destroying a group waits for its threads while holding the interpreter's lock. A thread that has to
                # free the tensors of the last exchange needs this lock. Sleeping lets it run first.
                time.sleep(0.2)
                distributed.destroy_process_group()


def _attempt(job: Store, rank: int, world_size: int, wait: timedelta) -> str:
    """A name shared by the processes of this attempt, so that no values of dead processes are read from the store.

    The restart count is not unique, as each machine has its own. The first process sends the name to every process that
    asks, even to dead ones, until all others have confirmed it.
    """
    mine, others = uuid4().hex, range(1, world_size)
    if rank > 0:
        job.set(f"headway/{rank}", mine)
        name = job.get(mine).decode()
        job.set(f"{name}/{rank}", "")
        return name
    end = time.monotonic() + wait.total_seconds()
    while not job.check([f"{mine}/{other}" for other in others]):
        for question in (f"headway/{other}" for other in others):
            if job.check([question]):
                job.set(job.get(question).decode(), mine)
        if time.monotonic() > end:
            raise distributed.DistStoreError("not all processes have come")
        time.sleep(0.05)
    return mine


def is_first() -> bool:
    return int(os.environ.get("RANK", 0)) == 0


@contextmanager
def told_once() -> Iterator[None]:
    """Within this context, only the first process of a machine reports user errors: all read the same files."""
    try:
        yield
    except UserError as error:
        if int(os.environ.get("LOCAL_RANK", 0)) > 0:
            raise SystemExit(error.exit_code) from None
        raise


@contextmanager
def lost_processes_named(config: TrainingConfig) -> Iterator[None]:
    """Raise RunError if another process of the run ends or stops responding within this context."""
    try:
        yield
    except RuntimeError as error:  # gloo's errors have no class of their own
        if not isinstance(error, distributed.DistError) and "gloo" not in str(error):
            raise
        raise RunError(
            "another process of this run has ended, or has not answered within training.wait_minutes"
            f" ({config.wait_minutes:g}); {option('resume')} starts from the last checkpoint"
        ) from error


def whole(tensor: Tensor) -> Tensor:
    """The tensor on the CPU, gathered from its shards (every process must call this)."""
    full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return full.detach().cpu().contiguous()


def unwrapped(module: nn.Module) -> nn.Module:
    """The module before `Parallel.wrap`, whose parameter names are used for storage."""
    return module.module if isinstance(module, DistributedDataParallel) else module


def like(tensor: Tensor, model: Tensor) -> Tensor:
    """A copy of `tensor` on the device of `model`, sharded like `model` if the shapes are equal."""
    if isinstance(model, DTensor) and tensor.shape == model.shape:
        return distribute_tensor(tensor.to(model.device), model.device_mesh, model.placements)
    return tensor.to(model.device, copy=True)


def whole_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: whole(tensor) for name, tensor in tensors.items()}


class Heartbeat:
    """Sends heartbeats to a store, and ends this process if the next rank stops sending its own.

    Silence is counted in ticks of this process, so a run that is suspended as a whole does not miss any. One thread
    talks to the store, which may block; the other one counts.
    """

    def __init__(self, store: Store, rank: int, world_size: int, host: str) -> None:
        self._store, self._rank, self._next, self._host = store, rank, (rank + 1) % world_size, host
        self._unheard = self._unanswered = 0  # ticks since the next rank's heartbeat, and since an answer of the store
        self._name, self._told_by_another = f"rank {self._next}", False
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._beat, self._watch)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Say goodbye. If another process has fallen silent, wait until this one is ended for that reason."""
        self._over.set()
        self._threads[1].join()
        self._threads[0].join(EVERY)

    def _beat(self) -> None:
        heard, here = "", f"process {os.getpid()} of {socket.gethostname()}"
        with suppress(RuntimeError):  # the store has ended; the other thread counts its silence
            for number in count():
                self._store.set(str(self._rank), f"{number} {here}")
                beat = self._store.get(str(self._next)).decode() if self._store.check([str(self._next)]) else ""
                if beat == ENDED or beat != heard:
                    heard, self._unheard, self._name = beat, 0, f"rank {self._next} ({beat.partition(' ')[2]})"
                self._unanswered = 0
                self._told_by_another = self._store.check([HUNG])
                if self._over.wait(EVERY):
                    self._store.set(str(self._rank), ENDED)
                    return

    def _watch(self) -> None:
        while not self._over.wait(EVERY):
            self._unheard, self._unanswered = self._unheard + 1, self._unanswered + 1
            if self._told_by_another or self._unheard * EVERY >= SILENCE:
                self._end_process()

    def _end_process(self) -> None:
        """Exit immediately: the main thread may be blocked in native code, which exceptions do not reach."""
        if not self._told_by_another:
            name = self._host if self._unanswered * EVERY >= SILENCE else self._name
            what = "is stopped, or hangs; the run can go on from its last checkpoint"
            text = f"{name} has given no sign of life for {SILENCE:g} seconds: it {what}"
            for tell in (partial(last_word, text), partial(self._store.set, HUNG, "")):  # neither may block the exit
                threading.Thread(target=tell, daemon=True).start()
        time.sleep(2 * EVERY)  # until the other processes know the reason
        os._exit(1)


class Interrupted(BaseException):
    """A signal arrived during work that may be abandoned."""


class Signals:
    """The signal handler of training: the first signal ends it after the current update, a second one at once.

    Attributes:
        received: the number of the first signal.
        end_at_once: the previous handler of SIGINT, called for a second SIGINT.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.end_at_once: Callable[[int, FrameType | None], Any] = signal.default_int_handler
        self._may_leave = False

    def note(self, number: int, frame: FrameType | None = None) -> None:
        """Handle a signal.

        Raises:
            Interrupted: during work that may be abandoned.
            KeyboardInterrupt: this is the second signal, a SIGINT.
            SystemExit: this is the second signal, a SIGTERM.
        """
        if self.received is not None:
            if number == signal.SIGTERM:
                raise SystemExit(128 + number)
            self.end_at_once(number, frame)
            raise KeyboardInterrupt
        self.received = number
        name = signal.Signals(number).name
        if self._may_leave:
            say(f"{name}: leaving the evaluation; its checkpoint is saved")
            raise Interrupted
        say(f"{name}: finishing this update and saving; once more ends at once")

    @contextmanager
    def may_leave(self) -> Iterator[None]:
        """Within this context, a signal raises Interrupted, even if a library turns that into another error."""
        if self.received is not None:
            raise Interrupted
        self._may_leave = True
        try:
            yield
        except Exception as error:
            if self.received is None:
                raise
            raise Interrupted from error
        finally:
            self._may_leave = False


@contextmanager
def noted_signals() -> Iterator[Signals]:
    """Handle SIGINT and SIGTERM within this context. Outside the main thread no signals arrive.

    An exception from a signal handler is lost if a garbage collection callback is running, and Python would print a
    traceback. The signal is noted in that case, too, so the current update is the last.
    """
    signals, tell = Signals(), sys.unraisablehook

    def tell_others(lost: Any) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt | SystemExit | Interrupted):
            tell(lost)

    sys.unraisablehook = tell_others
    try:
        before = {number: signal.signal(number, signals.note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread, which handles the signals
        before = {}
    if callable(end := before.get(signal.SIGINT)):
        signals.end_at_once = end
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = tell
