"""`headway predict`: from lines, recordings or documents to outputs."""

from pathlib import Path
from typing import Annotated, Any

from headway.cli.prediction_options import PREDICT_OPTIONS, DocumentOptions, TermOptions, draw_alignments
from headway.cli.shell import Average, Device, EngineName, Given, Precision, Workers, argument, flag, verb
from headway.core.config import WRITES_FILE, WRITES_FOLDER
from headway.core.errors import UserError, check_companions, option


@verb(loads_runs=True)
def predict(
    *named: Annotated[
        str,
        argument(
            "RUN",
            "One run, or several to decode as an ensemble; then texts to read or, for speech, recordings. "
            "hf:NAME_OR_FOLDER is a model of Hugging Face, which is imported at first use.",
            required=True,
        ),
    ],
    options: Annotated[dict[str, Any], Given(PREDICT_OPTIONS)],
    input: Annotated[
        Path | None,
        flag(
            "The lines to read; also .gz and .xz. Paths of recordings are relative to it.",
            "standard input",
        ),
    ] = None,
    split_sentences: Annotated[bool, flag("Translate each sentence of a line by itself.", negative=())] = False,
    file: Annotated[
        tuple[Path, ...],
        flag(
            "Documents to translate (.txt .html .md .po .xlf .tmx .srt .vtt): their text alone changes.",
            consume_multiple=True,
        ),
    ] = (),
    output: Annotated[Path | None, WRITES_FILE, flag("The file to write.", "standard output")] = None,
    output_folder: Annotated[Path | None, WRITES_FOLDER, flag("Write documents there, by their own names.")] = None,
    average: Average = None,
    engine: EngineName = None,
    device: Device = "auto",
    precision: Precision = None,
    workers: Workers = None,
) -> None:
    from headway.cli.standard_streams import output_to
    from headway.cli.streams import document_outputs, run_documents, run_predict
    from headway.core.files import check_apart, check_output_file, exists
    from headway.formats.lines import lines_of

    output = check_output_file(output)  # resolve a link, which the check of the flag does not do
    first = Path(named[0])
    if first.is_file() and first.suffix != ".zip":
        allowed = f"headway predict RUN {option('input')} FILE"
        raise UserError("this is a file, not a run folder", where="RUN", received=named[0], allowed=allowed)
    if named[0].startswith("hf:"):
        from headway.importing.huggingface_import import kept_import

        first = kept_import(named[0], options.pop("target_language", None))
    words = [word for word in named[1:] if not (word and exists(Path(word), "folder")) and Path(word).suffix != ".zip"]
    runs = [first, *(Path(word) for word in named[1:] if word not in words)]
    written = {key: options.get(key) for key in ("attention", "alignments", "alignment_figure", "term_report")}
    read = [input, *file, *(options.get(key) for key in ("prefix", "dictionary", "alignment_gold", "glossary"))]
    check_apart({"output": output, **written}, [*map(Path, words), *(path for path in read if path)])
    loaded = {"device": device, "average": average, "precision": precision, "engine": engine, "workers": workers}
    if file:
        if words or input:
            what = "a document is translated, or lines are, not both"
            raise UserError(what, where=option("file"), received=words[0] if words else str(input))
        run_documents(runs, options, document_outputs(file, output, output_folder), **loaded)
        return
    if input is not None:
        from headway.markup.documents import is_marked_up

        if is_marked_up(input):
            what, allowed = "this is a document, whose lines are not text alone", f"{option('file')} {input}"
            raise UserError(what, where=option("input"), received=str(input), allowed=allowed)
    own = DocumentOptions.model_fields.keys() - TermOptions.model_fields.keys()
    of_documents = [*(options.keys() & own), *(["output_folder"] if output_folder else [])]
    check_companions(of_documents, dict.fromkeys(of_documents, ("file",)))
    with output_to(output), lines_of(input):
        shown = run_predict(runs, options, words=words, lines=input, **loaded, split_sentences=split_sentences)
    draw_alignments(shown, options.get("alignment_figure"))
