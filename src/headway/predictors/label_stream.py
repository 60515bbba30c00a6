"""`headway predict` for taggers: sentences from standard input, labelled words to standard output."""

import json
import sys
from collections.abc import Callable
from itertools import islice

from headway.errors import UserError
from headway.log import progress
from headway.predictors.label_predictor import LabelledWords, TokenPredictor
from headway.predictors.prediction_stream import read_standard_input
from headway.processing.text.text_config import SideConfig
from headway.processing.text.text_processor import prepare

WINDOW = 1000  # lines read together; memory stays flat however many come
RED, RESET = "\x1b[4;31m", "\x1b[0m"


def predict_labels(
    predictor: TokenPredictor, style: str | None, threshold: float | None, batch_tokens: int | None, raw: bool
) -> None:
    """Label the lines of standard input and write them in their order.

    Args:
        predictor: the tagger.
        style: a name in `STYLES`; by default `marked` for a terminal and `tsv` for anything else.
        threshold: see `TokenPredictor.predict`.
        batch_tokens: likewise.
        raw: whether lines are text as people write it, to be cut into words first; otherwise white space separates
            their words.

    Raises:
        UserError: an unknown style, or standard input that is not UTF-8.
    """
    style = style or ("marked" if sys.stdout.isatty() else "tsv")
    if style not in STYLES:
        raise UserError("unknown format", where="--format", received=style, allowed=STYLES)
    side = predictor.recipe.text.source
    cut = SideConfig(language=side.language, normalise=side.normalise, segment="moses" if raw else "whitespace")
    lines, done = read_standard_input(), 0
    with progress("labelling", unit="lines") as task:
        while window := [prepare(line, cut) for line in islice(lines, WINDOW)]:
            for sentence in predictor.predict(window, threshold=threshold, batch_tokens=batch_tokens):
                sys.stdout.write(STYLES[style](sentence, predictor) + "\n")
            sys.stdout.flush()
            done += len(window)
            task.update(done)


def _probability(sentence: LabelledWords, place: int, predictor: TokenPredictor) -> float:
    """That of the label which is sought, where there is one, else that of the word's own label."""
    label = predictor.positive or sentence.labels[place]
    return float(sentence.probabilities[place, predictor.labels.index(label)])


def as_tsv(sentence: LabelledWords, predictor: TokenPredictor) -> str:
    """A word a row with its label and a probability; the line after the last is blank."""
    rows = enumerate(zip(sentence.words, sentence.labels, strict=True))
    return "".join(f"{word}\t{label}\t{_probability(sentence, n, predictor):.4f}\n" for n, (word, label) in rows)


def as_json(sentence: LabelledWords, predictor: TokenPredictor) -> str:
    """One object a line, with the probability of every label."""
    columns = {label: sentence.probabilities[:, n] for n, label in enumerate(predictor.labels)}
    probabilities = {label: [round(float(each), 6) for each in column] for label, column in columns.items()}
    content = {"words": sentence.words, "labels": sentence.labels, "probabilities": probabilities}
    return json.dumps(content, ensure_ascii=False)


def as_marked(sentence: LabelledWords, predictor: TokenPredictor) -> str:
    """The sentence with the words that have the sought label marked, or with every word's label behind it."""
    return mark(sentence.words, sentence.labels, predictor.positive, colour=sys.stdout.isatty())


def mark(words: tuple[str, ...], labels: tuple[str, ...], positive: str | None, *, colour: bool = False) -> str:
    """Words in one line: those labelled `positive` in brackets or, with `colour`, red; without it `word/LABEL`."""
    pairs = zip(words, labels, strict=True)
    if positive is None:
        return " ".join(f"{word}/{label}" for word, label in pairs)
    before, after = (RED, RESET) if colour else ("[", "]")
    return " ".join(f"{before}{word}{after}" if label == positive else word for word, label in pairs)


STYLES: dict[str, Callable[[LabelledWords, TokenPredictor], str]] = {
    "tsv": as_tsv, "json": as_json, "marked": as_marked,
}  # fmt: skip
