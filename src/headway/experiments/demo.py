"""`headway demo`: train a model that reads dates on generated data, and write a report, with the code of any recipe."""

import json
import shutil
import sys
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

from headway.core.device import choose_threads, threads_set
from headway.core.errors import UserError, option
from headway.core.languages import language_name
from headway.core.log import say, silenced
from headway.core.tables import Cell, Column, Table
from headway.corpora.generated.dates import DateData, DateExample, generate_dates, languages, write_dates
from headway.inspect.inspect_options import PageOptions
from headway.inspect.inspection import run_page
from headway.metrics import build_metric
from headway.pages.charts import alignment_figure
from headway.predictors.output import Example, Output
from headway.predictors.sequence_predictor import SequencePredictor
from headway.recipe import Recipe, load_recipe
from headway.recipe.reading import is_run
from headway.runs.load import load
from headway.runs.run_folder import RunFolder
from headway.tasks.task import outputs_of
from headway.training.loop import train
from headway.training.report import write_run_report

SHOWN = 12


def run_demo(output: Path, seed: int, overrides: Sequence[str] = (), *, resume: bool = False) -> int:
    """Generate data, train, score, and leave a run folder with a report.

    Args:
        output: the run folder; an existing demo, complete or not, is continued.
        seed: of data and model.
        overrides: changes to the demo's recipe.
        resume: require an existing demo.

    Returns:
        The exit code: 0, or 128 + the signal's number if training was stopped.

    Raises:
        UserError: `output` is not a demo, or there is none to resume.
    """
    data = output / "data"
    with as_file(files("headway.experiments") / "demo.yaml") as recipe_file:
        folder = json.dumps(str(data))  # quoted for YAML
        recipe = load_recipe(recipe_file, [f"data.folder={folder}", f"training.seed={seed}", *overrides])
    begun = _is_begun(output, recipe)
    if resume and not begun:
        raise UserError("there is no demo to go on with", where=option("output"), received=str(output))
    say(f"dates in {len(languages())} languages -> ISO 8601; the run folder is {output}")
    dates = generate_dates(seed)
    write_dates(dates, data)
    code = train(recipe, output, resume=begun)
    if code:
        return code
    with threads_set(choose_threads().number):
        _report(output, dates)
    return 0


def _report(output: Path, dates: DateData) -> None:
    """Decode the test sets, and print and write the report."""
    predictor = load(output)
    assert isinstance(predictor, SequencePredictor)
    scores = {
        "dates never seen": (dates.test_unseen_dates, _decode(predictor, dates.test_unseen_dates)),
        "language and pattern never seen together": (
            dates.test_unseen_pairs,
            _decode(predictor, dates.test_unseen_pairs),
        ),
    }
    summary = Table(
        ["test", "dates", Column("right", "%", ".1f")],
        [[name, len(given), exact_match(given, said)] for name, (given, said) in scores.items()],
        title="Exact match",
        notes=["Unambiguous ways of writing only: the month by name, or the year first."],
    )
    given, said = scores["dates never seen"]
    by_language = _by_language(given, said)
    for table in (summary, by_language):
        say(f"\n{table.text()}")
    read_as = {example.text: prediction.text for example, prediction in zip(given, said, strict=True)}
    wrong = [example for example in given if read_as[example.text] != example.iso]
    inspected = [*wrong[: SHOWN // 2], *(example for example in _one_a_language(given) if example not in wrong)]
    shown = [Example(example.text, references=(example.iso,)) for example in inspected[:SHOWN]]
    headline = f"{exact_match(given, said):.1f} % right on dates never seen"
    with silenced():
        run_page(output, PageOptions.model_validate({"sentences": 2 * SHOWN}))
    report = write_run_report(output, [summary, by_language], outputs_of(predictor, shown), headline)
    drawn = _one_a_language(given)[0]
    alignment_figure(predictor.predict(drawn.text, capture="*.cross")[0], output / "alignment.png")
    say(f"\nLook inside:  {report}\nTry your own: echo '3. Mai 2024' | {_program()} predict {output}")


def _program() -> str:
    """The name of the program for a shell, or its path as it was called if PATH does not have it."""
    called = Path(sys.argv[0])
    return str(called) if called.name == "headway" and shutil.which("headway") is None else "headway"


def _is_begun(output: Path, recipe: Recipe) -> bool:
    """Whether `output` has a demo already. Raises UserError if it has something else."""
    folder = RunFolder(output)
    begun = folder.recipe_file.exists()
    if begun:
        other = not is_run(output) or folder.read_recipe().data != recipe.data
    else:
        unfinished = (folder.checkpoints.name, "data")
        other = output.exists() and not (output.is_dir() and all(path.name in unfinished for path in output.iterdir()))
    if other:
        raise UserError("this folder holds something else than a demo", where=option("output"), received=str(output))
    return begun


def _decode(predictor: SequencePredictor, examples: Sequence[DateExample]) -> list[Output]:
    return predictor.predict([example.text for example in examples])


def exact_match(examples: Sequence[DateExample], predictions: Sequence[Output]) -> float:
    """The percentage of dates that were read correctly."""
    references = [[example.iso for example in examples]]
    return build_metric("exact_match").score([prediction.text for prediction in predictions], references).value


def _one_a_language(examples: Sequence[DateExample]) -> list[DateExample]:
    """The first example of every language, longest first."""
    first = {example.language: example for example in reversed(examples)}
    return sorted(first.values(), key=lambda example: -len(example.text))


def _by_language(examples: Sequence[DateExample], predictions: Sequence[Output]) -> Table:
    """A table with a row per language, with its first error or, if it has none, its first date."""
    rows: list[list[Cell]] = []
    for language in sorted({example.language for example in examples}, key=language_name):
        pairs = [pair for pair in zip(examples, predictions, strict=True) if pair[0].language == language]
        right = exact_match([example for example, _ in pairs], [prediction for _, prediction in pairs])
        shown, prediction = next((pair for pair in pairs if pair[1].text != pair[0].iso), pairs[0])
        read = prediction.text if prediction.text == shown.iso else f"{prediction.text}, not {shown.iso}"
        rows.append([language_name(language), len(pairs), right, shown.text, read])
    columns: list[str | Column] = ["language", "dates", Column("right", "%", ".1f"), "for example", "read as"]
    return Table(columns, rows, title="Dates never seen in training, by language")
