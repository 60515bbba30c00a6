"""Labels over streams of sentences: prediction and forced scoring with a tagger."""

import sys
from collections.abc import Callable, Iterable

from headway.cli.prediction_options import LabelScoreOptions, LabelWriterOptions
from headway.cli.standard_streams import StandardInput, windows, write
from headway.errors import UserError, option, printable
from headway.files import json_line
from headway.formats.conllu import label_column, read_labelled
from headway.formats.lines import check_file
from headway.log import progress
from headway.predictors.label_predictor import LabelledWords, LabelPredictor, mark
from headway.predictors.predict_options import LabelOptions

WINDOW = 1000  # lines read together; memory stays flat however many come


def predict_labels(
    predictor: LabelPredictor,
    options: LabelOptions,
    output: LabelWriterOptions,
    lines: Iterable[str],
    source: StandardInput | None = None,
) -> None:
    """Label lines and write them in their order.

    Args:
        predictor: the tagger.
        options: how to label.
        output: what is written; by default `marked` for a terminal and `tsv` for anything else.
        lines: the sentences. Without `source` they are gone through twice, the first time to read and count them.
        source: where they are read as they come; each is then answered as soon as no further one waits.

    Raises:
        UserError: a threshold that cannot be, or lines that are not UTF-8.
    """
    style = STYLES[output.format or ("marked" if sys.stdout.isatty() else "tsv")]
    options = predictor.settled(options)
    done, coloured = 0, style is as_marked
    total = sum(1 for _ in lines) if source is None else None
    with progress("labelling", total, "lines", shown=source is None or not source.typed) as line:
        for window in windows(lines, WINDOW, source):
            for sentence in predictor.predict(window, options, first_line=done + 1):
                write(style(sentence, predictor), coloured=coloured)
            sys.stdout.flush()
            done += len(window)
            line.update(done)


def score_labels(predictor: LabelPredictor, options: LabelScoreOptions) -> None:
    """Write the log probability of each sentence's labels: in all, a word, and the number of words.

    Raises:
        UserError: a file that is missing, or holds labels that the model does not have.
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
    """That of the label which is sought, where there is one, else that of the word's own label."""
    label = predictor.positive or sentence.labels[index]
    return float(sentence.probabilities[index, predictor.labels.index(label)])


def as_tsv(sentence: LabelledWords, predictor: LabelPredictor) -> str:
    """A word a row with its label and a probability; the line after the last is blank."""
    rows = enumerate(zip(sentence.words, sentence.labels, strict=True))
    return "".join(f"{word}\t{label}\t{_probability(sentence, n, predictor):.4f}\n" for n, (word, label) in rows)


def as_json(sentence: LabelledWords, predictor: LabelPredictor) -> str:
    """One object a line, with the probability of every label."""
    columns = {label: sentence.probabilities[:, n] for n, label in enumerate(predictor.labels)}
    probabilities = {label: [round(float(value), 6) for value in column] for label, column in columns.items()}
    content = {"words": sentence.words, "labels": sentence.labels, "probabilities": probabilities}
    return json_line(content)


def as_marked(sentence: LabelledWords, predictor: LabelPredictor) -> str:
    """The sentence with the words that have the sought label marked, or with every word's label behind it."""
    colour = sys.stdout.isatty()
    words, labels = sentence.words, sentence.labels
    if colour:
        words, labels = tuple(map(printable, words)), tuple(map(printable, labels))
    return mark(words, labels, predictor.positive, colour=colour)


STYLES: dict[str, Callable[[LabelledWords, LabelPredictor], str]] = {
    "tsv": as_tsv, "json": as_json, "marked": as_marked,
}  # fmt: skip
