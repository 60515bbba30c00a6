"""Updates: their batches, the gradients of a global batch, clipping, and a step of the optimizer.

Batches are prepared while the device works on the update before, where a core is free for it. Randomness is a function
of seed, update and rank: collating draws from a generator of the update's own, and the model's draws go on where these
end, as if one thread had done both in turn.

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
    epochs: float = 0.0  # passes over the corpus that were made before it

    @property
    def sentences(self) -> int:
        """The examples of all its batches."""
        return sum(map(len, self.indices))


@dataclass(frozen=True)
class PreparedUpdate:
    """One update, ready for the device."""

    plan: PlannedUpdate
    batches: Sequence[TargetBatch]  # this process's rows, on the CPU; their counts are those of the whole update
    seed: int  # of all random numbers
    random_state: Tensor  # of torch's CPU generator when the batches had been collated

    def restore_random_state(self) -> None:
        """Let torch's generators go on from where collating ended."""
        torch.manual_seed(self.seed)
        torch.set_rng_state(self.random_state)


Updates = Generator[PreparedUpdate, None, None]


def sizes_of(corpus: TrainingCorpus, config: TrainingConfig) -> dict[str, Any]:
    """The sizes of batches, as the plan of an epoch takes them: with few shapes where the recipe asks for these."""
    sizes = config.batch_sizes()
    return sizes if config.shapes == "any" else sizes | {"shapes": few_shapes(*corpus.widths(), **sizes)}


def planned_updates(
    corpus: TrainingCorpus, config: TrainingConfig, state: TrainingState, sizes: Mapping[str, Any]
) -> Iterator[PlannedUpdate]:
    """All updates from where the run stands, in batches of `sizes`; they do not end."""
    number, epoch, first = state.update, state.epoch, state.batch
    while True:
        plan = corpus.plan(config.seed, epoch, **sizes)
        for start in range(first, len(plan), config.accumulate):
            end, number = start + config.accumulate, number + 1
            yield PlannedUpdate(number, epoch, plan[start:end], end >= len(plan), epoch + start / len(plan))
        epoch, first = epoch + 1, 0


def prepared_updates(corpus: TrainingCorpus, parallel: Parallel, state: TrainingState) -> Updates:
    """All updates from where the run stands, made when `in_time` says. To be closed."""
    sizes = sizes_of(corpus, parallel.config)
    plans, shapes = planned_updates(corpus, parallel.config, state, sizes), sizes.get("shapes", ())
    return in_time((prepare_update(corpus, plan, parallel, shapes) for plan in plans), parallel.device)


def prepare_update(
    corpus: TrainingCorpus, plan: PlannedUpdate, parallel: Parallel, shapes: Sequence[Shape] = ()
) -> PreparedUpdate:
    """Collate the batches of one update, padded to `shapes` if any, in pinned memory where a GPU will fetch them."""
    seed = update_seed(parallel.config.seed, plan.number, parallel.rank)
    generator = torch.Generator().manual_seed(seed)
    collated = (corpus.collate(indices, generator, plan.epoch) for indices in plan.indices)
    whole = of_one_update([fitted(batch, shapes) for batch in collated])
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


SMALLER_BATCHES = (
    "lower training.batch_tokens or batch_sentences (and raise training.accumulate by as much to keep the update the"
    " same), or data.max_length"
)


class TrainingStep(nn.Module):
    """A model and its objective as one module, so that what wraps it for several processes sees one forward pass."""

    def __init__(self, model: Model[Any], objective: Objective) -> None:
        super().__init__()
        self.model, self.capture = model, objective.capture
        self._loss: Callable[[Output, TargetBatch], Loss] = objective.__call__

    def forward(self, batch: TargetBatch) -> Loss:
        """The loss, summed over target tokens."""
        return self._loss(self.model(batch, capture=self.capture), batch)

    def compile(self, **options: Any) -> None:
        """Compile the model alone: the chunks of the loss would be compiled anew for each number of tokens."""
        self._loss = torch.compiler.disable(self._loss)  # type: ignore[no-untyped-call]
        super().compile(**options)


@dataclass(frozen=True)
class Gradients:
    """The results of one update's passes, on the device, where reading a number would wait for them."""

    names: Sequence[str]  # of the parts of the loss
    sums: Tensor  # (parts,) each part, summed over all target tokens, float64
    unsmoothed: Tensor  # () the cross-entropy without label smoothing, summed likewise
    norm: Tensor  # () of the gradients, unclipped
    tokens: int  # all target tokens of the update

    @property
    def finite(self) -> Tensor:
        """() whether the update may be made."""
        return self.sums.sum().isfinite() & self.norm.isfinite()


def compute_gradients(
    step: nn.Module, batches: Sequence[TargetBatch], parallel: Parallel, clip_norm: float | None, count: int | None
) -> Gradients:
    """Set the gradients of the mean loss of all `batches` together, clipped to `clip_norm`.

    Args:
        step: a `TrainingStep`, wrapped for several processes where there are several.
        batches: this process's rows of each batch of the update, with the counts of the whole update.
        parallel: the processes.
        clip_norm: the largest norm that gradients keep; None for any.
        count: what the mean is over; None for the target tokens.

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
                # Gradients are averaged over W processes, so that W / count makes the mean over the global batch.
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
    """An exponential moving average of all weights that learn: a <- d a + (1 - d) w after each update t.

    d is min(decay, (1 + t) / (10 + t)), so that the random beginning is soon forgotten.

    Args:
        model: whose weights they are, sharded or not.
        decay: the highest d.
        begun: the average so far, by name; the weights as they are where it has none.
    """

    def __init__(self, model: nn.Module, decay: float, begun: Mapping[str, Tensor]) -> None:
        self.decay = decay
        self._weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self.values = {name: like(begun.get(name, weight.detach()), weight) for name, weight in self._weights.items()}

    @torch.no_grad()
    def add(self, update: int) -> None:
        """Count the weights after an update."""
        share = 1 - min(self.decay, (1 + update) / (10 + update))
        for name, weight in self._weights.items():
            self.values[name].lerp_(weight, share)


def make_update(optimizer: Optimizer, gradients: Gradients, rate: float) -> None:
    """Take the optimizer's step, unless the loss or the gradients are not finite; clears the gradients.

    On a GPU a fused optimizer decides by itself, so that nothing waits for the device.
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
    """Take the step of a fused optimizer where `finite` () is true, without reading that."""
    optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
    optimizer.step()


def decides_itself(optimizer: Optimizer) -> bool:
    """Whether the optimizer leaves out its step where its `found_inf` is 1, as GradScaler relies on."""
    sharded = any(isinstance(parameter, DTensor) for group in optimizer.param_groups for parameter in group["params"])
    # A fused step that is left out leaves the first momentum as memory comes.
    begins = not optimizer.state and any(group.get("momentum") for group in optimizer.param_groups)
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False)) and not sharded and not begins
