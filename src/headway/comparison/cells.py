"""Cells of a comparison, what one variant did with one seed, and the test sets that they are compared on.

Shapes: N segments, R sets of references.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import FiniteFloat, TypeAdapter

from headway.core.documents import read_json, shaped
from headway.core.errors import UserError, nearest, option
from headway.core.files import exists, sha256, write_json
from headway.core.languages import BETWEEN_CHARACTERS
from headway.core.log import warn
from headway.formats.alignments import LinksFrom, check_links, read_alignments
from headway.formats.corpus_config import AnyCorpus, parts
from headway.formats.corpus_format import content_hash
from headway.formats.lines import read_lines
from headway.metrics import Metric
from headway.metrics.metric import Kind
from headway.predictors.output import Example
from headway.processing.text.text_processor import PreparationConfig, prepare
from headway.recipe import Recipe
from headway.runs.run import open_run
from headway.tasks import build_task

SURE = 0.9  # the share from which on outputs are called tokenised; below 1 - SURE they are not
LEAST = 10  # places that must be seen before anything is said

PUNCTUATION = re.compile(r"(?<=\w)( ?)[.,!?;:](?=\s|$)")
PIECES = re.compile(r"@@(?=\s|$)|▁")


@dataclass(frozen=True)
class EvaluationSet:
    """A test set, the same for all cells.

    Args:
        name: tells it apart from others.
        references: R sets of N texts each.
        sources: N texts; none where they are not known.
        groups: N names of groups, such as lengths or languages, that are scored apart; none without groups.
        steps: those that normalised the references, separated by commas.
    """

    name: str
    references: tuple[tuple[str, ...], ...]
    sources: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    steps: str = ""

    def __len__(self) -> int:
        return len(self.references[0])


@dataclass(frozen=True)
class CellOutput:
    """The N hypotheses of a cell for a test set."""

    test: EvaluationSet
    hypotheses: tuple[str, ...]

    @property
    def scored(self) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...], tuple[str, ...]]:
        """All that metrics look at: the hypotheses, their references and their sources."""
        return self.hypotheses, self.test.references, self.test.sources


@dataclass(frozen=True)
class Costs:
    """The price of a cell; None where it is not known.

    Args:
        parameters: of the model.
        flops_per_token: forward, a target token.
        cpu_seconds: processor time of training, over all its threads.
        gpu_seconds: time of an accelerator in training.
        training_tokens_per_second: target tokens.
        decoding_tokens_per_second: target tokens.
        peak_memory: of training, in bytes.
        decoding_state: bytes that decoding keeps for a sentence.
        learning_rate: the best that tuning found, or that of the recipe; of several seeds, all different ones.
    """

    parameters: int | None = None
    flops_per_token: FiniteFloat | None = None
    cpu_seconds: FiniteFloat | None = None
    gpu_seconds: FiniteFloat | None = None
    training_tokens_per_second: FiniteFloat | None = None
    decoding_tokens_per_second: FiniteFloat | None = None
    peak_memory: int | None = None
    decoding_state: int | None = None
    learning_rate: FiniteFloat | str | None = None

    def known(self) -> dict[str, Any]:
        """Those that are known, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class CurvePoint:
    """An evaluation on dev in training.

    Args:
        update: the number of updates before it.
        seconds: processor time of training before it; wall-clock time where an accelerator trained, or no other is
            known.
        scores: by the name of a metric; `loss` is the cross-entropy a token.
    """

    update: int
    seconds: FiniteFloat
    scores: Mapping[str, float]


class CellName(NamedTuple):
    """A variant with its seed, and where they are from."""

    variant: str
    seed: int
    path: Path | None = None

    def __str__(self) -> str:
        return f"{self.variant}, seed {self.seed}"


@dataclass(frozen=True)
class CellResult:
    """One variant with one seed.

    Args:
        variant: its name.
        seed: pairs it with the cells of other variants.
        outputs: for each test set, in the order that all cells have.
        path: the run folder, or the file of the hypotheses.
        costs: the price of it.
        curve: the evaluations on dev, in their order.
        precision: of training, as `precision_of` has it; empty where it is not known.
        dev_steps: those that normalised the references of dev, separated by commas.
        rate: the recipe's learning rate; None where it is not known.
    """

    variant: str
    seed: int
    outputs: tuple[CellOutput, ...]
    path: Path | None = None
    costs: Costs = Costs()
    curve: tuple[CurvePoint, ...] = field(default=(), repr=False)
    precision: str = ""
    dev_steps: str = ""
    rate: float | None = None

    @property
    def name(self) -> CellName:
        """The variant with its seed."""
        return CellName(self.variant, self.seed, self.path)


@dataclass(frozen=True)
class KeptResult:
    """A result as a file keeps it, with a stamp of all that it was made from."""

    of: Any
    result: CellResult


_KEPT = TypeAdapter(KeptResult)


def write_result(path: Path, result: CellResult, of: Mapping[str, Any]) -> None:
    """Write a result whole, with its stamp."""
    write_json(path, _KEPT.dump_python(KeptResult(of, result), mode="json"))


def read_kept(path: Path) -> KeptResult | None:
    """The result that a file keeps; None if there is no file. Raises UserError if it is damaged."""
    if not path.is_file():
        return None
    return shaped(read_json(path, what="result of this cell"), _KEPT, str(path), "the result of this cell")


def read_result(path: Path, of: Mapping[str, Any]) -> CellResult | None:
    """A result that was written with this stamp; None if there is none. Raises UserError as `read_kept`."""
    kept = read_kept(path)
    return kept.result if kept is not None and kept.of == of else None


def check_cells(cells: Sequence[CellResult], baseline: str | None = None, *, any_tokenization: bool = False) -> None:
    """See that cells can be compared.

    Raises:
        UserError: as `check_names`; test sets that are not the same, hypotheses that are not one a segment or, unless
            that is allowed, some that look tokenised and others that do not.
    """
    check_names([cell.name for cell in cells], baseline)
    first = [(output.test.name, output.test.references) for output in cells[0].outputs]
    for cell in cells:
        tests = [(output.test.name, output.test.references) for output in cell.outputs]
        if tests != first:
            received, allowed = (", ".join(name for name, _ in given) for given in (tests, first))
            what = f"the test sets, or their references, are not those of {cells[0].name}"
            raise UserError(what, where=str(cell.name), received=received, allowed=allowed)
        for output in cell.outputs:
            check_lines(output, str(cell.name))
    if not any_tokenization:
        _check_tokenization(cells)


def check_names(cells: Sequence[CellName], baseline: str | None = None, *, least: int = 1) -> None:
    """See that cells make a table of so many variants or more, before any work.

    Raises:
        UserError: fewer variants, two cells of one name, a seed that a variant has not, or no such baseline.
    """
    seeds = dict[str, list[int]]()
    for cell in cells:
        if cell.seed in seeds.setdefault(cell.variant, []):
            paths = [str(other.path) for other in cells if str(other) == str(cell) and other.path is not None]
            allowed = "another one for each: NAME:SEED=PATH"
            raise UserError("two cells of one name", where=str(cell), received=", ".join(paths), allowed=allowed)
        seeds[cell.variant].append(cell.seed)
    if len(seeds) < least:
        what = "a comparison needs two variants or more" if least > 1 else "there are no outputs to be scored"
        raise UserError(what, where="variants", received=", ".join(seeds))
    if baseline is not None and baseline not in seeds:
        what = f"no such variant{nearest(baseline, seeds)}"
        raise UserError(what, where=option("baseline"), received=baseline, allowed=seeds)
    every = sorted(set().union(*seeds.values()))
    for name, row in seeds.items():
        missing = ", ".join(str(seed) for seed in every if seed not in row)
        if missing and any(len(other) > 1 for other in seeds.values()):  # a seed alone is paired with any
            allowed = f"the seeds of all variants: {', '.join(map(str, every))}"
            what = f"seed {missing} is missing; seeds are paired by their number"
            raise UserError(what, where=name, received=", ".join(map(str, sorted(row))), allowed=allowed)


def check_set(test: EvaluationSet, where: str) -> None:
    """Raise UserError where a test set is too small for an interval."""
    if len(test) < 2:
        raise UserError("an interval needs two segments or more", where=where, received=len(test))


def check_lines(output: CellOutput, where: str) -> None:
    """Raise UserError unless there is a hypothesis, a source and a group, where there are any, for each reference."""
    test = output.test
    given = {"hypotheses": output.hypotheses, "sources": test.sources, "groups": test.groups}
    for name, lines in [*given.items(), *(("references", lines) for lines in test.references)]:
        if len(lines) != len(test) and (lines or name == "hypotheses"):
            what = f"{len(lines):,} {name} for {len(test):,} references; there must be one a segment"
            raise UserError(what, where=f"{where}, {test.name}")


def check_margin(margin: Mapping[str, float], metrics: Sequence[Metric]) -> None:
    """Raise UserError for a margin of no metric by its name or label."""
    names = {name for metric in metrics for name in (metric.name, metric.label)}
    for name in [name for name in margin if name not in names]:
        raise UserError(f"no such metric here{nearest(name, names)}", where=f"margin.{name}", allowed=sorted(names))


def _share(places: re.Pattern[str], text: str) -> float | None:
    """The share of places at which a blank stands, where there are enough of them."""
    found = [bool(blank) for blank in places.findall(text)]
    return sum(found) / len(found) if len(found) >= LEAST else None


def _check_tokenization(cells: Sequence[CellResult]) -> None:
    """Raise UserError where the hypotheses of one cell look tokenised and those of another do not."""
    for outputs in zip(*(cell.outputs for cell in cells), strict=True):
        texts = ["\n".join(output.hypotheses) for output in outputs]
        for kind, shares in (
            ("punctuation stands apart", [_share(PUNCTUATION, text) for text in texts]),
            ("characters stand apart", [_share(BETWEEN_CHARACTERS, text) for text in texts]),
            ("pieces are not joined", [float(len(PIECES.findall(text)) >= LEAST) for text in texts]),
        ):
            known = [(share, cell) for share, cell in zip(shares, cells, strict=True) if share is not None]
            apart = [str(cell.name) for share, cell in known if share >= SURE]
            joined = [str(cell.name) for share, cell in known if share <= 1 - SURE]
            if apart and joined:
                what = f"these hypotheses are tokenised ({kind}), and those of {joined[0]} are not"
                allowed = f"the same tokenisation for all, or {option('any_tokenization')}"
                raise UserError(what, where=apart[0], allowed=allowed)


def check_same_data(runs: Iterable[tuple[Path, Recipe]], allowed: str) -> None:
    """Raise UserError where the training data changed between two runs of one variant; `allowed` says what to do then.

    Runs that are not complete notice by themselves when they go on.
    """
    known: dict[str, tuple[Path, str]] = {}
    for path, recipe in runs:
        trained = open_run(path).manifest.get("data", {}).get("train")
        if trained is None:
            continue
        # All of a recipe that may decide what is read of its training data, and how.
        read = recipe.model_dump(mode="json", exclude={"training", "optimizer", "decoding"})
        ground = json.dumps(read, sort_keys=True)
        first, before = known.setdefault(ground, (path, trained))
        if trained != before:
            what = f"this run was trained on other data than {first.parent.name}/{first.name}"
            raise UserError(what, where=str(path), allowed=allowed)


@dataclass(frozen=True)
class NamedCorpus:
    """A corpus to score outputs on, with absolute paths; see `EvaluationSetConfig`.

    `key`: what names it, for messages; by default `test.NAME`. `written`: how references are normalised before they are
    scored; None as they are. `links_from`: see `read_alignments`.
    """

    name: str
    corpus: AnyCorpus
    groups: Path | None = None
    alignments: Path | None = None
    evenness: bool = False
    metrics: tuple[dict[str, Any], ...] | None = None
    key: str | None = None
    written: PreparationConfig | None = None
    links_from: LinksFrom = None

    @property
    def steps(self) -> str:
        """The steps that normalise the references, separated by commas."""
        if self.written is None or self.alignments is not None or self.evenness:
            return ""
        return ", ".join(self.written.normalise)

    @property
    def where(self) -> str:
        """Its place, for messages."""
        return self.key or f"test.{self.name}"

    def kind(self, writes: Kind) -> Kind:
        """The kind of outputs that are scored, of models that write outputs of a kind."""
        return "links" if self.alignments else "numbers" if self.evenness else writes

    def fingerprint(self) -> str:
        """A hash of the contents of all files, of how they are read, and of what is asked of a model."""
        files = [*corpus_files(self.corpus), *(path for path in (self.groups, self.alignments) if path)]
        options = [part.model_dump_json() for _, part in parts(self.corpus, self.name)]
        asked = [*(["evenness"] if self.evenness else []), *([f"references {self.steps}"] if self.steps else [])]
        asked += ["links from 1"] if self.links_from else []
        return content_hash([self.name, *options, *map(content, files), *asked])


def shared_references(configs: Mapping[str, PreparationConfig | None]) -> PreparationConfig | None:
    """How the references of a test set are normalised: as all systems, by name, write; None where these differ.

    Each system could write others. But systems that are compared are scored by the same references, and where they are
    to write different texts these are the references as they stand.
    """
    steps = {
        name: [*config.normalise, *([config.language] if "punctuation" in config.normalise else [])]
        for name, config in configs.items()
        if config is not None
    }
    if all(given == next(iter(steps.values())) for given in steps.values()):
        first = next(iter(configs.values()))
        return first and first.model_copy(update={"clean": all(config.clean for config in configs.values() if config)})
    shown = "; ".join(f"{name}: {', '.join(given) or 'none'}" for name, given in steps.items())
    warn(f"text.target.normalise differs, so that references are scored as they stand ({shown})")
    return None


def name_of_corpus(corpus: AnyCorpus) -> str:
    """A name for a corpus, after its first file."""
    path = next(iter(corpus_files(corpus)), None)
    return "test" if path is None else path.name.split(".")[0]


def corpus_files(corpus: AnyCorpus) -> Iterator[Path]:
    """The files that a corpus names."""
    for _, part in parts(corpus, "test"):
        for _, value in part:
            yield from (path for path in (value if isinstance(value, tuple) else (value,)) if isinstance(path, Path))


def content(path: Path) -> str:
    """A hash of a file's content; the path of one that is not there."""
    return sha256(path) if exists(path, "file") else str(path)


def read_corpus(recipe: Recipe, corpus: NamedCorpus) -> tuple[Sequence[Example], EvaluationSet]:
    """The examples of a test set, as the task of a recipe reads them, and how they are scored.

    Raises:
        UserError: files that are missing or at fault, examples without references, or not as many groups.
    """
    where = corpus.where
    examples = list(build_task(recipe.task).test_set(recipe, corpus.corpus, where).examples)
    if not examples or not all(example.references for example in examples):
        raise UserError("a test set has examples, each with a reference", where=where)
    if corpus.written is not None:
        examples = [example.as_written(corpus.written) for example in examples]
    groups = () if corpus.groups is None else tuple(read_lines(corpus.groups))
    references: tuple[tuple[str, ...], ...] = tuple(zip(*(example.references for example in examples), strict=True))
    if corpus.alignments is not None:
        references = (tuple(read_alignments(corpus.alignments, corpus.links_from)),)
    if corpus.evenness:
        if not all(example.words for example in examples):
            raise UserError("only taggers have self-attention a word", where=f"{where}.evenness")
        references = (tuple(" ".join("0" for _ in example.words) for example in examples),)
    by = option("by") if corpus.key else f"{where}.groups"
    for place, path, lines in ((by, corpus.groups, groups), (where, corpus.alignments, references[0])):
        if path is not None and len(lines) != len(examples):
            raise UserError(f"{len(lines)} lines for {len(examples)} examples", where=f"{place}: {path}")
    sources = tuple(example.source for example in examples)
    return examples, EvaluationSet(corpus.name, references, sources, groups, corpus.steps)


def read_test_set(recipe: Recipe, corpus: NamedCorpus) -> EvaluationSet:
    """A test set that systems can be compared on. Raises UserError as `read_corpus`, `check_links` and `check_set`."""
    examples, test = read_corpus(recipe, corpus)
    if corpus.alignments is not None:
        counts = _word_counts(recipe, corpus, examples)
        check_links(test.references[0], counts, f"{corpus.where}: {corpus.alignments}")
    check_set(test, corpus.where)
    return test


def _word_counts(recipe: Recipe, corpus: NamedCorpus, examples: Sequence[Example]) -> Iterator[tuple[int, int]]:
    """The words of the source, tags aside, and of the target of each example, as a model of the recipe has them."""
    tags = {tag for _, part in parts(corpus.corpus, corpus.where) for tag in (part.tag or "").split()}
    for example in examples:
        source = " ".join(word for word in example.source.split() if word not in tags)
        prepared = prepare(source, recipe.text.source), prepare(example.target or "", recipe.text.target)
        yield len(prepared[0].split()), len(prepared[1].split())


def learning_curve(run: Path) -> Iterator[CurvePoint]:
    """The evaluations on dev of a run, with those of their scores that are finite, and without those that have none.

    Raises:
        UserError: there is no metrics.jsonl, or a line of it is damaged, or has scores and no time.
    """
    on_accelerator = trained_on_accelerator(open_run(run).manifest)
    for entry in open_run(run).metrics:
        given = {"loss": entry.get("dev_loss"), **entry.get("dev", {})}
        scores = {name: score for name, score in given.items() if score is not None and math.isfinite(score)}
        if scores:
            clock = entry.get("seconds")
            seconds = clock if on_accelerator else entry.get("cpu_seconds", clock)
            if seconds is None:
                where, received = str(open_run(run).folder.metrics), f"update {entry['update']:,}"
                raise UserError("an evaluation has no seconds", where=where, received=received)
            yield CurvePoint(entry["update"], seconds, scores)


def trained_on_accelerator(manifest: Mapping[str, Any]) -> bool:
    """Whether the run of a manifest was trained on one."""
    return bool(manifest.get("machine", {}).get("accelerator"))
