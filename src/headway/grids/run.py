"""One cell: a run that is trained, decoded and analysed, in a separate process or in this one.

A cell is trained as by `headway train`, then decoded. Its folder is an ordinary run folder with an additional
`cell.json`. Existing outputs are not computed again.
"""

import logging
import os
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor

from headway.comparison.cells import (
    CellName,
    CellOutput,
    CellResult,
    Costs,
    NamedCorpus,
    learning_curve,
    read_corpus,
    trained_on_accelerator,
    write_result,
)
from headway.comparison.comparison import Comparison, compare_cells
from headway.core.device import peak_memory, threads_set
from headway.core.documents import read_json
from headway.core.errors import HeadwayError, RunError, UserError
from headway.core.files import write_json
from headway.core.log import logger, say
from headway.core.registry import foreign_code
from headway.core.storage import locked
from headway.formats.corpus_config import parse_corpus, paths_resolved
from headway.grids.grid import CELL, CELLS, CellJob
from headway.inspect.capture import ReadOptions, read
from headway.inspect.layers import of_words, word_deviations
from headway.inspect.parameters import parameters_of
from headway.metrics import Metric, as_metrics, check_kind
from headway.mixers import State
from headway.models import Seq2Seq
from headway.models.cross_attention import View
from headway.predictors.input_account import InputAccount, accounted
from headway.predictors.label_predictor import LabelPredictor
from headway.predictors.output import Example
from headway.predictors.sequence_predictor import SequencePredictor, TreePredictor
from headway.predictors.word_alignment import build_aligner
from headway.recipe import Recipe
from headway.runs.load import AnyPredictor, load
from headway.runs.run import open_run
from headway.runs.run_folder import RunFolder, precision_of
from headway.tasks import build_task, dev_metrics
from headway.tensors.batch import collate
from headway.training.loop import train
from headway.training.report import write_run_report

TRAINING = "training.json"  # facts that only the training process knows
LONGEST_WAIT = 120.0  # seconds to save and stop after the parent was killed
BOTH_PASSES = 3  # the operations of a forward and a backward pass, in those of a forward pass
LENGTH = 32  # tokens of source and target for which FLOPs and decoding state are measured


def run_cell(job: CellJob) -> int:
    """Train and decode a cell, or resume it. Its output goes to its log.

    Returns:
        0, 128 + the signal's number if a signal stopped it, or 1 or 2 if it failed, as the log says. If the log cannot
        be written, the error goes to standard error.
    """
    try:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        log = job.log.open("a", encoding="utf-8", newline="\n", buffering=1)
    except OSError as error:
        logger.error("error: %s: %s cannot be written (%s)", job.name, job.log, error.strerror)
        return RunError.exit_code
    with log, _logged(log):
        say(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {job.name}: process {os.getpid()}, {job.threads} threads")
        try:
            with threads_set(job.threads), locked(job.run.with_name(f".{job.run.name}.lock"), LONGEST_WAIT):
                return _make(job)
        except HeadwayError as error:
            logger.error("error: %s", error)
            return error.exit_code
        except Exception:
            logger.error("%s", traceback.format_exc())
            return 1


def _make(job: CellJob) -> int:
    planned = job.planned
    if not job.is_trained():
        if code := train(planned.recipe, job.run, resume=RunFolder(job.run).recipe_file.exists()):
            return code
        write_json(job.run / TRAINING, {"peak_memory": peak_memory()})
    with foreign_code(True):  # the run is from the user's own recipe
        if job.kind == CELLS and not RunFolder(job.run).report.is_file():
            write_run_report(job.run)
        if job.result() is None:
            known = job.run / TRAINING
            memory = read_json(known).get("peak_memory") if known.is_file() else None
            cell = CellName(planned.variant, planned.seed, job.run)
            result = result_of_run(cell, job.tests, job.predict, peak_memory=memory)
            if job.beside is not None:
                other = result_of_run(cell._replace(path=job.beside), job.tests, job.predict)
                result = replace(result, outputs=(*result.outputs, *other.outputs))
            write_result(job.run / CELL, result, job.stamp())
            say(f"{job.name}: finished")
    return 0


@contextmanager
def _logged(file: TextIO) -> Iterator[None]:
    """Send standard output, standard error and the log of this process to a file. Only the log is restored."""
    for stream in (1, 2):
        os.dup2(file.fileno(), stream)
    handler = logging.StreamHandler(file)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def decode(
    predictor: AnyPredictor, examples: Sequence[Example], options: Mapping[str, Any]
) -> tuple[list[str], list[int]]:
    """The outputs of a run in the form that metrics read, and the number of tokens of each.

    Raises UserError if an input cannot be read.
    """
    with accounted():
        found = list(_outputs(predictor, examples, options))
    return [text for text, _ in found], [tokens for _, tokens in found]


def _outputs(
    predictor: AnyPredictor, examples: Sequence[Example], options: Mapping[str, Any]
) -> Iterator[tuple[str, int]]:
    """The output of each example with its number of tokens, including the end-of-sentence token."""
    labels, sequences = isinstance(predictor, LabelPredictor), isinstance(predictor, SequencePredictor)
    inputs: Any = examples if sequences else [each.words if labels else each.source for each in examples]
    outputs: Iterator[Any] = predictor.stream(inputs, **{**({"truncate": True} if sequences else {}), **options})
    for output in outputs:
        if output.problem is not None and not options.get("skip_broken"):
            raise output.problem
        if sequences:  # metrics of trees repair the model's raw output, and count the repairs
            yield output.written if isinstance(predictor, TreePredictor) else output.text, len(output.tokens) + 1
        else:
            yield (" ".join(output.labels), len(output.labels)) if labels else (str(output), 0)


def align(predictor: AnyPredictor, examples: Sequence[Example]) -> list[str]:
    """The word alignments from a run's attention. Raises UserError if the model does not write token by token."""
    if not isinstance(predictor, SequencePredictor):
        raise UserError("only models that write token by token align words", where="test.alignments")
    aligner = build_aligner(predictor)
    targets = [example.target or "" for example in examples]
    with accounted(InputAccount()):
        forced = predictor.stream_forced(examples, targets, capture=(aligner.layer,))
        return [aligner(output).pharaoh() for output in forced]


def attend(predictor: AnyPredictor, examples: Sequence[Example]) -> Iterator[str]:
    """The deviation of each word's self-attention from its mean, in the last layer or in the weighted mean of layers.

    Raises:
        UserError: the model is not a tagger.
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
    cell: CellName,
    tests: Sequence[NamedCorpus],
    options: Mapping[str, Any] | None = None,
    *,
    peak_memory: int | None = None,
    device: str = "auto",
) -> CellResult:
    """Decode test sets with a finished run, and collect its costs and its learning curve.

    `peak_memory`: of training, in bytes.

    Raises:
        UserError: the folder has no finished run, or test sets cannot be read.
    """
    run = cell.path
    assert run is not None
    predictor = load(run, device=device)
    recipe, stored = predictor.recipe, open_run(run)  # a pack is unpacked
    manifest = stored.manifest
    outputs, tokens, seconds = list[CellOutput](), 0, 0.0
    for test in tests:
        examples, scored = read_corpus(recipe, test)
        if test.alignments is not None or test.evenness:
            asked = (attend if test.evenness else align)(predictor, examples)
            outputs.append(CellOutput(scored, tuple(asked)))
            continue
        began = time.perf_counter()
        texts, counts = decode(predictor, examples, options or {})
        outputs.append(CellOutput(scored, tuple(texts)))
        tokens, seconds = tokens + sum(counts), seconds + time.perf_counter() - began
    costs = _costs(predictor, stored.path, manifest, tokens / seconds if seconds and tokens else None, peak_memory)
    curve, precision = tuple(learning_curve(stored.path)), precision_of(manifest)
    steps = manifest.get("references", "")
    rate = None if manifest.get("status") == "imported" else recipe.optimizer.learning_rate
    return CellResult(cell.variant, cell.seed, tuple(outputs), run, costs, curve, precision, steps, rate)


def _costs(
    predictor: AnyPredictor, run: Path, manifest: dict[str, Any], decoding: float | None, peak_memory: int | None
) -> Costs:
    model = predictor.runs[0].model
    seconds, tokens = manifest.get("seconds"), manifest.get("target_tokens")
    flops = state = None
    # None for a model that cannot read this many tokens: costs at other lengths are not comparable.
    if isinstance(model, Seq2Seq) and model.longest_pair(LENGTH - 1) == LENGTH - 1:
        # Count on a model without weights: the counter misses the custom products of a loaded model.
        flops, state = parameters_of(run, (), None, LENGTH).flops_per_token, decoding_state(model)
    return Costs(
        parameters=manifest.get("parameters"),
        flops_per_token=flops,
        training_flops=BOTH_PASSES * flops * tokens if flops and tokens else None,
        cpu_seconds=manifest.get("cpu_seconds"),
        gpu_seconds=seconds if trained_on_accelerator(manifest) else None,
        training_tokens_per_second=tokens / seconds if tokens and seconds else None,
        decoding_tokens_per_second=decoding,
        peak_memory=peak_memory,
        decoding_state=state,
        learning_rate=predictor.recipe.optimizer.learning_rate,
    )


@torch.inference_mode()
def decoding_state(model: Seq2Seq) -> int:
    """The bytes of decoding state that a model keeps for a sentence of `LENGTH` source and target tokens."""
    batch = collate([model.trial_source(LENGTH - 1)], None).to(next(model.parameters()).device)
    return _bytes(model.start(model.encode(batch.source, batch.source_mask), LENGTH))


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
) -> Comparison:
    """Decode a test set with a run, and compute scores with their 95 % intervals over this test set alone.

        headway.evaluate("runs/ja-en", {"tsv": "test.tsv"}, ["bleu", "chrf"], beam=1).table()

    References are normalised like the run's outputs, by `text.target.normalise`; the metrics' signatures show the
    steps.

    Args:
        run: a run folder, a packed run, or the result of `headway.load`.
        corpus: the test set as in a recipe, such as `{"source": "test.ja", "target": "test.en"}`; by default the dev
            set of the run's recipe.
        metrics: one or several metrics or their names; by default those of dev in training.
        device: as in `headway.load`.
        allow_code: as in `headway.load`.
        options: of prediction, such as `beam`.

    Raises:
        UserError: as `headway.load` and `predict`; a test set that cannot be read, or metrics of other outputs.
    """
    is_path = isinstance(run, str | Path)  # a loaded predictor already has permission to run foreign code
    with foreign_code(allow_code or not is_path):
        predictor, name = (load(run, device=device), str(run)) if isinstance(run, str | Path) else (run, "run")
        recipe = predictor.recipe
        chosen = list(dev_metrics(recipe)) if metrics is None else as_metrics(metrics, recipe.text.target.language)
        task = build_task(recipe.task)
        test = replace(_test_set(recipe, corpus), written=task.written(recipe))
        check_kind(chosen, test.kind(task.writes), "metrics", of_texts=task.reads_text)
        examples, scored = read_corpus(recipe, test)
        outputs, _ = decode(predictor, examples, options)
    cell = CellResult(name, recipe.training.seed, (CellOutput(scored, tuple(outputs)),))
    return compare_cells([cell], chosen)


def _test_set(recipe: Recipe, given: Any) -> NamedCorpus:
    if given is not None:
        corpus = paths_resolved(parse_corpus(given, "corpus"), Path.absolute)
        return NamedCorpus("test", corpus, key="corpus")
    if recipe.data.dev is None:
        what = "the run has no dev, so that there is no test set"
        raise UserError(what, where="corpus", allowed='a corpus, such as {"tsv": "test.tsv"}')
    return NamedCorpus("dev", recipe.data.dev, key="data.dev")
