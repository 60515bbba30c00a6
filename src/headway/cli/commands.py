"""The commands of the first level. What a command needs is imported when it runs, so that `--help` is quick."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.arguments import (
    AlignmentFigure,
    AlignmentGold,
    AlignmentHeads,
    AlignmentLayer,
    Alignments,
    Device,
    given_options,
)
from headway.cli.bench_commands import bench_app
from headway.cli.data_commands import data_app
from headway.cli.inspect_commands import inspect
from headway.log import logger

if TYPE_CHECKING:
    from headway.predictors.word_alignment import WordAlignment

OF_RECIPE = "the recipe's"
METRIC_NAMES = (
    "bleu, chrf, ter, wer, cer, rouge-1, rouge-2, rouge-l, rouge-lsum, exact_match, aer, precision, recall, f0.5, "
    "accuracy; of trees: bracket-f1, bracket-precision, bracket-recall, complete-match, tagging-accuracy, "
    "crossing-brackets, well-formed."
)

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train, compare, look inside and ship attention models for sequence transduction.",
)
app.add_typer(data_app, name="data")
app.add_typer(bench_app, name="bench")


def _version(show: bool) -> None:
    if show:
        import headway

        typer.echo(f"headway {headway.__version__}")
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


@app.command()
def train(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE.yaml", help="The recipe.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY.PATH=VALUE ...]", help="Changes to the recipe, such as training.updates=2000."),
    ] = None,
    output: Annotated[Path, typer.Option(help="The run folder to make.")] = Path("run"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run that is there.")] = False,
) -> None:
    """Train a model from raw text; killed at any moment, it goes on exactly where it was with --resume."""
    from headway.recipe import load_recipe
    from headway.runs.training.loop import train as run_training

    code = run_training(load_recipe(recipe, overrides or ()), output, resume=resume)
    if code == 0:
        _write_run_report(output)
    raise typer.Exit(code)


def _write_run_report(run: Path) -> None:
    import os

    if int(os.environ.get("RANK", 0)) == 0:
        from headway.runs.inspect.run_report import write_run_report

        write_run_report(run)


@app.command()
def predict(
    context: typer.Context,
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="One run, or several to decode as an ensemble; for speech, then the recordings to write down.",
        ),
    ],
    beam: Annotated[
        int | None, typer.Option(min=1, help="Hypotheses kept; 1 is greedy.", show_default=OF_RECIPE)
    ] = None,
    nbest: Annotated[
        int, typer.Option(min=1, help="Outputs a line: SCORE TAB TEXT lines, N for each line, if above 1.")
    ] = 1,
    length_penalty: Annotated[
        float | None, typer.Option(min=0, help="Exponent of the length penalty.", show_default=OF_RECIPE)
    ] = None,
    min_length: Annotated[
        int | None, typer.Option(min=0, help="Shortest output in pieces.", show_default=OF_RECIPE)
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Longest output in pieces.", show_default=OF_RECIPE)
    ] = None,
    max_length_ratio: Annotated[
        float | None,
        typer.Option(min=0, help="Else so many pieces for each of the source, and ...", show_default=OF_RECIPE),
    ] = None,
    max_length_offset: Annotated[
        int | None, typer.Option(min=0, help="... so many more.", show_default=OF_RECIPE)
    ] = None,
    no_repeat_ngram: Annotated[
        int | None,
        typer.Option(min=0, help="No N pieces in a row come twice in an output; 0 allows it.", show_default=OF_RECIPE),
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Write SCORE TAB TEXT also for one output a line.")] = False,
    sample: Annotated[bool, typer.Option("--sample", help="Draw outputs at random instead of searching.")] = False,
    temperature: Annotated[
        float, typer.Option(min=0.01, help="With --sample: flattens (> 1) or sharpens (< 1).")
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="With --sample: only the k most probable pieces.")] = None,
    top_p: Annotated[float, typer.Option(min=0.001, max=1, help="With --sample: only the nucleus of this mass.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="With --sample: the seed.")] = 1,
    prefix: Annotated[Path | None, typer.Option(help="A file with the forced beginning of each output.")] = None,
    attention: Annotated[
        Path | None, typer.Option(help="Write the best outputs' attention there, a JSON object a line.")
    ] = None,
    layers: Annotated[str, typer.Option(help="Which attention: names with *, separated by commas.")] = "*.cross",
    alignments: Alignments = None,
    alignment_layer: AlignmentLayer = None,
    alignment_heads: AlignmentHeads = None,
    alignment_gold: AlignmentGold = None,
    alignment_figure: AlignmentFigure = None,
    average: Annotated[int | None, typer.Option(min=1, help="Use the mean of the run's last N checkpoints.")] = None,
    max_source_length: Annotated[
        int | None,
        typer.Option(
            min=1, help="Longest source in pieces, or frames.", show_default="the recipe's, or what the model can read"
        ),
    ] = None,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut sources that are too long instead of stopping.")
    ] = False,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Speech: an empty line for a recording that cannot be read.")
    ] = False,
    batch_tokens: Annotated[int | None, typer.Option(min=1, help="Source pieces (or frames) decoded at once.")] = None,
    format: Annotated[
        str | None,
        typer.Option(
            help="Taggers: tsv, json or marked (default: marked in a terminal, else tsv). "
            "Parsing: brackets (default), linear (what the model writes, unmended) or drawing."
        ),
    ] = None,
    tagged: Annotated[bool, typer.Option("--tagged", help="Parsing: words have tags, as in dog_NN.")] = False,
    threshold: Annotated[
        str | None,
        typer.Option(help="Error detection: from which probability on a word is wrong; dev: the best there."),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Taggers: cut text into words first, instead of at spaces.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Read lines from standard input, write one output a line, in the same order."""
    from headway.errors import UserError
    from headway.tasks import task_of

    if runs[0].is_file():
        what = "this is a file, not a run folder: lines are read from standard input"
        raise UserError(what, where="RUN", received=str(runs[0]), allowed="headway predict RUN < FILE")
    options = given_options(context, "runs", "average", "device")
    files = [path for path in runs[1:] if not path.is_dir()]
    if files:
        runs, options["files"] = [path for path in runs if path not in files], files
    _draw_alignments(task_of(runs).predict(runs, device, average, options), alignment_figure)


def _draw_alignments(shown: "Sequence[WordAlignment]", path: Path | None) -> None:
    if path is not None:
        from headway.runs.inspect.figures import alignment_page

        alignment_page(shown, path)


# Options of `score` that do nothing without others; those of RUN are its task's to check.
SCORE_NEEDS = {
    **dict.fromkeys(("target", "alignments", "alignment_figure", "device"), ("RUN",)),
    **dict.fromkeys(("alignment_layer", "alignment_heads", "alignment_gold"), ("RUN",)),
    **dict.fromkeys(("length_bins", "length_unit"), ("by_length",)),
    "samples": ("significance",),
    "source": ("lead", "by_length"),
}


@app.command()
def score(
    context: typer.Context,
    run: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="Force-score targets with this run's model.")
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME...", help=METRIC_NAMES, show_default="bleu"),
    ] = None,
    hypotheses: Annotated[
        list[Path] | None, typer.Option(metavar="FILE...", help="One file a system; the first is the baseline.")
    ] = None,
    references: Annotated[list[Path] | None, typer.Option(metavar="FILE...", help="One file a reference set.")] = None,
    by: Annotated[
        Path | None, typer.Option(help="A file with the group of each segment, such as its length: score each group.")
    ] = None,
    significance: Annotated[str | None, typer.Option(help="bootstrap or randomisation, between systems.")] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Resamples or trials of the significance test.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the significance test.")] = 12345,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="bleu, chrf, wer, cer: ignore case.")] = False,
    no_punctuation: Annotated[bool, typer.Option("--no-punctuation", help="wer, cer: leave punctuation out.")] = False,
    tokenize: Annotated[
        str | None,
        typer.Option(
            help="bleu: sacrebleu's tokenizer (13a, intl, zh, ja-mecab, char, none); rouge: ascii, words, characters."
        ),
    ] = None,
    stem: Annotated[bool, typer.Option("--stem", help="rouge: compare Porter's stems of English words.")] = False,
    jackknife: Annotated[
        bool, typer.Option("--jackknife", help="rouge, several references: jackknifing instead of the best.")
    ] = False,
    lead: Annotated[
        list[str] | None,
        typer.Option(metavar="N[-UNIT]...", help="Score the beginning of --source too: 8, 3-sentences, 20-characters."),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
    source: Annotated[Path | None, typer.Option(help="With RUN, --lead or --by-length: the sources.")] = None,
    target: Annotated[Path | None, typer.Option(help="With RUN: the targets to score.")] = None,
    by_length: Annotated[
        Path | None, typer.Option(help="Draw the first metric by length of the --source there, a line a system.")
    ] = None,
    length_bins: Annotated[
        str | None, typer.Option(help="Where bins of lengths end, as in 10,20,30.", show_default="six of equal size")
    ] = None,
    length_unit: Annotated[str, typer.Option(help="words or characters.")] = "words",
    alignments: Alignments = None,
    alignment_layer: AlignmentLayer = None,
    alignment_heads: AlignmentHeads = None,
    alignment_gold: AlignmentGold = None,
    alignment_figure: AlignmentFigure = None,
    device: Device = "auto",
) -> None:
    """Score hypotheses against references, or given targets with a model."""
    from headway.errors import UserError, check_companions

    if run is not None:
        from headway.tasks import task_of

        shown = task_of([run]).score(run, device, given_options(context, "run", "device"))
        _draw_alignments(shown, alignment_figure)
        return
    if not hypotheses or not references:
        raise UserError("both --hypotheses and --references are needed", where="headway score")
    check_companions(given_options(context), SCORE_NEEDS)
    from headway.metrics import build_metrics
    from headway.metrics.score_report import TESTS, score_files

    if significance is not None and significance not in TESTS:
        raise UserError("unknown test", where="--significance", received=significance, allowed=TESTS)
    settings = {
        "lowercase": lowercase or None,
        "punctuation": False if no_punctuation else None,
        "tokenize": tokenize,
        "stem": stem or None,
        "jackknife": jackknife or None,
    }
    given = {name: value for name, value in settings.items() if value is not None}
    metrics = build_metrics(metric or ["bleu"], given)
    baselines = {}
    if lead:
        from headway.corpora.lead import leads_of_file
        from headway.recipe import parse_lead

        if source is None:
            raise UserError("a lead is the beginning of a source", where="--lead", allowed="--source FILE beside it")
        baselines = leads_of_file(source, [parse_lead(each) for each in lead])
    report = score_files(
        metrics, hypotheses, references,
        significance=significance, samples=samples, seed=seed, by=by, baselines=baselines,
    )  # fmt: skip
    typer.echo(report.to_json() if json_output else report.text())
    if by_length is not None:
        from headway.runs.inspect.length_quality import UNITS, score_files_by_length

        if source is None or length_unit not in UNITS:
            message = "quality by length needs the sources, and a unit of their length"
            raise UserError(message, where="--by-length", allowed="--source FILE --length-unit words or characters")
        from headway.tasks.task import numbers

        edges = numbers(length_bins, "--length-bins")
        lengths = score_files_by_length(metrics[0], hypotheses, references, source, unit=length_unit, edges=edges)
        lengths.draw(by_length)
        if not json_output:
            typer.echo(f"\n{lengths.text()}")


app.command()(inspect)


@app.command()
def lengths(
    recipes: Annotated[
        list[str], typer.Argument(metavar="RECIPE.yaml... [KEY.PATH=VALUE ...]", help="Variants, and changes to all.")
    ],
    data: Annotated[Path, typer.Option(help="What `headway data lengths` wrote.")],
    output: Annotated[Path, typer.Option(help="The folder of all runs; what is finished there is not done again.")],
) -> None:
    """Train variants on a length task, and draw their accuracy at trained and at longer lengths."""
    from headway.experiments.length_suite import compare_lengths

    files = [Path(each) for each in recipes if "=" not in each]
    raise typer.Exit(compare_lengths(files, data, output, [each for each in recipes if "=" in each]))


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="The run folder to make.")] = Path("runs/dates"),
    seed: Annotated[int, typer.Option(min=0, help="The seed of data and model.")] = 1,
) -> None:
    """Learn to read dates in many languages, in a few minutes, from nothing: data, training, scores, a report."""
    from headway.experiments.demo import run_demo

    raise typer.Exit(run_demo(output, seed))


@app.command()
def doctor() -> None:
    """Say what this installation has, what is missing for each extra, and whether it works (about 10 seconds)."""
    from headway.experiments.doctor import run_doctor

    raise typer.Exit(run_doctor())
