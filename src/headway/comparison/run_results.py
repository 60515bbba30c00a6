"""The result of a run: its outputs for test sets, its costs and its learning curve."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.batched import batched
from headway.comparison.cells import CellOutput, CellResult, Costs, CurvePoint, EvaluationSet, check_set
from headway.comparison.grid import NamedCorpus
from headway.errors import UserError
from headway.formats.alignments import check_links, read_alignments
from headway.formats.corpus_config import parse_corpus, parts, paths_resolved
from headway.formats.lines import read_lines
from headway.metrics import Metric, as_metrics, check_kind
from headway.metrics.score_report import ScoreReport, score_texts
from headway.mixers import State
from headway.models import Seq2Seq
from headway.models.cross_attention import View
from headway.predictors.input_account import InputAccount, accounted
from headway.predictors.label_predictor import LabelPredictor
from headway.predictors.output import Example
from headway.predictors.sequence_predictor import SequencePredictor, TreePredictor
from headway.predictors.word_alignment import build_aligner
from headway.processing.text.text_processor import prepare
from headway.recipe import Recipe
from headway.registry import foreign_code
from headway.runs.inspect.analyses import of_words, word_deviations
from headway.runs.inspect.capture import ReadOptions, read
from headway.runs.inspect.pages import read_metrics
from headway.runs.inspect.parameters import parameters_of
from headway.runs.load import AnyPredictor, load
from headway.runs.run_folder import RunFolder
from headway.tasks import build_task, dev_metrics
from headway.tensors.batch import collate

TOGETHER = 128  # inputs that are decoded together: the frames of a recording take about 0.5 MB
LENGTH = 32  # tokens of a source and of a target, for FLOPs and the state


@dataclass(frozen=True)
class ReadCorpus:
    """A test set, read: its examples, and how they are scored."""

    examples: Sequence[Example]
    scored: EvaluationSet


def read_corpus(recipe: Recipe, corpus: NamedCorpus) -> ReadCorpus:
    """The examples of a test set, as the task of a recipe reads them.

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
        references = (tuple(read_alignments(corpus.alignments)),)
    if corpus.evenness:
        if not all(example.words for example in examples):
            raise UserError("only taggers have self-attention a word", where=f"{where}.evenness")
        references = (tuple(" ".join("0" for _ in example.words) for example in examples),)
    beside = [(corpus.groups, groups, corpus.where_groups)]
    beside.append((corpus.alignments, references[0], f"{where}: {corpus.alignments}"))
    for path, lines, place in beside:
        if path is not None and len(lines) != len(examples):
            raise UserError(f"{len(lines)} lines for {len(examples)} examples", where=place)
    sources = tuple(example.source for example in examples)
    return ReadCorpus(examples, EvaluationSet(corpus.name, references, sources, groups, corpus.steps))


def read_test_set(recipe: Recipe, corpus: NamedCorpus) -> EvaluationSet:
    """A test set that systems can be compared on. Raises UserError as `read_corpus`, `check_links` and `check_set`."""
    corpus_read = read_corpus(recipe, corpus)
    test = corpus_read.scored
    if corpus.alignments is not None:
        counts = _word_counts(recipe, corpus, corpus_read.examples)
        check_links(test.references[0], counts, f"{corpus.where}: {corpus.alignments}")
    check_set(test, corpus.where, corpus.where_groups)
    return test


def _word_counts(recipe: Recipe, corpus: NamedCorpus, examples: Sequence[Example]) -> Iterator[tuple[int, int]]:
    """The words of the source, tags aside, and of the target of each example, as a model of the recipe has them."""
    tags = {tag for _, part in parts(corpus.corpus, corpus.where) for tag in (part.tag or "").split()}
    for example in examples:
        source = " ".join(word for word in example.source.split() if word not in tags)
        prepared = prepare(source, recipe.text.source), prepare(example.target or "", recipe.text.target)
        yield len(prepared[0].split()), len(prepared[1].split())


@dataclass(frozen=True)
class DecodedSet:
    """The outputs of a run for a test set, how many tokens they have, and the seconds that they took."""

    hypotheses: tuple[str, ...]
    tokens: int
    seconds: float


def decode(predictor: AnyPredictor, examples: Sequence[Example], options: Mapping[str, Any]) -> DecodedSet:
    """The outputs of a run, as metrics read them. Raises UserError where an input cannot be read."""
    began, texts, tokens = time.perf_counter(), list[str](), 0
    with accounted():
        for some in batched(examples, TOGETHER):
            for text, count in _outputs(predictor, some, options):
                texts.append(text)
                tokens += count
    return DecodedSet(tuple(texts), tokens, time.perf_counter() - began)


def _outputs(
    predictor: AnyPredictor, examples: Sequence[Example], options: Mapping[str, Any]
) -> Iterator[tuple[str, int]]:
    """The output of each example with the number of its tokens, the end mark included."""
    if isinstance(predictor, LabelPredictor):
        for labelled in predictor.predict([example.words for example in examples], **options):
            yield " ".join(labelled.labels), len(labelled.labels)
        return
    if not isinstance(predictor, SequencePredictor):
        for output in predictor.predict([example.source for example in examples], **options):
            yield str(output), 0
        return
    decoding = {"truncate": True, **options}
    for prediction in predictor.predict([example.source for example in examples], **decoding):
        # Metrics of trees repair what the model wrote, and count how often that was needed.
        text = prediction.written if isinstance(predictor, TreePredictor) else prediction.text
        yield text, len(prediction.tokens) + 1


def align(predictor: AnyPredictor, examples: Sequence[Example]) -> Iterator[str]:
    """The word alignments that a run's attention makes of given pairs. Raises UserError where it has none."""
    if not isinstance(predictor, SequencePredictor):
        raise UserError("only models that write token by token align words", where="test.alignments")
    aligner = build_aligner(predictor)
    for some in batched(examples, TOGETHER):
        sources, targets = [example.source for example in some], [example.target or "" for example in some]
        with accounted(InputAccount()):
            forced = predictor.force(sources, targets, capture=(aligner.layer,))
        yield from (aligner(prediction).pharaoh() for prediction in forced)


def attend(predictor: AnyPredictor, examples: Sequence[Example]) -> Iterator[str]:
    """The deviation of the self-attention of each word from its mean, in the last layer or in all as they are weighted.

    Raises:
        UserError: the model is no tagger.
    """
    if not isinstance(predictor, LabelPredictor):
        raise UserError("only taggers have self-attention a word", where="test.evenness")
    for captured in read(predictor, examples, ReadOptions(hypotheses=False)):
        numbers = list[float]()
        for view in captured.views:
            by_layer, mixed = word_deviations(of_words(view.self_attention(), view.words or ()), view.layer_weights())
            numbers += (by_layer[-1] if mixed is None else mixed).tolist()
        yield " ".join(f"{number:.6g}" for number in numbers)


def result_of_run(
    run: Path,
    variant: str,
    seed: int,
    tests: Sequence[NamedCorpus],
    options: Mapping[str, Any] | None = None,
    *,
    peak_memory: int | None = None,
    device: str = "auto",
    allow_code: bool = True,
) -> CellResult:
    """Decode test sets with a finished run, and gather its costs and its curve.

    Args:
        run: the run folder.
        variant: the name that it is compared by.
        seed: pairs it with the runs of other variants.
        tests: what is decoded.
        options: of prediction.
        peak_memory: of training, in bytes.
        device: of the model.
        allow_code: import what the run names by import path, as one's own recipe may.

    Raises:
        UserError: a folder that holds no finished run, or test sets that cannot be read.
    """
    predictor = load(run, device=device, allow_code=allow_code)
    recipe, manifest = predictor.recipe, RunFolder(run).read_manifest()
    outputs, tokens, seconds = list[CellOutput](), 0, 0.0
    for test in tests:
        corpus = read_corpus(recipe, test)
        if test.alignments is not None or test.evenness:
            asked = (attend if test.evenness else align)(predictor, corpus.examples)
            outputs.append(CellOutput(corpus.scored, tuple(asked)))
            continue
        decoded = decode(predictor, corpus.examples, options or {})
        outputs.append(CellOutput(corpus.scored, decoded.hypotheses))
        tokens, seconds = tokens + decoded.tokens, seconds + decoded.seconds
    with foreign_code(allow_code):
        costs = _costs(predictor, run, manifest, tokens / seconds if seconds and tokens else None, peak_memory)
    curve, precision = tuple(learning_curve(run)), manifest.get("precision", "")
    return CellResult(variant, seed, tuple(outputs), run, costs, curve, precision, manifest.get("references", ""))


def learning_curve(run: Path) -> Iterator[CurvePoint]:
    """The evaluations on dev of a run, with those of their scores that are finite, and without those that have none.

    Raises:
        UserError: there is no metrics.jsonl, or a line of it is damaged, or has scores and no time.
    """
    on_accelerator = _trained_on_accelerator(RunFolder(run).read_manifest())
    for entry in read_metrics(RunFolder(run).metrics):
        given = {"loss": entry.get("dev_loss"), **entry.get("dev", {})}
        scores = {name: score for name, score in given.items() if score is not None and math.isfinite(score)}
        if scores:
            clock = entry.get("seconds")
            seconds = clock if on_accelerator else entry.get("cpu_seconds", clock)
            if seconds is None:
                where, received = str(RunFolder(run).metrics), f"update {entry['update']:,}"
                raise UserError("an evaluation has no seconds", where=where, received=received)
            yield CurvePoint(entry["update"], seconds, scores)


def _trained_on_accelerator(manifest: Mapping[str, Any]) -> bool:
    return bool(manifest.get("machine", {}).get("accelerator"))


def _costs(
    predictor: AnyPredictor, run: Path, manifest: dict[str, Any], decoding: float | None, peak_memory: int | None
) -> Costs:
    model = predictor.runs[0].model
    seconds, tokens = manifest.get("seconds"), manifest.get("target_tokens")
    flops = state = None
    # A model that cannot read so many tokens has none: costs at other lengths could not be compared.
    if isinstance(model, Seq2Seq) and model.longest_pair(LENGTH - 1) == LENGTH - 1:
        # Of a model without weights: the counter knows none of the products that a loaded model has made of its own.
        flops, state = parameters_of(run, (), None, LENGTH).flops_per_token, decoding_state(model)
    return Costs(
        parameters=manifest.get("parameters"),
        flops_per_token=flops,
        cpu_seconds=manifest.get("cpu_seconds"),
        gpu_seconds=seconds if _trained_on_accelerator(manifest) else None,
        training_tokens_per_second=tokens / seconds if tokens and seconds else None,
        decoding_tokens_per_second=decoding,
        peak_memory=peak_memory,
        decoding_state=state,
        learning_rate=predictor.recipe.optimizer.learning_rate,
    )


@torch.inference_mode()
def decoding_state(model: Seq2Seq) -> int:
    """The bytes that a model keeps of a sentence of `LENGTH` tokens while it writes as many."""
    batch = collate([model.trial_source(LENGTH - 1)], None).to(next(model.parameters()).device)
    state = model.start(model.encode(batch.source, batch.source_mask), LENGTH)
    return _bytes(state)


def _bytes(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, State | View):
        return sum(_bytes(getattr(value, entry.name)) for entry in fields(value))
    return sum(map(_bytes, value)) if isinstance(value, tuple) else 0


def evaluate(
    run: str | Path | AnyPredictor,
    corpus: str | Mapping[str, Any] | Sequence[Any] | None = None,
    metrics: Metric | str | Sequence[Metric | str] | None = None,
    *,
    device: str = "auto",
    allow_code: bool = False,
    **options: Any,
) -> ScoreReport:
    """Decode a test set with a run, and score the outputs, each score with its 95 % interval over segments.

        headway.evaluate("runs/ja-en", {"tsv": "test.tsv"}, ["bleu", "chrf"], beam=1).table()

    References are normalised as the run's outputs are, by `text.target.normalise`, which the signatures say.

    Args:
        run: a run folder, a pack of one, or what `headway.load` gave.
        corpus: the test set as a recipe has it, such as `{"source": "test.ja", "target": "test.en"}`; by default the
            dev set of the run's recipe.
        metrics: metrics or their names, one or several; by default those of dev in training.
        device: as `headway.load` has it.
        allow_code: as `headway.load` has it.
        options: of prediction, such as `beam`.

    Raises:
        UserError: what `headway.load` and `predict` raise, a test set that cannot be read, or metrics of other outputs.
    """
    if isinstance(run, str | Path):
        predictor, name = load(run, device=device, allow_code=allow_code), str(run)
    else:
        predictor, name, allow_code = run, "run", True  # it was allowed when it was loaded
    recipe = predictor.recipe
    with foreign_code(allow_code):
        chosen = list(dev_metrics(recipe)) if metrics is None else as_metrics(metrics, recipe.text.target.language)
        task = build_task(recipe.task)
        test = replace(_test_set(recipe, corpus), written=task.written(recipe))
        check_kind(chosen, test.kind(task.writes), "metrics")
        read = read_corpus(recipe, test)
        outputs = decode(predictor, read.examples, options).hypotheses
    report = score_texts(chosen, {name: outputs}, read.scored.references)
    scores = tuple(tuple(row.with_references(test.steps) for row in rows) for rows in report.scores)
    return replace(report, scores=scores)


def _test_set(recipe: Recipe, given: Any) -> NamedCorpus:
    if given is not None:
        corpus = paths_resolved(parse_corpus(given, "corpus"), Path.absolute)
        return NamedCorpus("test", corpus, key="corpus")
    if recipe.data.dev is None:
        what = "the run has no dev, so that there is no test set"
        raise UserError(what, where="corpus", allowed='a corpus, such as {"tsv": "test.tsv"}')
    return NamedCorpus("dev", recipe.data.dev, key="data.dev")
