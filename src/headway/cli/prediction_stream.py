"""Prediction and forced scoring over streams of lines."""

import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from headway.cli.prediction_options import TargetScoreOptions, WriterOptions
from headway.cli.standard_streams import StandardInput, windows, write
from headway.errors import UserError, option
from headway.files import json_line, whole_file
from headway.formats.lines import check_file, read_lines
from headway.log import progress, say, warn
from headway.models.model import wanted
from headway.predictors.captured_attention import END
from headway.predictors.formatter import Formatter, RepairCount
from headway.predictors.input_account import accounted
from headway.predictors.predict_options import PredictOptions
from headway.predictors.prediction import Prediction, TextHypothesis
from headway.predictors.sequence_predictor import SequencePredictor
from headway.predictors.word_alignment import Aligner, WordAlignment
from headway.processing.audio.audio_processor import AudioProcessor
from headway.processing.text.line_ends import in_one_cell
from headway.processing.text.text_processor import TextProcessor
from headway.tasks.speech_recognition import read_manifest

WINDOW = 2000  # lines decoded together; memory stays flat however many come
RECORDINGS = 128  # recordings decoded together: their frames take about 0.5 MB each
MOST_SHOWN = 12  # alignments on a page of pictures


class Writer:
    """Where predictions go: text (with scores) to standard output, attention and alignments of words to files.

    Args:
        with_scores: write the score before the text.
        nbest: the lines of an input; where there are fewer outputs, empty ones with a score of -inf are the rest.
        attention: a file of JSON lines with the weights between tokens.
        patterns: of the names that go to that file.
        alignments: a file of Pharaoh links between words or, where its name ends in .jsonl, of JSON lines with weights.
        aligner: what makes alignments; it is needed where they are asked for.

    Attributes:
        shown: the alignments of the first `MOST_SHOWN` lines.
        short: how many inputs have had fewer outputs than `nbest`.
        respaced: how many outputs have spaces for their tabs, which would be columns beside scores.
    """

    def __init__(
        self,
        *,
        with_scores: bool = False,
        nbest: int = 1,
        attention: Path | None = None,
        patterns: tuple[str, ...] = (),
        alignments: Path | None = None,
        aligner: Aligner | None = None,
    ) -> None:
        self.with_scores, self.nbest, self.attention, self.patterns = with_scores, nbest, attention, patterns
        self.alignments, self.aligner = alignments, aligner
        self.shown: list[WordAlignment] = []
        self.short = self.respaced = 0

    def write(self, prediction: Prediction) -> None:
        """Write one prediction: `nbest` lines, with its hypotheses."""
        for hypothesis in prediction.hypotheses:
            if not self.with_scores:
                write(hypothesis.text)
                continue
            text = in_one_cell(hypothesis.text)
            self.respaced += text != hypothesis.text
            write(f"{hypothesis.score:.4f}\t{text}")
        missing = self.nbest - len(prediction.hypotheses)
        self.short += missing > 0
        for _ in range(missing):
            write("-inf\t")

    @contextmanager
    def files(self) -> Iterator[Callable[[Prediction, int], None]]:
        """Opens the files and gives what writes a prediction, with its line's number, to them. Raises UserError."""
        with ExitStack() as stack:
            attention = _open(self.attention, option("attention"), stack)
            alignments = _open(self.alignments, option("alignments"), stack)

            def write(prediction: Prediction, line: int) -> None:
                if attention is not None:
                    record = attention_record(prediction, line, self.patterns)
                    attention(json_line(record))
                if self.aligner is None:
                    return
                alignment = self.aligner(prediction)
                if alignments is not None:
                    as_json = self.alignments is not None and self.alignments.suffix == ".jsonl"
                    text = json_line(alignment.record(line)) if as_json else alignment.pharaoh()
                    alignments(text)
                if len(self.shown) < MOST_SHOWN and alignment.source and alignment.target:
                    self.shown.append(alignment)

            yield write


class Prefixes:
    """The forced beginnings of outputs, a line each.

    Raises:
        UserError: a file that cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.where, self.lines = f"{option('prefix')} {path}", list(read_lines(path))

    def given_to(self, options: PredictOptions, begin: int, count: int) -> PredictOptions:
        """The options with those of `count` sources from `begin`. Raises UserError where there are fewer."""
        chosen = tuple(self.lines[begin : begin + count])
        if len(chosen) < count:
            received = f"{len(self.lines)} prefixes"
            raise UserError(
                "there must be one prefix a line", where=self.where, received=received, allowed=f"{begin + count}"
            )
        return options.model_copy(update={"prefixes": chosen})

    def check(self, count: int) -> None:
        """Raise UserError where there are more than `count` sources."""
        if len(self.lines) > count:
            received = f"{len(self.lines)} prefixes"
            raise UserError(
                "there are more prefixes than lines", where=self.where, received=received, allowed=f"{count}"
            )


def attention_record(prediction: Prediction, line: int, patterns: tuple[str, ...]) -> dict[str, Any]:
    """The attention of the best output as plain values: by name, then head, target token, source token."""
    chosen = {name: weights for name, weights in prediction.attention.items() if wanted(name, patterns)}
    return {
        "line": line,
        "source": prediction.source,
        "target": prediction.text,
        "source_tokens": prediction.attended,
        "target_tokens": [*prediction.tokens, END],
        "attention": {name: weights.astype(float).round(6).tolist() for name, weights in chosen.items()},
    }


def predict_stream(
    predictor: SequencePredictor,
    options: PredictOptions,
    output: WriterOptions,
    sources: Iterable[Any],
    source: StandardInput | None = None,
) -> list[WordAlignment]:
    """Decode sources, window by window, and write the predictions in their order.

    Args:
        predictor: the model.
        options: how to decode.
        output: what is written.
        sources: lines or recordings. Without `source` they are gone through twice: lines are checked before any is
            decoded.
        source: where they are read as they come; each is then answered as soon as no further one waits.

    Returns:
        Alignments of the first lines, where these were asked for.

    Raises:
        UserError: a source that is too long or cannot be read, or a prefix file of another length.
    """
    _check_attention(predictor, output)
    aligner = output.aligner(predictor)
    capture = output.patterns + ((aligner.layer,) if aligner else ())
    options = options.model_copy(update={"capture": capture})
    writer = Writer(
        with_scores=output.scores or options.nbest > 1, nbest=options.nbest,
        attention=output.attention, patterns=output.patterns, alignments=output.alignments, aligner=aligner,
    )  # fmt: skip
    formatter = predictor.formatter(options)
    _check_in_lines(formatter, with_scores=writer.with_scores)
    size = RECORDINGS if isinstance(predictor.source, AudioProcessor) else WINDOW
    prefixes = Prefixes(output.prefix) if output.prefix else None
    total = _checked(predictor, options, sources, prefixes) if source is None else None
    shown = source is None or not source.typed
    done, losses, repairs = 0, Counter[str](), RepairCount()
    with accounted(), writer.files() as write, progress("decoding", total, "lines", shown=shown) as line:
        for window in windows(sources, size, source):
            if prefixes is not None:
                options = prefixes.given_to(options, done, len(window))
            for prediction in _answers(predictor, window, options, done + 1):
                done += 1
                skipped = prediction.problem is not None
                losses.update(truncated=prediction.truncated, at_limit=prediction.at_limit, skipped=skipped)
                for hypothesis in prediction.hypotheses:
                    repairs.add(hypothesis.repairs)
                if skipped:
                    warn(f"skipped: {prediction.problem}")
                writer.write(prediction)
                write(prediction, done)
            sys.stdout.flush()
            line.update(done)
    _tell_losses(done, losses + Counter(short=writer.short, respaced=writer.respaced))
    if prefixes is not None:
        prefixes.check(done)
    _tell_repairs(repairs)
    return writer.shown


def _check_in_lines(formatter: Formatter, *, with_scores: bool) -> None:
    """Raise UserError where outputs have several lines, so that scores cannot stand before them."""
    if with_scores and not formatter.in_lines:
        what, allowed = "a drawing has several lines, and a score one", "brackets or linear, beside scores"
        raise UserError(what, where=option("format"), received="drawing", allowed=allowed)


def _answers(
    predictor: SequencePredictor, window: Sequence[Any], options: PredictOptions, first_line: int
) -> Iterator[Prediction]:
    """The predictions of a window; those before a line at fault come before its error."""
    try:
        yield from predictor.predict(window, options, first_line=first_line)
    except UserError:
        if count := _without_fault(predictor, window, options, first_line):
            yield from predictor.predict(window[:count], _for_first(options, count), first_line=first_line)
        raise


def _without_fault(
    predictor: SequencePredictor, window: Sequence[Any], options: PredictOptions, first_line: int
) -> int:
    """How many lines of a window come before the first at fault; 0 where none is."""

    def passes(count: int) -> bool:
        try:
            predictor.check(window[:count], _for_first(options, count), first_line=first_line)
        except UserError:
            return False
        return True

    count = bisect_left(range(1, len(window) + 1), True, key=lambda count: not passes(count))
    return count if count < len(window) else 0


def _for_first(options: PredictOptions, count: int) -> PredictOptions:
    """Options for the first lines of a window."""
    return options.model_copy(update={"prefixes": options.prefixes and options.prefixes[:count]})


def _checked(
    predictor: SequencePredictor, options: PredictOptions, sources: Iterable[Any], prefixes: Prefixes | None
) -> int:
    """How many sources there are. Raises UserError for a line or prefix that cannot be, before any is decoded.

    Recordings are only counted: to read them takes time, and those that are broken can be skipped.
    """
    number = 0
    lines = isinstance(predictor.source, TextProcessor)
    with progress("checking", unit="lines") as line:
        for window in windows(sources, WINDOW):
            if prefixes is not None:
                options = prefixes.given_to(options, number, len(window))
            if lines:
                predictor.check(window, options, first_line=number + 1)
            number += len(window)
            line.update(number)
    if prefixes is not None:
        prefixes.check(number)
    return number


def _tell_losses(done: int, losses: Counter[str]) -> None:
    """Log how many lines were not read to their end, or not at all, or have outputs that may be cut or too few."""
    if count := losses["truncated"]:
        say(f"{count:,} of {done:,} lines are longer than the limit: only their beginning was read")
    if count := losses["at_limit"]:
        say(f"{count:,} of {done:,} outputs are as long as they may be: their ends may be missing")
    if count := losses["skipped"]:
        warn(f"{count:,} of {done:,} were skipped; their lines are empty")
    if count := losses["short"]:
        warn(f"{count:,} of {done:,} have fewer outputs than were asked for; lines with a score of -inf fill them up")
    if count := losses["respaced"]:
        say(f"{count:,} outputs have tabs, which are written as spaces beside scores")


def _tell_repairs(repairs: RepairCount) -> None:
    """Log how many trees were repaired, where there were any."""
    if repairs.trees:
        say(repairs.text())


def _check_attention(predictor: SequencePredictor, output: WriterOptions) -> None:
    """Raise UserError unless there is attention to write or to align by, where it is asked for."""
    for name in ("attention", "alignments", "alignment_figure"):
        if getattr(output, name) and "capture" in predictor.backend.lacks:
            what = f"the engine {predictor.backend.name} gives no attention"
            raise UserError(what, where=option(name), allowed=f"{option(name)} without {option('engine')}")
        if getattr(output, name) and len(predictor.models) > 1:
            what, received = "attention is one model's: give one run", f"{len(predictor.models)} runs"
            raise UserError(what, where=option(name), received=received)
    if output.attention is None:
        return
    if not predictor.attention_names(output.patterns):
        raise UserError(
            "no attention of this model has such a name",
            where=option("layers"),
            received=", ".join(output.patterns),
            allowed=predictor.attention_names() or "none; it has no attention",
        )


def _open(path: Path | None, where: str, stack: ExitStack) -> Callable[[str], None] | None:
    """A function that writes lines to a file, which is there, whole, when the stack ends without an error."""
    if path is None:
        return None
    try:
        file = stack.enter_context(whole_file(path))
    except OSError as error:
        raise UserError(f"cannot write there ({error.strerror})", where=f"{where} {path}") from error

    def write_line(text: str) -> None:
        file.write(f"{text}\n".encode())

    return write_line


def score_pairs(predictor: SequencePredictor, options: TargetScoreOptions) -> list[WordAlignment]:
    """Score the lines of one file as outputs for those of another.

    Raises:
        UserError: files that are missing, or of different numbers of lines.
    """
    if options.source is None or options.target is None:
        raise UserError(
            "a run scores targets, given their sources",
            where="headway score RUN",
            allowed=f"{option('source')} FILE {option('target')} FILE",
        )
    aligner = options.aligner(predictor)
    sources, targets = list(read_lines(options.source)), list(read_lines(options.target))
    if len(sources) != len(targets):
        raise UserError(
            "both files need the same number of lines",
            where=f"{options.source}, {options.target}",
            received=f"{len(sources)} and {len(targets)} lines",
        )
    formatter = predictor.formatter(predictor.Options())
    for line, target in enumerate(targets, start=1):
        formatter.check_target(target, f"{options.target}:{line}")
    writer = Writer(alignments=options.alignments, aligner=aligner)
    return _force(predictor, sources, targets, writer, as_json=options.json_output)


def score_recordings(predictor: SequencePredictor, options: TargetScoreOptions) -> None:
    """Score the transcripts of a manifest. Raises UserError where it is missing."""
    if options.source is None:
        what, allowed = "a run scores the transcripts of a manifest", f"{option('source')} MANIFEST"
        raise UserError(what, where="headway score RUN", allowed=allowed)
    check_file(options.source, option("source"))
    utterances = read_manifest(options.source, predictor.recipe, option("source"))
    audio, texts = [heard.audio for heard in utterances], [heard.text for heard in utterances]
    _force(predictor, audio, texts, Writer(), as_json=options.json_output)


def _force(
    predictor: SequencePredictor, sources: Sequence[Any], targets: Sequence[str], writer: Writer, *, as_json: bool
) -> list[WordAlignment]:
    """Write, for each pair, the log probability of the target given the source, a token and in all.

    Columns: log probability, the same a token, tokens (with the end mark).
    """
    layers = () if writer.aligner is None else (writer.aligner.layer,)
    losses = Counter[str]()
    with writer.files() as write:
        for line, prediction in enumerate(predictor.force(sources, targets, capture=layers), start=1):
            losses["truncated"] += prediction.truncated
            _write_forced(prediction.hypotheses[0], as_json)
            write(prediction, line)
    _tell_losses(len(targets), losses)
    return writer.shown


def _write_forced(hypothesis: TextHypothesis, as_json: bool) -> None:
    total, count = sum(hypothesis.log_probabilities), len(hypothesis.log_probabilities)
    if as_json:
        tokens = [*hypothesis.tokens, END]
        values = {"log_probability": total, "score": hypothesis.score, "tokens": tokens}
        write(json_line(values | {"log_probabilities": hypothesis.log_probabilities}))
    else:
        write(f"{total:.4f}\t{total / count:.4f}\t{count}")
