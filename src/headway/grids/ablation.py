"""`headway inspect ablate`: cut the parts of a model one by one, and test each loss over seeds and sentences.

Shapes: n seeds, N sentences, P parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, islice, product
from math import atanh, log, sqrt, tanh
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from headway.comparison.comparison import ComparedPair, Measure, Verdict, compared_pairs, measures_of
from headway.comparison.options import LOGPROB, AblateOptions, How
from headway.core.errors import UserError, option
from headway.core.log import counted, progress, silenced
from headway.core.processes import batched
from headway.core.tables import Cell, Column, Table
from headway.grids.compare import Existing, name_runs
from headway.metrics import metric_in
from headway.metrics.intervals import SIGNIFICANT, Linearised, holm, linearise
from headway.metrics.metric import Metric, Signature, Statistics
from headway.models.interventions import Mean, Resample, Rules, named_parts, parts_of
from headway.predictors.label_predictor import LabelPredictor
from headway.predictors.output import Example
from headway.predictors.sequence_predictor import SequencePredictor
from headway.runs.load import load
from headway.runs.run import open_run
from headway.tensors.batch import collate

WHOLE = "whole"
TOGETHER = 25  # sentences that share one draw of other sentences' values
FIELLER = 1.06  # (P - 3) times the variance of atanh of a rank correlation (Fieller, Hartley and Pearson 1957)
FAR = 10_007  # the offset between the random seeds of two runs
GUESSING = 32_000  # vocabulary size; a model that knows nothing guesses among these tokens
WORDS = {"worse": "matters", "better": "harms", "even": "makes no difference", "none": "no verdict"}
HEAD, LEAST_RANKED = ":head=", 4  # in names of heads; the fewest sentences for ranks
ENOUGH = 5  # the fewest parts for which the correlation has an interval


class LogProbability(Metric):
    """The mean log probability per reference token, in nats, from its sum over a sentence and the number of tokens."""

    name = LOGPROB
    kinds = ("numbers",)

    @property
    def bounds(self) -> tuple[float, float]:
        return -log(GUESSING), 0.0

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        raise NotImplementedError("a model gives them")

    def aggregate(self, totals: Statistics) -> float:
        return float(totals[0] / totals[1])

    def signature(self) -> Signature:
        return Signature()


@dataclass(frozen=True)
class Correlation:
    """The mean rank correlation of the parts' losses over all pairs of seeds, with its interval over parts."""

    value: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, losses: Sequence[Sequence[float]]) -> Correlation | None:
        """The correlation of losses (n, P). None with one seed or one part, or if a seed's losses are all equal."""
        from scipy import stats  # slow to import

        if len(losses) < 2 or any(np.ptp(row) == 0 for row in losses):
            return None
        value = fmean(float(stats.spearmanr(a, b).statistic) for a, b in combinations(losses, 2))
        parts = len(losses[0])
        if parts < ENOUGH:
            return cls(value, None, None)
        middle, half = atanh(max(-0.999999, min(value, 0.999999))), 1.96 * sqrt(FIELLER / (parts - 3))
        return cls(value, tanh(middle - half), tanh(middle + half))


@dataclass(frozen=True)
class Ablation:
    """The losses of all parts, by one metric and one kind of ablation.

    Attributes:
        measure: the metric.
        how: the kind of ablation.
        systems: the scores of the whole model, and without each part.
        pairs: each part against the whole model.
        losses: (n, P), the score without the part minus the score of the whole model, for each seed.
        seen: for each part, the number of seeds whose interval over sentences alone excludes 0.
        stable: the agreement between seeds on the order of the parts.
        ranks: the heads of each place by their rank within a seed (`by_rank`), against the whole model.
        needed: by place, the number of heads that each seed needs, over its sentences alone.
    """

    measure: Measure
    how: How
    systems: Mapping[str, Linearised]
    pairs: Sequence[ComparedPair]
    losses: Sequence[Sequence[float]]
    seen: Sequence[int]
    stable: Correlation | None
    ranks: Sequence[ComparedPair] = ()
    needed: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def found(self) -> list[dict[str, Any]]:
        """The parts as JSON objects, the largest loss first."""
        sign, rows = 1 if self.measure.metric.higher_is_better else -1, []
        keys = ("part", "difference", "low", "high", "p_holm", "verdict", "seeds", "seen_in")
        for pair, each, seen in zip(self.pairs, zip(*self.losses, strict=True), self.seen, strict=True):
            numbers = pair.difference, *pair.estimate.interval(), pair.adjusted_p_value
            rows.append(dict(zip(keys, (pair.b, *numbers, pair.verdict, [*each], seen), strict=True)))
        return sorted(rows, key=lambda row: sign * row["difference"])

    def table(self, of: str = "") -> Table:
        """A table with a row per part; `of` begins its title."""
        seeds, shown = len(self.losses), ("part", "difference", "low", "high", "p_holm")
        rows: list[list[Cell]] = [
            [*map(row.get, shown), f"{row['seen_in']} of {seeds}", WORDS[row["verdict"]]] for row in self.found()
        ]
        columns = [Column("without"), *(Column(name, format="+.3f") for name in ("change", "low", "high"))]
        columns += [Column("p", format=".4f"), Column("in seeds"), Column("the part")]
        over = "seeds and sentences; p is adjusted by Holm's method over all parts of all tables."
        over = over if seeds > 1 else "these sentences alone. One seed says nothing of the method: there is no verdict."
        notes = [f"The interval holds 95 % over {over}", *self._stability(), *self._of_heads()]
        return Table(columns, rows, title=f"{of}{self.measure.label}, {self.how}", notes=notes)

    def ranked(self) -> list[dict[str, Any]]:
        """The ranks of heads as JSON objects."""
        keys = ("rank", "difference", "low", "high", "p_holm", "verdict")
        rows = ((p.b, p.difference, *p.estimate.interval(), p.adjusted_p_value, p.verdict) for p in self.ranks)
        return [dict(zip(keys, row, strict=True)) for row in rows]

    def rank_table(self, of: str = "") -> Table:
        """A table with a row per place and rank."""
        rows: list[list[Cell]] = [[*list(row.values())[:-1], WORDS[row["verdict"]]] for row in self.ranked()]
        columns = [Column("without"), *(Column(name, format="+.3f") for name in ("change", "low", "high"))]
        columns += [Column("p", format=".4f"), Column("the head of this rank")]
        note = "Each seed ranks its heads by their losses on every second sentence; changes are those on the others."
        return Table(columns, rows, title=f"{of}{self.measure.label}, {self.how}, heads by rank", notes=[note])

    def _of_heads(self) -> Iterator[str]:
        for place, counts in self.needed.items():
            yield f"Heads of {place} that a seed needs: {', '.join(map(str, counts))}."

    def _stability(self) -> list[str]:
        if self.stable is None:
            return []
        value, low, high = self.stable.value, self.stable.low, self.stable.high
        within = "" if low is None else f", 95 % interval {low:+.2f} to {high:+.2f} over parts"
        same = "no telling whether seeds agree" if low is None or low <= 0 else "seeds agree on which parts matter"
        if high is not None and high < 0.5:
            same = "seeds do not agree on which parts matter"
        return [f"Rank correlation of the losses between seeds {value:+.2f}{within}: {same}."]


@dataclass(frozen=True)
class Ablations:
    """The result of `ablate`."""

    runs: Sequence[str]
    sentences: int
    wholes: Mapping[str, Sequence[float]]  # by metric, the score of each seed
    ablations: Sequence[Ablation]
    parts: Sequence[str]
    pruned: Sequence[Sequence[str]] | None = None  # for each seed, the parts that can be removed together, in order

    def text(self) -> str:
        """All tables as plain text."""
        wholes = [f"{name} {', '.join(f'{score:.3f}' for score in scores)}" for name, scores in self.wholes.items()]
        read = f"{counted(self.sentences, 'sentence')} by each of {counted(len(self.runs), 'run')}: {'; '.join(wholes)}"
        tables = [each.table().text() for each in self.ablations]
        tables += [each.rank_table().text() for each in self.ablations if each.ranks]
        if self.pruned is not None:
            gone = ", ".join(str(len(parts)) for parts in self.pruned)
            names = [f"{run}: {', '.join(parts) or 'none'}" for run, parts in zip(self.runs, self.pruned, strict=True)]
            can = f"Of {counted(len(self.parts), 'part')} so many can go together, on these sentences: {gone}"
            tables.append("\n".join([can, *names]))
        return "\n\n".join([read, *tables])

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return {
            "runs": list(self.runs),
            "sentences": self.sentences,
            "whole": {name: list(scores) for name, scores in self.wholes.items()},
            "ablations": [
                {"metric": each.measure.key, "how": each.how, "parts": each.found()}
                | {"rank_correlation": None if each.stable is None else vars(each.stable)}
                | ({"ranks": each.ranked(), "needed": dict(each.needed)} if each.ranks else {})
                for each in self.ablations
            ],
        } | ({} if self.pruned is None else {"pruned": [list(parts) for parts in self.pruned]})


class _Examined:
    """One run, the parts to be cut, and the sentences that it is scored on."""

    def __init__(
        self,
        predictor: Any,
        examples: Sequence[Example],
        metrics: Sequence[Metric],
        options: AblateOptions,
        seed: int,
    ) -> None:
        self.predictor, self.examples, self.metrics, self.seed = predictor, examples, metrics, seed
        self.what, self.model = options.what, predictor.runs[0].model
        self.points = self.model.points()
        named = {each: named_parts(self.points, each) for each in options.what}
        alone = {part: [part] for parts in named.values() for part in parts}
        predictor.workers = 1  # interventions replace the values of all threads
        self.parts = named if options.together else alone  # by name, the parts that are cut together

    def record(self) -> None:
        """Record the outputs of the parts in each sentence."""

        def alone(example: Example) -> Iterator[Any]:
            if isinstance(self.predictor, LabelPredictor):
                yield from (batch for _, batch in self.predictor.alone(example.words or example.source.split()))
                return
            ids = self.predictor.target.encode_lines([example.target or ""])[0]
            source = np.asarray(self.predictor.read(example.source).values)
            yield collate([source], [np.asarray(ids, np.int64)]).to(self.predictor.device)

        self.recorded = self.model.recorded(self.what, chain.from_iterable(map(alone, self.examples)))

    def statistics(self, parts: Sequence[str], how: How) -> list[Statistics]:
        """The statistics of each metric without `parts`."""
        found: list[list[Statistics]] = [[] for _ in self.metrics]
        for number, chunk in enumerate(batched(self.examples, TOGETHER)):
            rule: Any = "zero"
            if how != "zero":
                rule = Mean(self.recorded) if how == "mean" else Resample(self.recorded, self.seed + number)
            rules: Rules = dict.fromkeys(parts, rule)
            with self.model.intervened(rules) as reached:
                for index, statistics in enumerate(self._score(chunk)):
                    found[index].append(statistics)
            lost = [part for part in parts if not any(reached[place] for place in parts_of(self.points)[part])]
            if lost:
                raise UserError("the model ran and never reached this part", where=option("what"), received=lost)
        return [np.concatenate(rows) for rows in found]

    def _score(self, examples: Sequence[Example]) -> Iterator[Statistics]:
        predictor, targets = self.predictor, [each.target or "" for each in examples]
        sources = examples if isinstance(predictor, LabelPredictor) else [each.source for each in examples]
        texts: list[str] | None = None
        for metric in self.metrics:
            if isinstance(metric, LogProbability):
                scores = [each.log_probabilities for each in predictor.force(sources, targets)]
                yield np.array([[sum(row), len(row)] for row in scores])
            else:
                texts = texts or [each.text for each in predictor.predict(sources)]
                yield metric.counted(texts, [targets])


def ablate(runs: Sequence[Existing], options: AblateOptions) -> Ablations:
    """Cut the parts of the runs of one variant, one at a time.

    Raises:
        UserError: the runs are of several variants, a part does not exist, or there are no references.
    """
    with options.leave():
        named = name_runs(runs)
    if len({name.variant for name in named}) > 1 or len({name.seed for name in named}) < len(named):
        what = "the parts of one model are cut: give runs of one recipe, each with a seed of its own"
        allowed = "NAME:SEED=RUN, one NAME for all"
        raise UserError(what, where="RUN", received=", ".join(map(str, named)), allowed=allowed)
    return ablate_seeds([run.path for run in runs], options)


def ablate_seeds(runs: Sequence[Path], options: AblateOptions) -> Ablations:
    """Ablate runs that are known to be the seeds of one model, even if their recipes differ in more than the seed."""
    predictors = list[SequencePredictor | LabelPredictor]()
    with options.leave():
        opened = open_run(runs[0])
        for run in runs:
            predictor = load(run, device=options.device)
            if not isinstance(predictor, SequencePredictor | LabelPredictor):
                raise UserError("only models that write sequences or labels are cut", where="RUN", received=str(run))
            predictors.append(predictor)
    examples, recipe = _examples(opened, predictors, options), predictors[0].recipe
    with opened.trusted():
        language = recipe.text.target.language
        metrics = [
            LogProbability() if name == LOGPROB else metric_in(language, {"name": name}) for name in options.metric
        ]
    return cut([str(run) for run in runs], predictors, examples, metrics, options)


def cut(
    names: Sequence[str],
    predictors: Sequence[Any],
    examples: Sequence[Example],
    metrics: Sequence[Metric],
    options: AblateOptions,
) -> Ablations:
    """Ablate models that are seeds of one variant, on these examples. Raises UserError as `ablate` does."""
    measures = measures_of(metrics, {}, [""])
    seeds = [
        _Examined(predictor, examples, metrics, options, options.seed + FAR * index)
        for index, predictor in enumerate(predictors)
    ]
    parts = list(seeds[0].parts)
    for name, one in zip(names, seeds, strict=True):
        if list(one.parts) != parts:
            what = f"the parts of this run are not those of {names[0]}"
            raise UserError(what, where=name, received=list(one.parts), allowed=parts)
    if {*options.how} - {"zero"}:
        for one in seeds:
            one.record()
    plan: list[tuple[Any, str]] = [("", WHOLE), *((how, part) for how in options.how for part in parts)]
    scored: dict[tuple[str, str], list[list[Statistics]]] = {step: [] for step in plan}  # for each seed and metric
    with progress("cutting", len(seeds) * len(plan), "parts", long=True) as work:
        for one, (how, part) in work.over(product(seeds, plan)):
            with silenced() if how else nullcontext():  # warnings on the same sentences would repeat
                scored[how, part].append(one.statistics(one.parts[part] if how else [], how or "zero"))
    wholes, ablations = {}, list[Ablation]()
    for index, measure in enumerate(measures):
        whole = linearise(measure.metric, [rows[index] for rows in scored["", WHOLE]])
        wholes[measure.key] = whole.scores.tolist()
        for how in options.how:
            rows = {part: [seed[index] for seed in scored[how, part]] for part in parts}
            without = {part: linearise(measure.metric, row) for part, row in rows.items()}
            systems = {WHOLE: whole} | without
            pairs = compared_pairs(measure, systems, options.margin, WHOLE)
            seen = [_seen(without[part] - whole) for part in parts]
            losses = np.stack([each.scores - whole.scores for each in without.values()], 1).tolist()
            whole_rows = [seed[index] for seed in scored["", WHOLE]]
            ranks = by_rank(measure, whole_rows, rows, options.margin)
            needed = _needed(measure, {part: each - whole for part, each in without.items()}) if ranks else {}
            stable = Correlation.of(losses)
            ablations.append(Ablation(measure, how, systems, pairs, losses, seen, stable, ranks, needed))
    ablations = as_one_family(ablations, options.margin)
    pruned = None
    if options.prune is not None:
        pruned = [_pruned(*row, options) for row in zip(seeds, ablations[0].losses, strict=True)]
    return Ablations(names, len(examples), wholes, ablations, parts, pruned)


def by_rank(
    measure: Measure, whole: Sequence[Statistics], without: Mapping[str, Sequence[Statistics]], margin: float
) -> list[ComparedPair]:
    """The heads of each place by their rank, against the whole model. Empty with one seed, or without heads.

    The number of a head means nothing in another training, so that each seed ranks its own heads, the largest loss
    first. The largest of equal losses is large by chance on the sentences that rank the heads. The other half of the
    sentences is therefore what differences are computed on.
    """
    if len(whole) < 2 or len(whole[0]) < LEAST_RANKED:
        return []
    sign, metric = 1 if measure.metric.higher_is_better else -1, measure.metric
    systems = {WHOLE: linearise(metric, [rows[1::2] for rows in whole])}
    for place, heads in _heads(without).items():
        scores = [
            [sign * metric.aggregate(without[head][seed][::2].sum(0)) for head in heads] for seed in range(len(whole))
        ]
        orders = [np.argsort(row, kind="stable") for row in scores]
        for rank in range(len(heads)):
            rows = [without[heads[order[rank]]][seed][1::2] for seed, order in enumerate(orders)]
            systems[f"{place}:rank={rank + 1}"] = linearise(metric, rows)
    return compared_pairs(measure, systems, margin, WHOLE) if len(systems) > 1 else []


def _heads(parts: Iterable[str]) -> dict[str, list[str]]:
    """The heads among the parts, by their place."""
    found = dict[str, list[str]]()
    for part in parts:
        place, head, _ = part.partition(HEAD)
        if head:
            found.setdefault(place, []).append(part)
    return found


def _needed(measure: Measure, differences: Mapping[str, Linearised]) -> dict[str, list[int]]:
    """By place, the number of heads of each seed whose loss excludes 0 over sentences, at a level for all its heads."""
    sign, counts = 1 if measure.metric.higher_is_better else -1, dict[str, list[int]]()
    for place, heads in _heads(differences).items():
        level = 1 - SIGNIFICANT / len(heads)
        alone = [[each.estimate() for each in _alone(differences[head])] for head in heads]
        lost = [[-sign * each.value > each.half_width(level) for each in row] for row in alone]
        counts[place] = [sum(row[seed] for row in lost) for seed in range(len(lost[0]))]
    return counts


def as_one_family(ablations: Sequence[Ablation], margin: float) -> list[Ablation]:
    """The ablations with verdicts that are adjusted over the parts of all metrics and kinds of ablation together.

    Both verdicts are: that a part matters, and that it makes no difference.
    """
    every = [(each.measure.metric, pair) for each in ablations for pair in (*each.pairs, *each.ranks)]
    differ, even = (
        holm([1.0 if p is None else p for p in row])
        for row in (
            [pair.p_value for _, pair in every],
            [None if pair.groups else pair.estimate.p_within(margin) for _, pair in every],
        )
    )
    words: list[Verdict] = []
    for (metric, pair), p, p_even in zip(every, differ, even, strict=True):
        direction: Verdict = "better" if (pair.difference > 0) is metric.higher_is_better else "worse"
        words.append("even" if p_even <= SIGNIFICANT else direction if p <= SIGNIFICANT else "none")
    adjusted = iter(
        [
            replace(pair, verdict=word, adjusted_p_value=None if pair.p_value is None else p)
            for (_, pair), word, p in zip(every, words, differ, strict=True)
        ]
    )
    return [
        replace(each, pairs=[*islice(adjusted, len(each.pairs))], ranks=[*islice(adjusted, len(each.ranks))])
        for each in ablations
    ]


def _examples(run: Any, predictors: Sequence[Any], options: AblateOptions) -> list[Example]:
    """The first sentences with targets that all models can read. Raises UserError if there are fewer than two."""
    recipe, labels = predictors[0].recipe, isinstance(predictors[0], LabelPredictor)
    corpus = run.task.given_test_set(recipe, [] if options.input is None else [options.input], options.reference)
    written, readable = run.task.written(recipe), []
    for example in corpus.examples:
        example = example if written is None else example.as_written(written)
        given = bool(example.source.strip() and (example.target or "").strip())
        if given and (labels or all(one.can_read(example.source, example.target) for one in predictors)):
            readable.append(example)
        if len(readable) == options.sentences:
            break
    if len(readable) < 2:
        what = "to see what a part does takes two sentences with their targets"
        raise UserError(what, where=option("input"), received=len(readable), allowed=f"{option('reference')} FILE")
    return readable


def _seen(difference: Linearised) -> int:
    """The number of seeds whose interval, over sentences alone, excludes 0."""
    return sum(bool(abs(each.scores[0]) > each.estimate().half_width()) for each in _alone(difference))


def _alone(difference: Linearised) -> Iterator[Linearised]:
    """The difference of each seed."""
    for seed in range(len(difference.scores)):
        yield replace(difference, scores=difference.scores[[seed]], influences=difference.influences[[seed]])


def _pruned(one: _Examined, losses: Sequence[float], options: AblateOptions) -> list[str]:
    """The parts that can be cut together, least needed first, before the first metric drops by more than `prune`."""
    metric, how = one.metrics[0], options.how[0]
    sign, gone, names = 1 if metric.higher_is_better else -1, list[str](), list(one.parts)
    whole = metric.aggregate(one.statistics([], how)[0].sum(0))
    for index in np.argsort(-sign * np.asarray(losses), kind="stable"):
        tried = [part for name in (*gone, names[index]) for part in one.parts[name]]
        score = metric.aggregate(one.statistics(tried, how)[0].sum(0))
        if sign * (whole - score) > (options.prune or 0):
            break
        gone.append(names[index])
    return gone


def draw(found: Ablations, path: Path) -> None:
    """Draw the loss of each part with its interval; each place, such as a layer's cross-attention, has a row."""
    import matplotlib
    from matplotlib.figure import Figure

    from headway.core.figures import BLUE, MUTED, ORANGE, STYLE, save_figure

    def place(name: str) -> str:
        return name.partition(":")[0] if ":" in name else ""

    names = found.parts
    rows = {each: [name for name in names if place(name) == each] for each in dict.fromkeys(map(place, names))}
    labels = {name: name.partition("=")[2] or name for name in names}
    with matplotlib.rc_context(STYLE):
        width = max(2.2, *(0.17 * len(row) for row in rows.values()))  # in inches, like heights
        longest = {each: max(len(labels[name]) for name in row) for each, row in rows.items()}
        upright = {each for each, row in rows.items() if 0.09 * longest[each] * len(row) > width}
        heights = [1.3 + 0.08 * longest[each] * (each in upright) for each in rows]
        figure = Figure(figsize=(1 + (1 + width) * len(found.ablations), 0.8 + sum(heights)), layout="constrained")
        grid = figure.subplots(len(rows), len(found.ablations), sharey="col", squeeze=False)
        for column, ablation in enumerate(found.ablations):
            for axes, (each, row) in zip(grid[:, column], rows.items(), strict=True):
                pairs = [pair for pair in ablation.pairs if pair.b in row]
                axes.axhline(0, color=MUTED, linewidth=0.8)
                for x, pair in enumerate(pairs):
                    half = pair.estimate.half_width()
                    colour = ORANGE if pair.verdict in ("worse", "better") else BLUE
                    axes.errorbar([x], [pair.difference], [half], fmt="o", color=colour, markersize=4, capsize=3)
                axes.set_xticks(range(len(pairs)), [labels[pair.b] for pair in pairs], rotation=90 * (each in upright))
                axes.set_ylabel(each)
            grid[0, column].set_title(f"{ablation.measure.label}, {ablation.how}", fontsize=9)
        save_figure(figure, path)
