"""How far beyond the lengths of training does a model go? Variants of a recipe, trained and tested on a length task."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path

from headway.console import say
from headway.errors import UserError
from headway.files import sha256, write_json, write_text
from headway.formats.corpus_config import CorpusConfig
from headway.formats.lines import read_lines
from headway.formats.pairs import open_source
from headway.metrics import build_metric, scores_by_group
from headway.predictors.sequence_predictor import Predictor, load
from headway.recipe import Recipe, load_recipe
from headway.runs.inspect.charts import line_chart
from headway.runs.run_folder import RunFolder
from headway.runs.training.loop import train

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


@dataclass(frozen=True)
class LengthTest:
    """What `headway data lengths` wrote: prompts and answers with their lengths, and the longest length of training."""

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
        facts = json.loads((folder / "lengths.json").read_text(encoding="utf-8"))
        trained = facts["trained"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError("this is no folder of `headway data lengths`", where=f"--data {folder}") from error
    pairs = list(open_source(CorpusConfig(tsv=folder / "test.tsv"), "test"))
    lengths = list(read_lines(folder / "test.lengths"))
    if len(lengths) != len(pairs):
        what = f"{len(lengths)} lengths for {len(pairs)} examples"
        raise UserError(what, where=str(folder / "test.lengths"))
    return LengthTest(
        folder, [pair.source for pair in pairs], [pair.target for pair in pairs], lengths, facts | {"trained": trained}
    )


def compare_lengths(recipes: Sequence[Path], data: Path, output: Path, overrides: Sequence[str] = ()) -> int:
    """Train each recipe on a length task, decode its test, and write `accuracy.csv` and figures into `output`.

    A recipe's run is `output/NAME`, the recipe's file being NAME.yaml. Runs that are there already are gone on with,
    and those that are finished, trained and decoded, are not done again.

    Args:
        recipes: the variants.
        data: what `headway data lengths` wrote.
        output: the folder of all runs.
        overrides: changes to all of the recipes.

    Returns:
        The exit code: 0, or 128 + the signal's number when training was stopped.

    Raises:
        UserError: recipes or data that cannot be used, or runs that were made with other ones.
    """
    test = read_test(data)
    place = json.dumps(str(data.absolute()))  # as YAML, whatever characters it has
    loaded = {path.stem: load_recipe(path, [f"data.folder={place}", *overrides]) for path in recipes}
    if len(loaded) < len(recipes):
        raise UserError("each variant is named after its recipe, so these must differ", where="recipes")
    scores: list[LengthScore] = []
    for name, recipe in loaded.items():
        say(f"\n{name}: {test.title}")
        code = train(recipe, output / name, resume=RunFolder(output / name).recipe_file.exists())
        if code:
            return code
        scores += _scores(name, recipe, output / name, test)
        write_table(scores, output / TABLE)
    draw(scores, test, output)
    say(f"\n{summary(scores, test.trained)}\n{output / TABLE}, {output / FIGURES[0]}")
    return 0


def _scores(name: str, recipe: Recipe, run: Path, test: LengthTest) -> list[LengthScore]:
    """The scores of a finished run, read where these weights have been tested on this test before."""
    stamp = {
        "weights": RunFolder(run).read_manifest()["model_sha256"],
        "test": sha256(test.folder / "test.tsv"),
        "decoding": recipe.decoding.model_dump(mode="json"),
    }
    known = json.loads((run / SCORES).read_text(encoding="utf-8")) if (run / SCORES).is_file() else {}
    if known.get("of") == stamp:
        return [LengthScore(**each) for each in known["scores"]]
    scores = score_lengths(name, load(run), test)
    write_json(run / SCORES, {"of": stamp, "scores": [asdict(each) for each in scores]})
    return scores


def score_lengths(name: str, predictor: Predictor, test: LengthTest) -> list[LengthScore]:
    """Decode the test's prompts and score each length. A prompt that is too long for the model counts as wrong."""
    longest = predictor.models[0].longest_source()
    reads = [len(predictor.source.encode(prompt)) <= longest for prompt in test.prompts]
    said = predictor.predict([prompt if read else "" for prompt, read in zip(test.prompts, reads, strict=True)])
    metric = build_metric("exact_match")
    statistics = metric.statistics([each.text for each in said], [test.answers])
    groups = scores_by_group(metric, statistics, test.lengths)
    refused = [length for length, read in zip(test.lengths, reads, strict=True) if not read]
    return [
        LengthScore(
            name, int(each.group), each.segments, each.value, each.interval.low, each.interval.high,
            refused.count(each.group),
        )
        for each in groups
    ]  # fmt: skip


def write_table(scores: Sequence[LengthScore], path: Path) -> None:
    """Write scores as CSV, a row a variant and length."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(LengthScore))
    writer.writerows(astuple(each) for each in scores)
    write_text(path, text.getvalue())


def draw(scores: Sequence[LengthScore], test: LengthTest, output: Path) -> None:
    """Draw accuracy by length into the folder `output`."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for each in scores:
        lines.setdefault(each.variant, []).append((each.length, each.exact_match))
    for figure in FIGURES:
        line_chart(
            lines,
            output / figure,
            x="length",
            y="exact match, %",
            title=test.title,
            percent=True,
            shaded=(min(each.length for each in scores) - 0.5, test.trained + 0.5, "trained lengths"),
        )


def summary(scores: Sequence[LengthScore], trained: int) -> str:
    """A line a variant: mean exact match over trained lengths, and over those beyond; each length counts the same."""
    lines = [f"{'variant':<14}{'trained lengths':>16}{'unseen lengths':>16}"]
    for name in dict.fromkeys(each.variant for each in scores):
        own = [each for each in scores if each.variant == name]
        parts = [[each.exact_match for each in own if (each.length <= trained) == seen] for seen in (True, False)]
        cells = [f"{sum(part) / len(part):.1f}" if part else "" for part in parts]
        lines.append(f"{name:<14}{cells[0]:>16}{cells[1]:>16}")
    return "\n".join(lines)
