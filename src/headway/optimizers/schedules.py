"""Learning rates over the updates."""

from headway.optimizers.optimizers import OptimizerConfig


def learning_rate(config: OptimizerConfig, update: int, *, dim: int | None, updates: int | None) -> float:
    """The learning rate of an update.

    Args:
        config: the recipe's optimizer section, which says what each schedule does.
        update: counted from 1.
        dim: D, needed for `noam` (Vaswani et al. 2017, equation 3).
        updates: the last update, for `linear`.
    """
    warm = update / config.warmup if update < config.warmup else 1.0
    if config.schedule == "inverse_sqrt":
        return float(config.learning_rate * min(warm, (max(config.warmup, 1) / update) ** 0.5))
    if config.schedule == "noam":
        assert dim is not None
        rise = update * config.warmup**-1.5 if config.warmup else update**-0.5
        return float(config.learning_rate * dim**-0.5 * min(update**-0.5, rise))
    if config.schedule == "linear":
        assert updates is not None
        left = max(0.0, (updates + 1 - update) / max(1, updates + 1 - config.warmup))
        return config.learning_rate * min(warm, left)
    return config.learning_rate * warm
