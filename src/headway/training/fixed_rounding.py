"""The input ranges of `int8_rounding: fixed`: measured before the first update, and moved in half of the updates."""

from collections import defaultdict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headway.models import Model
from headway.recipe import TrainingConfig
from headway.tasks.task import TrainingCorpus
from headway.tensors.int8_rounding import LARGEST, NARROW, SMALLEST, InputRange, as_int8, int8_scale
from headway.tensors.linear import Linear, integer_matrices, rounding_layers
from headway.tensors.saturation import EVERY, unsaturated
from headway.training.parallel import Parallel

EXAMPLES = 300  # that ranges are measured on
MARGIN = 1.25  # inputs may grow by this factor, relative to the weights, before products saturate
KEPT = 0.99  # the share of a range that is left after an update without a larger input


def moving_updates(config: TrainingConfig) -> int:
    """The number of updates in which ranges move."""
    return (config.updates or 0) // 2


class FixedRounding:
    """Moves the ranges of a model whose products are rounded with fixed factors.

    Args:
        model: the model, after `round_to_int8` with `fixed`.
        parallel: the processes.
        update: the number of updates so far.
    """

    def __init__(self, model: nn.Module, parallel: Parallel, update: int) -> None:
        self._ranges = [module for module in model.modules() if isinstance(module, InputRange)]
        self._parallel = parallel
        self._observe(update)

    def _observe(self, update: int) -> None:
        for each in self._ranges:
            each.observes, each.observed = update < moving_updates(self._parallel.config), None

    @torch.no_grad()
    def add(self, update: int) -> None:
        """Move the ranges after an update, by the largest inputs of all processes in it."""
        if update > moving_updates(self._parallel.config):
            return
        none = torch.zeros((), device=self._parallel.device)
        seen = torch.stack([none if each.observed is None else each.observed for each in self._ranges])
        largest = self._parallel.largest_on_device(seen)
        for each, value in zip(self._ranges, largest, strict=True):
            moved = torch.maximum(each.largest * KEPT, value)
            each.largest.copy_(torch.where(value.isfinite(), moved, each.largest))
        self._observe(update)


@torch.no_grad()
def measure_ranges(model: Model[Any], corpus: TrainingCorpus, device: torch.device) -> None:
    """Set the ranges of a model by the inputs of its linear maps, in floats, for examples of the training corpus.

    A matrix whose products would saturate 16 bits gets 7 bits.
    """
    layers = [layer for layer in rounding_layers(model) if isinstance(layer, Linear)]
    largest, rows = defaultdict[Linear, float](float), defaultdict[Linear, list[Tensor]](list)

    def note(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(layer, Linear)
        x = inputs[0].reshape(-1, inputs[0].shape[-1])
        largest[layer] = max(largest[layer], float(x.abs().max()))
        rows[layer].append(x[::EVERY].cpu())

    hooks = [layer.register_forward_pre_hook(note) for layer in layers]
    training = model.training
    _set_rounds(model, False)
    model.eval()
    for index in range(min(EXAMPLES, len(corpus))):  # one by one, without padding
        model(corpus.collate(np.array([index]), torch.Generator().manual_seed(index)).to(device))
    model.train(training)
    _set_rounds(model, True)
    for hook in hooks:
        hook.remove()
    for layer in rows:
        assert layer.input_range is not None
        layer.input_range.largest.fill_(largest[layer])
        pairs = layer.in_features // 2 * 2
        scale = MARGIN * LARGEST / torch.tensor(largest[layer]).clamp(min=SMALLEST)
        read = as_int8(torch.cat(rows[layer])[:, :pairs], scale, clip=True)
        for number, matrix in enumerate(layer.matrices()):
            whole = as_int8(matrix.detach(), int8_scale(matrix))[:, :pairs]
            if unsaturated(read.numpy(), whole.cpu().numpy()) < 1:
                layer.input_range.most[number] = NARROW


def _set_rounds(model: nn.Module, rounds: bool) -> None:
    for layer in rounding_layers(model):
        layer.rounds = rounds


@torch.no_grad()
def integer_weights(model: nn.Module) -> dict[str, Tensor]:
    """The rounded weights of a model, divided by the factors of their rows."""
    return {name: whole / factors[:, None] for name, (whole, factors, _) in integer_matrices(model).items()}
