"""Prediction and forced scoring over streams of lines, for the command line."""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from headway.console import progress
from headway.data.sources import BYTE_ORDER_MARK, read_lines
from headway.decoding.predictor import END, Options, Prediction, Predictor, load
from headway.errors import UserError

WINDOW = 2000  # lines decoded together; memory stays flat however many come


@dataclass(frozen=True)
class Outlet:
    """Where predictions go: text (with scores) to standard output, attention to a file."""

    with_scores: bool = False
    attention: Path | None = None

    def write(self, prediction: Prediction, line: int, attention: TextIO | None) -> None:
        """Write one prediction: a line for each of its candidates."""
        for candidate in prediction.candidates:
            score = f"{candidate.score:.4f}\t" if self.with_scores else ""
            sys.stdout.write(f"{score}{candidate.text}\n")
        if attention is not None:
            attention.write(json.dumps(attention_record(prediction, line), ensure_ascii=False) + "\n")


def attention_record(prediction: Prediction, line: int) -> dict[str, Any]:
    """The best candidate's attention as plain values: by name, then head, target token, source token."""
    return {
        "line": line,
        "source": prediction.source,
        "target": prediction.text,
        "source_tokens": [*prediction.source_tokens, END],
        "target_tokens": [*prediction.tokens, END],
        "attention": {name: weights.astype(float).round(6).tolist() for name, weights in prediction.attention.items()},
    }


def read_standard_input() -> Iterator[str]:
    """The lines of standard input. Raises UserError, with the line, where it is not UTF-8."""
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        try:
            yield raw.removeprefix(BYTE_ORDER_MARK if number == 1 else b"").decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise UserError(
                f"this is not UTF-8 ({error.reason} at byte {error.start + 1})", where=f"standard input:{number}"
            ) from error


def predict_stream(predictor: Predictor, options: Options, outlet: Outlet, prefix: Path | None) -> None:
    """Decode standard input window by window and write the predictions in its order.

    Raises:
        UserError: a line that is too long or not UTF-8, or a prefix file of another length.
    """
    prefixes = read_lines(prefix) if prefix else None
    done = 0
    with ExitStack() as stack:
        attention = _open(outlet.attention, stack)
        line = stack.enter_context(progress("decoding", unit="lines"))
        for window in _windows(read_standard_input()):
            if prefixes is not None:
                options = replace(options, prefixes=list(islice(prefixes, len(window))))
            for prediction in predictor.predict(window, options, first_line=done + 1):
                done += 1
                outlet.write(prediction, done, attention)
            sys.stdout.flush()
            line.update(done)
    if prefixes is not None and next(prefixes, None) is not None:
        raise UserError("there are more prefixes than lines", where=f"--prefix {prefix}", allowed=f"{done}")


def _windows(lines: Iterator[str]) -> Iterator[list[str]]:
    window: list[str] = []
    for line in lines:
        window.append(line)
        if len(window) == WINDOW:
            yield window
            window = []
    if window:
        yield window


def _open(path: Path | None, stack: ExitStack) -> TextIO | None:
    if path is None:
        return None
    try:
        return stack.enter_context(path.open("w", encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot write there ({error.strerror})", where=f"--attention {path}") from error


def force_score(run: Path, source: Path, target: Path, *, device: str, as_json: bool) -> None:
    """Write, for each line, the log probability of the target given the source, a token and in all.

    Columns: log probability, the same a token, tokens (with the end mark).

    Raises:
        UserError: files with different numbers of lines, or a run that cannot be loaded.
    """
    sources, targets = list(read_lines(source)), list(read_lines(target))
    if len(sources) != len(targets):
        raise UserError(
            "both files need the same number of lines",
            where=f"{source}, {target}",
            received=f"{len(sources)} and {len(targets)} lines",
        )
    for candidate in load(run, device=device).score(sources, targets):
        total, count = sum(candidate.log_probabilities), len(candidate.log_probabilities)
        if as_json:
            tokens = [*candidate.tokens, END]
            values = {"log_probability": total, "score": candidate.score, "tokens": tokens}
            print(json.dumps(values | {"log_probabilities": candidate.log_probabilities}, ensure_ascii=False))
        else:
            print(f"{total:.4f}\t{total / count:.4f}\t{count}")
