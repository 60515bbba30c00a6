"""Training of hard attention by REINFORCE (Williams 1992; Xu et al. 2015, section 4.1).

Shapes: B batch, T target, V vocabulary.
"""

import math

import torch
from torch import Tensor, distributed, nn

from headway.models.choices import Choice
from headway.tensors.batch import Batch


class Reinforce(nn.Module):
    """Losses whose gradients make positions that led to good predictions more probable, and all of them less certain.

    The reward of a choice is log P of the target tokens that it can change: its own, and where the choice also reaches
    later steps, all from its own on. From each token's the moving average of such rewards is taken away, which is a
    part of the training's state and therefore a buffer that is kept with the weights.

    Args:
        target_size: V; before training the average is log 1/V, what a model that knows nothing earns.
        reaches_later: whether a choice changes later steps.
        entropy: the weight of the entropy bonus.
        decay: what is left of the old average after an update with the new.
    """

    def __init__(self, target_size: int, reaches_later: bool, entropy: float, decay: float) -> None:
        super().__init__()
        self.reaches_later, self.entropy, self.decay = reaches_later, entropy, decay
        self.register_buffer("baseline", torch.tensor(-math.log(target_size)))
        self.baseline: Tensor

    def forward(self, logits: Tensor, choice: Choice, batch: Batch) -> dict[str, Tensor]:
        """The losses by name, each summed over target tokens, for logits (B, T, V) and the choices behind them."""
        assert choice.log_probability is not None
        assert choice.entropy is not None
        mask = batch.target_mask
        rewards = _log_probabilities(logits, batch)
        advantages = (rewards - self.baseline.to(rewards.dtype)).masked_fill(~mask, 0)
        if self.reaches_later:
            advantages = advantages.flip(1).cumsum(1).flip(1)
        self._remember(rewards, mask)
        return {
            "reinforce": -(advantages * choice.log_probability).masked_fill(~mask, 0).sum(),
            "entropy": -self.entropy * choice.entropy.masked_fill(~mask, 0).sum(),
        }

    @torch.no_grad()
    def _remember(self, rewards: Tensor, mask: Tensor) -> None:
        earned = rewards.masked_fill(~mask, 0).sum()
        totals = torch.stack((earned, mask.sum().to(earned)))
        if distributed.is_initialized():  # each process has rows of its own, and all need one baseline
            distributed.all_reduce(totals)
        mean = totals[0] / totals[1].clamp(min=1)
        usable = mean.isfinite() & (totals[1] > 0)
        self.baseline.lerp_(torch.where(usable, mean.to(self.baseline), self.baseline), 1 - self.decay)


@torch.no_grad()
def _log_probabilities(logits: Tensor, batch: Batch) -> Tensor:
    """log P (B, T) of the target tokens."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return wide.gather(2, batch.target_output[:, :, None]).squeeze(2) - wide.logsumexp(2)
