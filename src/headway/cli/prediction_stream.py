"""Decoding and forced scoring of streams of lines, with the predictor of any task."""

import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headway.cli.prediction_options import LabelScoreOptions, LabelWriterOptions, TargetScoreOptions, WriterOptions
from headway.cli.shell import flag_of
from headway.cli.standard_streams import StandardInput, windows, write
from headway.core.errors import UserError, option, printable
from headway.core.files import json_line, whole_file
from headway.core.languages import separates_sentences
from headway.core.log import progress, say, warn
from headway.formats.conllu import label_column, read_labelled
from headway.formats.lines import check_file, lines_of, read_lines
from headway.formats.terms import TermCount
from headway.models.model import wanted
from headway.predictors.captured_attention import END
from headway.predictors.formatter import RepairCount
from headway.predictors.input_account import accounted
from headway.predictors.label_predictor import LabelPredictor, mark
from headway.predictors.output import LabelledWords, Output
from headway.predictors.predict_options import CaptureOptions, LabelOptions, PredictOptions
from headway.predictors.predictor import Predictor
from headway.predictors.sequence_predictor import SequencePredictor
from headway.predictors.word_alignment import Aligner, WordAlignment
from headway.processing.audio.audio_processor import AudioProcessor
from headway.processing.text.line_ends import in_one_cell
from headway.processing.text.sentences import has_several_sentences, sentences
from headway.processing.text.text_processor import TextProcessor

if TYPE_CHECKING:
    from headway.predictors.sentence_translator import SentenceTranslator

AnyOutput = TypeVar("AnyOutput", bound=Output)

MOST_SHOWN = 12  # alignments per figure
WINDOWS = 8  # of a predictor, that are read from a file at a time
ATTENTION = "attention", "alignments", "alignment_figure"  # options that need attention


class Writer:
    """Writes outputs: text (with scores) to standard output, attention and word alignments to files.

    Args:
        with_scores: write the score before the text.
        nbest: the lines per input; missing outputs are empty lines with a score of -inf.
        attention: a file of JSON lines with the weights between tokens.
        patterns: of the names of attention for that file.
        alignments: a file of Pharaoh links between words or, if its name ends in .jsonl, of JSON lines with weights.
        aligner: extracts the alignments; required with `alignments`.

    Attributes:
        shown: the alignments of the first `MOST_SHOWN` lines.
        short: the number of inputs with fewer outputs than `nbest`.
        respaced: the number of outputs whose tabs were replaced by spaces, because tabs separate columns.
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

    def write(self, output: Output) -> None:
        """Write the hypotheses of one output, as `nbest` lines."""
        for hypothesis in output.hypotheses:
            if not self.with_scores:
                write(hypothesis.text)
                continue
            text = in_one_cell(hypothesis.text)
            self.respaced += text != hypothesis.text
            write(f"{hypothesis.score:.4f}\t{text}")
        missing = self.nbest - len(output.hypotheses)
        self.short += missing > 0
        for _ in range(missing):
            write("-inf\t")

    @contextmanager
    def files(self) -> Iterator[Callable[[Output, int], None]]:
        """Open the files. Returns a function that writes an output with its line number. Raises UserError."""
        with ExitStack() as stack:
            attention = _open(self.attention, option("attention"), stack)
            alignments = _open(self.alignments, option("alignments"), stack)

            def write(output: Output, line: int) -> None:
                if attention is not None:
                    record = attention_record(output, line, self.patterns)
                    attention(json_line(record))
                if self.aligner is None:
                    return
                alignment = self.aligner(output)
                if alignments is not None:
                    as_json = self.alignments is not None and self.alignments.suffix == ".jsonl"
                    text = json_line(alignment.record(line)) if as_json else alignment.pharaoh()
                    alignments(text)
                if len(self.shown) < MOST_SHOWN and alignment.source and alignment.target:
                    self.shown.append(alignment)

            yield write


class Prefixes:
    """The forced prefixes of outputs, one per line.

    Raises:
        UserError: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.where, self.lines = f"{option('prefix')} {path}", list(read_lines(path))

    def given_to(self, options: CaptureOptions, begin: int, count: int) -> CaptureOptions:
        """The options with the prefixes of `count` sources from `begin`. Raises UserError if there are fewer."""
        chosen = tuple(self.lines[begin : begin + count])
        if len(chosen) < count:
            received = f"{len(self.lines)} prefixes"
            raise UserError(
                "there must be one prefix a line", where=self.where, received=received, allowed=f"{begin + count}"
            )
        return options.model_copy(update={"prefixes": chosen})

    def check(self, count: int) -> None:
        """Raise UserError if there are more prefixes than the `count` sources."""
        if len(self.lines) > count:
            received = f"{len(self.lines)} prefixes"
            raise UserError(
                "there are more prefixes than lines", where=self.where, received=received, allowed=f"{count}"
            )


def attention_record(output: Output, line: int, patterns: tuple[str, ...]) -> dict[str, Any]:
    """The attention of the best output as a JSON object: by name, then head, target token, source token."""
    chosen = {name: weights for name, weights in output.attention.items() if wanted(name, patterns)}
    return {
        "line": line,
        "source": output.source,
        "target": output.text,
        "source_tokens": output.attended,
        "target_tokens": [*output.tokens, END],
        "attention": {name: weights.astype(float).round(6).tolist() for name, weights in chosen.items()},
    }


def predict_stream(
    predictor: Predictor[Any, AnyOutput],
    options: CaptureOptions,
    sources: Iterable[Any],
    source: StandardInput | None,
    write: Callable[[AnyOutput, int], None],
    prefixes: Prefixes | None = None,
) -> int:
    """Predict for a stream of sources, with few in memory at a time, and write the outputs in order.

    Args:
        predictor: the model.
        options: how to predict.
        sources: lines or recordings, or errors for those that cannot be read. Without `source` they are iterated twice:
            all lines are checked before any is decoded.
        source: standard input, if sources are read from it; each is answered as soon as no further one waits.
        write: is called with each output and its line number.
        prefixes: the forced prefixes of the outputs.

    Returns:
        The number of sources.

    Raises:
        UserError: a source is too long or cannot be read, and is not skipped (outputs of earlier sources are written
            first), or the number of prefixes is wrong.
    """
    done, shown = 0, source is None or not source.typed
    size = predictor.window(options.capture) * (WINDOWS if prefixes is None else 1)  # prefixes are those of a window
    total = _checked(predictor, options, sources, prefixes) if source is None else None
    doing = "decoding" if isinstance(options, PredictOptions) else "labelling"
    with accounted(), progress(doing, total, "lines", shown=shown) as line:
        predictor.answered = lambda count: line.update(line.done + count)
        for window in windows(_readable(sources, options), size, source):
            given = options if prefixes is None else prefixes.given_to(options, done, len(window))
            last = deque[AnyOutput](maxlen=predictor.recipe.data.context.most)
            answers = predictor.stream(_inputs(window), given, first_line=done + 1)
            for row, output in zip(window, answers, strict=True):
                if isinstance(row, UserError):
                    output = replace(output, problem=row)
                if output.problem is not None:
                    if not options.skip_broken:
                        raise output.problem
                    warn(f"skipped: {output.problem.spelled(flag_of)}")
                done += 1
                last.append(output)
                write(output, done)
            options = predictor.following(options, last)
            sys.stdout.flush()
            line.update(done)
    if not done:
        warn("the input has no lines")
    return done


def _readable(rows: Iterable[Any], options: CaptureOptions) -> Iterator[Any]:
    """The rows. Raises the error of a row that could not be read, unless such rows are skipped."""
    for row in rows:
        if isinstance(row, UserError) and not options.skip_broken:
            raise row
        yield row


def _inputs(rows: Iterable[Any]) -> list[Any]:
    """The rows, with an empty text for each error."""
    return ["" if isinstance(row, UserError) else row for row in rows]


def _checked(
    predictor: Predictor[Any, Any], options: CaptureOptions, sources: Iterable[Any], prefixes: Prefixes | None
) -> int:
    """The number of sources, after checking all lines and prefixes. Raises UserError before any is decoded.

    For recordings only the headers are read, because reading more takes time.
    """
    number, source = 0, predictor.runs[0].source
    with progress("checking", unit="lines") as line:
        for window in windows(_readable(sources, options), predictor.window(options.capture)):
            given = options if prefixes is None else prefixes.given_to(options, number, len(window))
            of_text = isinstance(source, TextProcessor)
            if of_text:
                predictor.request(_inputs(window), given, number + 1).check()
            if isinstance(source, AudioProcessor) and not options.skip_broken:
                list(map(source.check, window))
            number += len(window)
            line.update(number)
    if prefixes is not None:
        prefixes.check(number)
    return number


def predict_sequences(
    predictor: SequencePredictor,
    options: PredictOptions,
    output: WriterOptions,
    sources: Iterable[Any],
    source: StandardInput | None = None,
) -> list[WordAlignment]:
    """Decode sources and write their outputs, as `predict_stream` does.

    Returns:
        Alignments of the first lines, if these are requested.
    """
    _check_attention(predictor, output)
    aligner = output.aligner(predictor)
    capture = output.patterns + ((aligner.layer,) if aligner else ())
    options = options.model_copy(update={"capture": capture, "terms": output.terms()})
    writer = Writer(
        with_scores=output.scores or options.nbest > 1, nbest=options.nbest,
        attention=output.attention, patterns=output.patterns, alignments=output.alignments, aligner=aligner,
    )  # fmt: skip
    if writer.with_scores and not predictor.formatter(options).in_lines:
        what, allowed = "a drawing has several lines, and a score one", "brackets or linear, beside scores"
        raise UserError(what, where=option("format"), received="drawing", allowed=allowed)
    prefixes = Prefixes(output.prefix) if output.prefix else None
    losses, repairs, terms = Counter[str](), RepairCount(), TermCount()
    recipe = predictor.recipe
    translates = recipe.task == "translation" and not recipe.data.context.most
    with writer.files() as write:

        def keep(one: Output, line: int) -> None:
            nonlocal terms
            terms += one.terms
            losses.update(truncated=one.truncated, at_limit=one.at_limit, skipped=one.problem is not None)
            losses["several"] += translates and has_several_sentences(one.source)
            for hypothesis in one.hypotheses:
                repairs.add(hypothesis.repairs)
            write(one, line)
            writer.write(one)

        done = predict_stream(predictor, options, sources, source, keep, prefixes)
    _tell_losses(done, losses + Counter(short=writer.short, respaced=writer.respaced))
    if several := losses["several"]:
        from headway.predictors.sentence_translator import learned_single_sentences

        if (single := learned_single_sentences(recipe)) is not False:
            have = "1 line has" if several == 1 else f"{several:,} lines have"
            learned = "the model was trained on single sentences; " if single else ""
            say(f"{have} more than one sentence; {learned}{flag_of('split_sentences')} translates each by itself")
    output.tell(terms)
    if prefixes is not None:
        prefixes.check(done)
    if repairs.trees:
        say(repairs.text())
    return writer.shown


def predict_by_sentence(
    translator: "SentenceTranslator", lines: Iterable[str | UserError], source: StandardInput | None = None
) -> None:
    """Translate each sentence of a line separately, and write the translations of a line on one line."""
    languages, options, translator.aligner = translator.languages, translator.options, None
    space = " " if separates_sentences(languages.target) else ""
    with accounted():
        for window in windows(_readable(lines, options), WINDOWS * translator.predictor.window(()), source):
            split = [sentences(line, languages.source) or [""] for line in _inputs(window)]
            outputs = iter(translator([sentence for found in split for sentence in found]))
            for found in split:
                write(space.join(next(outputs).text for _ in found))
            sys.stdout.flush()


def predict_labels(
    predictor: LabelPredictor,
    options: LabelOptions,
    output: LabelWriterOptions,
    lines: Iterable[str | UserError],
    source: StandardInput | None = None,
) -> None:
    """Label lines and write them, as `predict_stream` does; by default `marked` for a terminal, else `tsv`."""
    style = STYLES[output.format or ("marked" if sys.stdout.isatty() else "tsv")]
    coloured = style is as_marked

    def keep(sentence: LabelledWords, line: int) -> None:
        write(style(sentence, predictor), coloured=coloured)

    predict_stream(predictor, predictor.settled(options), lines, source, keep)


def _tell_losses(done: int, losses: Counter[str]) -> None:
    """Log how many lines were truncated or skipped, and how many outputs may be incomplete or too few."""
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


def _check_attention(predictor: SequencePredictor, output: WriterOptions) -> None:
    """Raise UserError if attention or alignments are requested, but the model has no such attention."""
    for name in ATTENTION:
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
    """A function that writes lines to a file, which appears when `stack` ends without an error. None without a path."""
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
    """Score the lines of one file as outputs for the lines of another.

    Raises:
        UserError: files are missing, or have different numbers of lines.
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
    with lines_of(options.source):
        return _force(predictor, sources, targets, writer, as_json=options.json_output)


def score_recordings(predictor: SequencePredictor, options: TargetScoreOptions) -> None:
    """Score the transcripts of a manifest. Raises UserError if it is missing."""
    if options.source is None:
        what, allowed = "a run scores the transcripts of a manifest", f"{option('source')} MANIFEST"
        raise UserError(what, where="headway score RUN", allowed=allowed)
    from headway.tasks.speech_recognition import read_manifest

    check_file(options.source, option("source"))
    utterances = read_manifest(options.source, predictor.recipe, option("source"))
    audio, texts = [heard.audio for heard in utterances], [heard.text for heard in utterances]
    _force(predictor, audio, texts, Writer(), as_json=options.json_output)


def _force(
    predictor: SequencePredictor, sources: Sequence[Any], targets: Sequence[str], writer: Writer, *, as_json: bool
) -> list[WordAlignment]:
    """Write the log probability of each target for its source: the sum, the mean per token, and the number of tokens.

    Tokens include the end mark.
    """
    layers = () if writer.aligner is None else (writer.aligner.layer,)
    losses = Counter[str]()
    with writer.files() as keep:
        for line, output in enumerate(predictor.force(sources, targets, capture=layers), start=1):
            losses["truncated"] += output.truncated
            values = output.log_probabilities
            if as_json:
                content = {"log_probability": sum(values), "score": output.score, "tokens": [*output.tokens, END]}
                write(json_line(content | {"log_probabilities": values}))
            else:
                write(f"{sum(values):.4f}\t{sum(values) / len(values):.4f}\t{len(values)}")
            keep(output, line)
    _tell_losses(len(targets), losses)
    return writer.shown


def score_labels(predictor: LabelPredictor, options: LabelScoreOptions) -> None:
    """Write the log probability of each sentence's labels: the sum, the mean per word, and the number of words.

    Raises:
        UserError: the file is missing, or has labels that the model lacks.
    """
    if options.source is None:
        raise UserError(
            "a run scores the labels of words", where="headway score RUN", allowed=f"{option('source')} FILE"
        )
    check_file(options.source, option("source"))
    sentences = list(read_labelled(options.source, label_column(predictor.recipe.data.train), predictor.labels))
    labels = [sentence.labels[0] for sentence in sentences]
    for sentence in predictor.force([sentence.words for sentence in sentences], labels):
        values = sentence.log_probabilities
        if options.json_output:
            content = {"log_probability": sum(values), "words": sentence.words, "log_probabilities": values}
            write(json_line(content))
        else:
            write(f"{sum(values):.4f}\t{sum(values) / len(values):.4f}\t{len(values)}")


def _probability(sentence: LabelledWords, index: int, predictor: LabelPredictor) -> float:
    """The probability of the positive label if the labels have one, else of the word's predicted label."""
    label = predictor.positive or sentence.labels[index]
    return float(sentence.probabilities[index, predictor.labels.index(label)])


def as_tsv(sentence: LabelledWords, predictor: LabelPredictor) -> str:
    """A line per word with its label and a probability, followed by a blank line."""
    rows = enumerate(zip(sentence.words, sentence.labels, strict=True))
    return "".join(f"{word}\t{label}\t{_probability(sentence, n, predictor):.4f}\n" for n, (word, label) in rows)


def as_json(sentence: LabelledWords, predictor: LabelPredictor) -> str:
    """A line with a JSON object, which has the probability of every label."""
    columns = {label: sentence.probabilities[:, n] for n, label in enumerate(predictor.labels)}
    probabilities = {label: [round(float(value), 6) for value in column] for label, column in columns.items()}
    content = {"words": sentence.words, "labels": sentence.labels, "probabilities": probabilities}
    return json_line(content)


def as_marked(sentence: LabelledWords, predictor: LabelPredictor) -> str:
    """The sentence with its positive words marked or, without a positive label, with each word's label after it."""
    colour = sys.stdout.isatty()
    words, labels = sentence.words, sentence.labels
    if colour:
        words, labels = tuple(map(printable, words)), tuple(map(printable, labels))
    return mark(words, labels, predictor.positive, colour=colour)


STYLES: dict[str, Callable[[LabelledWords, LabelPredictor], str]] = {
    "tsv": as_tsv, "json": as_json, "marked": as_marked,
}  # fmt: skip
