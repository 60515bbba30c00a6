"""The training loop."""

import math
import signal
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

from headway.core.errors import RunError, memory_named, option
from headway.core.log import Pace, duration, progress, say
from headway.optimizers.schedules import TrainingProgress
from headway.predictors.predictor import Run
from headway.recipe import Recipe, TrainingConfig
from headway.runs.run import open_run
from headway.training.checkpoints import TrainingState
from headway.training.parallel import Signals, lost_processes_named, noted_signals
from headway.training.report import write_run_report
from headway.training.session import Session
from headway.training.start import open_session
from headway.training.updates import SMALLER_BATCHES, compute_gradients, make_update, prepared_updates

MEASURED = 10, 3.0  # updates and seconds that are measured for the estimate


def train(
    recipe: Recipe, output: Path, *, resume: bool = False, report: bool = False, trial: bool = False,
    begun: Callable[[Run], object] | None = None,
) -> int:  # fmt: skip
    """Train a run, as documented in `headway.train`. With `report`, `report.html` is written when training is complete.

    A `trial`, which is thrown away, does not log the completion, and signals are not handled. `begun` is called with
    the run when everything is built, before the first update.

    Returns:
        0 when training is complete, 128 + the signal's number when SIGINT or SIGTERM stopped it.
    """
    named = memory_named("in training", SMALLER_BATCHES), lost_processes_named(recipe.training)
    try:
        noted = nullcontext(Signals()) if trial else noted_signals()
        with named[0], named[1], open_session(recipe, output, resume) as session, noted as signals:
            state = session.state
            if begun is not None and session.parallel.first:
                begun(Run(recipe, *session.corpora.processors, session.model))
            session.evaluate_beginning(signals)
            session.evaluate_pending(signals)
            asked = session.parallel.sum(signals.received is not None) > 0
            if not (state.evaluation_pending or asked):
                _loop(session, signals)
            if state.stopped and not state.evaluation_pending:
                session.finish(signals)
            if state.stopped and not state.evaluation_pending:
                if report and session.parallel.first:
                    write_run_report(output)  # while the lock is held: its holder removes unfinished files
                if session.parallel.first and not trial:
                    run = open_run(output)
                    shown = f"training is complete ({state.stopped}): {run.folder.weights}"
                    say(f"{shown}; the weights are {run.weights_shown()}")
                return 0
            number = signals.received or signal.SIGTERM  # the signal may have reached another process only
            say(f"stopped by {signal.Signals(number).name} after update {state.update}; the run can be resumed")
            return 128 + number
    except OSError as error:
        raise RunError(
            f"{output}: a file could not be read or written ({error}); {option('resume')} goes on from what is there"
        ) from error


def _loop(session: Session, signals: Signals) -> None:
    """Make updates until training is complete (`state.stopped` has the reason) or a signal asks to stop."""
    config, state, parallel = session.recipe.training, session.state, session.parallel
    began, cpu_began = time.monotonic() - state.seconds, _cpu_seconds(parallel.world_size) - state.cpu_seconds
    session.model.train()
    forecast, pace = _Forecast(config), Pace(state.seconds, state.update)
    made = prepared_updates(session.corpora.train, parallel, state)
    with (
        progress("training", config.updates, "updates", long=True) as line,
        closing(made) as updates,
    ):
        for update in updates:
            state.stopped = _finished(config, state)
            if state.stopped:
                return
            state.best_at_end = []
            update.restore_random_state()
            plan = update.plan
            count = plan.sentences if config.mean_over == "sentences" else None
            rate = session.schedule.rate(TrainingProgress(plan.number, plan.epochs, state.gains))
            if session.captured is None:
                gradients = compute_gradients(session.step, update.batches, parallel, config.clip_norm, count)
                make_update(session.optimizer, gradients, rate)
            else:
                gradients = session.captured(update.batches, count, rate)
            if session.average is not None:
                session.average.add(plan.number)
            if session.fixed is not None:
                session.fixed.add(plan.number)
            stop = parallel.sum(signals.received is not None) > 0
            seconds = parallel.sum(time.monotonic() - began) / parallel.world_size
            state.cpu_seconds = _cpu_seconds(parallel.world_size) - cpu_began
            session.record(plan, gradients, rate, seconds, stop=stop)
            forecast.add(state)
            regular = state.update % config.checkpoint_every == 0
            if regular or stop:
                clocks = time.monotonic(), _cpu_seconds(parallel.world_size)
                session.checkpoint(signals, regular=regular, stop=stop)
                # The training time is the time of the updates, without evaluation.
                began += time.monotonic() - clocks[0]
                cpu_began += _cpu_seconds(parallel.world_size) - clocks[1]
            each = pace.seconds_each(state.seconds, state.update)
            line.update(state.update, session.progress_text(_left(config, state, each)))
            if stop or state.evaluation_pending:
                return


def _cpu_seconds(processes: int) -> float:
    """The processor time of all processes and threads so far, assuming that all processes work equally long."""
    return time.process_time() * processes


def _finished(config: TrainingConfig, state: TrainingState) -> str:
    """The reason why training is complete, or an empty string."""
    if config.updates is not None and state.update >= config.updates:
        return f"{config.updates} updates"
    if config.epochs is not None and state.epoch >= config.epochs:
        return f"{config.epochs} epochs"
    if config.minutes is not None and state.seconds >= 60 * config.minutes:
        return f"{config.minutes:g} minutes"
    if config.patience is not None and state.evaluations_without_gain >= config.patience:
        return f"{config.patience} evaluations without a better one"
    if config.most_forgotten is not None and state.forgotten > config.most_forgotten:
        return f"{state.forgotten:.2f} forgotten on data.general"
    return ""


@dataclass
class _Forecast:
    """Estimates the remaining time, and logs it once, after some updates of this process were measured."""

    config: TrainingConfig
    updates: int = 0
    warm: float = 0.0  # the training time after the first update, which is slower than the others
    said: bool = False

    def add(self, state: TrainingState) -> None:
        """Count an update, and log the estimate if it is time."""
        self.updates += 1
        if self.updates == 1:
            self.warm = state.seconds
        taken = state.seconds - self.warm
        if self.said or self.updates < MEASURED[0] or taken < MEASURED[1]:
            return
        self.said, each = True, taken / (self.updates - 1)
        if left := _left(self.config, state, each):
            say(f"{self.updates} updates, {each:.3g} seconds each: about {left}, and the time of evaluations")


def _left(config: TrainingConfig, state: TrainingState, each: float) -> str:
    """The remaining time until the first possible end, in words; empty if unknown. `each` is the seconds per update."""
    left = math.inf
    if config.minutes is not None:
        left = 60 * config.minutes - state.seconds
    if config.updates is not None:
        left = min(left, (config.updates - state.update) * each)
    if config.epochs is not None and state.epoch:
        left = min(left, (config.epochs - state.epoch) * state.update / state.epoch * each)
    return f"{duration(max(0.0, left))} left" if math.isfinite(left) else ""
