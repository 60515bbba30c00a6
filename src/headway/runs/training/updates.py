"""One update: gradients of a global batch, clipping, and a step of the optimizer.

Shapes: W processes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from headway.losses import Loss, Objective
from headway.memory import memory_named
from headway.models import Model, Output
from headway.runs.training.parallel import Parallel
from headway.tensors.batch import TargetBatch
from headway.tensors.precision import exact_dtype

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
    """The results of one update's passes, on the device, where reading a number would wait for them.

    Attributes:
        names: of the parts of the loss.
        sums: (parts,) each part, summed over all target tokens, float64.
        unsmoothed: () the cross-entropy without label smoothing, summed likewise.
        norm: () the norm of the gradients, unclipped.
        tokens: all target tokens of the update.
    """

    names: Sequence[str]
    sums: Tensor
    unsmoothed: Tensor
    norm: Tensor
    tokens: int

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
            batch = on_cpu.each_tensor(lambda tensor: tensor.to(parallel.device, non_blocking=True))
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


def make_update(optimizer: Optimizer, gradients: Gradients, rate: float) -> None:
    """Take the optimizer's step, unless the loss or the gradients are not finite; clears the gradients.

    On a GPU a fused optimizer decides by itself, so that nothing waits for the device.
    """
    for group in optimizer.param_groups:
        group["lr"] = rate
    finite = gradients.finite
    if finite.device.type == "cuda" and _decides_itself(optimizer):
        step_if(finite, optimizer)
    elif finite:
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def step_if(finite: Tensor, optimizer: Optimizer) -> None:
    """Take the step of a fused optimizer where `finite` () is true, without reading that."""
    optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
    optimizer.step()


def _decides_itself(optimizer: Optimizer) -> bool:
    """Whether the optimizer leaves out its step where its `found_inf` is 1, as GradScaler relies on."""
    sharded = any(isinstance(parameter, DTensor) for group in optimizer.param_groups for parameter in group["params"])
    # A fused step that is left out leaves the first momentum as memory comes.
    begins = not optimizer.state and any(group.get("momentum") for group in optimizer.param_groups)
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False)) and not sharded and not begins
