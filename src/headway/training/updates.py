"""Updates: their batches, the gradients of a global batch, clipping, and a step of the optimizer.

Batches are prepared while the device computes the previous update, if a core is free. Randomness is a function of seed,
update and rank: collating draws from a separate generator for each update, and the model continues with its state, as
if one thread had done both in turn.

Shapes: W processes.
"""

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from headway.core.errors import memory_named
from headway.core.processes import cores
from headway.corpora.shapes import Shape, few_shapes, fitted
from headway.losses import Loss, Objective
from headway.models import Model, Output
from headway.recipe import TrainingConfig
from headway.tasks.task import TrainingCorpus
from headway.tensors.batch import Indices, TargetBatch, of_one_update, rows
from headway.tensors.precision import exact_dtype
from headway.training.checkpoints import TrainingState
from headway.training.parallel import Parallel, like

Item = TypeVar("Item")


@dataclass(frozen=True)
class PlannedUpdate:
    """The examples of one update."""

    number: int  # from 1
    epoch: int  # from 0
    indices: Sequence[Indices]  # of each batch
    ends_epoch: bool
    epochs: float = 0.0  # passes over the corpus before this update

    @property
    def sentences(self) -> int:
        """The number of examples in all batches."""
        return sum(map(len, self.indices))


@dataclass(frozen=True)
class PreparedUpdate:
    """One update with collated batches."""

    plan: PlannedUpdate
    batches: Sequence[TargetBatch]  # the rows of this process, on the CPU, with the counts of the whole update
    seed: int  # of the random numbers of this update
    random_state: Tensor  # of torch's CPU generator after collating

    def restore_random_state(self) -> None:
        """Set torch's generators to the state after collating."""
        torch.manual_seed(self.seed)
        torch.set_rng_state(self.random_state)


Updates = Generator[PreparedUpdate, None, None]


def sizes_of(corpus: TrainingCorpus, config: TrainingConfig) -> dict[str, Any]:
    """The batch sizes as keywords of `TrainingCorpus.plan`, with the shapes if the recipe limits these."""
    sizes = config.batch_sizes()
    return sizes if config.shapes == "any" else sizes | {"shapes": few_shapes(*corpus.widths(), **sizes)}


def planned_updates(
    corpus: TrainingCorpus, config: TrainingConfig, state: TrainingState, sizes: Mapping[str, Any]
) -> Iterator[PlannedUpdate]:
    """Yield all updates from the current state on, in batches of `sizes`, without end."""
    number, epoch, first = state.update, state.epoch, state.batch
    while True:
        plan = corpus.plan(config.seed, epoch, **sizes)
        for start in range(first, len(plan), config.accumulate):
            end, number = start + config.accumulate, number + 1
            yield PlannedUpdate(number, epoch, plan[start:end], end >= len(plan), epoch + start / len(plan))
        epoch, first = epoch + 1, 0


def prepared_updates(corpus: TrainingCorpus, parallel: Parallel, state: TrainingState) -> Updates:
    """Yield all updates from the current state on, prepared as `in_time` says. The generator must be closed."""
    sizes = sizes_of(corpus, parallel.config)
    plans, shapes = planned_updates(corpus, parallel.config, state, sizes), sizes.get("shapes", ())
    return in_time((prepare_update(corpus, plan, parallel, shapes) for plan in plans), parallel.device)


def prepare_update(
    corpus: TrainingCorpus, plan: PlannedUpdate, parallel: Parallel, shapes: Sequence[Shape] = ()
) -> PreparedUpdate:
    """Collate the batches of one update, padded to `shapes` if any, in pinned memory if the device is a GPU."""
    seed = update_seed(parallel.config.seed, plan.number, parallel.rank)
    generator = torch.Generator().manual_seed(seed)
    collated = (corpus.collate(indices, generator, plan.epoch) for indices in plan.indices)
    whole = of_one_update([fitted(batch, shapes) for batch in collated])
    batches = [rows(batch, parallel.rank, parallel.world_size) for batch in whole]
    if parallel.device.type == "cuda":
        batches = [batch.each_tensor(Tensor.pin_memory) for batch in batches]
    return PreparedUpdate(plan, batches, seed, generator.get_state())


def update_seed(seed: int, update: int, rank: int) -> int:
    """The seed of one update, a function of its arguments alone, so resuming needs no random state."""
    digest = sha256(f"{seed}/{update}/{rank}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def in_time(items: Generator[Item, None, None], device: torch.device) -> Generator[Item, None, None]:
    """The same items, prepared ahead unless the device is a CPU and all cores compute.

    Computing threads wait for each other, so another thread on their cores slows down all of them by more than its own
    work (by an eighth for a small model on two cores).
    """
    free = device.type != "cpu" or torch.get_num_threads() < cores()
    return ahead(items) if free else items


def ahead(items: Iterator[Item]) -> Generator[Item, None, None]:
    """Yield the same items, each computed in another thread while the previous item is used."""
    end = object()
    with ThreadPoolExecutor(1, "headway-ahead") as thread:
        waiting = thread.submit(next, items, end)
        while (item := waiting.result()) is not end:
            waiting = thread.submit(next, items, end)
            yield item  # type: ignore[misc]


SMALLER_BATCHES = (
    "lower training.batch_tokens or batch_sentences (and raise training.accumulate by as much to keep the update the"
    " same), or data.max_length"
)


class TrainingStep(nn.Module):
    """A model and its objective as one module, so that wrappers for several processes see one forward pass."""

    def __init__(self, model: Model[Any], objective: Objective) -> None:
        super().__init__()
        self.model, self.capture = model, objective.capture
        self._loss: Callable[[Output, TargetBatch], Loss] = objective.__call__

    def forward(self, batch: TargetBatch) -> Loss:
        """The loss, summed over target tokens."""
        return self._loss(self.model(batch, capture=self.capture), batch)

    def compile(self, **options: Any) -> None:
        """Compile the model only: the loss works on chunks, and would be recompiled for each number of tokens."""
        self._loss = torch.compiler.disable(self._loss)  # type: ignore[no-untyped-call]
        super().compile(**options)


@dataclass(frozen=True)
class Gradients:
    """The results of one update's passes, as tensors on the device: reading a number waits for the device."""

    names: Sequence[str]  # of the parts of the loss
    sums: Tensor  # (parts,) the parts, summed over all target tokens, float64
    unsmoothed: Tensor  # () the cross-entropy without label smoothing, summed likewise
    norm: Tensor  # () the norm of the gradients before clipping
    tokens: int  # all target tokens of the update

    @property
    def finite(self) -> Tensor:
        """Whether the loss and the norm are finite, so that the update may be made: a boolean tensor ()."""
        return self.sums.sum().isfinite() & self.norm.isfinite()


def compute_gradients(
    step: nn.Module, batches: Sequence[TargetBatch], parallel: Parallel, clip_norm: float | None, count: int | None
) -> Gradients:
    """Compute the gradients of the mean loss of all `batches` together, clipped to `clip_norm`.

    Args:
        step: a `TrainingStep`, wrapped if there are several processes.
        batches: this process's rows of each batch of the update, with the counts of the whole update.
        parallel: the processes.
        clip_norm: the maximum norm of the gradients; None for no clipping.
        count: the divisor of the summed loss; None for the number of target tokens.

    Raises:
        RunError: memory ran out.
    """
    tokens = batches[0].counts["target_tokens"]
    parts: dict[str, Tensor] = {}
    unsmoothed = torch.zeros((), dtype=exact_dtype(parallel.device), device=parallel.device)
    for position, on_cpu in enumerate(batches, start=1):
        with memory_named(f"in a batch of {len(on_cpu.indices) * parallel.world_size} examples", SMALLER_BATCHES):
            batch = on_cpu.to(parallel.device, non_blocking=True)
            with parallel.synchronise(step, last=position == len(batches)):
                with parallel.autocast():
                    loss: Loss = step(batch)
                # Gradients are averaged over W processes; the factor W / count yields the mean over the global batch.
                (loss.total * (parallel.world_size / (count or tokens))).backward()  # type: ignore[no-untyped-call]
        unsmoothed += loss.unsmoothed
        for name, part in loss.parts.items():
            fresh = part.detach().to(exact_dtype(parallel.device))
            parts[name] = parts[name] + fresh if name in parts else fresh
    norm = nn.utils.clip_grad_norm_(step.parameters(), math.inf if clip_norm is None else clip_norm)
    norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
    *sums, unsmoothed = parallel.sum_on_device(torch.stack([*parts.values(), unsmoothed]))
    return Gradients(tuple(parts), torch.stack(sums), unsmoothed, norm.detach(), tokens)


class MovingAverage:
    """An exponential moving average of all trainable weights: a <- d a + (1 - d) w after each update t.

    d is min(decay, (1 + t) / (10 + t)), so the random initial weights lose their influence quickly.

    Args:
        model: the model, sharded or not.
        decay: the maximum of d.
        begun: the average so far, by name; missing entries start with the current weights.
    """

    def __init__(self, model: nn.Module, decay: float, begun: Mapping[str, Tensor]) -> None:
        self.decay = decay
        self._weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self.values = {name: like(begun.get(name, weight.detach()), weight) for name, weight in self._weights.items()}

    @torch.no_grad()
    def add(self, update: int) -> None:
        """Add the weights after an update to the average."""
        share = 1 - min(self.decay, (1 + update) / (10 + update))
        for name, weight in self._weights.items():
            self.values[name].lerp_(weight, share)


def make_update(optimizer: Optimizer, gradients: Gradients, rate: float) -> None:
    """Take the optimizer's step, unless the loss or the gradients are not finite; clears the gradients.

    On a GPU a fused optimizer checks this on the device, so nothing waits for it.
    """
    for group in optimizer.param_groups:
        group["lr"] = rate
    finite = gradients.finite
    if finite.device.type == "cuda" and decides_itself(optimizer):
        step_if(finite, optimizer)
    elif finite:
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def step_if(finite: Tensor, optimizer: Optimizer) -> None:
    """Take the step of a fused optimizer if `finite` () is true, without reading the value from the device."""
    optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
    optimizer.step()


def decides_itself(optimizer: Optimizer) -> bool:
    """Whether the optimizer skips its step if its `found_inf` is 1, as GradScaler requires."""
    sharded = any(isinstance(parameter, DTensor) for group in optimizer.param_groups for parameter in group["params"])
    # A skipped first step leaves the momentum buffer uninitialised.
    begins = not optimizer.state and any(group.get("momentum") for group in optimizer.param_groups)
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False)) and not sharded and not begins
