"""Sentences with the edits of their annotators: M2 (Dahlmeier and Ng 2012)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headway.config import Index
from headway.errors import UserError
from headway.formats.corpus_config import CorpusConfig
from headway.formats.corpus_format import ERRORS, CorpusFormat, Labelled
from headway.formats.edits import CORRECT, INCORRECT, mark_missing
from headway.formats.lines import blocks
from headway.formats.row_errors import RowErrors

Edits = dict[int, list[tuple[int, int]]]


class M2(CorpusFormat):
    """Words that an annotator edited are wrong."""

    class Config(CorpusConfig):
        """The file, and the number of one `annotator`; by default all of them, each with another labelling."""

        path: Path
        annotator: Index | None = None

    config: Config
    products = (ERRORS,)

    def labelled(self, labels: Sequence[str] | None) -> list[Labelled]:
        return read_m2(self.config.path, self.config.annotator, self.row_errors)


def read_m2(path: Path, annotator: int | None = None, row_errors: RowErrors | None = None) -> list[Labelled]:
    """The sentences of an M2 file, words within an edit being wrong.

    Args:
        path: the file.
        annotator: whose edits; by default those of all who edited any sentence, each of them another labelling.
        row_errors: what becomes of sentences that cannot be read; by default they are an error.

    Raises:
        UserError: with file and line: a line that is not M2, or an edit outside its sentence; without a line: nobody
            has the number `annotator`.
    """
    sentences, row_errors = list[tuple[int, tuple[str, ...], Edits]](), row_errors or RowErrors()
    for block in blocks(path):
        try:
            sentences.append(_read_block(path, block))
        except UserError as error:
            row_errors.add(error)
    annotators = sorted({number for _, _, edits in sentences for number in edits}) or [0]
    if annotator is not None and annotator not in annotators:
        raise UserError(
            "no edit is by this annotator", where=str(path), received=annotator, allowed=map(str, annotators)
        )
    chosen = annotators if annotator is None else [annotator]
    return [
        _labelled(line, tokens, [_labels_of(tokens, edits.get(number, ())) for number in chosen])
        for line, tokens, edits in sentences
    ]


def _labelled(line: int, tokens: Sequence[str], labels: Sequence[Sequence[str]]) -> Labelled:
    """A sentence without its blank tokens; white space within a word is written as _."""
    kept = [place for place, token in enumerate(tokens) if token.strip()]
    words = tuple("_".join(tokens[place].split()) for place in kept)
    return Labelled(line, words, tuple(tuple(row[place] for place in kept) for row in labels))


def _read_block(path: Path, block: list[tuple[int, str]]) -> tuple[int, tuple[str, ...], Edits]:
    """Where a sentence begins, its tokens, and by annotator the spans of the edits.

    Spaces alone separate tokens: one may be, or have, another kind of white space, such as a no-break space.
    """
    (first, sentence), *rest = block
    if not sentence.startswith("S ") or not sentence[2:].split():
        raise UserError("a sentence of M2 begins with S and has words", where=f"{path}:{first}", received=sentence)
    words, edits = tuple(token for token in sentence[2:].split(" ") if token), Edits()
    for line, text in rest:
        where = f"{path}:{line}"
        fields = text.removeprefix("A ").split("|||")
        try:
            start, end = map(int, fields[0].split())
            annotator = int(fields[5])
        except (ValueError, IndexError):
            allowed = "A START END|||TYPE|||CORRECTION|||REQUIRED|||COMMENT|||ANNOTATOR"
            raise UserError("this is no edit of M2", where=where, received=text, allowed=allowed) from None
        spans = edits.setdefault(annotator, [])
        if fields[1] == "noop":
            continue
        if not 0 <= start <= end <= len(words):
            raise UserError(
                "this edit lies outside its sentence", where=where, received=fields[0],
                allowed=f"positions from 0 to {len(words)}",
            )  # fmt: skip
        spans.append((start, end))
    return first, words, edits


def _labels_of(words: Sequence[str], spans: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    labels = [CORRECT] * len(words)
    for start, end in spans:
        labels[start:end] = [INCORRECT] * (end - start)
        if start == end:
            mark_missing(labels, start)
    return tuple(labels)
