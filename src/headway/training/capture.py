"""Training steps that are recorded once for each batch shape, and replayed from then on.

On a GPU a recording is a CUDA graph: the launches of all kernels, with fixed memory addresses. Values that differ
between updates, such as batches and learning rates, are therefore copied into tensors that are never moved. Gradients
keep their memory, too, and are zeroed by the recording of the optimizer's step. All recordings share one memory pool,
since no temporary tensor outlives a replay. On other devices a replay is a call of the same functions.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from headway.core.errors import RunError, UserError, is_out_of_memory, memory_named
from headway.corpora.shapes import MOST
from headway.models import DecoderOnlyConfig
from headway.models.recurrent import RecurrentConfig
from headway.optimizers import OPTIMIZERS
from headway.optimizers.optimizers import FusedAdam, FusedAdamW, FusedSgd
from headway.recipe import Recipe
from headway.tensors.batch import TargetBatch
from headway.tensors.looking import GraphRecorder, Recorder, Work, recorded
from headway.tensors.precision import exact_dtype
from headway.training.parallel import Parallel
from headway.training.updates import SMALLER_BATCHES, Gradients, decides_itself, step_if


def check_capture(recipe: Recipe, processes: int) -> None:
    """Raise UserError if the recipe cannot be recorded because its computation depends on values on the device."""
    model, kind = recipe.model, recipe.optimizer.kind
    cell, attention = (model.cell, model.attention.kind) if isinstance(model, RecurrentConfig) else ("", "")
    learned = isinstance(model, DecoderOnlyConfig) and model.trained_positions() is not None
    fused = issubclass(OPTIMIZERS.get(kind), FusedAdam | FusedAdamW | FusedSgd)
    for wrong, where, received, allowed in (
        (processes > 1, "processes", processes, "one process, or capture: false"),
        (not fused, "optimizer.kind", kind, "adam, adamw or sgd"),
        (cell == "cho_gru", "model.cell", cell, "lstm or gru"),
        (attention in ("hard", "monotonic"), "model.attention", attention, "another attention"),
        (learned, "model.position", "learned", "another position"),
    ):
        if wrong:
            raise UserError("training.capture cannot record this", where=where, received=received, allowed=allowed)


class CapturedUpdate:
    """Makes updates by recordings, with the results of `compute_gradients` and `make_update`, in a single process.

    The first use of each recording runs normally, to create the optimizer's state and the gradients.

    Args:
        step: a `TrainingStep`.
        optimizer: a fused optimizer, whose learning rate becomes a tensor.
        parallel: the settings of this process.
        recorder: makes the recordings; by default the recorder of the device.
    """

    def __init__(
        self, step: nn.Module, optimizer: Optimizer, parallel: Parallel, recorder: Recorder | None = None
    ) -> None:
        self._step, self._optimizer, self._parallel = step, optimizer, parallel
        device, exact = parallel.device, exact_dtype(parallel.device)
        self._recorder = recorder or (GraphRecorder(device) if device.type == "cuda" else Recorder())
        self._rate = torch.zeros((), device=device)
        self._scale, self._norm = (torch.zeros((), dtype=exact, device=device) for _ in range(2))
        self._names: tuple[str, ...] = ()
        self._sums = torch.zeros(0, dtype=exact, device=device)  # of the parts of the loss, and of the unsmoothed loss
        self._held: dict[Any, TargetBatch] = {}
        self._used, self._recordings = set[Any](), dict[Any, Work]()
        for group in optimizer.param_groups:
            group["lr"] = self._rate

    def __call__(self, batches: Sequence[TargetBatch], count: int | None, rate: float) -> Gradients:
        """Make an update with `batches` at a learning rate. `count` divides the loss; None for target tokens."""
        tokens = batches[0].counts["target_tokens"]
        self._rate.fill_(rate)
        self._scale.fill_(1 / (count or tokens))
        self._sums.zero_()
        for batch in batches:
            with memory_named(f"in a batch of {len(batch.indices)} examples", SMALLER_BATCHES):
                key = self._copied(batch)
                self._run(key, partial(self._pass, self._held[key]))
        self._run(None, self._finish)
        *sums, unsmoothed = self._sums.clone()
        return Gradients(self._names, torch.stack(sums), unsmoothed, self._norm.clone(), tokens)

    def _copied(self, batch: TargetBatch) -> Any:
        """Copy a batch into the tensors that hold batches of its shape, and return their key."""
        tensors = _named(batch)
        key = tuple((name, each.shape) for name, each in tensors.items())
        if key not in self._held:
            counts = {name: torch.zeros_like(self._scale) for name in batch.counts}
            self._held[key] = replace(batch.to(self._parallel.device).each_tensor(torch.clone), counts=counts)
        held = self._held[key]
        for name, each in _named(held).items():
            each.copy_(tensors[name], non_blocking=True)
        for name, number in held.counts.items():
            number.fill_(batch.counts[name])
        return key

    def _run(self, key: Any, work: Work) -> None:
        """Run some work: by its recording, which is made at the second call, or directly."""
        room = key is None or len(self._recordings) <= MOST
        if room and key not in self._recordings and key in self._used and decides_itself(self._optimizer):
            for group in self._optimizer.param_groups if key is None else ():
                group["capturable"] = True  # torch requires this flag to record the step
            try:
                self._recordings[key] = self._recorder.record(work)
            except RuntimeError as error:
                cause = error.__context__ or error  # ending a failed recording fails as well
                if is_out_of_memory(cause):
                    raise cause from None
                what = f"a step of this model cannot be recorded ({cause}); set training.capture to false"
                raise RunError(what) from error
        self._used.add(key)
        self._recordings.get(key, partial(self._recorder.warm, work))()

    def _pass(self, batch: TargetBatch) -> None:
        with recorded():
            with self._parallel.autocast():
                loss = self._step(batch)
            loss.total.backward(self._scale.to(loss.total.dtype))
        found = torch.stack([*loss.parts.values(), loss.unsmoothed]).detach().to(self._scale.dtype)
        if not self._names:
            self._names, self._sums = tuple(loss.parts), torch.zeros_like(found)
        self._sums += found

    def _finish(self) -> None:
        clip_norm = self._parallel.config.clip_norm
        norm = nn.utils.clip_grad_norm_(self._step.parameters(), math.inf if clip_norm is None else clip_norm)
        finite = self._sums[:-1].sum().isfinite() & norm.isfinite()
        if decides_itself(self._optimizer):
            step_if(finite, self._optimizer)
        elif finite:
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=False)
        self._norm.copy_(norm)


def _named(batch: TargetBatch) -> dict[str, Tensor]:
    """The tensors of a batch by name, including the labels."""
    return batch.own_tensors() | {f"labels.{name}": each for name, each in batch.labels.items()}
