"""The cells of a comparison (one variant trained with one seed) and the test sets that they are compared on.

Shapes: N segments, R sets of references.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, compress
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import FiniteFloat, TypeAdapter

from headway.comparison.options import DocumentColumn, Documents
from headway.core.documents import read_json, shaped
from headway.core.errors import UserError, nearest, option
from headway.core.files import exists, sha256, write_json
from headway.core.languages import BETWEEN_CHARACTERS
from headway.core.log import warn
from headway.formats.alignments import LinksFrom, check_links, read_alignments
from headway.formats.corpus_config import AnyCorpus, CorpusConfig, parse_corpus, parts
from headway.formats.corpus_format import content_hash, open_format
from headway.formats.lines import read_lines
from headway.metrics import Metric
from headway.metrics.intervals import summed
from headway.metrics.metric import Kind, Statistics
from headway.predictors.output import Example
from headway.processing.text.text_processor import PreparationConfig, prepare
from headway.recipe import Recipe
from headway.runs.run import open_run
from headway.tasks import build_task

SURE = 0.9  # outputs are tokenised if this share of the matches has a blank, and not tokenised below 1 - SURE
LEAST = 10  # the fewest matches from which tokenisation is judged

PUNCTUATION = re.compile(r"(?<=\w)( ?)[.,!?;:](?=\s|$)")
PIECES = re.compile(r"@@(?=\s|$)|▁")


@dataclass(frozen=True)
class EvaluationSet:
    """A test set, shared by all cells.

    Args:
        name: unique among the test sets of a comparison.
        references: R sets of N texts each.
        sources: N texts; empty if they are not known.
        groups: the group of each segment, such as a length or a language, for scores by group; empty without groups.
        steps: the normalisation steps of the references, separated by commas.
        documents: the document of each segment; empty if segments are independent.
    """

    name: str
    references: tuple[tuple[str, ...], ...]
    sources: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    steps: str = ""
    documents: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.references[0])

    def by_document(self, statistics: Statistics, chosen: NDArray[np.bool_] | None = None) -> Statistics:
        """The statistics of the documents, or of the segments without documents, from those of the chosen segments."""
        rows = statistics if chosen is None else statistics[chosen]
        documents = self.documents if chosen is None else [*compress(self.documents, chosen)]
        return summed(rows, documents) if documents else rows


@dataclass(frozen=True)
class CellOutput:
    """The N hypotheses of a cell for a test set."""

    test: EvaluationSet
    hypotheses: tuple[str, ...]

    @property
    def scored(self) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...], tuple[str, ...]]:
        """The arguments of a metric: the hypotheses, the sets of references, and the sources."""
        return self.hypotheses, self.test.references, self.test.sources


@dataclass(frozen=True)
class Costs:
    """The training and decoding costs of a cell. An unknown cost is None.

    Args:
        parameters: the number of parameters of the model.
        flops_per_token: floating-point operations of a forward pass, per target token.
        training_flops: floating-point operations of training: three times those of a forward pass, for every target
            token.
        cpu_seconds: processor time of training, summed over threads.
        gpu_seconds: accelerator time of training.
        training_tokens_per_second: target tokens per second in training.
        decoding_tokens_per_second: target tokens per second in decoding.
        peak_memory: the peak memory of training, in bytes.
        decoding_state: the bytes of decoding state per sentence.
        learning_rate: the tuned learning rate, or else the recipe's; text if it differs between seeds.
    """

    parameters: int | None = None
    flops_per_token: FiniteFloat | None = None
    training_flops: FiniteFloat | None = None
    cpu_seconds: FiniteFloat | None = None
    gpu_seconds: FiniteFloat | None = None
    training_tokens_per_second: FiniteFloat | None = None
    decoding_tokens_per_second: FiniteFloat | None = None
    peak_memory: int | None = None
    decoding_state: int | None = None
    learning_rate: FiniteFloat | str | None = None

    def known(self) -> dict[str, Any]:
        """The known costs, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class CurvePoint:
    """An evaluation on the development set during training.

    Args:
        update: the number of updates before the evaluation.
        seconds: processor time of training before the evaluation; wall-clock time on an accelerator, or if the
            processor time is not known.
        scores: by the name of the metric; `loss` is the cross-entropy per token.
    """

    update: int
    seconds: FiniteFloat
    scores: Mapping[str, float]


class CellName(NamedTuple):
    """The variant and the seed that identify a cell, and the path of its outputs."""

    variant: str
    seed: int
    path: Path | None = None

    def __str__(self) -> str:
        return f"{self.variant}, seed {self.seed}"


@dataclass(frozen=True)
class CellResult:
    """The result of one variant with one seed.

    Args:
        variant: the variant's name.
        seed: pairs the cell with the cells of other variants.
        outputs: one for each test set, in the same order in all cells.
        path: the run folder, or the file of hypotheses.
        costs: the training and decoding costs.
        curve: the evaluations on the development set, in order.
        precision: the precision of training, in the format of `precision_of`; empty if it is not known.
        dev_steps: the normalisation steps of the development references, separated by commas.
        rate: the learning rate of training; None if it is not known, as for an imported model.
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
        return CellName(self.variant, self.seed, self.path)


@dataclass(frozen=True)
class KeptResult:
    """A result stored in a file. `of` is a stamp of the inputs that the result was computed from."""

    of: Any
    result: CellResult


_KEPT = TypeAdapter(KeptResult)


def write_result(path: Path, result: CellResult, of: Mapping[str, Any]) -> None:
    """Write a result and its stamp atomically."""
    write_json(path, _KEPT.dump_python(KeptResult(of, result), mode="json"))


def read_kept(path: Path) -> KeptResult | None:
    """Read a stored result with its stamp. None if there is no file. Raises UserError if the file is damaged."""
    if not path.is_file():
        return None
    return shaped(read_json(path, what="result of this cell"), _KEPT, str(path), "the result of this cell")


def read_result(path: Path, of: Mapping[str, Any]) -> CellResult | None:
    """Read a stored result as `read_kept` does. None if there is no file, or if its stamp is not `of`."""
    kept = read_kept(path)
    return kept.result if kept is not None and kept.of == of else None


def check_cells(cells: Sequence[CellResult], baseline: str | None = None, *, any_tokenization: bool = False) -> None:
    """Check that cells can be compared.

    Raises:
        UserError: see `check_names`; or the test sets differ, a segment has no hypothesis, or the hypotheses of some
            cells look tokenised and those of others do not (unless `any_tokenization` allows it).
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
    """Check the names of cells before any work: at least `least` variants, all with the same seeds.

    Raises:
        UserError: too few variants, two cells of one name, a missing seed, or an unknown baseline.
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
        if missing and any(len(other) > 1 for other in seeds.values()):  # single seeds may differ
            allowed = f"the seeds of all variants: {', '.join(map(str, every))}"
            what = f"seed {missing} is missing; seeds are paired by their number"
            raise UserError(what, where=name, received=", ".join(map(str, sorted(row))), allowed=allowed)


def check_set(test: EvaluationSet, where: str) -> None:
    """Raise UserError if a test set has fewer than two segments, or documents: too few for a confidence interval."""
    if len(test) < 2:
        raise UserError("an interval needs two segments or more", where=where, received=len(test))
    if len({*test.documents}) == 1:
        raise UserError("an interval needs two documents or more", where=where, received=1)


def check_lines(output: CellOutput, where: str) -> None:
    """Raise UserError unless each reference has a hypothesis, and a source and a group if the test set has them."""
    test = output.test
    given = {"hypotheses": output.hypotheses, "sources": test.sources, "groups": test.groups}
    given["documents"] = test.documents
    for name, lines in [*given.items(), *(("references", lines) for lines in test.references)]:
        if len(lines) != len(test) and (lines or name == "hypotheses"):
            what = f"{len(lines):,} {name} for {len(test):,} references; there must be one a segment"
            raise UserError(what, where=f"{where}, {test.name}")


def check_margin(margin: Mapping[str, float], metrics: Sequence[Metric]) -> None:
    """Raise UserError if a margin's key is neither the name nor the label of a metric."""
    names = {name for metric in metrics for name in (metric.name, metric.label)}
    for name in [name for name in margin if name not in names]:
        raise UserError(f"no such metric here{nearest(name, names)}", where=f"margin.{name}", allowed=sorted(names))


def _share(places: re.Pattern[str], text: str) -> float | None:
    """The share of the pattern's matches that have a blank, or None if there are fewer than `LEAST` matches."""
    found = [bool(blank) for blank in places.findall(text)]
    return sum(found) / len(found) if len(found) >= LEAST else None


def _check_tokenization(cells: Sequence[CellResult]) -> None:
    """Raise UserError if the hypotheses of one cell look tokenised and those of another do not."""
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
    """Raise UserError if two runs of one variant were trained on different data. `allowed` says how to continue.

    Incomplete runs check their data when they resume.
    """
    known: dict[str, tuple[Path, str]] = {}
    for path, recipe in runs:
        trained = open_run(path).manifest.get("data", {}).get("train")
        if trained is None:
            continue
        # The sections of a recipe that may determine which training data are read, and how.
        read = recipe.model_dump(mode="json", exclude={"training", "optimizer", "decoding"})
        ground = json.dumps(read, sort_keys=True)
        first, before = known.setdefault(ground, (path, trained))
        if trained != before:
            what = f"this run was trained on other data than {first.parent.name}/{first.name}"
            raise UserError(what, where=str(path), allowed=allowed)


@dataclass(frozen=True)
class NamedCorpus:
    """A corpus that outputs are scored on, with absolute paths; see `EvaluationSetConfig`.

    `key`: the corpus's name in error messages, by default `test.NAME`. `written`: how references are normalised before
    scoring; None leaves them unchanged. `links_from`: see `read_alignments`. `documents`: see `documents_of`.
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
    documents: Documents | None = None

    @property
    def steps(self) -> str:
        """The normalisation steps of the references, separated by commas."""
        if self.written is None or self.alignments is not None or self.evenness:
            return ""
        return ", ".join(self.written.normalise)

    @property
    def where(self) -> str:
        """The name of the corpus in error messages."""
        return self.key or f"test.{self.name}"

    def kind(self, writes: Kind) -> Kind:
        """The kind of the scored outputs, for models that write outputs of the kind `writes`."""
        return "links" if self.alignments else "numbers" if self.evenness else writes

    def fingerprint(self) -> str:
        """A hash of all files, of the options that they are read with, and of what models are evaluated for."""
        beside = (path for path in (self.groups, self.alignments, self.documents) if isinstance(path, Path))
        files = [*corpus_files(self.corpus), *beside]
        options = [part.model_dump_json() for _, part in parts(self.corpus, self.name)]
        asked = [*(["evenness"] if self.evenness else []), *([f"references {self.steps}"] if self.steps else [])]
        asked += ["links from 1"] if self.links_from else []
        asked += ["documents"] if self.documents else []
        asked += [str(self.documents.column)] if isinstance(self.documents, DocumentColumn) else []
        return content_hash([self.name, *options, *map(content, files), *asked])


def shared_references(configs: Mapping[str, PreparationConfig | None]) -> PreparationConfig | None:
    """How the references of a test set are normalised: as all systems write, or None if the systems differ.

    Compared systems are scored against the same references. These stay unchanged if the systems write differently
    normalised texts.
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
    """A name for a corpus, from its first file."""
    path = next(iter(corpus_files(corpus)), None)
    return "test" if path is None else path.name.split(".")[0]


def corpus_files(corpus: AnyCorpus) -> Iterator[Path]:
    """The files of a corpus."""
    for _, part in parts(corpus, "test"):
        for _, value in part:
            yield from (path for path in (value if isinstance(value, tuple) else (value,)) if isinstance(path, Path))


def content(path: Path) -> str:
    """A hash of a file's content, or its path if the file does not exist."""
    return sha256(path) if exists(path, "file") else str(path)


def read_corpus(recipe: Recipe, corpus: NamedCorpus) -> tuple[Sequence[Example], EvaluationSet]:
    """Read a test set as the recipe's task does: the examples, and the references that outputs are scored against.

    Raises:
        UserError: files are missing or damaged, examples lack references, or the number of groups is wrong.
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
    sources = tuple(example.source for example in examples)
    documents = documents_of(corpus.documents, sources, where, corpus.corpus)
    by = option("by") if corpus.key else f"{where}.groups"
    beside = ((by, corpus.groups, groups), (where, corpus.alignments, references[0]))
    for place, path, lines in (*beside, (f"{where}.documents", corpus.documents, documents)):
        if path is not None and len(lines) != len(examples):
            raise UserError(f"{len(lines)} lines for {len(examples)} examples", where=f"{place}: {path}")
    return examples, EvaluationSet(corpus.name, references, sources, groups, corpus.steps, documents)


def documents_of(given: Documents | None, lines: Sequence[str], where: str, corpus: AnyCorpus = ()) -> tuple[str, ...]:
    """The document of each segment: its line in a file, its cell in a column of `corpus`, or by blank lines.

    A blank line ends a document. Empty if no documents are `given`. A test set with blank lines is then warned of.
    Raises UserError if there are no such documents.
    """
    if isinstance(given, Path):
        return tuple(read_lines(given))
    if isinstance(given, DocumentColumn):
        return tuple(_column_of(corpus, given.column, f"{where}.documents"))
    numbers = [*accumulate(int(not line.strip()) for line in lines)]
    marked = len({number for number, line in zip(numbers, lines, strict=True) if line.strip()}) > 1
    if given is None:
        if marked:
            named = f"{option('unit')} document, or documents: blank of a grid's test set, counts documents"
            warn(f"{where}: blank lines mark documents, whose segments are not independent; {named}")
        return ()
    if not marked:
        raise UserError("no blank line ends a document here", where=where)
    return tuple(map(str, numbers))


def _column_of(corpus: AnyCorpus, column: int | str, where: str) -> Iterator[str]:
    """The cells of a column of all tables of a corpus. Raises UserError if a part is no table, or lacks the column."""
    for key, part in parts(corpus, where):
        if "columns" not in type(part).model_fields:
            raise UserError("only tables have columns", where=key, received=part.kind, allowed="tsv, jsonl or hub")
        table = parse_corpus(part.model_dump(exclude_unset=True) | {"columns": (column, column)}, key)
        for row in open_format(cast(CorpusConfig, table), key).pairs().rows():
            if isinstance(row, UserError):
                raise row
            yield row.source


def read_test_set(recipe: Recipe, corpus: NamedCorpus) -> EvaluationSet:
    """Read a test set to compare systems on. Raises UserError as `read_corpus`, `check_links` and `check_set`."""
    examples, test = read_corpus(recipe, corpus)
    if corpus.alignments is not None:
        counts = _word_counts(recipe, corpus, examples)
        check_links(test.references[0], counts, f"{corpus.where}: {corpus.alignments}")
    check_set(test, corpus.where)
    return test


def _word_counts(recipe: Recipe, corpus: NamedCorpus, examples: Sequence[Example]) -> Iterator[tuple[int, int]]:
    """The numbers of words in the source (without tags) and the target of each example, after preparation."""
    tags = {tag for _, part in parts(corpus.corpus, corpus.where) for tag in (part.tag or "").split()}
    for example in examples:
        source = " ".join(word for word in example.source.split() if word not in tags)
        prepared = prepare(source, recipe.text.source), prepare(example.target or "", recipe.text.target)
        yield len(prepared[0].split()), len(prepared[1].split())


def learning_curve(run: Path) -> Iterator[CurvePoint]:
    """The evaluations of a run on the development set that have finite scores, with these scores only.

    Raises:
        UserError: metrics.jsonl is missing, a line is damaged, or a line has scores but no time.
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
    """Whether the manifest of a run names an accelerator."""
    return bool(manifest.get("machine", {}).get("accelerator"))
