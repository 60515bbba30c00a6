"""Dynamic batching: concurrent requests to a model are computed together, by one thread per model."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from headway.core.processes import WAITED_FOR, check_waited_for
from headway.predictors.input_account import InputAccount, accounted
from headway.predictors.output import Output
from headway.predictors.predict_options import CaptureOptions
from headway.predictors.predictor import Predictor, Request

MOST_ROWS = 128  # per batch: the memory of search grows with rows, beam and vocabulary
MOST_TOKENS = 2000  # of an output
MOST_WORK = 2**16  # per batch: the memory of search also grows with the lengths of hypotheses
STEP = 16  # a step has a fixed cost of about this many hypotheses
FORCED = 8  # the cost of a forced step in normal steps: search otherwise rarely reaches the maximum length
RATE = 200.0  # cost per second of waiting: cheaper jobs overtake others by this rate


@dataclass
class Job:
    """Encoded inputs of one request that are computed in one batch.

    Attributes:
        request: the inputs.
        tokens: their number of positions.
        work: the upper limit of the work of search: the sum of the maximum lengths of all hypotheses.
        cost: an upper estimate of the computing time, in arbitrary units.
        alike: jobs with equal values may be computed together.
        outputs: the result; cancelled if nobody waits for it.
        waited_for: whether somebody waits for the result.
        arrived: the time by `time.monotonic`.
    """

    request: Request
    tokens: int
    work: int
    cost: int
    alike: Any
    outputs: Future[list[Output]] = field(default_factory=Future)
    waited_for: Callable[[], bool] = field(default_factory=WAITED_FOR.get)
    arrived: float = field(default_factory=time.monotonic)


class Batcher:
    """The queue of a model. Requests take turns, one job each, and cheaper jobs come first.

    Args:
        predictor: the model.
        budget: the largest number of tokens per batch.

    Attributes:
        on_batch: is called with the number of inputs of each batch.
    """

    def __init__(self, predictor: Predictor[Any, Any], budget: int) -> None:
        self.predictor, self.budget = predictor, budget
        self.on_batch: Callable[[int], object] = lambda rows: None
        self._waiting = list[deque[Job]]()
        self._changed = threading.Condition()
        self._closed = False
        self.thread = threading.Thread(target=self._work, daemon=True, name="headway-model")
        self.thread.start()

    def waiting(self) -> int:
        """The number of jobs that have not begun."""
        with self._changed:
            return sum(map(len, self._waiting))

    def close(self) -> None:
        """Finish all waiting jobs, and stop the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self.thread.join()

    def encoded(self, inputs: Sequence[str], options: CaptureOptions) -> list[Job]:
        """Encode inputs into jobs. Raises UserError if the model does not support the inputs or options."""
        whole = self.predictor.request(list(inputs), options, 1)
        chained = self.predictor.recipe.data.context.target > 0  # outputs depend on the previous row
        alike = object() if chained else options.model_dump_json(exclude={"prefixes"})
        whole.check()
        for each in whole.rows:
            each.longest = min(each.longest, MOST_TOKENS)
        lengths, longest, beam = (
            [len(each.encoded.values) for each in whole.rows],
            [each.longest for each in whole.rows],
            whole.width,
        )
        cuts, total, work = [0], 0, 0
        for row, (length, steps) in enumerate(zip(lengths, longest, strict=True)):
            full = total + length + 1 > self.budget or row - cuts[-1] == MOST_ROWS or work + beam * steps > MOST_WORK
            if row > cuts[-1] and not chained and full:
                cuts.append(row)
                total, work = 0, 0
            total, work = total + length + 1, work + beam * steps
        jobs = []
        for begin, end in pairwise([*cuts, len(lengths)] if lengths else []):
            tokens, work = sum(lengths[begin:end]) + end - begin, beam * sum(longest[begin:end])
            steps = max(longest[begin:end]) + FORCED * getattr(options, "min_length", 0)
            jobs.append(Job(replace(whole, rows=whole.rows[begin:end]), tokens, work, work + STEP * steps, alike))
        return jobs

    def submit(self, jobs: Sequence[Job]) -> None:
        """Add the jobs of a request to the queue."""
        if jobs:
            with self._changed:
                self._waiting.append(deque(jobs))
                self._changed.notify()

    def _work(self) -> None:
        while jobs := self._next():
            if begun := [job for job in jobs if job.outputs.set_running_or_notify_cancel()]:
                self._answer(begun)

    def _next(self) -> list[Job]:
        """The jobs of the next batch, one per request. Empty if the batcher is closed and all jobs are done."""
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            taken, left = list[Job](), list[deque[Job]]()
            for request in sorted(self._waiting, key=lambda some: some[0].arrived + sum(j.cost for j in some) / RATE):
                job = request[0]
                if not taken or (
                    job.alike == taken[0].alike
                    and sum(each.tokens for each in taken) + job.tokens <= self.budget
                    and sum(len(each.request.rows) for each in taken) + len(job.request.rows) <= MOST_ROWS
                    and sum(each.work for each in taken) + job.work <= MOST_WORK
                ):
                    taken.append(request.popleft())
                if request:
                    left.append(request)
            self._waiting = left
            return taken

    def _answer(self, jobs: Sequence[Job]) -> None:
        request = replace(jobs[0].request, rows=[row for job in jobs for row in job.request.rows])
        self.on_batch(len(request.rows))
        try:
            WAITED_FOR.set(lambda: any(job.waited_for() for job in jobs))
            check_waited_for()
            with accounted(InputAccount()):  # inputs are not logged
                outputs = iter(self.predictor.answer(request))
        except Exception as error:  # may be due to a single job
            for job in jobs if len(jobs) > 1 else ():
                self._answer([job])
            if len(jobs) == 1:
                jobs[0].outputs.set_exception(error)
            return
        for job in jobs:
            job.outputs.set_result([next(outputs) for _ in job.request.rows])
