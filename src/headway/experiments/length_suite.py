"""Length generalisation: variants of a recipe, trained on a task and tested on longer examples of it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path

from pydantic import TypeAdapter

from headway.documents import read_json, shaped
from headway.errors import UserError, option
from headway.files import sha256, write_json, write_text
from headway.formats.lines import read_lines
from headway.formats.pairs import open_source
from headway.log import say
from headway.metrics import build_metric, scores_by_group
from headway.predictors.sequence_predictor import SequencePredictor
from headway.processing.text.text_processor import as_written
from headway.recipe import Recipe, load_recipe
from headway.registry import foreign_code, import_paths
from headway.runs.inspect.charts import Panel, panel_chart
from headway.runs.load import load
from headway.runs.run_folder import RunFolder
from headway.runs.training.loop import train
from headway.runs.training.opening import check_free_to_change
from headway.runs.training.run_arithmetic import compared_with_run
from headway.runs.training.shared_precision import SharedPrecision
from headway.tables import Cell, Column, Table

FIGURES = ("accuracy.png", "accuracy.svg")
TABLE = "accuracy.csv"
SCORES = "lengths.json"  # of one variant, in its run folder


@dataclass(frozen=True)
class LengthScore:
    """Exact match of one variant at one length, in percent, with its 95 % bootstrap interval.

    `refused` counts the segments whose prompt is longer than the model can read; they count as wrong.
    """

    variant: str
    length: int
    segments: int
    exact_match: float
    low: float
    high: float
    refused: int


SCORES_SHAPE = TypeAdapter(list[LengthScore])


@dataclass(frozen=True)
class LengthTest:
    """A test by `headway data lengths`: prompts and answers with their lengths, and the longest one of training."""

    folder: Path
    prompts: list[str]
    answers: list[str]
    lengths: list[str]
    facts: dict[str, str | int]

    @property
    def trained(self) -> int:
        """The longest length in training."""
        return int(self.facts["trained"])

    @property
    def title(self) -> str:
        """The task and its variant."""
        return " ".join(str(self.facts[name]) for name in ("task", "variant") if self.facts.get(name))


def read_test(folder: Path) -> LengthTest:
    """The test in a folder of `headway data lengths`. Raises UserError where it is none, or damaged."""
    try:
        facts = read_json(folder / "lengths.json")
        trained = int(facts["trained"])
    except (UserError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            "this is no folder of `headway data lengths`", where=option("data"), received=str(folder)
        ) from error
    pairs = list(open_source({"tsv": folder / "test.tsv"}, "test"))
    lengths = list(read_lines(folder / "test.lengths"))
    if len(lengths) != len(pairs):
        what = f"{len(lengths)} lengths for {len(pairs)} examples"
        raise UserError(what, where=str(folder / "test.lengths"))
    return LengthTest(
        folder, [pair.source for pair in pairs], [pair.target for pair in pairs], lengths, facts | {"trained": trained}
    )


@dataclass(frozen=True)
class _Suite:
    """One task of a comparison: its test, the variants' recipes by name, their precision, the folder of their runs."""

    test: LengthTest
    recipes: dict[str, Recipe]
    precision: SharedPrecision
    output: Path

    def train(self) -> tuple[int, list[LengthScore]]:
        """Train and decode what is not done yet. Gives the exit code of training, and the scores of all variants."""
        scores: list[LengthScore] = []
        for name, recipe in self.recipes.items():
            say(f"\n{name}: {self.test.title}")
            run = self.output / name
            code = train(self.precision.given(recipe), run, resume=RunFolder(run).recipe_file.exists())
            if code:
                return code, scores
            scores += _scores(name, recipe, run, self.test)
            write_table(scores, self.output / TABLE)
        draw([panel_of(scores, self.test)], self.output)
        say(f"\n{summary(scores, self.test.trained)}\n{self.output / TABLE}, {self.output / FIGURES[0]}")
        return 0, scores


def compare_lengths(recipes: Sequence[Path], data: Sequence[Path], output: Path, overrides: Sequence[str] = ()) -> int:
    """Train each recipe on each length task, decode the tests, and write `accuracy.csv` and figures into `output`.

    A recipe's run is `output/NAME`, the recipe's file being NAME.yaml. Several tasks are compared in `output/TASK`,
    TASK being the name of the folder of its data, and drawn beside each other in `output`. Runs that are there already
    are continued, and those that are finished, trained and decoded, are not done again.

    Args:
        recipes: the variants.
        data: the folders of `headway data lengths`.
        output: the folder of all runs.
        overrides: changes to all of the recipes.

    Returns:
        The exit code: 0, or 128 + the signal's number when training was stopped.

    Raises:
        UserError: before any training: recipes or data that cannot be used, two folders of data of one name, or runs
            that were made with other recipes.
    """
    folders = {folder.absolute().name: folder for folder in data}
    if len(folders) < len(data):
        raise UserError("a task is named after the folder of its data, so these must differ", where=option("data"))
    several = len(data) > 1
    suites = [
        _suite(recipes, folder, output / name if several else output, overrides) for name, folder in folders.items()
    ]
    panels = []
    for suite in suites:
        code, scores = suite.train()
        if code:
            return code
        panels.append(panel_of(scores, suite.test))
    if several:
        draw(panels, output)
        say(f"\nall tasks: {output / FIGURES[0]}")
    return 0


def _suite(recipes: Sequence[Path], data: Path, output: Path, overrides: Sequence[str]) -> _Suite:
    """One task with its recipes, in one precision. Raises UserError as `compare_lengths`."""
    test = read_test(data)
    folder = json.dumps(str(data.absolute()))  # as YAML, whatever characters it has
    loaded = {path.stem: load_recipe(path, [f"data.folder={folder}", *overrides]) for path in recipes}
    if len(loaded) < len(recipes):
        raise UserError("a variant is named after its recipe, so these must differ", where="recipes")
    precision = SharedPrecision([(recipe, output / name) for name, recipe in loaded.items()])
    for name, recipe in loaded.items():
        run = RunFolder(output / name)
        if run.recipe_file.exists() and run.has_begun():
            with foreign_code(bool(import_paths(recipe.model_dump(mode="json")))):
                check_free_to_change(compared_with_run(run, precision.given(recipe))[1], run)
    return _Suite(test, loaded, precision, output)


def _scores(name: str, recipe: Recipe, run: Path, test: LengthTest) -> list[LengthScore]:
    """The scores of a finished run, read where these weights have been tested on this test before."""
    stamp = {
        "weights": RunFolder(run).read_manifest()["model_sha256"],
        "test": sha256(test.folder / "test.tsv"),
        "decoding": recipe.decoding.model_dump(mode="json"),
    }
    known = read_json(run / SCORES) if (run / SCORES).is_file() else {}
    if known.get("of") == stamp:
        return shaped(known.get("scores"), SCORES_SHAPE, str(run / SCORES), "the scores")
    predictor = load(run, allow_code=True)  # its recipe was just trained with
    assert isinstance(predictor, SequencePredictor)
    scores = score_lengths(name, predictor, test)
    write_json(run / SCORES, {"of": stamp, "scores": [asdict(score) for score in scores]})
    return scores


def score_lengths(name: str, predictor: SequencePredictor, test: LengthTest) -> list[LengthScore]:
    """Decode the test's prompts and score each length. A prompt that is too long for the model counts as wrong."""
    longest = predictor.longest_source()
    reads = [len(predictor.source.encode(prompt).values) <= longest for prompt in test.prompts]
    prompts = [prompt if read else "" for prompt, read in zip(test.prompts, reads, strict=True)]
    outputs = [prediction.text for prediction in predictor.predict(prompts)]
    metric = build_metric("exact_match")
    answers = as_written(test.answers, predictor.recipe.text.target)
    groups = scores_by_group(metric, metric.counted(outputs, [answers]), test.lengths)
    refused = [length for length, read in zip(test.lengths, reads, strict=True) if not read]
    return [
        LengthScore(
            name, int(group.group), group.segments, group.value, group.interval.low, group.interval.high,
            refused.count(group.group),
        )
        for group in groups
    ]  # fmt: skip


def write_table(scores: Sequence[LengthScore], path: Path) -> None:
    """Write scores as CSV, a row a variant and length."""
    table = Table([field.name for field in fields(LengthScore)], [astuple(score) for score in scores])
    write_text(path, table.csv())


def panel_of(scores: Sequence[LengthScore], test: LengthTest) -> Panel:
    """Accuracy by length, a line a variant."""
    lines: dict[str, list[tuple[float, float]]] = {}
    bars: dict[str, list[tuple[float, float]]] = {}
    for score in scores:
        lines.setdefault(score.variant, []).append((score.length, score.exact_match))
        bars.setdefault(score.variant, []).append((score.low, score.high))
    counts = dict.fromkeys((score.length, score.segments) for score in scores)
    return Panel(
        test.title,
        "length",
        "exact match, %, 95 % intervals",
        lines,
        percent=True,
        bars=bars,
        counts=list(counts),
        shaded=(min(score.length for score in scores) - 0.5, test.trained + 0.5, "trained lengths"),
    )


def draw(panels: Sequence[Panel], output: Path) -> None:
    """Draw accuracy by length, a panel a task, into the folder `output`."""
    for figure in FIGURES:
        panel_chart(panels, output / figure)


def summary(scores: Sequence[LengthScore], trained: int) -> str:
    """A row a variant: mean exact match over trained lengths, and over those beyond; all lengths count the same."""
    rows: list[list[Cell]] = []
    for variant in dict.fromkeys(score.variant for score in scores):
        row: list[Cell] = [variant]
        for seen in (True, False):
            matches = [
                score.exact_match for score in scores
                if score.variant == variant and (score.length <= trained) == seen
            ]  # fmt: skip
            row.append(sum(matches) / len(matches) if matches else None)
        rows.append(row)
    columns = [Column(name, format=".1f") for name in ("variant", "trained lengths", "unseen lengths")]
    return Table(columns, rows).text()
