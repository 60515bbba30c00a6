"""The verb `headway gate`: begins a loop, judges a proposal, and closes the loop with a third test set."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

from headway.comparison.cells import CellResult, NamedCorpus, content, corpus_files, read_test_set
from headway.comparison.comparison import compare_cells
from headway.comparison.differences import with_limits
from headway.core.documents import parse_yaml
from headway.core.errors import UserError, option
from headway.core.storage import check_new
from headway.formats.corpus_config import AnyCorpus, parse_corpus, parts, paths_resolved
from headway.formats.corpus_format import open_format
from headway.gate.ledger import Ledger, existing, opened, sealed
from headway.gate.loop import WITHDRAWN, Due, Loop, Part, Settings, Trial, interval
from headway.gate.options import GateOptions, NewOptions
from headway.gate.proposals import (
    NAME,
    PLACES,
    Bench,
    DivergedError,
    GivenScore,
    MissingError,
    Proposal,
    RunsProposal,
    ScoredProposal,
    TrainedProposal,
    is_public,
    linearised,
    outputs_hash,
    proposal_of,
)
from headway.gate.rules import ERROR, confirmation_level, spent
from headway.metrics import Metric, check_kind, metric_in
from headway.metrics.intervals import unpaired
from headway.processing.text.text_processor import PreparationConfig
from headway.recipe import Recipe, apply_overrides, load_recipe
from headway.recipe.reading import is_run, recipe_of
from headway.tasks import build_task
from headway.training.start import check_recipe

CLOSING_SEEDS = 1_000_000  # before the first seed of the comparison that closes a loop
NEXT = {
    "keep": "propose changes to {}, which is the baseline now",
    "drop": "propose another change",
    "open": "propose another change; more segments may decide on {}, outside of this loop",
    "same": "propose a change that differs",
}
Answer = dict[str, Any]


def begin(path: Path, options: NewOptions) -> None:
    """Begin a ledger with its settings. Raises UserError; nothing is written then."""
    check_new(path, "ledger")
    by_scores = options.run is not None or options.scores is not None
    for name in ("public", "sealed", "metric", "not_worse") if by_scores else ("lower",):
        if getattr(options, name):
            what = "a program writes its own scores" if by_scores else "a metric says itself whether less is better"
            raise UserError(what, where=option(name))
    if options.run is not None and not all(place in options.run for place in PLACES):
        raise UserError("a command has places for the seed and the scores", where=option("run"), allowed=PLACES)
    baseline = _named("baseline", options.baseline, options.scores, command=options.run)
    given: dict[str, Any] = {"baseline": baseline.name, "identity": baseline.identity, "content": baseline.content}
    if by_scores:
        given |= {"metrics": [GivenScore.name], "higher": [] if options.lower else [GivenScore.name]}
    else:
        given |= _of_corpora(options, baseline)
    settings = Settings(preset=options.preset, least=options.least, command=options.run, **given)
    with opened(path, 0) as ledger:
        ledger.append("settings", settings.model_dump(mode="json"))


def _of_corpora(options: NewOptions, baseline: Proposal) -> dict[str, Any]:
    """The settings of a loop whose systems are scored by metrics on test sets. Raises UserError."""
    recipe = baseline.recipe
    if options.public is None or options.metric is None or recipe is None:
        name = "public" if options.public is None else "metric"
        raise UserError("systems are scored on a public set, by a metric", where=option(name))
    task, halved, sizes = build_task(recipe.task), options.sealed is None, dict[str, int]()
    written, language = task.written(recipe), recipe.text.target.language
    named = {"public": options.public} | ({"sealed": options.sealed} if options.sealed else {})
    corpora = {name: _corpus(text, name) for name, text in named.items()}
    sets = {name: NamedCorpus(name, corpus, key=option(name), written=written) for name, corpus in corpora.items()}
    metrics = {name: metric_in(language, {"name": name}) for name in (options.metric, *options.margins)}
    for name, one in sets.items():
        check_kind([*metrics.values()], one.kind(task.writes), option("metric"), of_texts=task.reads_text)
        test = read_test_set(recipe, one)
        for metric in metrics.values():
            metric.counted(test.references[0], test.references, test.sources)
        sizes[name] = len(test)
        if halved:
            sizes = {"public": sum(is_public(test)), "sealed": len(test) - sum(is_public(test))}
    secret = sets["public" if halved else "sealed"]
    _check_unseen(secret, _corpora_of(baseline), f"the data of {baseline.name}")
    if not halved:
        _check_unseen(secret, [corpora["public"]], "the public set")
    kept = {"written": written and written.model_dump(mode="json"), "language": language}
    return {
        "metrics": [*metrics], "margins": options.margins, "halved": halved, "sizes": sizes,
        "higher": [name for name, metric in metrics.items() if metric.higher_is_better],
        "corpora": kept | {name: _dumped(corpus) for name, corpus in corpora.items()},
        "sets": {name: one.fingerprint() for name, one in sets.items()},
    }  # fmt: skip


def _corpus(text: str, name: str) -> AnyCorpus:
    """The corpus of an option: a file of tab-separated pairs, or as a recipe names a corpus."""
    value = {"tsv": text} if text.endswith(".tsv") else parse_yaml(text, option(name), "this corpus", numbered=False)
    corpus = paths_resolved(parse_corpus(value, option(name)), Path.absolute)
    _check_corpora({option(name): corpus})
    return corpus


def _check_corpora(corpora: Mapping[str, AnyCorpus]) -> None:
    """Raise UserError if a file is missing or empty."""
    for name, corpus in corpora.items():
        for where, part in parts(corpus, name):
            open_format(part, where).check()


def _dumped(corpus: AnyCorpus) -> Any:
    """A corpus as JSON that `parse_corpus` reads."""
    found = [part.model_dump(mode="json", exclude_unset=True) for _, part in parts(corpus, "corpus")]
    return found if isinstance(corpus, tuple) else found[0]


def _corpora_of(proposal: Proposal) -> list[AnyCorpus]:
    """The corpora that a proposal is trained on, and that choose its checkpoints."""
    return [] if proposal.recipe is None else [*proposal.recipe.data.corpora().values()]


def _check_unseen(secret: NamedCorpus, seen: Iterable[AnyCorpus], whose: str) -> None:
    """Raise UserError if a file of a set that is to be sealed is used elsewhere."""
    known = {content(file) for corpus in seen for file in corpus_files(corpus)}
    for file in corpus_files(secret.corpus):
        if content(file) in known:
            what = f"this file is in {whose}, and would not be sealed"
            raise UserError(what, where=secret.where, received=str(file), allowed="another set")


def _named(
    where: str, words: Sequence[str], scores: Path | None, overrides: Sequence[str] = (), base: Recipe | None = None,
    command: str | None = None,
) -> Proposal:  # fmt: skip
    """The system that a user names: a recipe, run folders, a folder of a program, or a file of scores.

    `base` is the recipe of the baseline, to which `overrides` without a recipe are changes. Raises UserError.
    """
    runs = [run for word in words if (run := re.fullmatch(r"(.+):(\d{1,18})=(.+)", word))]
    names, by_seed = {run[1] for run in runs}, {int(run[2]): Path(run[3]) for run in runs}
    if words and len(by_seed) == len(words) and len(names) == 1:
        return RunsProposal.of(_valid(names.pop()), by_seed)
    if len(words) != 1:
        allowed = "[NAME=]RECIPE, NAME:SEED=RUN for each seed, [NAME=]FOLDER, or NAME"
        raise UserError("one system at a time", where=option(where), received=" ".join(words), allowed=allowed)
    name, equals, text = words[0].partition("=")
    path = Path(text if equals else words[0])
    name = _valid(name if equals else re.sub(r"\.ya?ml$", "", path.name))
    if scores is not None:
        return ScoredProposal.of_file(name, scores)
    if path.is_dir():
        if command is None or is_run(path):
            what = "a run needs its seed, and a folder of a program the command of the loop"
            raise UserError(what, where=option(where), received=str(path), allowed=f"{name}:1={path}")
        return ScoredProposal.of_folder(name, path)
    if path.is_file():
        recipe = load_recipe(path, overrides)
    elif base is not None and overrides:
        tree = base.model_dump(mode="json")
        apply_overrides(tree, overrides)
        recipe = recipe_of(tree, [Path()])
    else:
        what = "there is no such file or folder, and no changes to the recipe of the baseline"
        raise UserError(what, where=option(where), received=str(path))
    check_recipe(recipe)
    _check_corpora(recipe.data.corpora())
    return TrainedProposal.of(name, recipe)


def _valid(name: str) -> str:
    if not NAME.fullmatch(name):
        raise UserError("a name becomes a part of file names", received=name, allowed="letters, digits and . + - _")
    return name


class Judge:
    """A loop that judges proposals, and makes the cells that it needs.

    Args:
        ledger: its ledger, which this process alone writes.
        options: the proposal, the workers, and further cells of the baseline.
    """

    def __init__(self, ledger: Ledger, options: GateOptions) -> None:
        self.loop, self.options, self._banks = Loop(ledger), options, dict[tuple[Part, int], list[CellResult]]()
        settings, sets = self.loop.settings, dict[str, NamedCorpus]()
        kept = settings.corpora or {"written": None, "language": None}
        written = kept["written"] and PreparationConfig(**kept["written"])
        for name in settings.sets:
            sets[name] = NamedCorpus(name, parse_corpus(kept[name], name), key=option(name), written=written)
            if sets[name].fingerprint() != settings.sets[name]:
                raise UserError(f"the {name} set has changed since the loop began", where=str(ledger.path))
        sets |= {"sealed": sets["public"]} if settings.halved else {}
        self.bench = Bench(ledger.cells, sets, settings.halved, settings.command, options.workers, options.threads)
        self.metrics: dict[str, Metric] = {
            name: metric_in(kept["language"], {"name": name}) if sets else GivenScore(lower=not settings.higher)
            for name in settings.metrics
        }

    def propose(self, overrides: Sequence[str]) -> Answer:
        """Judge a proposal, or go on with it.

        Raises:
            UserError: nothing was decided.
            RunError: a run failed, and nothing was decided.
        """
        loop, options = self.loop, self.options
        base, command = self.baseline().recipe, loop.settings.command
        proposal = _named("propose", options.propose, options.scores, overrides, base, command)
        self._check(proposal)
        name = proposal.name
        if name not in loop.trials:
            fields = {"identity": proposal.identity, "content": dict(proposal.content)}
            loop.append("proposal", {"name": name, **fields})
        trial = loop.trials[name]
        if options.withdraw and trial.word is None:
            loop.append("word", {"name": name, **self._answer(trial, "drop", WITHDRAWN)})
        try:
            while (due := loop.due(trial)) is not None:
                loop.append(due.kind, {"name": name, **self._found(trial, proposal, due)})
        except MissingError as missing:
            wanted = {"system": missing.system, "set": missing.part, "seeds": list(missing.seeds)}
            answer = self._answer(trial, "more", str(missing))
            return answer | {"missing": wanted, "next": "add them, and call again"}
        return {**trial.answer, "next": NEXT[trial.answer["word"]].format(name)}

    def _check(self, proposal: Proposal) -> None:
        """Raise UserError if a proposal cannot be judged now, under this name, or on these sets."""
        loop, name, where = self.loop, proposal.name, option("propose")
        if loop.closed:
            raise UserError("this loop is closed", where=str(loop.ledger.path))
        if (busy := loop.in_confirmation) is not None and busy.name != name:
            what = f"the confirmation of {busy.name} has begun, and has to end first"
            raise UserError(what, where=where, received=name, allowed=f"{busy.name}, or {option('withdraw')} beside it")
        known = {loop.settings.baseline: (loop.settings.identity, loop.settings.content)}
        known |= {one.name: (one.identity, dict(one.content)) for one in loop.trials.values()}
        identity, before = known.get(name, (proposal.identity, {}))
        if identity != proposal.identity and not proposal.continues(before):
            what = "this name had another content; a changed proposal has a new name"
            raise UserError(what, where=where, received=name)
        if (proposal.recipe is None) != (loop.settings.corpora is None):
            what = "the proposals of a loop are all scored by metrics, or all by programs"
            raise UserError(what, where=where, received=name)
        if proposal.recipe is not None:
            _check_unseen(self.bench.sets["sealed"], _corpora_of(proposal), f"the data of {name}")

    def baseline(self, generation: int = -1) -> Proposal:
        """A baseline; the current one with further runs that the user has named. Raises UserError."""
        known, more = self.loop.baselines[generation], self.options.baseline
        if not more or generation != -1:
            return proposal_of(known.name, known.content)
        given = _named("baseline", more, None)
        if given.name != known.name or "runs" not in given.content.keys() & known.content.keys():
            what = "further cells are run folders of the baseline"
            raise UserError(what, where=option("baseline"), received=given.name, allowed=known.name)
        return proposal_of(known.name, {"runs": {**known.content["runs"], **given.content["runs"]}})

    def _found(self, trial: Trial, proposal: Proposal, due: Due) -> Mapping[str, Any]:
        """The fields of a line that is due, after the work that it asks for."""
        if due.kind == "word":
            return self._answer(trial, due.fields["word"], due.fields["reason"])
        if due.kind == "confirm":
            return due.fields
        try:
            found = self._measured(proposal, due)
        except DivergedError as error:
            found = {"diverged": error.seed}
        return {**due.fields, **({"sealed": sealed(found)} if due.part == "sealed" else found)}

    def _measured(self, proposal: Proposal, due: Due) -> dict[str, Any]:
        """The scores that a line asks for, with the variances of the difference from the baseline."""
        part, generation = due.part, len(self.loop.baselines) - 1
        try:
            cells = others = self._bank(part, generation)
        except DivergedError as error:
            raise UserError(f"{error}; a baseline has to train with every seed") from error
        if due.kind != "bank":
            cells = proposal.cells(part, due.seeds, self.bench)
        elif generation and part == "sealed":
            others = self._bank(part, generation - 1)
        if cells[0].outputs[0].test.references != others[0].outputs[0].test.references:
            raise UserError("these are not the segments of the baseline", where=f"{proposal.name}, the {part} set")
        measures = dict[str, Any]()
        for name, metric in self.metrics.items():
            own = linearised(metric, cells)
            variances = unpaired(linearised(metric, others), own)._asdict()
            del variances["value"]
            measures[name] = {"scores": own.scores.tolist(), **variances}
        return {"measures": measures, "outputs": [outputs_hash(cell) for cell in cells]}

    def _bank(self, part: Part, generation: int) -> list[CellResult]:
        """The cells of a baseline on a set, which are read once."""
        if (part, generation) not in self._banks:
            whose = self.baseline(generation if generation < len(self.loop.baselines) - 1 else -1)
            seeds = self.loop.bank_seeds(part, generation)
            self._banks[part, generation] = whose.cells(part, seeds, self.bench)
        return self._banks[part, generation]

    def _answer(self, trial: Trial, word: str, reason: str) -> Answer:
        """The answer on a proposal. Of the sealed set it has numbers after a keep alone."""
        loop, confirmation, least = self.loop, trial.confirmation or None, self.loop.settings.least
        names = "difference", "low", "high"
        found: Answer = {
            "word": word, "proposal": trial.name, "baseline": loop.baseline.name, "confirmation": confirmation,
            "level": confirmation and float(confirmation_level(confirmation)), "seeds": trial.runs,
        }  # fmt: skip
        if trial.screened and "public" in loop.baseline.banks:
            ends = interval(loop.public_evidence(trial), least)
            found |= {name: value if isfinite(value) else None for name, value in zip(names, ends, strict=True)}
        if word == "keep":
            evidence = loop.sealed_evidence(trial)[0]
            ends = interval(evidence, least)
            found |= {f"sealed_{name}": value for name, value in zip(names, ends, strict=True)}
            found["bound"] = float(evidence.bound(loop.tail(trial))) + least
        error = spent(loop.confirmations)
        return found | {"error_spent": error, "error_left": ERROR - error, "runs": loop.runs, "reason": reason}

    def compared(self, test: str | None) -> Answer:
        """Compare fresh seeds of the first and the last baseline on a third test set, by the verdict of compare.

        Raises:
            UserError: nothing was kept, or the third set was used in the loop.
        """
        loop, sets = self.loop, dict(self.bench.sets)
        if loop.closed or len(loop.baselines) == 1:
            what = "this loop is closed" if loop.closed else "nothing was kept, so that there is nothing to compare"
            raise UserError(what, where=str(loop.ledger.path))
        if (test is None) != (loop.settings.corpora is None):
            what = "a loop of models is closed on a third test set; programs write their scores of the set test"
            raise UserError(what, where=option("test"), received=test)
        if test is not None:
            sets["test"] = replace(sets["public"], name="test", corpus=_corpus(test, "test"), key=option("test"))
            used = [one.corpus for one in self.bench.sets.values()]
            used += [corpus for one in (self.baseline(0), self.baseline()) for corpus in _corpora_of(one)]
            _check_unseen(sets["test"], used, "the loop")
        seeds, bench = range(CLOSING_SEEDS + 1, CLOSING_SEEDS + 1 + loop.preset.bank), replace(self.bench, sets=sets)
        both = (self.baseline(generation) for generation in (0, len(loop.baselines) - 1))
        cells = [cell for baseline in both for cell in baseline.cells("test", seeds, bench)]
        first, last = loop.baselines[0].name, loop.baseline.name
        found = with_limits(compare_cells(cells, [*self.metrics.values()], baseline=first), tuned=False)
        answer = {
            "word": "closed",
            "first": first,
            "last": last,
            "seeds": len(seeds),
            "pairs": found.to_json()["pairs"],
        }
        loop.append("closed", {"answer": answer})
        return answer


@contextmanager
def judging(path: Path, options: GateOptions) -> Iterator[Judge]:
    """The judge of a ledger, which no other process writes within this context. Raises UserError."""
    existing(path)  # a wrong path gets no lock file
    with opened(path, options.wait) as ledger:
        yield Judge(ledger, options)
