"""The batches of each update, prepared while the device works on the update before, where a core is free for it.

Randomness is a function of seed, update and rank: collating draws from a generator of the update's own, and the model's
draws go on where these end, as if one thread had done both in turn.
"""

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

import torch
from torch import Tensor

from headway.processes import cores
from headway.recipe import TrainingConfig
from headway.runs.training.checkpoints import TrainingState
from headway.runs.training.parallel import Parallel
from headway.tasks.task import TrainingCorpus
from headway.tensors.batch import Indices, TargetBatch, of_one_update, rows

Item = TypeVar("Item")


@dataclass(frozen=True)
class PlannedUpdate:
    """The examples of one update.

    Attributes:
        number: of the update, counted from 1.
        epoch: counted from 0.
        indices: the examples of each batch.
        ends_epoch: whether the update is the last of its epoch.
        epochs: the passes over the corpus that were made before it.
    """

    number: int
    epoch: int
    indices: Sequence[Indices]
    ends_epoch: bool
    epochs: float = 0.0

    @property
    def sentences(self) -> int:
        """The examples of all its batches."""
        return sum(map(len, self.indices))


@dataclass(frozen=True)
class PreparedUpdate:
    """One update, ready for the device.

    Attributes:
        plan: which examples these are.
        batches: this process's rows of each batch, on the CPU; their counts are those of the whole update.
        seed: of all random numbers.
        random_state: of torch's CPU generator when the batches had been collated.
    """

    plan: PlannedUpdate
    batches: Sequence[TargetBatch]
    seed: int
    random_state: Tensor

    def restore_random_state(self) -> None:
        """Let torch's generators go on from where collating ended."""
        torch.manual_seed(self.seed)
        torch.set_rng_state(self.random_state)


Updates = Generator[PreparedUpdate, None, None]


def planned_updates(corpus: TrainingCorpus, config: TrainingConfig, state: TrainingState) -> Iterator[PlannedUpdate]:
    """All updates from where the run stands; they do not end."""
    number, epoch, first = state.update, state.epoch, state.batch
    while True:
        plan = corpus.plan(config.seed, epoch, **config.batch_sizes())
        for start in range(first, len(plan), config.accumulate):
            end, number = start + config.accumulate, number + 1
            yield PlannedUpdate(number, epoch, plan[start:end], end >= len(plan), epoch + start / len(plan))
        epoch, first = epoch + 1, 0


def prepared_updates(corpus: TrainingCorpus, parallel: Parallel, state: TrainingState) -> Updates:
    """All updates from where the run stands, made when `in_time` says. To be closed."""
    plans = planned_updates(corpus, parallel.config, state)
    return in_time((prepare_update(corpus, plan, parallel) for plan in plans), parallel.device)


def prepare_update(corpus: TrainingCorpus, plan: PlannedUpdate, parallel: Parallel) -> PreparedUpdate:
    """Collate the batches of one update, in pinned memory where a GPU will fetch them."""
    seed = update_seed(parallel.config.seed, plan.number, parallel.rank)
    generator = torch.Generator().manual_seed(seed)
    whole = of_one_update([corpus.collate(indices, generator, plan.epoch) for indices in plan.indices])
    batches = [rows(batch, parallel.rank, parallel.world_size) for batch in whole]
    if parallel.device.type == "cuda":
        batches = [batch.each_tensor(Tensor.pin_memory) for batch in batches]
    return PreparedUpdate(plan, batches, seed, generator.get_state())


def update_seed(seed: int, update: int, rank: int) -> int:
    """The seed of one update: a function of these three alone, so that resuming needs no random state."""
    digest = sha256(f"{seed}/{update}/{rank}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def in_time(items: Generator[Item, None, None], device: torch.device) -> Generator[Item, None, None]:
    """The same items, made ahead unless the device is a CPU all of whose cores compute.

    Threads that compute wait for each other: another one beside them holds up all, for longer than it works itself (an
    eighth of the speed of a small model on two cores).
    """
    free = device.type != "cpu" or torch.get_num_threads() < cores()
    return ahead(items) if free else items


def ahead(items: Iterator[Item]) -> Generator[Item, None, None]:
    """The same items, each made by another thread while the one before is used."""
    end = object()
    with ThreadPoolExecutor(1, "headway-ahead") as thread:
        waiting = thread.submit(next, items, end)
        while (item := waiting.result()) is not end:
            waiting = thread.submit(next, items, end)
            yield item  # type: ignore[misc]
