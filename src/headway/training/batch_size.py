"""`training.batch_tokens: auto`: the largest batches whose whole update fits in the memory of a GPU."""

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
MEMORY = 0.9  # the share that a trial may take, since later updates find memory in pieces; half beside recordings


def batch_tokens(
    recipe: Recipe, manifest: Mapping[str, Any], parallel: Parallel, fits: Callable[[int], bool]
) -> int | None:
    """The number that stands for `auto`: the run's own, or what is found now; None where the recipe has a number."""
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
    """Whether `auto` tries batches, as it does on a GPU: a trial may reach the end of its memory without harm."""
    training = recipe.training
    return training.batch_tokens == "auto" and training.batch_sentences is None and device.type == "cuda"


def largest_fitting(fits: Callable[[int], bool], sizes: Sequence[int] = SIZES) -> int:
    """The largest of ascending sizes that fits; the smallest where none does, so that training itself says so."""
    return max(takewhile(fits, sizes), default=sizes[0])


def largest_batches(corpus: TrainingCorpus, tokens: int) -> list[TargetBatch]:
    """The batches of so many tokens that may take the most memory: rows as long as the longest source and target of a
    corpus, and rows whose sides are most alike, since the longer side alone counts."""
    source, target = corpus.widths()
    longer = np.maximum(source, target)
    share = np.minimum(source, target) / longer
    alike = np.where(share == share.max(), longer, 0).argmax()
    chosen = np.array([source.argmax(), target.argmax()]), np.array([alike])
    return [corpus.collate(np.resize(each, max(1, tokens // int(longer[each].max())))) for each in chosen]


def update_fits(
    recipe: Recipe, corpus: TrainingCorpus, model: Model[Any], step: nn.Module, parallel: Parallel
) -> Callable[[int], bool]:
    """Make a function that tells whether updates with the largest batches of so many tokens fit. It keeps weights."""

    def make_updates(tokens: int) -> None:
        optimizer = build_optimizer(recipe.optimizer, step, model.blocks())
        for batch in largest_batches(corpus, tokens) * 2:  # the optimizer makes its state at the end of the first
            batches = [batch] * min(2, parallel.config.accumulate)  # gradients are there during the second
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
                torch.cuda.reset_peak_memory_stats()  # the run's own is counted
                torch.cuda.set_per_process_memory_fraction(1.0)

    return fits
