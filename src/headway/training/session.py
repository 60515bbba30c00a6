"""The session of a training run: records, checkpoints, evaluation, and the final model."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from headway.core.errors import DIVERGED, NotFiniteError, RunError, memory_named, option
from headway.core.log import logger, progress, say, warn
from headway.losses.cross_entropy import smoothed_cross_entropy
from headway.metrics import Metric
from headway.models import Model
from headway.optimizers.schedules import Schedule
from headway.predictors.predictor import WEIGHTS
from headway.recipe import Recipe
from headway.runs.metrics import read_metrics
from headway.runs.model_card import write_card
from headway.runs.run import open_run
from headway.runs.run_folder import (
    RunFolder,
    average_weights,
    folder_of,
    list_checkpoints,
    load_weights,
    model_weights,
    not_finite,
    regular_updates,
    update_of,
)
from headway.tasks.task import Corpora, DevSet, TrainingCorpus
from headway.tensors.precision import exact_dtype
from headway.training.capture import CapturedUpdate
from headway.training.checkpoints import (
    RAW,
    Ranked,
    TrainingState,
    optimizer_tensors,
    prune,
    rewrite_state,
    save_checkpoint,
)
from headway.training.fixed_rounding import FixedRounding, integer_weights
from headway.training.parallel import Interrupted, Parallel, Signals, unwrapped, whole, whole_tensors
from headway.training.records import Outcome, Records, add_to_window
from headway.training.updates import SMALLER_BATCHES, Gradients, MovingAverage, PlannedUpdate

Scores = dict[str, float]


@dataclass(frozen=True)
class Evaluation:
    """The results on dev. There are no scores without metrics, or if the loss or the search scores are not finite."""

    loss: float  # cross-entropy per target token, in nats, without label smoothing
    scores: Scores  # by metric
    fault: str = ""  # the number that is not finite, in words

    def value(self, name: str) -> float:
        """The loss or a score by name; NaN if it is missing."""
        return self.loss if name == "loss" else self.scores.get(name, math.nan)

    @property
    def line(self) -> dict[str, Any]:
        """The values for metrics.jsonl."""
        return {"loss": self.loss if math.isfinite(self.loss) else None, **self.scores}


def scores_of(metrics: Sequence[Metric], texts: list[str], dev: DevSet) -> Scores:
    references, sources = dev.references, [example.source for example in dev.examples]
    return {metric.name: metric.score(texts, references, sources).value for metric in metrics}


@torch.inference_mode()
def dev_loss(model: Model[Any], dev: TrainingCorpus, parallel: Parallel) -> float:
    """The cross-entropy per dev target token, in nats. End-of-sentence tokens count."""
    total, tokens = torch.zeros((), dtype=exact_dtype(parallel.device), device=parallel.device), 0
    # This process reads whole batches, and only its share of a batch in training.
    whole = parallel.config.batch_sizes()
    sizes = {limit: size and max(1, size // parallel.world_size) for limit, size in whole.items()}
    plan = dev.plan(0, 0, **sizes)
    with progress("loss on dev", len(plan), "batches") as line:
        for indices in line.over(plan):
            with memory_named(f"in the loss of a batch of {len(indices)} dev examples", SMALLER_BATCHES):
                batch = dev.collate(indices).to(parallel.device)
                logits = model(batch).logits
                total += smoothed_cross_entropy(logits, batch.target_output, batch.scored, 0.0)[0]
                tokens += batch.counts["target_tokens"]
    return float(total) / tokens


@contextmanager
def _evaluating(model: Model[Any], parallel: Parallel) -> Iterator[None]:
    """Evaluation mode in the run's precision; afterwards the model is in training mode again."""
    model.eval()
    try:
        with parallel.autocast():
            yield
    finally:
        model.train()


def dev_scores(model: Model[Any], dev: DevSet, metrics: Sequence[Metric], parallel: Parallel) -> Scores:
    """The scores of the model's outputs for dev. Nothing is decoded if there are no metrics.

    Raises:
        NotFiniteError: the search scores are not finite.
    """
    if not metrics:
        return {}
    with _evaluating(model, parallel):
        outputs = dev.outputs(model, parallel.device)
    return scores_of(metrics, outputs, dev)


def evaluate(model: Model[Any], dev: DevSet, metrics: Sequence[Metric], parallel: Parallel) -> Evaluation:
    """The dev loss, and the scores of the model's outputs, in the run's precision. Draws no random numbers."""
    with _evaluating(model, parallel):
        loss = dev_loss(model, dev.corpus, parallel)
    if not math.isfinite(loss):
        return Evaluation(loss, {}, "the loss on dev is not finite")
    try:
        return Evaluation(loss, dev_scores(model, dev, metrics, parallel))
    except NotFiniteError:
        return Evaluation(loss, {}, "the scores of search on dev are not finite")


REMEDY = (
    "lower optimizer.learning_rate, raise optimizer.warmup or set training.clip_norm, in a new run;"
    f" {option('resume')} would make the same updates from the last checkpoint"
)


@dataclass
class Session:
    """The state and the components of a training run. Only the first process reads, writes and logs.

    Attributes:
        model: the model, not wrapped.
        step: the model with its objective, wrapped for several processes.
        other_model: builds another model of the same size, with weights to be loaded.
        average: the moving average of the weights, if it is evaluated and stored in checkpoints.
        captured: makes updates by recordings, if the recipe enables `capture`.
        fixed: moves the ranges of `int8_rounding: fixed`.
        complete: whether training resumed from the last checkpoint of a finished run.
    """

    recipe: Recipe
    folder: RunFolder
    corpora: Corpora
    model: Model[Any]
    step: nn.Module
    optimizer: Optimizer
    schedule: Schedule
    state: TrainingState
    parallel: Parallel
    metrics: Sequence[Metric]
    baselines: Mapping[str, Mapping[str, float]]
    records: Records
    other_model: Callable[[], Model[Any]]
    average: MovingAverage | None = None
    captured: CapturedUpdate | None = None
    fixed: FixedRounding | None = None
    complete: bool = False

    def record(self, plan: PlannedUpdate, gradients: Gradients, rate: float, seconds: float, *, stop: bool) -> None:
        """Count an update, and write a line of metrics.jsonl if it is due.

        On a CPU the values are read immediately. Otherwise they are read when a line is due, or with `stop`, because
        the checkpoint stores the window of updates.

        Raises:
            RunError: too many consecutive updates had a loss or gradients that are not finite.
        """
        state, config = self.state, self.recipe.training
        state.update, state.epoch = plan.number, plan.epoch + plan.ends_epoch
        state.batch = 0 if plan.ends_epoch else state.batch + len(plan.indices)
        state.seconds = seconds
        state.target_tokens += gradients.tokens
        state.window.rate = rate
        self.complete = False
        self.records.add(plan, gradients)
        due = state.update % config.log_every == 0 or state.update % config.checkpoint_every == 0
        if due or stop or not self.parallel.reading_waits:
            self._read_outcomes()
        if due:
            self.records.write_window(state, rate)

    def _read_outcomes(self) -> None:
        for outcome in self.records.read():
            add_to_window(self.state.window, outcome)
            self.state.bad_updates = 0 if outcome.finite else self.state.bad_updates + 1
            if self.state.bad_updates:
                self._explain_bad_update(outcome)

    def _explain_bad_update(self, outcome: Outcome) -> None:
        """Warn about a bad update with its lines. Raises RunError after too many in a row."""
        count, limit = self.state.bad_updates, self.recipe.training.max_bad_updates
        corpus = self.corpora.train
        lines = sorted(int(line) for indices in outcome.plan.indices for line in corpus.lines[indices])
        shown = ", ".join(map(str, lines[:10])) + (f" and {len(lines) - 10} more" if len(lines) > 10 else "")
        message = (
            f"update {outcome.plan.number}: the {outcome.fault} is not finite; its batch holds lines {shown} of"
            " data.train"
        )
        if count >= limit:
            raise RunError(f"{message}\n{limit} such updates in a row: {DIVERGED}. Look at these lines, or {REMEDY}")
        warn(f"{message}; skipped ({count} in a row, {limit} end the run)")

    def progress_text(self, left: str) -> str:
        """The progress of training in a few words, the most important first. `left` is the remaining time."""
        state, window = self.state, self.state.window
        ranked = state.best[0].score if state.best else 0.0
        best = f"best {self._best_by} {-ranked if self._higher_is_better else ranked:.2f}" if state.best else ""
        loss = self.records.loss or (f"loss {window.loss / window.tokens:.3f}" if window.tokens else "")
        parts = (f"update {state.update}", loss, left, best, f"epoch {self._epoch}", self.records.speed)
        return " · ".join(part for part in parts if part)

    @property
    def _epoch(self) -> int:
        """The number of the epoch of the last update, from 1."""
        return max(1, self.state.epoch + (self.state.batch > 0))

    @property
    def _best_by(self) -> str:
        return self.recipe.training.best_by or (self.metrics[0].name if self.metrics else "loss")

    def checkpoint(self, signals: Signals, *, regular: bool, stop: bool = False) -> None:
        """Save a checkpoint, and evaluate it if it is `regular` and an evaluation is due.

        A checkpoint that a signal caused is not regular: it is used to resume, but not for averages. With `stop`, or if
        a signal arrives, the evaluation is postponed until the run is resumed.
        """
        state = self.state
        due = regular and (self._is_due or bool(state.stopped))
        state.evaluation_pending = due and self.corpora.dev is not None
        weights, optimizer = self._weights(), optimizer_tensors(unwrapped(self.step), self.optimizer)
        if self.average is not None:
            raw = model_weights(self.model)
            optimizer |= {f"{name}{RAW}": whole(raw[name]) for name in self.average.values}
        self.parallel.from_first(lambda: self._save(weights, optimizer))
        logger.debug("update %d is saved", state.update)
        if not stop:
            self.evaluate_pending(signals, weights)
        self.parallel.from_first(self._tidy)

    def _weights(self) -> dict[str, Tensor]:
        """The unsharded weights that are evaluated and stored: the model's, or their moving average."""
        average = {} if self.average is None else self.average.values
        return whole_tensors(model_weights(self.model) | average)

    def _save(self, weights: dict[str, Tensor], optimizer: dict[str, Tensor]) -> None:
        if bad := not_finite(weights, self.model):
            raise RunError(
                f"update {self.state.update}: {len(bad)} of {len(weights)} weights are not finite (first: {bad[0]}):"
                f" {DIVERGED}, and no checkpoint is made of them. Now {REMEDY}"
            )
        self.records.sync()
        if folder_of(self.folder.checkpoints, self.state.update).exists():  # only the state may differ
            rewrite_state(self.folder.checkpoints, self.state)
        else:
            save_checkpoint(self.folder.checkpoints, self.state, weights, optimizer)

    def _tidy(self) -> None:
        """Remove the checkpoints that are not needed, and write the model that the others determine."""
        regular, config = self._regular(), self.recipe.training
        last = max(config.keep_last, config.average.count if config.average.of == "last" else 1)
        best = {one.update for one in [*self.state.best, *self.state.best_at_end]}
        prune(self.folder.checkpoints, {*regular[-last:], *best, self.state.update})
        if self.state.update in regular and not self.state.evaluation_pending:
            self._write_model()

    def _regular(self) -> list[int]:
        """The updates of the existing regular checkpoints, which are the same as in an uninterrupted run."""
        updates = [update_of(folder) for folder in list_checkpoints(self.folder.checkpoints)]
        last = updates[-1] if self.state.stopped else None
        return regular_updates(updates, self.recipe.training.checkpoint_every, last)

    def _write_model(self) -> None:
        average = self.recipe.training.average
        best = [one.update for one in self.state.best_at_end or self.state.best]
        chosen = sorted(best[: average.count]) if average.of == "best" and best else self._regular()[-average.count :]
        files = [folder_of(self.folder.checkpoints, update) / WEIGHTS for update in chosen]
        status = "finished" if self.state.stopped else "training"
        weights = average_weights(files)
        if self.fixed is not None:
            load_weights(model := self.other_model(), weights, "training")
            weights |= integer_weights(model)
        self.folder.write_weights(weights, {"averaged_updates": chosen, "status": status})

    def evaluate_pending(self, signals: Signals, weights: dict[str, Tensor] | None = None) -> None:
        """Evaluate the current checkpoint if that is due. If a signal interrupts the evaluation, it remains due.

        `weights` are the unsharded weights, if they have been gathered.
        """
        state = self.state
        if not state.evaluation_pending:
            return
        gathered = self._weights() if weights is None else weights
        result = self.parallel.from_first(lambda: self._evaluate(signals, gathered))
        if result is None:
            return
        dev, general = result
        forgotten = state.forgotten
        self._compare_general(general)
        self._rank(dev)
        if not self._is_due:
            state.forgotten = forgotten
        state.evaluation_pending = False
        self.parallel.from_first(lambda: self._save({}, {}))  # updates the state of the checkpoint

    @property
    def _is_due(self) -> bool:
        """Whether the current update is evaluated wherever training ends."""
        return self.state.update % self.recipe.training.evaluation_interval == 0

    def _rank(self, result: Evaluation) -> None:
        """Compare an evaluation with the best so far. An evaluation without a finite score is never one of the best.

        Many scores are 0 until the first output is fully correct, so ties are decided by the loss: see `rank`.

        An evaluation at the end of training that was not due counts for the final model only. So training that
        continues has the same learning rates and best checkpoints as an uninterrupted run.
        """
        state, config, key = self.state, self.recipe.training, result.value(self._best_by)
        best, gained = state.best, False
        if math.isfinite(key) and (config.most_forgotten is None or state.forgotten <= config.most_forgotten):
            ranked = Ranked(-key if self._higher_is_better else key, state.update, result.loss)
            gained = not best or ranked.place < best[0].place
            count = config.average.count if config.average.of == "best" else 1
            best = sorted([*best, ranked], key=lambda one: (one.place, one.update))[:count]
        if not self._is_due:
            state.best_at_end = best
            return
        state.best = best
        state.gains.append(gained)
        state.evaluations_without_gain = 0 if gained else state.evaluations_without_gain + 1

    @property
    def _higher_is_better(self) -> bool:
        return self._best_by != "loss" and next(
            metric.higher_is_better for metric in self.metrics if metric.name == self._best_by
        )

    def evaluate_beginning(self, signals: Signals) -> None:
        """Evaluate the general dev set, and dev, before the first update. A signal may postpone this."""
        if self.state.update or self.corpora.general is None:
            return
        gathered = self._weights()
        result = self.parallel.from_first(lambda: self._evaluate(signals, gathered))
        if result is not None:
            value = result[1].value(self._best_by)
            self.state.general = value if math.isfinite(value) else None

    def _compare_general(self, general: Evaluation | None) -> None:
        """Log how much worse the score of the general dev set is than before the first update."""
        before, state = self.state.general, self.state
        if general is None or before is None:
            return
        now = general.value(self._best_by)
        state.forgotten = before - now if self._higher_is_better else now - before
        if not math.isfinite(state.forgotten):
            state.forgotten = math.inf
        kept = "nothing of it is forgotten" if state.forgotten <= 0 else f"forgotten: {state.forgotten:.2f}"
        if self.parallel.first:
            say(f"  data.general, {self._best_by} before the first update {before:.2f}; {kept}")

    def _evaluate(self, signals: Signals, weights: dict[str, Tensor]) -> tuple[Evaluation, Evaluation | None] | None:
        """Evaluate dev and the general dev set, and record the results. None if a signal interrupted the evaluation."""
        assert self.corpora.dev is not None
        began, model = time.monotonic(), self.model
        try:
            with signals.may_leave():
                sharded = self.parallel.world_size > 1 and self.recipe.training.strategy == "fsdp"
                if sharded or self.average is not None:
                    model = self.other_model().to(self.parallel.device)
                    load_weights(model, weights, "training")
                result = evaluate(model, self.corpora.dev, self.metrics, self.parallel)
                other = self.corpora.general
                general = None if other is None else evaluate(model, other, self.metrics, self.parallel)
        except Interrupted:
            return None
        self.records.write(
            {
                "update": self.state.update,
                "epoch": self.state.epoch,
                "dev_loss": result.loss if math.isfinite(result.loss) else None,
                "dev": result.scores,
                **({"general": general.line} if general is not None else {}),
                **({"baselines": self.baselines} if self.baselines else {}),
                "seconds": self.state.seconds,
                "cpu_seconds": self.state.cpu_seconds,
                "evaluation_seconds": time.monotonic() - began,
            }
        )
        facts = (f"update {self.state.update} · epoch {self._epoch}", self.records.loss, self.records.speed)
        say(" · ".join(filter(None, facts)) + f" · dev loss {result.loss:.3f}{_shown(result.scores)}")
        if result.fault:
            warn(f"update {self.state.update}: {result.fault}; training may be diverging")
        if general is not None:
            say(f"  data.general · loss {general.loss:.3f}{_shown(general.scores)}")
        for name, scores in self.baselines.items():
            say(f"  beside it, on dev, {name}{_shown(scores)}")
        return result, general

    def finish(self, signals: Signals) -> None:
        """Write the last checkpoint, the final model and the manifest's totals, unless a signal interrupts."""
        self._read_outcomes()
        self.records.write_window(self.state, self.state.window.rate)
        if self.complete or self._is_due:
            self.parallel.from_first(self._tidy)
        else:
            self.checkpoint(signals, regular=True)
        if self.parallel.first and not self.state.evaluation_pending:
            state = self.state
            totals = {"updates": state.update, "seconds": state.seconds, "cpu_seconds": state.cpu_seconds}
            evaluations = sum(line.get("evaluation_seconds", 0.0) for line in read_metrics(self.folder.metrics))
            totals |= {"evaluation_seconds": evaluations, "target_tokens": state.target_tokens}
            self.folder.write_manifest(totals)
            write_card(open_run(self.folder.path))


def _shown(scores: Mapping[str, float]) -> str:
    return "".join(f" · {name} {value:.2f}" for name, value in scores.items())
