"""Prediction and forced scoring over streams of lines, for the command line."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from headway.errors import UserError
from headway.formats.lines import BYTE_ORDER_MARK, read_lines
from headway.log import progress, say, warn
from headway.models.model import wanted
from headway.predictors.captured_attention import END
from headway.predictors.prediction import Candidate, Prediction
from headway.predictors.sequence_predictor import Options, Predictor
from headway.predictors.word_alignment import Aligner, WordAlignment

WINDOW = 2000  # lines decoded together; memory stays flat however many come
MOST_SHOWN = 12  # alignments on a page of pictures


@dataclass(frozen=True)
class Outlet:
    """Where predictions go: text (with scores) to standard output, attention and alignments of words to files.

    Args:
        with_scores: write the score before the text.
        attention: a file of JSON lines with the weights between pieces.
        layers: patterns of the names that go to that file.
        alignments: a file of Pharaoh links between words or, where its name ends in .jsonl, of JSON lines with weights.
        aligner: what makes alignments; it is needed where they are asked for.
        shown: takes the alignments of the first `MOST_SHOWN` lines.
    """

    with_scores: bool = False
    attention: Path | None = None
    layers: tuple[str, ...] = ()
    alignments: Path | None = None
    aligner: Aligner | None = None
    shown: list[WordAlignment] = field(default_factory=list)

    def write(self, prediction: Prediction) -> None:
        """Write one prediction: a line for each of its candidates."""
        for candidate in prediction.candidates:
            score = f"{candidate.score:.4f}\t" if self.with_scores else ""
            sys.stdout.write(f"{score}{candidate.text}\n")

    @contextmanager
    def files(self) -> Iterator[Callable[[Prediction, int], None]]:
        """Opens the files and gives what writes a prediction, with its line's number, to them. Raises UserError."""
        with ExitStack() as stack:
            attention = _open(self.attention, "--attention", stack)
            alignments = _open(self.alignments, "--alignments", stack)

            def write(prediction: Prediction, line: int) -> None:
                if attention is not None:
                    attention.write(
                        json.dumps(attention_record(prediction, line, self.layers), ensure_ascii=False) + "\n"
                    )
                if self.aligner is None:
                    return
                alignment = self.aligner(prediction)
                if alignments is not None:
                    as_json = self.alignments is not None and self.alignments.suffix == ".jsonl"
                    record = json.dumps(alignment.record(line), ensure_ascii=False) if as_json else alignment.pharaoh()
                    alignments.write(record + "\n")
                if len(self.shown) < MOST_SHOWN and alignment.source:
                    self.shown.append(alignment)

            yield write


def attention_record(prediction: Prediction, line: int, layers: tuple[str, ...]) -> dict[str, Any]:
    """The best candidate's attention as plain values: by name, then head, target token, source token."""
    chosen = {name: weights for name, weights in prediction.attention.items() if wanted(name, layers)}
    return {
        "line": line,
        "source": prediction.source,
        "target": prediction.text,
        "source_tokens": prediction.attended,
        "target_tokens": [*prediction.tokens, END],
        "attention": {name: weights.astype(float).round(6).tolist() for name, weights in chosen.items()},
    }


def read_standard_input() -> Iterator[str]:
    """The lines of standard input. Raises UserError, with the line, where it is not UTF-8."""
    if sys.stdin.isatty():
        say("reading lines as they are typed; Ctrl-D ends")
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        try:
            yield raw.removeprefix(BYTE_ORDER_MARK if number == 1 else b"").decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise UserError(
                f"this is not UTF-8 ({error.reason} at byte {error.start + 1})", where=f"standard input:{number}"
            ) from error


def predict_stream(
    predictor: Predictor,
    options: Options,
    outlet: Outlet,
    prefix: Path | None,
    sources: Iterable[Any],
    window_size: int = WINDOW,
) -> None:
    """Decode sources, such as the lines of standard input, window by window and write the predictions in their order.

    Raises:
        UserError: a source that is too long or cannot be read, or a prefix file of another length.
    """
    prefixes = read_lines(prefix) if prefix else None
    done = truncated = skipped = 0
    with outlet.files() as write, progress("decoding", unit="lines") as line:
        for window in _windows(sources, window_size):
            if prefixes is not None:
                options = replace(options, prefixes=list(islice(prefixes, len(window))))
            for prediction in predictor.predict(window, options, first_line=done + 1):
                done += 1
                truncated += prediction.truncated
                if prediction.problem is not None:
                    skipped += 1
                    warn(f"skipped: {prediction.problem}")
                outlet.write(prediction)
                write(prediction, done)
            sys.stdout.flush()
            line.update(done)
    if truncated:
        say(f"{truncated:,} of {done:,} lines are longer than the limit: only their beginning was read")
    if skipped:
        warn(f"{skipped:,} of {done:,} were skipped; their lines are empty")
    if prefixes is not None and next(prefixes, None) is not None:
        raise UserError("there are more prefixes than lines", where=f"--prefix {prefix}", allowed=f"{done}")


def _windows(sources: Iterable[Any], size: int) -> Iterator[list[Any]]:
    stream = iter(sources)
    while window := list(islice(stream, size)):
        yield window


def _open(path: Path | None, option: str, stack: ExitStack) -> TextIO | None:
    if path is None:
        return None
    try:
        return stack.enter_context(path.open("w", encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot write there ({error.strerror})", where=f"{option} {path}") from error


def force_score(
    predictor: Predictor, sources: Sequence[Any], targets: Sequence[str], outlet: Outlet, *, as_json: bool
) -> None:
    """Write, for each pair, the log probability of the target given the source, a token and in all.

    Columns: log probability, the same a token, tokens (with the end mark).

    Raises:
        UserError: different numbers of sources and targets.
    """
    layers = () if outlet.aligner is None else (outlet.aligner.layer,)
    with outlet.files() as write:
        for line, prediction in enumerate(predictor.force(sources, targets, capture=layers), start=1):
            _write_forced(prediction.candidates[0], as_json)
            write(prediction, line)


def _write_forced(candidate: Candidate, as_json: bool) -> None:
    total, count = sum(candidate.log_probabilities), len(candidate.log_probabilities)
    if as_json:
        tokens = [*candidate.tokens, END]
        values = {"log_probability": total, "score": candidate.score, "tokens": tokens}
        print(json.dumps(values | {"log_probabilities": candidate.log_probabilities}, ensure_ascii=False))
    else:
        print(f"{total:.4f}\t{total / count:.4f}\t{count}")
