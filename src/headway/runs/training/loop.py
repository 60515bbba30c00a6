"""The training loop."""

import math
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headway.console import duration, progress, say, warn
from headway.errors import RunError
from headway.optimizers.schedules import learning_rate
from headway.recipe import Recipe
from headway.runs.training.checkpoints import TrainingState, seed_update
from headway.runs.training.session import Session, open_session
from headway.runs.training.updates import compute_gradients
from headway.tensors.batch import Indices


def train(recipe: Recipe, output: Path, *, resume: bool = False) -> int:
    """Train what `recipe` describes into the run folder `output`.

    The run can be killed at any moment; with `resume` it goes on from its last whole checkpoint and ends, on the same
    machine with the same number of threads, with the same weights bit for bit as a run that was never interrupted.

    Returns:
        0 when training is complete, 128 + the signal's number when SIGINT or SIGTERM stopped it.

    Raises:
        UserError: a recipe, data or run folder that cannot be used.
        RunError: training diverged, memory or the disk ran out.
    """
    try:
        with open_session(recipe, output, resume) as session, _signals() as received:
            _loop(session, received)
            if session.state.stopped:
                session.finish()
                return 0
            number = received[0] if received else signal.SIGTERM  # it may have reached another process only
            say(f"stopped by {signal.Signals(number).name} after update {session.state.update}; go on with --resume")
            return 128 + number
    except OSError as error:
        raise RunError(
            f"{output}: a file could not be written ({error}); --resume goes on from what is there"
        ) from error


def _loop(session: Session, received: list[int]) -> None:
    recipe, state, model = session.recipe, session.state, session.step
    config, began = recipe.training, time.monotonic() - session.state.seconds
    model.train()
    with progress("training", _total(recipe), "updates") as line:
        for epoch, batches, ends_epoch in _updates(session):
            state.stopped = _finished(recipe, state)
            if state.stopped:
                break
            update = state.update + 1
            seed_update(config.seed, update, session.parallel.rank)
            rate = learning_rate(recipe.optimizer, update, dim=recipe.model.width(), updates=config.updates)
            gradients = compute_gradients(
                model, session.prepared.train, batches, session.parallel, config.clip_norm, bool(received)
            )
            if gradients.finite:
                for group in session.optimizer.param_groups:
                    group["lr"] = rate
                session.optimizer.step()
                state.bad_updates = 0
            else:
                _skip(session, update, batches, gradients.loss)
            session.optimizer.zero_grad(set_to_none=True)
            state.update, state.epoch = update, epoch + ends_epoch
            state.batch = 0 if ends_epoch else state.batch + len(batches)
            state.seconds = session.parallel.mean(time.monotonic() - began)
            session.record(gradients, rate)
            line.update(update, session.progress_text(_left(recipe, state)))
            if update % config.checkpoint_every == 0 or gradients.stop:
                session.checkpoint(regular=update % config.checkpoint_every == 0)
            if gradients.stop:
                return


def _updates(session: Session) -> Iterator[tuple[int, Sequence[Indices], bool]]:
    """From where the run stands: the epoch, the batches of each update, and whether it is the last of its epoch."""
    config, corpus = session.recipe.training, session.prepared.train
    epoch, first = session.state.epoch, session.state.batch
    while True:
        plan = corpus.plan(config.seed, epoch, **config.batch_sizes())
        for start in range(first, len(plan), config.accumulate):
            yield epoch, plan[start : start + config.accumulate], start + config.accumulate >= len(plan)
        epoch, first = epoch + 1, 0


def _finished(recipe: Recipe, state: TrainingState) -> str:
    """Why training is complete, or an empty string."""
    config = recipe.training
    if config.updates is not None and state.update >= config.updates:
        return f"{config.updates} updates"
    if config.epochs is not None and state.epoch >= config.epochs:
        return f"{config.epochs} epochs"
    if config.minutes is not None and state.seconds >= 60 * config.minutes:
        return f"{config.minutes:g} minutes"
    if config.patience is not None and state.evaluations_without_gain >= config.patience:
        return f"{config.patience} evaluations without a better one"
    return ""


def _total(recipe: Recipe) -> float | None:
    return recipe.training.updates


def _left(recipe: Recipe, state: TrainingState) -> str:
    """The time until the end that comes first, as far as it can be known."""
    config, left = recipe.training, math.inf
    if config.minutes is not None:
        left = 60 * config.minutes - state.seconds
    if config.updates is not None:
        left = min(left, (config.updates - state.update) * state.seconds / state.update)
    if config.epochs is not None and state.epoch:
        left = min(left, (config.epochs - state.epoch) * state.seconds / state.epoch)
    return f"{duration(max(0.0, left))} left" if math.isfinite(left) else ""


def _skip(session: Session, update: int, batches: Sequence[Indices], loss: float) -> None:
    """Name a bad update and its lines; give up after a few in a row."""
    state, limit = session.state, session.recipe.training.max_bad_updates
    state.bad_updates += 1
    lines = sorted(int(line) for indices in batches for line in session.prepared.train.lines[indices])
    shown = ", ".join(map(str, lines[:10])) + (f" and {len(lines) - 10} more" if len(lines) > 10 else "")
    what = "loss" if not math.isfinite(loss) else "gradient"
    message = f"update {update}: the {what} is not finite; its batch holds lines {shown} of data.train"
    if state.bad_updates >= limit:
        raise RunError(
            f"{message}\n{limit} such updates in a row: training has diverged. Lower optimizer.learning_rate, raise"
            " optimizer.warmup, set training.clip_norm, or look at these lines; --resume starts from the last"
            " checkpoint"
        )
    warn(f"{message}; skipped ({state.bad_updates} in a row, {limit} end the run)")


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM, so that the update at hand is finished and saved; a second one ends at once."""
    received: list[int] = []

    def note(number: int, _frame: object) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        say(f"{signal.Signals(number).name}: finishing this update and saving; once more ends at once")

    try:
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: whoever runs this thread handles signals
        before = {}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
