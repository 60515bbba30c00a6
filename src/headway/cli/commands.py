"""The commands of the first level. What a command needs is imported when it runs, so that `--help` is quick."""

import logging
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.arguments import LARGEST_SEED, AllowCode, Average, Device, EngineName, Precision
from headway.cli.bulk_commands import backtranslate, distill
from headway.cli.claim_commands import reproduce
from headway.cli.compare import compare
from headway.cli.data_commands import data_app
from headway.cli.export_commands import export
from headway.cli.inspect_commands import inspect_app
from headway.cli.options import Given, command
from headway.cli.pack_commands import add_pack_commands
from headway.cli.prediction_options import PREDICT_OPTIONS
from headway.cli.recipe_commands import recipes_app
from headway.cli.score_commands import draw_alignments, score_app
from headway.cli.standard_streams import write
from headway.cli.verb_groups import BEGIN, COMPARE, SHIP, TRAIN, Root
from headway.config import WRITES_FILE, WRITES_FOLDER
from headway.log import logger
from headway.registry import CATALOGUE, listing

app = typer.Typer(
    cls=Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train, compare, look inside and ship attention models for sequence transduction.",
)
app.add_typer(recipes_app, name="recipes", rich_help_panel=BEGIN)
app.add_typer(data_app, name="data", rich_help_panel=TRAIN)
app.add_typer(score_app, name="score", rich_help_panel=TRAIN)
app.add_typer(inspect_app, name="inspect", rich_help_panel=TRAIN)
command(app, group=COMPARE)(compare)
command(app, group=COMPARE)(reproduce)
command(app, group=TRAIN)(backtranslate)
command(app, group=TRAIN)(distill)
command(app, group=SHIP)(export)
add_pack_commands(app, SHIP)


def _version(show: bool) -> None:
    if show:
        import headway

        write(f"headway {headway.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but warnings, on standard error.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Say more than usual, on standard error.")] = False,
) -> None:
    if quiet or verbose:
        logger.setLevel(logging.WARNING if quiet else logging.DEBUG)


@command(app, group=TRAIN)
def train(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE.yaml", help="The recipe.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY.PATH=VALUE ...]", help="Changes to the recipe, such as training.updates=2000."),
    ] = None,
    output: Annotated[Path, WRITES_FOLDER, typer.Option(help="The run folder to make.")] = Path("run"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run that is there.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Read, check, build, make a few updates, and say what all will take."),
    ] = False,
) -> None:
    """Train a model from raw text. With --resume, a run that was stopped continues, bit for bit."""
    if dry_run:
        from headway.recipe import load_recipe
        from headway.runs.training.parallel import told_once
        from headway.runs.training.trained import dry_run as run_dry

        with told_once():
            write(run_dry(load_recipe(recipe, overrides or ())).table().text())
        return
    from headway.runs.training.trained import train as run_training

    raise typer.Exit(run_training(recipe, output, overrides or (), resume=resume).code)


@command(app, group=TRAIN)
def predict(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="One run, or several to decode as an ensemble; for speech, then the recordings to write down.",
        ),
    ],
    options: Annotated[dict[str, Any], Given(PREDICT_OPTIONS)],
    input: Annotated[
        Path | None,
        typer.Option(
            help="The lines to read; also .gz and .xz. Paths of recordings are relative to it.",
            show_default="standard input",
        ),
    ] = None,
    output: Annotated[
        Path | None, WRITES_FILE, typer.Option(help="The file to write.", show_default="standard output")
    ] = None,
    average: Average = None,
    engine: EngineName = None,
    device: Device = "auto",
    precision: Precision = "float32",
    allow_code: AllowCode = False,
) -> None:
    """Read lines from standard input or a file, write one output a line, in the same order."""
    from headway.cli.standard_streams import output_to
    from headway.cli.streams import run_predict
    from headway.errors import UserError, option
    from headway.files import check_apart

    if runs[0].is_file() and runs[0].suffix != ".zip":
        what = "this is a file, not a run folder"
        allowed = f"headway predict RUN {option('input')} FILE"
        raise UserError(what, where=option("runs"), received=str(runs[0]), allowed=allowed)
    files = [path for path in runs[1:] if not path.is_dir() and path.suffix != ".zip"]
    runs = [runs[0], *(path for path in runs[1:] if path not in files)]
    written = {key: options.get(key) for key in ("attention", "alignments", "alignment_figure")}
    read = [input, *(options.get(key) for key in ("prefix", "dictionary", "alignment_gold"))]
    check_apart({"output": output, **written}, [*files, *(path for path in read if path)])
    with output_to(output):
        shown = run_predict(
            runs, options,
            files=files, lines=input, device=device, average=average, precision=precision, engine=engine,
            allow_code=allow_code,
        )  # fmt: skip
    draw_alignments(shown, options.get("alignment_figure"))


@command(app, "list", BEGIN)
def list_components(
    kind: Annotated[str | None, typer.Argument(metavar="[KIND]", help=f"{', '.join(CATALOGUE)}; all without.")] = None,
) -> None:
    """List all components, a line each, with options, their types and defaults."""
    if kind is not None:
        write("\n".join(listing(kind)))
        return
    sections = ("\n".join([f"{name}:", *(f"  {line}" for line in listing(name))]) for name in CATALOGUE)
    write("\n\n".join(sections))


@command(app, group=BEGIN)
def demo(
    output: Annotated[Path, WRITES_FOLDER, typer.Option(help="The run folder to make.")] = Path("runs/dates"),
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="The seed of data and model.")] = 1,
) -> None:
    """Learn to read dates in many languages, from nothing: data, training, scores and a report in a few minutes."""
    from headway.experiments.demo import run_demo

    raise typer.Exit(run_demo(output, seed))


@command(app, group=BEGIN)
def doctor() -> None:
    """Say what this installation has and whether it works: what is missing for each extra, too (about 10 seconds)."""
    from headway.experiments.doctor import run_doctor

    raise typer.Exit(run_doctor(write))
