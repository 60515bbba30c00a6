"""The state of a loop after the lines of its ledger, and the line that the rules demand next.

A ledger is right if each line is the one that was due after the lines before it. So the same code continues a loop and
checks it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal, NamedTuple

from pydantic import Field

from headway.comparison.comparison import in_groups
from headway.core.config import Section
from headway.gate.ledger import Ledger, Line, unsealed
from headway.gate.rules import (
    PRESETS,
    PUBLIC_SEEDS,
    SCREEN,
    SHARES,
    TAIL,
    Evidence,
    Pool,
    Preset,
    Word,
    confirmation_level,
    word_at,
)

Part = Literal["public", "sealed", "test"]
SEALED_SEEDS, NEW_SEEDS = 100, 1000  # before the first seed of the sealed set; between baselines
WITHDRAWN = "withdrawn"


class Measured(Section):
    """The scores of seeds by one metric; the variances are of the difference from the baseline."""

    scores: tuple[float, ...]
    segments: int = 1
    segment_variance: float = 0.0
    interaction: float = 0.0


Measures = Mapping[str, Measured]  # by the name of the metric


class Settings(Section):
    """The first line of a ledger, which fixes what is asked.

    `metrics`: the first decides, the others must not be worse. `higher`: the metrics of which more is better.
    `margins`: by metric, what the others may lose. `baseline`, `identity`, `content`: the first baseline, as a `Trial`.
    `corpora`: how the sets are read; None if programs write scores. `sets`, `sizes`: fingerprints and numbers of
    segments of both sets. `halved`: whether both sets are halves of one. `command`: of programs.
    """

    preset: Literal["small", "usual", "thorough"] = "usual"
    least: float = 0.0
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


class Due(NamedTuple):
    """The line that the rules demand next. Of a measurement, `part` and `seeds` of which system are to be measured."""

    kind: Literal["bank", "screened", "confirm", "look", "word"]
    fields: Mapping[str, Any]
    part: Part = "public"
    seeds: tuple[int, ...] = ()


@dataclass
class Baseline:
    """A baseline of the loop: its banks by set, and how it became one.

    `kept`: the gain as it was kept; None for the first. `anew`: the gain of its new sealed seeds over those of the
    baseline before.
    """

    name: str
    content: Mapping[str, Any]
    banks: dict[str, Measures] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    kept: Evidence | None = None
    anew: Evidence | None = None


class Loop:
    """The state of a loop.

    Raises:
        UserError: a line is not the one that was due; the message has its number.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.closed = ledger, False
        if not ledger.lines or ledger.lines[0]["kind"] != "settings":
            raise ledger.fault(1, "a ledger begins with its settings")
        self.settings = Settings(**_fields(ledger.lines[0]))
        self.baselines = [Baseline(self.settings.baseline, self.settings.content)]
        self.trials = dict[str, Trial]()
        self.confirmations = self.runs = 0
        for number, line in enumerate(ledger.lines[1:], start=2):
            try:
                self._take(line)
            except (KeyError, ValueError, TypeError, AssertionError) as error:  # pydantic's is a ValueError
                said = str(error).split("\n")[0] or "it is not due"
                raise ledger.fault(number, f"the rules do not lead to this line ({said})") from None

    @property
    def preset(self) -> Preset:
        return PRESETS[self.settings.preset]

    @property
    def baseline(self) -> Baseline:
        """The current baseline."""
        return self.baselines[-1]

    @property
    def open_confirmation(self) -> Trial | None:
        """The proposal whose confirmation has begun and not ended."""
        return next((trial for trial in self.trials.values() if trial.confirmation and not trial.word), None)

    def bank_seeds(self, part: Part, generation: int | None = None) -> tuple[int, ...]:
        """The seeds of a baseline, by default the current one, on a set; no other baseline has them."""
        number = len(self.baselines) - 1 if generation is None else generation
        first = NEW_SEEDS * number + (0 if part == "public" else SEALED_SEEDS)
        return tuple(range(first + 1, first + 1 + (PUBLIC_SEEDS if part == "public" else self.preset.bank)))

    def append(self, kind: str, fields: Line) -> None:
        """Write a line that is due, and follow it."""
        self._take(self.ledger.append(kind, fields))

    def _take(self, line: Line) -> None:
        """Follow a line. Raises AssertionError, KeyError, TypeError or ValueError if it is not due."""
        kind, fields = line["kind"], _fields(line)
        assert not self.closed, "the loop is closed"
        if kind == "closed":
            self.closed = True
            return
        name = fields.pop("name")
        if kind == "proposal":
            assert name not in self.trials, f"{name} has been proposed"
            assert self.open_confirmation is None, "a confirmation has begun and not ended"
            self.trials[name] = Trial(name, **fields)
            return
        trial = self.trials[name]
        withdrawn = kind == "word" and fields.get("reason") == WITHDRAWN and fields["word"] == "drop"
        due = self.due(trial)
        assert due is not None, f"{name} has its word"
        assert withdrawn or kind == due.kind, f"{due.kind} is due"
        of_due = {} if withdrawn else {key: value for key, value in due.fields.items() if key != "reason"}
        assert all(fields[key] == value for key, value in of_due.items()), f"due is {dict(due.fields)}"
        getattr(self, f"_take_{kind}")(trial, fields)

    def _take_bank(self, trial: Trial, fields: Line) -> None:
        part, bank = fields["set"], _measures(fields)
        self.runs += len(fields["seeds"])
        self.baseline.banks[part] = bank
        if part == "public":
            self.baseline.outputs = tuple(fields["outputs"])
        elif len(self.baselines) > 1:
            before, metric = self.baselines[-2].banks[part], self.settings.metrics[0]
            self.baseline.anew = self._evidence(metric, bank[metric], before[metric].scores)

    def _take_screened(self, trial: Trial, fields: Line) -> None:
        self._count(trial, len(fields["seeds"]) - len(trial.outputs))
        trial.diverged = fields.get("diverged")
        if trial.diverged is None:
            trial.screened, trial.outputs = _measures(fields), tuple(fields["outputs"])

    def _take_confirm(self, trial: Trial, fields: Line) -> None:
        self.confirmations += 1
        trial.confirmation = self.confirmations

    def _take_look(self, trial: Trial, fields: Line) -> None:
        self._count(trial, len(fields["seeds"]) - (self.preset.looks[trial.looks - 1] if trial.looks else 0))
        found = unsealed(fields["sealed"])
        trial.diverged = found.get("diverged")
        if trial.diverged is None:
            measures = _measures(fields)
            for metric, before in trial.confirmed.items():
                assert measures[metric].scores[: len(before.scores)] == before.scores, "earlier scores have changed"
            trial.looks, trial.confirmed = trial.looks + 1, measures

    def _take_word(self, trial: Trial, fields: Line) -> None:
        if fields["word"] == "keep":  # before the seeds of its confirmation enter the pool
            kept = self.sealed_evidence(trial)[0]
            self.baselines.append(Baseline(trial.name, trial.content, kept=kept))
        trial.word, trial.answer = fields["word"], fields

    def _count(self, trial: Trial, runs: int) -> None:
        trial.runs, self.runs = trial.runs + runs, self.runs + runs

    def due(self, trial: Trial) -> Due | None:
        """The line that is due for a proposal; None if it has its word."""
        if trial.word is not None:
            return None
        if (twin := self._same_content(trial)) is not None:
            return _word("same", f"the content of {twin}")
        if trial.diverged is not None:
            return _word("drop", f"seed {trial.diverged} diverged")
        if "public" not in self.baseline.banks:
            return self._bank("public")
        if not trial.confirmation and (due := self._screen(trial)) is not None:
            return due
        if "sealed" not in self.baseline.banks:
            return self._bank("sealed")
        if not trial.confirmation:
            return Due("confirm", {"confirmation": self.confirmations + 1})
        return self._look(trial)

    def _same_content(self, trial: Trial) -> str | None:
        """The baseline, or the earlier proposal, with the content of this one."""
        known = [(self.settings.identity, self.settings.baseline)]
        known += [(one.identity, one.name) for one in self._before(trial)]
        return next((name for identity, name in known if identity == trial.identity), None)

    def _before(self, trial: Trial) -> list[Trial]:
        names = list(self.trials)
        return [self.trials[name] for name in names[: names.index(trial.name)]]

    def _bank(self, part: Part) -> Due:
        seeds = self.bank_seeds(part)
        return Due("bank", {"set": part, "baseline": self.baseline.name, "seeds": list(seeds)}, part, seeds)

    def _screen(self, trial: Trial) -> Due | None:
        """The next line of the screen; None if the proposal has passed it."""
        done = len(trial.outputs)
        if done:
            first = (self.settings.baseline, self.baselines[0].outputs)
            known = [first, *((one.name, one.outputs) for one in self._before(trial))]
            twin = next((name for name, outputs in known if outputs[:done] == trial.outputs), None)
            if twin is not None and done == len(SCREEN):
                return _word("same", f"every output of the screen is that of {twin}")
            if twin is None and self.public_evidence(trial).is_screened_out:
                return _word("drop", f"below the screen after {done} seed{'s' * (done > 1)}")
        if done == len(SCREEN):
            return None
        seeds = tuple(range(1, done + 2))
        return Due("screened", {"seeds": list(seeds)}, "public", seeds)

    def _look(self, trial: Trial) -> Due:
        if trial.looks:
            evidence = self.sealed_evidence(trial)
            word = word_at(trial.looks - 1, trial.confirmation, evidence)
            if word in ("keep", "open") and self._falls_in_groups(trial):
                return _word("open", "the seeds fall in two groups, of which means say little")
            at = f"at look {trial.looks} of {len(self.preset.looks)}"
            why = {"keep": "the gain exceeds its bound", "drop": "a further look would promise too little"}
            why["open"] = "a gain is neither shown nor excluded"
            if word == "drop" and trial.looks == len(self.preset.looks):
                why["drop"] = "a gain is excluded"
            if word is not None:
                return _word(word, f"{why[word]} {at}")
        count = self.preset.looks[trial.looks]
        seeds = tuple(range(SEALED_SEEDS + 1, SEALED_SEEDS + 1 + count))
        return Due("look", {"look": trial.looks + 1, "seeds": list(seeds)}, "sealed", seeds)

    def tail(self, trial: Trial) -> float:
        """The level of the last look at a proposal."""
        return float(SHARES[trial.looks - 1] * confirmation_level(trial.confirmation))

    def _falls_in_groups(self, trial: Trial) -> bool:
        """Whether the seeds of either system fall in two groups, as in compare. Scores of programs have any scale."""
        for metric, measured in trial.confirmed.items():
            scores = {trial.name: measured.scores, self.baseline.name: self.baseline.banks["sealed"][metric].scores}
            every = [score for row in scores.values() for score in row]
            margin = self.settings.least if self.settings.corpora is not None else (max(every) - min(every)) / 100
            if in_groups(scores, abs(margin)):
                return True
        return False

    def pool(self, metric: str) -> Pool:
        """The variance of seeds over banks, screens and ended confirmations."""
        groups = [bank[metric].scores for baseline in self.baselines for bank in baseline.banks.values()]
        for trial in self.trials.values():
            measured = [trial.screened, *([trial.confirmed] if trial.word else [])]
            groups += [row[metric].scores for row in measured if metric in row]
        return Pool.of(groups)

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
        self, metric: str, measured: Measured, bank: Sequence[float], screened: Sequence[float] = ()
    ) -> Evidence:
        sign = 1 if metric in self.settings.higher else -1
        least = self.settings.least if metric == self.settings.metrics[0] else -self.settings.margins[metric]
        own = Pool.of([measured.scores, *([screened] if screened else [])])
        return Evidence(
            sign * (fmean(measured.scores) - fmean(bank)) - least, len(measured.scores), len(bank),
            self.pool(metric), own.variance if own.degrees else 0.0,
            measured.segments, measured.segment_variance, measured.interaction,
        )  # fmt: skip


def interval(evidence: Evidence, least: float) -> tuple[float, float, float]:
    """The gain itself, and the ends of its 95 % interval."""
    gain, half = evidence.gain + least, float(evidence.bound(TAIL))
    return gain, gain - half, gain + half


def _word(word: Word, reason: str) -> Due:
    return Due("word", {"word": word, "reason": reason})


def _fields(line: Line) -> dict[str, Any]:
    """The fields of a line, without those that all lines have."""
    return {key: value for key, value in line.items() if key not in ("kind", "time", "previous")}


def _measures(fields: Line) -> dict[str, Measured]:
    """The numbers of a measurement."""
    given = unsealed(fields["sealed"])["measures"] if "sealed" in fields else fields["measures"]
    return {metric: Measured(**row) for metric, row in given.items()}
