"""`headway predict` and `headway score RUN`: choose the stream for a run's predictor, and its options."""

import json
import os
import string
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from headway.cli.prediction_options import (
    DocumentOptions,
    LabelScoreOptions,
    LabelWriterOptions,
    TargetScoreOptions,
    TermOptions,
    WriterOptions,
)
from headway.cli.prediction_stream import (
    ATTENTION,
    predict_by_sentence,
    predict_labels,
    predict_sequences,
    score_labels,
    score_pairs,
    score_recordings,
)
from headway.cli.standard_streams import StandardInput, write
from headway.core.config import validated_options
from headway.core.documents import read_bytes
from headway.core.errors import UserError, in_lines, nearest, option
from headway.core.files import check_apart, exists, write_bytes
from headway.formats.corpus_config import AnyCorpus, parts
from headway.formats.lines import TextFile, check_there, read_rows
from headway.formats.pair_formats import field_of
from headway.predictors.label_predictor import LabelPredictor
from headway.predictors.predict_options import PredictOptions, checked_options
from headway.predictors.predictor import Predictor
from headway.predictors.sequence_predictor import SequencePredictor
from headway.predictors.word_alignment import WordAlignment
from headway.processing.audio.audio_processor import AudioProcessor
from headway.processing.text.text_processor import check_determined
from headway.recipe.reading import runs_near
from headway.runs.engines import build_engine
from headway.runs.load import load
from headway.runs.run import open_run

if TYPE_CHECKING:
    from headway.predictors.sentence_translator import SentenceTranslator

# Options on words in source texts, which recordings do not have.
OF_TEXT = ("alignments", "alignment_layer", "alignment_heads", "alignment_gold", "alignment_figure")

LARGEST_DOCUMENT = 1 << 28  # bytes
AUDIO_FIELD = "audio"  # the field of a JSON line on standard input

Model = TypeVar("Model", bound=BaseModel)
Terms = TypeVar("Terms", bound=TermOptions)


def run_predict(
    runs: Sequence[Path],
    given: Mapping[str, Any],
    *,
    words: Sequence[str] = (),
    lines: Path | None = None,
    split_sentences: bool = False,
    **loaded: Any,
) -> list[WordAlignment]:
    """Predict for lines or recordings, and write to standard output.

    Args:
        runs: the run, or several as an ensemble.
        given: the user's options, of `PREDICT_OPTIONS`.
        words: recordings, for a run that reads speech; texts, for any other.
        lines: the file of lines, plain, .gz or .xz; None for standard input, which is read as it arrives.
        split_sentences: translate each sentence of a line separately.
        loaded: the options for loading the runs.

    Returns:
        Alignments of the first lines, if these are requested.

    Raises:
        UserError: the task does not have an option, options conflict, or lines cannot be read.
    """
    if lines is not None:
        check_there(lines, option("input"))
        if words:
            both = "this is no run, and inputs are named or read from a file, not both"
            what = both if exists(Path(words[0])) else f"there is no such run{runs_near(Path(words[0]))}"
            raise UserError(what, where=words[0], allowed=f"runs before {option('input')}")
    check_engine(loaded["engine"], runs[0], given)
    predictor = load(*runs, **loaded)
    task, hears = predictor.recipe.task, isinstance(predictor.runs[0].source, AudioProcessor)
    for word in () if hears else words:
        if (is_there := bool(word) and exists(Path(word))) or (
            os.sep in word and not set(word) & set(string.whitespace)
        ):
            from headway.markup.documents import is_marked_up

            missing = f"there is no such run{runs_near(Path(word))}"
            what = f"this is no run, and {task} reads lines" if is_there else missing
            asked = f"{option('file')} {word}" if is_marked_up(Path(word)) else f"{option('input')} FILE"
            allowed = f"headway predict RUN {asked}, a text, or lines on standard input"
            raise UserError(what, where=word, allowed=allowed)
    if split_sentences:
        translator, terms = _translator(predictor, given, "split_sentences", TermOptions, ("nbest", "sample"))
        predict_by_sentence(translator, *_stream(lines, words))
        terms.tell(translator.terms)
        return []
    if isinstance(predictor, LabelPredictor):
        options, writer = _parts(given, task, predictor.Options, LabelWriterOptions)
        predict_labels(predictor, options, writer, *_stream(lines, words))
        return []
    if isinstance(predictor, SequencePredictor):
        without = OF_TEXT if hears else ()
        search, output = _parts(given, task, predictor.Options, WriterOptions, without)
        if words and hears:
            return predict_sequences(predictor, search, output, [*map(Path, words)])
        texts, source = _stream(lines, words)
        if hears:
            origin, folder = ("standard input", Path()) if lines is None else (str(lines), lines.parent)
            texts = recording_paths(predictor.recipe.data.train, texts, origin, folder)
            texts = texts if lines is None else list(texts)
        return predict_sequences(predictor, search, output, texts, source)
    raise UserError("the predictor of this task has no stream of lines", where="task", received=task)


def _translator(
    predictor: Predictor[Any, Any],
    given: Mapping[str, Any],
    where: str,
    kind: type[Terms],
    without: Sequence[str] = ("nbest",),
) -> tuple["SentenceTranslator", Terms]:
    """The sentence translator that the option `where` needs, and its options of a kind. Raises UserError."""
    from headway.predictors.sentence_translator import SentenceTranslator

    task = predictor.recipe.task
    if not isinstance(predictor, SequencePredictor) or isinstance(predictor.source, AudioProcessor):
        raise UserError("this is for tasks that read and write text", where=option(where), received=task)
    options, terms = _parts(given, task, predictor.Options, kind, without)
    return SentenceTranslator(predictor, options, terms=terms.terms()), terms


def run_documents(
    runs: Sequence[Path], given: Mapping[str, Any], documents: Mapping[Path, Path | None], **loaded: Any
) -> None:
    """Translate documents into files, or to standard output for None. If one fails, the others are still translated.

    Raises:
        UserError: the task does not have an option; at the end, documents that are damaged or of unknown kinds.
    """
    from headway.markup.documents import kind_of, translate_document

    failed, contents = dict[Path, UserError](), dict[Path, bytes]()
    for file in documents:
        try:
            kind_of(str(file))
            contents[file] = read_bytes(file, LARGEST_DOCUMENT, "document")
        except UserError as error:
            failed[file] = error
    if contents:
        check_engine(loaded["engine"], runs[0], given)
        translator, options = _translator(load(*runs, **loaded), given, "file", DocumentOptions)
        sides = ("source", "target") if {"tmx", "xliff"} & {*map(kind_of, map(str, contents))} else ("source",)
        what = "documents are cut into sentences, and marked, by language"
        check_determined(translator.predictor.recipe.text, what, *sides)
        for file, content in contents.items():
            try:
                result = translate_document(
                    content, str(file), translator, translator.languages, fits=translator.fits, **options.of_documents
                )
            except UserError as error:
                failed[file] = error
                continue
            if (output := documents[file]) is not None:
                output.parent.mkdir(parents=True, exist_ok=True)
                write_bytes(output, result)
            elif sys.stdout.isatty():
                write(result.decode("utf-8", "replace"), end="")
            else:
                sys.stdout.buffer.write(result)
        options.tell(translator.terms)
    if failed and len(documents) == 1:
        raise failed.popitem()[1]
    if failed:
        mistakes = [f"{file}: {error.args[0]}".replace(f"{file}: {file}", f"{file}") for file, error in failed.items()]
        raise UserError(f"{len(failed):,} of {len(documents):,} documents are not translated\n{in_lines(mistakes)}")


def document_outputs(files: Sequence[Path], output: Path | None, folder: Path | None) -> dict[Path, Path | None]:
    """The file of each translation: `output`, or a file in `folder` with the document's name. Raises UserError."""
    outputs: dict[Path, Path | None] = {file: folder / file.name if folder else output for file in files}
    if folder is None and len(files) > 1:
        what, allowed = "several documents go to a folder", f"beside {option('output_folder')}"
        raise UserError(what, where=option("file"), received=f"{len(files)} documents", allowed=allowed)
    if folder is not None and (output is not None or len({*outputs.values()}) < len(outputs)):
        what = "documents of one name go to one file" if output is None else "documents go to a file or to a folder"
        raise UserError(what, where=option("output_folder"), received=str(folder))
    for path in outputs.values() if folder else ():
        check_apart({"output_folder": path}, files)
    return outputs


def check_engine(engine: str | None, run: Path, given: Mapping[str, Any]) -> None:
    """Raise UserError if an engine does not support the options or the recipe, before its slow export."""
    if engine is None:
        return
    decodes = build_engine(engine).decodes
    for name in ATTENTION:
        if given.get(name) and "capture" in decodes.lacks:
            what, allowed = f"the engine {engine} gives no attention", f"{option(name)} without {option('engine')}"
            raise UserError(what, where=option(name), allowed=allowed)
    asked = {name: value for name, value in given.items() if name in PredictOptions.model_fields}
    options = checked_options(PredictOptions, None, asked)
    decodes.check(options, options.search(open_run(run).recipe.decoding))


def _stream(lines: Path | None, texts: Sequence[str]) -> tuple[Iterable[str | UserError], StandardInput | None]:
    """The lines of a file, or the texts, or the lines of standard input, which can be answered one by one.

    Lines that are not UTF-8 are replaced by errors.
    """
    if texts:
        return texts, None
    if lines is not None:
        return TextFile(lines, read_rows), None
    source = StandardInput()
    return source, source


def run_score(run: Path, given: Mapping[str, Any], *, device: str = "auto") -> list[WordAlignment]:
    """Write the probabilities of target outputs under a run's model to standard output.

    Args:
        run: the run.
        given: the user's options, of `SCORE_OPTIONS`.
        device: the device to compute on.

    Returns:
        Alignments of the first lines, if these are requested.

    Raises:
        UserError: the task does not have an option, options conflict, or files cannot be read.
    """
    predictor = load(run, device=device)
    task = predictor.recipe.task
    if isinstance(predictor, LabelPredictor):
        score_labels(predictor, _only(given, task, LabelScoreOptions))
        return []
    if isinstance(predictor, SequencePredictor):
        if isinstance(predictor.source, AudioProcessor):
            score_recordings(predictor, _only(given, task, TargetScoreOptions, ("target", *OF_TEXT)))
            return []
        return score_pairs(predictor, _only(given, task, TargetScoreOptions))
    raise UserError("the predictor of this task scores no targets", where="task", received=task)


def _parts(
    given: Mapping[str, Any],
    task: str,
    options: type[Any],
    writer: type[Model],
    without: Sequence[str] = (),
) -> tuple[Any, Model]:
    """The options of the predictor, and those of the writer."""
    _check_names(given, [*_flags(options, without), *_flags(writer, without)], task)
    ours = {name: value for name, value in given.items() if name in writer.model_fields}
    theirs = {name: value for name, value in given.items() if name in options.model_fields}
    return checked_options(options, None, theirs), validated_options(writer, ours)


def _only(given: Mapping[str, Any], task: str, options: type[Model], without: Sequence[str] = ()) -> Model:
    _check_names(given, _flags(options, without), task)
    return validated_options(options, given)


def _flags(options: type[BaseModel], without: Sequence[str]) -> list[str]:
    """The names of the options that are flags of the command line, without those in `without`."""
    extras = {name: field.json_schema_extra for name, field in options.model_fields.items() if name not in without}
    return [name for name, extra in extras.items() if not isinstance(extra, dict) or extra.get("flag", name)]


def _check_names(given: Iterable[str], known: Sequence[str], task: str) -> None:
    """Raise UserError if the task does not have an option."""
    for name in given:
        if name not in known:
            what = f"{task} has no such option{nearest(name, known)}"
            raise UserError(what, where=option(name), allowed=map(option, known))


def recording_paths(
    corpus: AnyCorpus, lines: Iterable[str | UserError], origin: str, folder: Path = Path()
) -> Iterator[str | UserError]:
    """The recordings that lines name: paths, rows of a TSV manifest or JSON lines, as in a run's `corpus`.

    Blank lines are passed on, so that their outputs are empty. Lines without a path are replaced by errors.

    Args:
        corpus: the training corpus of the run, with the columns or fields of its manifest.
        lines: one recording each, or an error.
        origin: the name of the input in errors.
        folder: the folder of relative paths.

    Raises:
        UserError: the header lacks the column.
    """
    _, first = parts(corpus, "data.train")[0]
    name = (getattr(first, "columns", None) or (1,))[0]
    index = name - 1 if isinstance(name, int) else 0
    field = name if isinstance(name, str) else AUDIO_FIELD
    for number, line in enumerate(lines, start=1):
        if isinstance(line, UserError):
            yield line
            continue
        cells, where = line.split("\t"), f"{origin}:{number}"
        if number == 1 and isinstance(name, str) and not line.startswith("{"):
            if name in cells:
                index = cells.index(name)
                continue
            if len(cells) > 1 and first.kind == "tsv":
                raise UserError("no column has this name", where=where, received=name, allowed=cells)
        try:
            path = _recording_in(line, cells[index : index + 1] if len(cells) > 1 else cells, field, where)
            yield str(folder / path) if line.strip() else ""
        except UserError as error:
            yield error


def _recording_in(line: str, cells: Sequence[str], field: str, where: str) -> str:
    """The path in a line of JSON, or in the only cell of a line; empty for a blank line. Raises UserError."""
    try:
        path = field_of(json.loads(line), field, where) if line.startswith("{") else "".join(cells)
    except (ValueError, RecursionError) as error:
        raise UserError(f"this line is not JSON ({error})", where=where, received=line) from error
    if line.strip() and not path.strip():
        raise UserError("this line names no recording", where=where, received=line)
    return path.strip()
