"""`training.batch_tokens: auto`: find the largest batches whose whole update fits in the memory of a GPU."""

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from torch import nn

from headway.core.errors import is_out_of_memory
from headway.core.log import say
from headway.models import Model
from headway.optimizers.optimizers import build_optimizer
from headway.recipe import Recipe
from headway.recipe.sections import USUAL_TOKENS
from headway.tasks.task import TrainingCorpus
from headway.tensors.batch import TargetBatch
from headway.training.parallel import Parallel
from headway.training.updates import compute_gradients, make_update

SIZES = tuple(1 << power for power in range(10, 17))  # tokens of a batch, of one process
MEMORY = 0.9  # the share for a trial, as later updates see fragmented memory; halved with capture


def batch_tokens(
    recipe: Recipe, manifest: Mapping[str, Any], parallel: Parallel, fits: Callable[[int], bool]
) -> int | None:
    """The batch size for `auto`: the run's value, or else a search by `fits`. None if the recipe has a number."""
    if recipe.training.batch_tokens != "auto":
        return None
    if "batch_tokens" in manifest:
        return int(manifest["batch_tokens"])
    if not is_sought(recipe, parallel.device):
        return USUAL_TOKENS
    found = largest_fitting(fits) * parallel.world_size
    say(f"training.batch_tokens: {found:,} are the most that fit in the memory of the GPU, up to {SIZES[-1]:,} each")
    return found


def is_sought(recipe: Recipe, device: torch.device) -> bool:
    """Whether `auto` searches for a batch size: only on a GPU, where running out of memory does no harm."""
    training = recipe.training
    return training.batch_tokens == "auto" and training.batch_sentences is None and device.type == "cuda"


def largest_fitting(fits: Callable[[int], bool], sizes: Sequence[int] = SIZES) -> int:
    """The largest of the ascending `sizes` that fits. The smallest if none fits, so that training reports the error."""
    return max(takewhile(fits, sizes), default=sizes[0])


def largest_batches(corpus: TrainingCorpus, tokens: int) -> list[TargetBatch]:
    """The batches of `tokens` tokens that may need the most memory: one with the longest source and the longest target,
    and one with the longest pair whose sides are the most similar in length.
    """
    source, target = corpus.widths()
    longer = np.maximum(source, target)
    share = np.minimum(source, target) / longer
    alike = np.where(share == share.max(), longer, 0).argmax()
    chosen = np.array([source.argmax(), target.argmax()]), np.array([alike])
    return [corpus.collate(np.resize(each, max(1, tokens // int(longer[each].max())))) for each in chosen]


def update_fits(
    recipe: Recipe, corpus: TrainingCorpus, model: Model[Any], step: nn.Module, parallel: Parallel
) -> Callable[[int], bool]:
    """Return a function that says whether updates with the largest batches of a size fit. The weights are restored."""

    def make_updates(tokens: int) -> None:
        optimizer = build_optimizer(recipe.optimizer, step, model.blocks())
        for batch in largest_batches(corpus, tokens) * 2:  # the first update creates the optimizer's state
            batches = [batch] * min(2, parallel.config.accumulate)  # with gradients in memory during the second
            make_update(optimizer, compute_gradients(step, batches, parallel, parallel.config.clip_norm, None), 0.0)

    def fits(tokens: int) -> bool:
        before = {name: each.to("cpu", copy=True) for name, each in model.state_dict().items()}
        own_memory = parallel.device.type == "cuda"
        try:
            if own_memory:
                torch.cuda.set_per_process_memory_fraction(MEMORY / (1 + parallel.config.capture))
            make_updates(tokens)
        except Exception as error:
            if not any(is_out_of_memory(each) for each in (error, error.__cause__) if each is not None):
                raise
            return False
        else:
            return True
        finally:
            step.zero_grad(set_to_none=True)
            model.load_state_dict(before)
            if own_memory:
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()  # the peak of the run itself is counted
                torch.cuda.set_per_process_memory_fraction(1.0)

    return fits
