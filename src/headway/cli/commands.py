"""The commands of the first level. What a command needs is imported when it runs, so that `--help` is quick."""

import json
import logging
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from pydantic import Field

from headway.augment.bulk_options import BulkOptions, DecodedOptions
from headway.cli.compare import compare, reproduce
from headway.cli.data_commands import data_app
from headway.cli.inspect_commands import inspect_app
from headway.cli.prediction_options import PREDICT_OPTIONS, SCORE_OPTIONS
from headway.cli.score_commands import draw_alignments, score_files, score_targets
from headway.cli.shell import (
    BEGIN,
    COMPARE,
    LEARN,
    OPTIONS,
    SHIP,
    TRAIN,
    Average,
    Device,
    EngineName,
    Given,
    Overrides,
    Precision,
    RunArgument,
    argument,
    command,
    flag,
    keys_given,
    new_app,
    panel,
)
from headway.cli.standard_streams import write
from headway.comparison.options import ScoreOptions
from headway.core.config import WRITES_FILE, WRITES_FOLDER, Count, Seed, validated_options
from headway.core.errors import UserError, check_companions, option
from headway.core.log import logger, say
from headway.core.registry import CATALOGUE, import_paths, listing
from headway.core.version import VERSION
from headway.export.export_options import FORMAT_OPTIONS, ExportOptions
from headway.predictors.predict_options import SamplingOptions
from headway.search.decoding_options import SearchOptions
from headway.serving.options import ServeOptions

app = new_app(
    "headway",
    "Train, compare, look inside and ship attention models for sequence transduction.",
    version_flags=(),
)
for name in app.help_flags:
    app[name].group = panel(OPTIONS)
SYSTEM = panel("Another system")
EXPORT_USAGE = "Usage: headway export FORMAT RUN [KEY=VALUE...] --output FOLDER [OPTIONS]"
DECODING = [*SearchOptions.model_fields, *SamplingOptions.model_fields]


@app.meta.default
def _root(
    *words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    quiet: Annotated[bool, flag("Say nothing but warnings, on standard error.", negative=())] = False,
    verbose: Annotated[bool, flag("Say more than usual, on standard error.", negative=())] = False,
    version: Annotated[bool, flag("Say the version.", negative=())] = False,
) -> Any:
    if version:
        write(f"headway {VERSION}")
        return 0
    if quiet or verbose:
        logger.setLevel(logging.WARNING if quiet else logging.DEBUG)
    if not words:
        app.help_print(console=app.error_console)
        return 2
    return app(words)


@command(app, group=BEGIN)
def new(
    file: Annotated[Path, argument("FILE", "A pair a row (.tsv, .jsonl); or, with TARGET, the sources.")],
    target: Annotated[Path | None, argument("TARGET", "The sources' targets, a line each.")] = None,
    /,
    *,
    output: Annotated[Path | None, WRITES_FOLDER, flag("The folder to make.", "the name of FILE")] = None,
    for_: Annotated[
        Literal["ctranslate2", "browser", "research"],
        flag("ctranslate2, argos and onnx; firefox and page; or n-grams.", "ctranslate2", name="--for"),
    ] = "ctranslate2",
    source_language: Annotated[str | None, flag("Such as ja.", "by the names of files, or by the text")] = None,
    target_language: Annotated[str | None, flag("Such as en.", "likewise")] = None,
    columns: Annotated[
        tuple[str, str] | None, flag("Those of source and target in FILE: numbers or names.", "1 2")
    ] = None,
    minutes: Annotated[
        Annotated[float, Field(gt=0, le=10**6)] | None,
        flag("The most that training may take, with its evaluations.", "as long as suits the data"),
    ] = None,
    skip_broken: Annotated[bool, flag("Leave out rows that cannot be read, instead of stopping.", negative=())] = False,
) -> None:
    """Begin with pairs of your own: train, dev and test, and a recipe of a size that suits them and this machine."""
    from headway.experiments.new import begin
    from headway.export.exporting import destinations

    if target is not None and columns is not None:
        raise UserError("pairs stand in columns or in two files, not both", where=option("columns"))
    folder = output or Path(file.name.partition(".")[0])
    files, languages = [file] if target is None else [file, target], (source_language, target_language)
    broken: Any = "skip" if skip_broken else "error"
    begun = begin(files, folder, columns or ("1", "2"), languages, minutes, broken, for_, destinations)
    run, said = folder / "run", folder / "test.out"
    commands = (
        ["headway", "train", begun.recipe, "--output", run],
        ["headway", "predict", run, "--input", begun.sources, "--output", said],
        ["headway", "score", "--metric", "bleu", "chrf", "--hypotheses", said, "--references", begun.targets],
    )
    write("\n".join([begun.account, "", *(shlex.join(map(str, words)) for words in commands)]))


@command(app, group=BEGIN)
def demo(
    *,
    output: Annotated[Path, WRITES_FOLDER, flag("The run folder to make.", "runs/dates")] = Path("runs/dates"),
    seed: Annotated[Seed, flag("The seed of data and model.", "1")] = 1,
    resume: Annotated[bool, flag("Go on with the demo that is there, as it does without.", negative=())] = False,
) -> int:
    """Learn to read dates in many languages, from nothing: data, training, scores and a report in a few minutes."""
    from headway.experiments.demo import run_demo

    code = run_demo(output, seed, resume=resume)
    if code:
        moved = [] if output == Path("runs/dates") else ["--output", str(output)]
        _say_command("to go on", "demo", "--resume", *moved, *([] if seed == 1 else ["--seed", str(seed)]))
    return code


@command(app, group=BEGIN)
def doctor() -> int:
    """Say what this installation has and whether it works: what is missing for each extra, too (about 10 seconds)."""
    from headway.experiments.doctor import run_doctor

    return run_doctor(write)


@command(app, group=LEARN)
def check(
    lesson: Annotated[int, argument("LESSON", "The number of the lesson, 1 to 8.")],
    /,
    *files: Annotated[Path, argument("FILE", "Answers: Python files, or notebooks of the lesson.", required=True)],
    allow_code: Annotated[bool, flag("Run the code of these files.", negative=())] = False,
) -> int:
    """Check answers to the exercise of a lesson: a line a file says that it is right, or which property broke.

    The files are run to be checked, so look at them first. Exits with 1 where an answer is not right.
    """
    if not allow_code:
        what = "answers are run to be checked, and can do whatever you can"
        raise UserError(
            what, where="FILE", received=str(files[0]), allowed=f"{option('allow_code')}, with files you trust"
        )
    from headway.lessons import check_file

    right = True
    for file in files:
        checked = check_file(lesson, file)
        right &= checked.right
        write(f"{file}: {checked.said}")
    return int(not right)


@command(app, group=BEGIN)
def recipes(
    *name: Annotated[
        str,
        argument("NAME|WORD", "The recipe to show, such as tanaka/mixers/ngram; or words that the listed ones have."),
    ],
    task: Annotated[str | None, flag("List those of one task.")] = None,
    output: Annotated[Path | None, WRITES_FOLDER, flag("Copy the recipe into this folder.")] = None,
) -> None:
    """List the recipes that come with headway, show one, or copy it.

    With a recipe come those that it begins from, and the scripts that prepare its corpus.
    """
    from headway.experiments.recipe_library import copy_recipe, recipe_facts, recipe_list, recipe_names

    if output is not None:
        if len(name) != 1:
            raise UserError("a recipe is copied by its name", where=option("output"), allowed="one NAME before it")
        write("\n".join(map(str, copy_recipe(name[0], output))))
    elif len(name) != 1 or name[0].removesuffix(".yaml") not in recipe_names():
        write(recipe_list(task, name))
    elif task is not None:
        raise UserError("a recipe is of one task", where=option("task"), received=task, allowed="without NAME")
    else:
        write(recipe_facts(name[0]))


@command(app, "list", BEGIN)
def list_components(
    kind: Annotated[str | None, argument("KIND", f"{', '.join(CATALOGUE)}; all without.")] = None,
    /,
    *keys: Annotated[str, argument("KEY=VALUE", "Options of the mixer that is checked, such as heads=4.")],
    check: Annotated[
        str | None,
        flag("Check that this mixer, NAME or module:Class, keeps the contract; a file gets Markdown, for its README."),
    ] = None,
    dim: Annotated[Count | None, flag("Size of the vectors of the mixer that is checked.", "48")] = None,
    device: Annotated[str | None, flag("Where it is checked: cpu, cuda, ...", "cpu")] = None,
) -> int:
    """List all components, a line each: what it is, and its options; or check a mixer.

    A check exits with 1 if the mixer breaks the contract, and says what broke.
    """
    given = {"check": check, "dim": dim, "device": device, "keys": keys}
    needs = {name: ["check"] for name in ("dim", "device", "keys")}
    check_companions([name for name, value in given.items() if value], needs)
    if check is not None:
        if kind not in (None, "mixers"):
            raise UserError("only mixers are checked", where="KIND", received=kind, allowed="mixers, before all else")
        from headway.core.device import pick_device
        from headway.mixers.conformance_report import DIM, conformance_table
        from headway.recipe.reading import apply_overrides

        options: dict[str, Any] = {}
        apply_overrides(options, keys)
        table, broken = conformance_table(check, options, dim or DIM, pick_device(device or "cpu"))
        write(table.text() if sys.stdout.isatty() else table.markdown().rstrip())
        return int(broken)
    if kind is not None:
        write("\n".join(listing(kind)))
        return 0
    sections = ("\n".join([f"{name}:", *(f"  {line}" for line in listing(name))]) for name in CATALOGUE)
    write("\n\n".join(sections))
    return 0


app.command(data_app)


@command(app, group=TRAIN, loads_runs=True)
def train(
    recipe: Annotated[Path, argument("RECIPE", "The recipe; with --resume, the run folder is enough.")],
    /,
    *overrides: Overrides,
    output: Annotated[Path | None, WRITES_FOLDER, flag("The run folder to make.", "run")] = None,
    resume: Annotated[bool, flag("Go on with the run that is there.", negative=())] = False,
    dry_run: Annotated[
        bool, flag("Read, check, build, make a few updates, and say what all will take.", negative=())
    ] = False,
) -> int:
    """Train a model from raw text. `headway train --resume RUN` continues a run that was stopped, bit for bit."""
    from headway.recipe import load_recipe
    from headway.runs.run import open_run
    from headway.training.parallel import told_once

    opened = open_run(recipe) if resume and (recipe.is_dir() or not (recipe.is_file() or recipe.suffix)) else None
    with opened.trusted() if opened else nullcontext():  # the recipe of a run may be a stranger's
        with told_once():
            if opened and output not in (None, recipe):
                what, allowed = "a run goes on in its own folder", f"a recipe beside {option('output')}"
                raise UserError(what, where="RUN", received=str(recipe), allowed=allowed)
            checked = load_recipe(recipe, overrides) if opened is None else opened.recipe
            if opened and overrides:
                checked = load_recipe(checked.model_dump(mode="json"), overrides)
            if dry_run:
                from headway.training.trained import dry_run as run_dry

                write(run_dry(checked, _say_destinations).table().text())
                return 0
        from headway.training.loop import train as run_training

        output = recipe if opened else output or Path("run")
        code = run_training(checked, output, resume=resume, report=True, begun=_say_destinations)
    allow = ["--allow-code"] if import_paths(checked.model_dump(mode="json")) else []
    if code:
        _say_command("to go on", "train", "--resume", output, *allow)
    else:
        _say_command("next", "predict", output, "--input", "FILE", *allow)
        _say_command("or look inside", "inspect", output, *allow)
    return code


def _say_destinations(run: Any) -> None:
    """Print the formats that can express the model of a run, and why the others cannot."""
    from headway.export.exporting import destinations

    say("; ".join(destinations(run)))


def _say_command(why: str, *words: str | Path) -> None:
    """Print the command that is the next one, once for all processes that train."""
    from headway.training.parallel import is_first

    if is_first():
        say(f"{why}: headway {shlex.join(map(str, words))}")


@command(app, group=TRAIN, loads_runs=True)
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
    precision: Precision = "float32",
) -> None:
    """Read lines from standard input or a file, write one output a line, in the same order."""
    from headway.cli.standard_streams import output_to
    from headway.cli.streams import document_outputs, run_documents, run_predict
    from headway.core.files import check_apart, check_output_file, exists
    from headway.formats.lines import lines_of
    from headway.markup.documents import is_marked_up

    output = check_output_file(output)  # the file of a link: what checks a flag does not change it
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
    loaded = {"device": device, "average": average, "precision": precision, "engine": engine}
    if file:
        if words or input:
            what = "a document is translated, or lines are, not both"
            raise UserError(what, where=option("file"), received=words[0] if words else str(input))
        run_documents(runs, options, document_outputs(file, output, output_folder), **loaded)
        return
    if input is not None and is_marked_up(input):
        what, allowed = "this is a document, whose lines are not text alone", f"{option('file')} {input}"
        raise UserError(what, where=option("input"), received=str(input), allowed=allowed)
    check_companions(["output_folder"] if output_folder else [], {"output_folder": ("file",)})
    with output_to(output), lines_of(input):
        shown = run_predict(runs, options, words=words, lines=input, **loaded, split_sentences=split_sentences)
    draw_alignments(shown, options.get("alignment_figure"))


@command(app, group=TRAIN, loads_runs=True)
def score(
    run: Annotated[Path | None, argument("RUN", "A run, for the probabilities of targets under its model.")] = None,
    /,
    *,
    options: Annotated[dict[str, Any], Given((ScoreOptions, *SCORE_OPTIONS))],
    device: Device = "auto",
) -> None:
    """Score files of hypotheses against references; or, with RUN, given targets under its model."""
    if run is None:
        score_files(validated_options(ScoreOptions, options))
    else:
        score_targets(run, options, device)


@command(app, group=TRAIN, loads_runs=True)
def augment(
    method: Annotated[
        Literal["backtranslate", "distill"],
        argument("METHOD", "backtranslate: the outputs are the sources of the lines; distill: they are their targets."),
    ],
    /,
    *runs_and_keys: Annotated[
        str,
        argument(
            "RUN [KEY=VALUE]",
            f"One run, or several as an ensemble; then how to decode: {', '.join(DECODING)}.",
        ),
    ],
    options: DecodedOptions,
    input: Annotated[
        Path | None,
        flag(
            "Lines that the run reads; distill has those that it was trained on where none are given.",
            "what the run was trained on",
        ),
    ] = None,
    outputs: Annotated[
        Path | None,
        flag("A line for each line of the input, which another system wrote; no run.", group=SYSTEM),
    ] = None,
    teacher: Annotated[str | None, flag("The name of the other system, for the provenance.", group=SYSTEM)] = None,
    licence: Annotated[
        str | None,
        flag("The licence of its outputs, for the provenance, such as cc-by-4.0.", group=SYSTEM),
    ] = None,
    average: Average = None,
    engine: EngineName = None,
    device: Device = "auto",
    precision: Precision = "float32",
) -> None:
    """Make a corpus of lines and what a run, or another system, writes for them.

    If it is killed, the same command continues where it stopped.
    """
    from headway.augment.bulk_decoding import ForeignTeacher, check_output, decode_corpus, pair_corpus
    from headway.cli.streams import check_engine
    from headway.runs.load import load

    if outputs is not None or teacher is not None or licence is not None:
        if runs_and_keys or outputs is None or input is None or teacher is None or licence is None:
            given = {"input": input, "outputs": outputs, "teacher": teacher, "licence": licence}
            missing = [option(name) for name, value in given.items() if value is None]
            what = "outputs of another system are paired with the lines that it read, without a run"
            raise UserError(
                what, where=missing[0] if missing else "headway augment", received=" ".join(runs_and_keys) or None,
                allowed=f"all of {', '.join(map(option, given))}, and no RUN",
            )  # fmt: skip
        manifest = pair_corpus(method, ForeignTeacher(outputs, teacher, licence), input, options)
        write(json.dumps(manifest["counts"], ensure_ascii=False))
        return
    if not runs_and_keys:
        what = "a corpus is made by a run, or of the outputs of another system"
        raise UserError(what, where="headway augment", allowed=f"RUN, or {option('outputs')}")
    if method == "backtranslate" and input is None:
        raise UserError("the text in the language that the model is to write is needed", where=option("input"))
    keys = [word for word in runs_and_keys if "=" in word and not Path(word).exists()]
    runs = [Path(word) for word in runs_and_keys if word not in keys]
    given = {name: getattr(options, name) for name in options.model_fields_set}
    checked = validated_options(BulkOptions, given | keys_given(keys, BulkOptions))
    check_output(checked)
    check_engine(engine, runs[0], checked.model_dump(exclude_unset=True))
    predictor = load(*runs, average=average, engine=engine, device=device, precision=precision)
    loaded = {"average": average, "engine": engine, "precision": precision}
    write(json.dumps(decode_corpus(method, predictor, input, checked, loaded)["counts"], ensure_ascii=False))


app.command(inspect_app)
command(app, group=COMPARE)(compare)
command(app, group=COMPARE)(reproduce)


@command(app, "import", SHIP)
def import_(
    *words: Annotated[
        str,
        argument(
            "FORMAT FILES [KEY=VALUE]",
            "The format; `headway list importers` has all. Then its files, and changes to the recipe that is made of "
            "them, such as text.source.language=ja. hf:NAME stands for hf NAME.",
            required=True,
        ),
    ],
    output: Annotated[Path, WRITES_FOLDER, flag("The run folder to make.", "run")] = Path("run"),
    licence: Annotated[
        str | None, flag("The licence of the weights, for the card, such as cc-by-4.0.", "what the files tell")
    ] = None,
) -> None:
    """Make a run of a model that others have trained; every command takes it like any run."""
    from headway.importing.importing import import_run

    keys = [word for word in words if "=" in word and not Path(word).exists()]
    import_run([word for word in words if word not in keys], output, keys, licence)


@command(app, group=SHIP, loads_runs=True, usage=EXPORT_USAGE)
def export(
    format: Annotated[str | None, argument("FORMAT", "The format; `headway list exporters` has all.")] = None,
    run: Annotated[Path | None, argument("RUN", "The run folder, or a pack.")] = None,
    /,
    *keys: Annotated[str, argument("KEY=VALUE", "Options of the format; `headway list exporters` has all.")],
    options: ExportOptions,
    list: Annotated[Path | None, flag("Say which formats can express this run, and why not.")] = None,
) -> int:
    """Write a run in a format of other engines, with its card, and show that it answers as the run does."""
    from headway.export import EXPORTERS
    from headway.export.exporting import export_run, formats_of

    if list is not None:
        write(formats_of(list).text())
        return 0
    if format is None or run is None:
        what, allowed = "an export needs a format and a run", f"headway export FORMAT RUN {option('output')} DIR"
        raise UserError(what, where="headway export", allowed=allowed)
    if str(run) in EXPORTERS and format not in EXPORTERS:
        format, run = str(run), Path(format)
    report = export_run(format, run, options, keys_given(keys, FORMAT_OPTIONS[0]))
    write(report.text())
    return 0 if report.passed else 1


@command(app, group=SHIP, loads_runs=True)
def serve(
    *runs: Annotated[
        str,
        argument(
            "RUN",
            "The runs, one for each direction of a translation or other task; NAME=RUN gives one a name, and en-de=RUN "
            "says what it translates.",
            required=True,
        ),
    ],
    options: ServeOptions,
    engine: EngineName = None,
    device: Device = "auto",
    precision: Precision = "float32",
) -> None:
    """Answer requests over HTTP, as LibreTranslate does, and show a page in the browser that translates."""
    from headway.serving.server import serve as serve_runs

    serve_runs(runs, options, engine=engine, device=device, precision=precision)


@command(app, group=SHIP, usage="Usage: headway pack RUN [--output FILE] [OPTIONS]")
def pack(
    run: RunArgument,
    /,
    output: Annotated[Path | None, flag("The pack, a name.zip.", "the name of RUN")] = None,
) -> None:
    """Put all that predicting with a run needs into one file, which stands for the run wherever one is read."""
    from headway.runs.packing import pack_run

    output = output or Path(f"{run.resolve().name}.zip")
    names = pack_run(run, output)
    write(f"{output}: {len(names)} files, {output.stat().st_size / 1e6:.1f} MB")


for place, name in enumerate(app):
    app[name].sort_key = place  # the help lists the commands in this order
app.register_install_completion_command(group=panel("Options"))
