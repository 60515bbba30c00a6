"""The state of a loop after the lines of its ledger, and the line that the rules demand next.

A ledger is right if each line is the one that was due after the lines before it. So the same code continues a loop and
checks it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile
from statistics import fmean
from typing import Any, Literal, NamedTuple

from pydantic import Field

from headway.comparison.comparison import in_groups
from headway.core.config import Count, Score, Section
from headway.gate import rules
from headway.gate.ledger import Ledger, Line, unsealed
from headway.gate.rules import Evidence, Pool, Preset, Word, word_at

Part = Literal["public", "sealed", "test"]
SEALED_SEEDS, NEW_SEEDS = 100, 1000  # before the first seed of the sealed set; between baselines
WITHDRAWN = "withdrawn"
FEWEST_GROUPED = 5  # seeds
WHY = {"keep": "the gain exceeds its bound", "open": "a gain is neither shown nor excluded", "drop": "no gain in sight"}


class Measured(Section):
    """The scores of seeds by one metric. The variances are of the difference from the baseline, as in `Unpaired`."""

    scores: tuple[Score, ...]
    segments: Count = 1
    segment_variance: Score = 0.0
    interaction: Score = 0.0


Measures = Mapping[str, Measured]  # by the name of the metric


class Settings(Section):
    """The first line of a ledger, which fixes what is asked.

    `metrics`: the first decides, the others must not be worse. `higher`: the metrics of which more is better.
    `margins`: by metric, what the others may lose. `baseline`, `identity`, `content`: the first baseline, as a `Trial`.
    `corpora`: how the sets are read; None if programs write scores. `sets`, `sizes`: fingerprints and numbers of
    segments of both sets. `halved`: whether both sets are halves of one. `command`: of programs.
    """

    preset: Literal["small", "usual", "thorough"] = "usual"
    least: Score = 0.0
    metrics: tuple[str, ...] = Field(min_length=1)
    higher: tuple[str, ...] = ()
    margins: dict[str, float] = Field(default={})
    baseline: str
    identity: str
    content: dict[str, Any]
    corpora: dict[str, Any] | None = None
    sets: dict[str, str] = Field(default={})
    sizes: dict[str, int] = Field(default={})
    halved: bool = False
    command: str | None = None


@dataclass
class Trial:
    """A proposal so far.

    Args:
        name: unique in the loop.
        identity: a hash of its content.
        content: how its cells are made.
        screened: its scores on the public set, by metric.
        outputs: a hash of the outputs of each screened seed.
        confirmation: the number of its confirmation; 0 before.
        looks: the number of looks so far.
        confirmed: its scores on the sealed set.
        diverged: the seed that diverged.
        runs: the number of its seeds so far.
        answer: what was said when it got its word.
    """

    name: str
    identity: str
    content: Mapping[str, Any]
    screened: Measures = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    confirmation: int = 0
    looks: int = 0
    confirmed: Measures = field(default_factory=dict)
    diverged: int | None = None
    word: Word | None = None
    runs: int = 0
    answer: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Baseline:
    """A baseline of the loop with its banks, by set.

    `kept`: the gain as it was kept; None for the first. `anew`: the gain of new sealed seeds over the baseline before.
    """

    name: str
    content: Mapping[str, Any]
    kept: Evidence | None = None
    anew: Evidence | None = None
    banks: dict[str, Measures] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()


class Due(NamedTuple):
    """The line that the rules demand next, and the set and the seeds of a measurement."""

    kind: Literal["bank", "screened", "confirm", "look", "word"]
    fields: Mapping[str, Any]
    part: Part = "public"
    seeds: tuple[int, ...] = ()


class Loop:
    """The state of a loop. Raises UserError if a line is not the one that was due; the message has its number."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.closed, self.trials = ledger, False, dict[str, Trial]()
        self.confirmations = self.runs = 0
        for number, line in enumerate(ledger.lines or [{"kind": "none"}], start=1):
            try:
                self._take(line) if number > 1 else self._begin(line)
            except (KeyError, TypeError, ValueError) as error:  # pydantic's is a ValueError
                said = str(error).split("\n")[0]
                raise ledger.fault(number, f"the rules do not lead to this line ({said})") from None

    def _begin(self, line: Line) -> None:
        _require(line["kind"] == "settings", "a ledger begins with its settings")
        self.settings = Settings(**_fields(line))
        self.baselines = [Baseline(self.settings.baseline, self.settings.content)]

    @property
    def preset(self) -> Preset:
        return rules.PRESETS[self.settings.preset]

    @property
    def baseline(self) -> Baseline:
        """The current baseline."""
        return self.baselines[-1]

    @property
    def in_confirmation(self) -> Trial | None:
        """The proposal whose confirmation has begun and not ended."""
        return next((trial for trial in self.trials.values() if trial.confirmation and not trial.word), None)

    def bank_seeds(self, part: Part, generation: int | None = None) -> tuple[int, ...]:
        """The seeds of a baseline, by default the current one, on a set; no other baseline has them."""
        number = len(self.baselines) - 1 if generation is None else generation
        first = NEW_SEEDS * number + (0 if part == "public" else SEALED_SEEDS) + 1
        return tuple(range(first, first + (rules.PUBLIC_SEEDS if part == "public" else self.preset.bank)))

    def append(self, kind: str, fields: Line) -> None:
        """Write a line that is due, and follow it."""
        self._take(self.ledger.append(kind, fields))

    def _take(self, line: Line) -> None:
        """Follow a line. Raises KeyError, TypeError or ValueError if it is not due."""
        kind, fields = line["kind"], _fields(line)
        _require(not self.closed, "the loop is closed")
        if kind == "closed":
            self.closed = True
            return
        name = fields.pop("name")
        if kind == "proposal":
            _require(name not in self.trials, f"{name} has been proposed")
            _require(self.in_confirmation is None, "a confirmation has begun and not ended")
            self.trials[name] = Trial(name, **fields)
            return
        trial = self.trials[name]
        due = self.due(trial)
        if due is None:
            raise ValueError(f"{name} has its word")
        if not (kind == "word" and fields["word"] == "drop" and fields["reason"] == WITHDRAWN):
            wanted = {key: value for key, value in due.fields.items() if key != "reason"}
            _require(kind == due.kind, f"{due.kind} is due")
            _require(all(fields[key] == value for key, value in wanted.items()), f"due is {wanted}")
        found = unsealed(fields["sealed"]) if "sealed" in fields else fields
        measures = {metric: Measured(**row) for metric, row in found.get("measures", {}).items()}
        if kind == "bank":
            self._take_bank(fields["set"], measures, found["outputs"])
        elif kind in ("screened", "look"):
            self._take_measures(trial, len(fields["seeds"]), measures, found)
        elif kind == "confirm":
            trial.confirmation = self.confirmations = self.confirmations + 1
        else:
            if fields["word"] == "keep":  # before the seeds of its confirmation enter the pool
                self.baselines.append(Baseline(name, trial.content, kept=self.sealed_evidence(trial)[0]))
            trial.word, trial.answer = fields["word"], fields

    def _take_bank(self, part: Part, measures: Measures, outputs: Sequence[str]) -> None:
        self.runs += len(outputs)
        self.baseline.banks[part] = measures
        if part == "public":
            self.baseline.outputs = tuple(outputs)
        elif len(self.baselines) > 1:
            metric = self.settings.metrics[0]
            before = self.baselines[-2].banks[part][metric].scores
            self.baseline.anew = self._evidence(metric, measures[metric], before)

    def _take_measures(self, trial: Trial, seeds: int, measures: Measures, found: Mapping[str, Any]) -> None:
        done = len(trial.outputs) if not trial.confirmation else (0, *self.preset.looks)[trial.looks]
        trial.runs, self.runs = trial.runs + seeds - done, self.runs + seeds - done
        trial.diverged = found.get("diverged")
        if trial.diverged is not None:
            return
        if not trial.confirmation:
            trial.screened, trial.outputs = measures, tuple(found["outputs"])
            return
        for metric, before in trial.confirmed.items():
            _require(measures[metric].scores[: len(before.scores)] == before.scores, "earlier scores have changed")
        trial.looks, trial.confirmed = trial.looks + 1, measures

    def due(self, trial: Trial) -> Due | None:
        """The line that is due for a proposal; None if it has its word."""
        if trial.word is not None:
            return None
        known = chain(
            [(self.settings.identity, self.settings.baseline)],
            ((one.identity, one.name) for one in self._before(trial)),
        )
        if (twin := next((name for identity, name in known if identity == trial.identity), None)) is not None:
            return _word("same", f"the content of {twin}")
        if trial.diverged is not None:
            return _word("drop", f"seed {trial.diverged} diverged")
        if trial.confirmation:
            return self._look(trial)
        if "public" not in self.baseline.banks:
            return self._bank("public")
        if (due := self._screen(trial)) is not None:
            return due
        if "sealed" not in self.baseline.banks:
            return self._bank("sealed")
        return Due("confirm", {"confirmation": self.confirmations + 1})

    def _bank(self, part: Part) -> Due:
        seeds = self.bank_seeds(part)
        return Due("bank", {"set": part, "baseline": self.baseline.name, "seeds": list(seeds)}, part, seeds)

    def _before(self, trial: Trial) -> Iterator[Trial]:
        """The proposals before one."""
        return takewhile(lambda other: other is not trial, self.trials.values())

    def _screen(self, trial: Trial) -> Due | None:
        """The next line of the screen; None if the proposal has passed it."""
        done, most = len(trial.outputs), len(rules.SCREEN)
        if done:
            every = ((one.name, one.outputs) for one in self._before(trial))
            known = chain([(self.settings.baseline, self.baselines[0].outputs)], every)
            twin = next((name for name, outputs in known if outputs[:done] == trial.outputs), None)
            if twin is not None and done == most:
                return _word("same", f"every output of the screen is that of {twin}")
            if twin is None and self.public_evidence(trial).is_screened_out:
                return _word("drop", f"below the screen after {done} seed{'s' * (done > 1)}")
        seeds = tuple(range(1, done + 2))
        return Due("screened", {"seeds": list(seeds)}, "public", seeds) if done < most else None

    def _look(self, trial: Trial) -> Due:
        looks = self.preset.looks
        word = word_at(trial.looks - 1, trial.confirmation, self.sealed_evidence(trial)) if trial.looks else None
        if word in ("keep", "open") and self._falls_in_groups(trial):
            return _word("open", "the seeds fall in two groups, of which means say little")
        if word is not None:
            return _word(word, f"{WHY[word]} at look {trial.looks} of {len(looks)}")
        seeds = tuple(range(SEALED_SEEDS + 1, SEALED_SEEDS + 1 + looks[trial.looks]))
        return Due("look", {"look": trial.looks + 1, "seeds": list(seeds)}, "sealed", seeds)

    def _falls_in_groups(self, trial: Trial) -> bool:
        """Whether the seeds of either system fall in two groups, as in compare. Scores of programs have any scale.

        Without a scale, three or four seeds fall in groups by chance too often, and are not looked at.
        """
        for metric, measured in trial.confirmed.items():
            scores = {trial.name: measured.scores, self.baseline.name: self.baseline.banks["sealed"][metric].scores}
            every = [score for row in scores.values() for score in row]
            margin = self.settings.least if self.settings.corpora is not None else (max(every) - min(every)) / 100
            if in_groups({name: row for name, row in scores.items() if len(row) >= FEWEST_GROUPED}, abs(margin)):
                return True
        return False

    def tail(self, trial: Trial) -> float:
        """The level of the last look at a proposal."""
        return float(rules.SHARES[trial.looks - 1] * rules.confirmation_level(trial.confirmation))

    def pool(self, metric: str) -> Pool:
        """The variance of seeds over banks, screens and ended confirmations."""
        measures = [bank for baseline in self.baselines for bank in baseline.banks.values()]
        for trial in self.trials.values():
            measures += [trial.screened, *([trial.confirmed] if trial.word else [])]
        return Pool.of(row[metric].scores for row in measures if metric in row)

    def public_evidence(self, trial: Trial) -> Evidence:
        """The gain on the public set by the deciding metric."""
        metric = self.settings.metrics[0]
        return self._evidence(metric, trial.screened[metric], self.baseline.banks["public"][metric].scores)

    def sealed_evidence(self, trial: Trial) -> list[Evidence]:
        """The gains on the sealed set, by metric."""
        bank = self.baseline.banks["sealed"]
        return [
            self._evidence(metric, trial.confirmed[metric], bank[metric].scores, trial.screened[metric].scores)
            for metric in self.settings.metrics
        ]

    def _evidence(
        self, metric: str, measured: Measured, bank: Sequence[float], screened: Sequence[float] = (0.0,)
    ) -> Evidence:
        own, scores, settings = Pool.of([measured.scores, screened]), measured.scores, self.settings
        gain = (1 if metric in settings.higher else -1) * (fmean(scores) - fmean(bank))
        least = settings.least if metric == settings.metrics[0] else -settings.margins[metric]
        return Evidence(
            gain - least, len(scores), len(bank), self.pool(metric), own.variance if own.degrees else 0.0,
            measured.segments, measured.segment_variance, measured.interaction,
        )  # fmt: skip


def interval(evidence: Evidence, least: float) -> tuple[float, float, float]:
    """The gain itself, and the ends of its 95 % interval."""
    gain, half = evidence.gain + least, float(evidence.bound(rules.TAIL))
    return gain, gain - half, gain + half


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


def _word(word: Word, reason: str) -> Due:
    return Due("word", {"word": word, "reason": reason})


def _fields(line: Line) -> dict[str, Any]:
    """The fields of a line, without those that all lines have."""
    return {key: value for key, value in line.items() if key not in ("kind", "time", "previous")}
