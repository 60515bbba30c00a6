"""The verb `headway gate`: begins a loop, judges a proposal, and closes the loop with a third test set."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.comparison.cells import CellResult, NamedCorpus, content, corpus_files, read_test_set
from headway.comparison.comparison import compare_cells
from headway.comparison.differences import with_limits
from headway.core.documents import parse_yaml
from headway.core.errors import UserError, option
from headway.core.storage import check_new
from headway.formats.corpus_config import parse_corpus, paths_resolved
from headway.formats.corpus_config import parts as parts_of
from headway.formats.corpus_format import open_format
from headway.gate.ledger import Ledger, opened, sealed
from headway.gate.loop import WITHDRAWN, Due, Loop, Measured, Part, Settings, Trial, interval
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
from headway.recipe import Recipe, apply_overrides, load_recipe, parse_recipe
from headway.recipe.reading import is_run, recipe_of
from headway.runs.run import open_run
from headway.tasks import build_task
from headway.training.start import check_recipe

CLOSING_SEEDS = 1_000_000  # before the first seed of the comparison that closes a loop
NEXT = {
    "keep": "propose changes to {name}, which is the baseline now",
    "drop": "propose another change",
    "open": "propose another change, or show this one on more segments, outside of the loop",
    "same": "propose a change that differs",
}
Answer = dict[str, Any]


def begin(path: Path, options: NewOptions) -> None:
    """Begin a ledger with its settings. Raises UserError; nothing is written then."""
    check_new(path, "ledger")
    by_scores = options.run is not None or options.scores is not None
    unfit = ("public", "sealed", "metric", "not_worse") if by_scores else ("lower",)
    for name in unfit:
        if getattr(options, name):
            what = "a program writes its own scores" if by_scores else "a metric says itself whether less is better"
            raise UserError(what, where=option(name))
    if options.run is not None and not all(place in options.run for place in PLACES):
        raise UserError("a command has places for the seed and the scores", where=option("run"), allowed=PLACES)
    baseline = _named(options.baseline, options.scores, (), None, options.run)
    given: dict[str, Any] = {
        "preset": options.preset, "least": options.least, "command": options.run,
        "baseline": baseline.name, "identity": baseline.identity, "content": baseline.content,
    }  # fmt: skip
    if by_scores:
        given |= {"metrics": [GivenScore.name], "higher": [] if options.lower else [GivenScore.name]}
    else:
        given |= _of_corpora(options, baseline)
    settings = Settings(**given)
    with opened(path, 0) as ledger:
        ledger.append("settings", settings.model_dump(mode="json"))


def _of_corpora(options: NewOptions, baseline: Proposal) -> dict[str, Any]:
    """The settings of a loop whose systems are scored by metrics on test sets. Raises UserError."""
    if options.public is None or not options.metric:
        name = "public" if options.public is None else "metric"
        raise UserError("systems are scored on a public set, by a metric", where=option(name))
    recipe = _recipe_of(baseline)
    assert recipe is not None
    task = build_task(recipe.task)
    written, language = task.written(recipe), recipe.text.target.language
    named = {"public": options.public, **({"sealed": options.sealed} if options.sealed else {})}
    corpora = {name: _corpus(text, name) for name, text in named.items()}
    sets = {name: NamedCorpus(name, corpus, key=option(name), written=written) for name, corpus in corpora.items()}
    names = [options.metric, *options.margins]
    metrics = [metric_in(language, {"name": name}) for name in names]
    sizes = dict[str, int]()
    for one in sets.values():
        check_kind(metrics, one.kind(task.writes), option("metric"), of_texts=task.reads_text)
        test = read_test_set(recipe, one)
        for metric in metrics:
            metric.counted(test.references[0], test.references, test.sources)
        sizes[one.name] = len(test)
        if options.sealed is None:
            public = sum(is_public(test))
            sizes = {"public": public, "sealed": len(test) - public}
    shared = {"written": written.model_dump(mode="json") if written else None, "language": language}
    settings = {
        "metrics": names, "margins": options.margins, "halved": options.sealed is None,
        "higher": [name for name, metric in zip(names, metrics, strict=True) if metric.higher_is_better],
        "corpora": shared | {name: _dumped(corpus) for name, corpus in corpora.items()},
        "sets": {name: one.fingerprint() for name, one in sets.items()}, "sizes": sizes,
    }  # fmt: skip
    _check_unseen(baseline, sets)
    if options.sealed is not None:
        seen = {content(file) for file in corpus_files(corpora["public"])}
        _check_files(sets["sealed"], seen, "the public set")
    return settings


def _corpus(text: str, name: str) -> Any:
    """The corpus of an option: a file of tab-separated pairs, or as a recipe names a corpus."""
    value = {"tsv": text} if text.endswith(".tsv") else parse_yaml(text, option(name), "this corpus", numbered=False)
    corpus = paths_resolved(parse_corpus(value, option(name)), Path.absolute)
    for where, part in parts_of(corpus, option(name)):
        open_format(part, where).check()
    return corpus


def _dumped(corpus: Any) -> Any:
    """A corpus as JSON that `parse_corpus` reads."""
    if isinstance(corpus, tuple):
        return [_dumped(part) for part in corpus]
    return corpus.model_dump(mode="json", exclude_unset=True)


def _check_unseen(proposal: Proposal, sets: Mapping[str, NamedCorpus]) -> None:
    """Raise UserError if a proposal trains on the sealed set, or chooses its checkpoints by it."""
    recipe, secret = _recipe_of(proposal), sets.get("sealed", sets.get("public"))
    if recipe is not None and secret is not None:
        seen = {content(file) for corpus in recipe.data.corpora().values() for file in corpus_files(corpus)}
        _check_files(secret, seen, f"the data of {proposal.name}")


def _check_files(secret: NamedCorpus, seen: set[str], whose: str) -> None:
    for file in corpus_files(secret.corpus):
        if content(file) in seen:
            what = f"this file is in {whose}, and would not be sealed"
            raise UserError(what, where=secret.where, received=str(file), allowed=f"{option('sealed')}, another set")


def _recipe_of(proposal: Proposal) -> Recipe | None:
    """The recipe of a proposal; None for programs."""
    if "recipe" in proposal.content:
        return parse_recipe(dict(proposal.content["recipe"]))
    runs = proposal.content.get("runs")
    return open_run(Path(next(iter(runs.values())))).recipe if runs else None


def _named(
    words: Sequence[str], scores: Path | None, overrides: Sequence[str], base: Mapping[str, Any] | None,
    command: str | None,
) -> Proposal:  # fmt: skip
    """The system that a user names: a recipe, run folders, a folder of a program, or a file of scores.

    `base` is the content of the baseline, to which `overrides` without a recipe are changes. Raises UserError.
    """
    runs = [re.fullmatch(r"(.+):(\d{1,18})=(.+)", word) for word in words]
    if words and all(runs):
        by_seed = {int(run[2]): Path(run[3]) for run in runs if run}
        names = {run[1] for run in runs if run}
        if len(names) > 1 or len(by_seed) < len(runs):
            raise UserError("runs of one system, each with a seed of its own", received=" ".join(words))
        return RunsProposal.of(_valid(names.pop()), by_seed)
    if len(words) != 1:
        allowed = "NAME=RECIPE, NAME:SEED=RUN, FOLDER, or NAME"
        raise UserError("one system at a time", received=" ".join(words), allowed=allowed)
    name, equals, text = words[0].partition("=")
    path = Path(text if equals else words[0])
    name = _valid(name if equals else path.name.removesuffix(".yaml").removesuffix(".yml"))
    if scores is not None:
        return ScoredProposal.of_file(name, scores)
    if path.is_dir() and command is not None and not is_run(path):
        return ScoredProposal.of_folder(name, path)
    if path.is_dir():
        what = "a run needs its seed, and a folder of a program the command that runs it"
        raise UserError(what, received=str(path), allowed=f"{name}:1={path}, or a loop with {option('run')}")
    if path.is_file():
        return _trained(name, load_recipe(path, overrides))
    if not overrides or base is None or "recipe" not in base:
        what = "there is no such file or folder, and no changes to the recipe of the baseline"
        raise UserError(what, received=str(path))
    tree = parse_recipe(dict(base["recipe"])).model_dump(mode="json")
    apply_overrides(tree, overrides)
    return _trained(name, recipe_of(tree, [Path()]))


def _trained(name: str, recipe: Recipe) -> TrainedProposal:
    """Raises UserError if the recipe cannot be trained."""
    check_recipe(recipe)
    for key, corpus in recipe.data.corpora().items():
        for where, part in parts_of(corpus, key):
            open_format(part, where).check()
    return TrainedProposal.of(name, recipe)


def _valid(name: str) -> str:
    if not NAME.fullmatch(name):
        allowed = "letters, digits and . + - _"
        raise UserError("a name becomes a part of file names", received=name, allowed=allowed)
    return name


class Judge:
    """A loop that judges proposals, and makes the cells that it needs.

    Args:
        ledger: its ledger, which this process alone writes.
        options: the workers, and further cells of the baseline.
    """

    def __init__(self, ledger: Ledger, options: GateOptions) -> None:
        self.loop, self.options = Loop(ledger), options
        settings = self.loop.settings
        corpora = dict[str, NamedCorpus]()
        if settings.corpora is not None:
            written = settings.corpora["written"] and PreparationConfig(**settings.corpora["written"])
            for name in settings.sets:
                corpus = parse_corpus(settings.corpora[name], option(name))
                corpora[name] = NamedCorpus(name, corpus, key=option(name), written=written)
                if corpora[name].fingerprint() != settings.sets[name]:
                    raise UserError(f"the {name} set has changed since the loop began", where=str(ledger.path))
            if settings.halved:
                corpora["sealed"] = corpora["public"]
        self.bench = Bench(ledger.cells, corpora, settings.halved, settings.command, options.workers, options.threads)
        self.metrics = {name: self._metric(name) for name in settings.metrics}

    def _metric(self, name: str) -> Metric:
        corpora, higher = self.loop.settings.corpora, self.loop.settings.higher
        if corpora is None:
            return GivenScore(lower=name not in higher)
        return metric_in(corpora["language"], {"name": name})

    def propose(self, overrides: Sequence[str]) -> Answer:
        """Judge a proposal, or go on with it.

        Raises:
            UserError: nothing was decided.
            RunError: a run failed, and nothing was decided.
        """
        loop, options = self.loop, self.options
        base = loop.baseline.content
        proposal = _named(options.propose, options.scores, overrides, base, loop.settings.command)
        self._check(proposal)
        trial = loop.trials.get(proposal.name)
        if trial is None:
            content = {"identity": proposal.identity, "content": dict(proposal.content)}
            loop.append("proposal", {"name": proposal.name, **content})
            trial = loop.trials[proposal.name]
        if options.withdraw and trial.word is None:
            loop.append("word", {"name": trial.name, **self.answer(trial, "drop", WITHDRAWN)})
        try:
            while (due := loop.due(trial)) is not None:
                loop.append(due.kind, {"name": trial.name, **self._found(trial, proposal, due)})
        except MissingError as missing:
            seeds = ", ".join(map(str, missing.seeds))
            reason = f"seeds {seeds} of {missing.system} on the {missing.part} set are missing"
            wanted = {"system": missing.system, "set": missing.part, "seeds": list(missing.seeds)}
            return self.answer(trial, "more", reason) | {"next": "add them, and call again", "missing": wanted}
        assert trial.word is not None
        return {**trial.answer, "next": NEXT[trial.word].format(name=trial.name)}

    def _check(self, proposal: Proposal) -> None:
        """Raise UserError if a proposal cannot be judged now, under this name, or on these sets."""
        loop, name, where = self.loop, proposal.name, option("propose")
        if loop.closed:
            raise UserError("this loop is closed", where=str(loop.ledger.path))
        busy = loop.open_confirmation
        if busy is not None and busy.name != name:
            what = f"the confirmation of {busy.name} has begun, and has to end first"
            raise UserError(what, where=where, received=name, allowed=f"{busy.name}, or {option('withdraw')} beside it")
        known = loop.trials[name].identity if name in loop.trials else None
        if name == loop.settings.baseline:
            known = loop.settings.identity
        if known is not None and known != proposal.identity and not self._is_unchanged(proposal):
            what = "this name had another content; a changed proposal has a new name"
            raise UserError(what, where=where, received=name)
        if ("recipe" in proposal.content or "runs" in proposal.content) == (loop.settings.corpora is None):
            what = "the proposals of a loop are all scored by metrics, or all by programs"
            raise UserError(what, where=where, received=name)
        _check_unseen(proposal, self.bench.corpora)

    def _is_unchanged(self, proposal: Proposal) -> bool:
        """Whether a folder has all files as they were proposed; new ones are outputs of the program."""
        known = self.loop.trials.get(proposal.name)
        files = dict(known.content).get("files") if known is not None else None
        return files is not None and files.items() <= dict(proposal.content).get("files", {}).items()

    def _baseline(self, generation: int = -1) -> Proposal:
        """A baseline, with further runs of it that the user has named."""
        baseline = self.loop.baselines[generation]
        more = self.options.baseline
        if more and generation == -1:
            given = _named(more, None, (), None, None)
            if given.name != baseline.name or "runs" not in given.content or "runs" not in baseline.content:
                what = "further cells are run folders of the baseline"
                raise UserError(what, where=option("baseline"), received=given.name, allowed=baseline.name)
            runs = {**baseline.content["runs"], **given.content["runs"]}
            return proposal_of(baseline.name, "", {"runs": runs})
        return proposal_of(baseline.name, "", baseline.content)

    def _bank(self, part: Part) -> list[CellResult]:
        """The cells of the baseline on a set. Raises UserError if one of its seeds diverges."""
        try:
            return self._baseline().cells(part, self.loop.bank_seeds(part), self.bench)
        except DivergedError as error:
            raise UserError(f"{error}; a baseline has to train with every seed") from error

    def _found(self, trial: Trial, proposal: Proposal, due: Due) -> dict[str, Any]:
        """The fields of a line that is due, after the work that it asks for."""
        if due.kind == "word":
            return self.answer(trial, due.fields["word"], due.fields["reason"])
        if due.kind == "confirm":
            return dict(due.fields)
        try:
            found = self._measured(proposal, due)
        except DivergedError as error:
            found = {"diverged": error.seed, "outputs": []}
        if due.part == "sealed":
            found = {"sealed": sealed(found)}
        return dict(due.fields) | found

    def _measured(self, proposal: Proposal, due: Due) -> dict[str, Any]:
        """The scores that a line asks for, and how sure a difference from the baseline is."""
        part, generation = due.part, len(self.loop.baselines) - 1
        bank = self._bank(part)
        if due.kind != "bank":
            cells, others = proposal.cells(part, due.seeds, self.bench), bank
        else:
            cells = others = bank
            if generation and part == "sealed":
                seeds = self.loop.bank_seeds(part, generation - 1)
                others = self._baseline(generation - 1).cells(part, seeds, self.bench)
        if cells[0].outputs[0].test.references != others[0].outputs[0].test.references:
            raise UserError("these are not the segments of the baseline", where=f"{proposal.name}, the {part} set")
        measures = dict[str, Any]()
        for name, metric in self.metrics.items():
            own = linearised(metric, cells)
            difference = unpaired(linearised(metric, others), own)
            scores = tuple(own.scores.tolist())
            measures[name] = Measured(scores=scores, **{key: getattr(difference, key) for key in VARIANCES})
        dumped = {name: one.model_dump(mode="json") for name, one in measures.items()}
        return {"measures": dumped, "outputs": [outputs_hash(cell) for cell in cells]}

    def answer(self, trial: Trial, word: str, reason: str) -> Answer:
        """The answer on a proposal. Of the sealed set it has numbers after a keep alone."""
        loop, confirmation = self.loop, trial.confirmation or None
        least, begun = loop.settings.least, loop.confirmations
        found: Answer = {
            "word": word, "proposal": trial.name, "baseline": loop.baseline.name, "confirmation": confirmation,
            "level": confirmation and float(confirmation_level(confirmation)), "seeds": trial.runs,
        }  # fmt: skip
        names = "difference", "low", "high"
        if trial.screened and "public" in loop.baseline.banks:
            found |= dict(zip(names, interval(loop.public_evidence(trial), least), strict=True))
        if word == "keep":
            evidence = loop.sealed_evidence(trial)[0]
            ends = interval(evidence, least)
            found["bound"] = float(evidence.bound(loop.tail(trial))) + least
            found |= {f"sealed_{name}": value for name, value in zip(names, ends, strict=True)}
        error = {"error_spent": spent(begun), "error_left": ERROR - spent(begun)}
        return found | error | {"runs": loop.runs, "reason": reason}


VARIANCES = "segments", "segment_variance", "interaction"


@contextmanager
def judging(path: Path, options: GateOptions) -> Iterator[Judge]:
    """The judge of a ledger, which no other process writes within this context. Raises UserError."""
    if not path.is_file():
        raise UserError("there is no such ledger", where=str(path), allowed="a new one: headway gate new")
    with opened(path, options.wait) as ledger:
        yield Judge(ledger, options)


def close(path: Path, options: GateOptions, test: str | None) -> Answer:
    """Compare fresh seeds of the first and the last baseline on a third test set, and end the loop.

    Raises:
        UserError: nothing was kept, or the test set was used in the loop.
    """
    with judging(path, options) as judge:
        loop = judge.loop
        if loop.closed:
            raise UserError("this loop is closed", where=str(path))
        if len(loop.baselines) == 1:
            raise UserError("nothing was kept, so that there is nothing to compare", where=str(path))
        if loop.settings.corpora is not None:
            judge.bench = replace(judge.bench, corpora=_with_test(judge, test))
        elif test is not None:
            what = "programs write the scores of this set as the set test"
            raise UserError(what, where=option("test"))
        seeds = range(CLOSING_SEEDS + 1, CLOSING_SEEDS + 1 + loop.preset.bank)
        cells = [
            cell
            for generation in (0, len(loop.baselines) - 1)
            for cell in judge._baseline(generation).cells("test", seeds, judge.bench)
        ]
        first, last = loop.baselines[0].name, loop.baseline.name
        found = with_limits(compare_cells(cells, list(judge.metrics.values()), baseline=first), tuned=None)
        pairs = [
            {"metric": pair.metric, "difference": pair.difference, "low": pair.interval[0], "high": pair.interval[1],
             "p": pair.p_value, "verdict": pair.verdict, "limits": list(pair.limits)}
            for pair in found.pairs
        ]  # fmt: skip
        answer = {"word": "closed", "first": first, "last": last, "seeds": len(seeds), "pairs": pairs}
        loop.append("closed", {"answer": answer})
        return answer


def _with_test(judge: Judge, test: str | None) -> dict[str, NamedCorpus]:
    """The sets of a loop, with a third one. Raises UserError if it was used in the loop."""
    if test is None:
        raise UserError("a loop is closed on a third test set", where=option("test"))
    sets = judge.bench.corpora
    third = NamedCorpus("test", _corpus(test, "test"), key=option("test"), written=sets["public"].written)
    used = {content(file) for one in sets.values() for file in corpus_files(one.corpus)}
    _check_files(third, used, "the sets of the loop")
    return {**sets, "test": third}
