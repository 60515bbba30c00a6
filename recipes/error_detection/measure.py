"""Trains and scores the five systems with several seeds; writes `results.json` and `results.md` into the output folder.

    python recipes/error_detection/measure.py DATA --seeds 1 2 3 --output runs/realec [--recipes realec] [KEY=VALUE ...]

DATA holds train.tsv, dev.tsv and test.tsv (or what the recipes name). A run that is complete is not trained again, and
one that was stopped goes on.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.cli.console import show
from headway.errors import UserError
from headway.files import write_json, write_text
from headway.formats.corpus_format import ERRORS
from headway.formats.labelled_words import Labelled, open_labelled
from headway.log import say
from headway.metrics import bootstrap_interval, build_metric
from headway.recipe import load_recipe
from headway.runs.inspect.layer_report import measure
from headway.runs.inspect.pages import write_run_report
from headway.runs.run_folder import RunFolder
from headway.runs.training.loop import train
from headway.tasks import load

SYSTEMS = ("untrained", "bert", "avgl", "shmla", "mhmla")
METRICS = ("precision", "recall", "f0.5")
HERE = Path(__file__).parent


def test_sets(arguments: argparse.Namespace) -> dict[str, list[Labelled]]:
    """The test sets by name: TSV files, and a source with its corrected references."""
    named = dict(each.split("=", 1) for each in arguments.test) or {"test": str(arguments.data / "test.tsv")}
    sets = {name: open_labelled({"tsv": path}, name, labels=("c", "i")) for name, path in named.items()}
    if arguments.corrections:
        references = sorted(arguments.corrections.parent.glob(f"{arguments.corrections.name}.ref*"))
        source = arguments.corrections.with_suffix(".src")
        sets["corrections"] = open_labelled({"source": source, "references": references}, "corrections", ERRORS)
    return sets


def trained(system: str, seed: int, arguments: argparse.Namespace) -> Path:
    """The folder of a complete run, made now unless it is there."""
    path = arguments.output / f"{system}-{seed}"
    folder = RunFolder(path)
    if folder.read_manifest().get("status") == "finished":
        return path
    overrides = [f"data.folder={json.dumps(str(arguments.data))}", f"training.seed={seed}", *arguments.overrides]
    recipe = load_recipe(HERE / arguments.recipes / f"{system}.yaml", overrides)
    say(f"{system}, seed {seed}")
    if code := train(recipe, path, resume=folder.recipe_file.exists()):
        raise SystemExit(code)
    write_run_report(path)
    return path


def scores_of(run: Path, sets: dict[str, list[Labelled]]) -> dict[str, Any]:
    """P, R, F0.5 on each set, on the union of its annotators and by each alone; layer weights over the first set."""
    predictor = load(run)
    results: dict[str, Any] = {}
    for name, sentences in sets.items():
        said = [" ".join(each.labels) for each in predictor.predict([sentence.words for sentence in sentences])]
        annotators = range(len(sentences[0].labels))
        gold = [[" ".join(sentence.labels[each]) for sentence in sentences] for each in annotators]
        for metric_name in METRICS:
            metric = build_metric(metric_name)
            counts = metric.statistics(said, gold)
            interval = bootstrap_interval(metric, counts)
            results[f"{name} {metric_name}"] = {
                "union": metric.aggregate(counts.sum(0)),
                "interval": [interval.low, interval.high],
                "alone": [metric.score(said, [each]).value for each in gold],
            }
    weights, evenness = measure(predictor, [sentence.words for sentence in next(iter(sets.values()))])
    return results | {"layers": weights and weights.to_json(), "self_attention_deviation": vars(evenness)}


def table(results: dict[str, list[dict[str, Any]]], names: Sequence[str]) -> str:
    """Mean and standard deviation over seeds: a row a system, a column a test set and metric."""
    columns = [f"{name} {metric}" for name in names for metric in METRICS]
    lines = ["| system | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for system, runs in results.items():
        cells = [mean_and_deviation([run[column]["union"] for run in runs]) for column in columns]
        lines.append(f"| {system} | " + " | ".join(cells) + " |")
    for system, runs in results.items():
        layers = [run["layers"]["mean"] for run in runs if run["layers"]]
        if layers:
            means = [mean_and_deviation([100 * run[layer] for run in layers]) for layer in range(len(layers[0]))]
            lines.append(f"\nlayer weights of {system}, times 100: {', '.join(means)}")
        last = mean_and_deviation([100 * run["self_attention_deviation"]["last"] for run in runs])
        lines.append(f"\ndeviation of self-attention of {system}, times 100: last layer {last}")
        mixed = [run["self_attention_deviation"]["mixed"] for run in runs]
        if None not in mixed:
            lines[-1] += f", layers as weighted {mean_and_deviation([100 * each for each in mixed])}"
    return "\n".join(lines) + "\n"


def mean_and_deviation(values: Sequence[float]) -> str:
    """For the table; one value has no deviation."""
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


def main() -> None:
    """Train, score, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("overrides", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--recipes", default="realec")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--test", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--corrections", type=Path, metavar="PREFIX", help="PREFIX.src and PREFIX.ref0, .ref1, ...")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_intermixed_args()
    try:
        sets = test_sets(arguments)
        results: dict[str, list[dict[str, Any]]] = {}
        for system in arguments.systems:
            results[system] = [scores_of(trained(system, seed, arguments), sets) for seed in arguments.seeds]
            write_json(arguments.output / "results.json", results)
            write_text(arguments.output / "results.md", table(results, list(sets)))
    except UserError as error:
        parser.exit(2, f"error: {error}\n")
    print(table(results, list(sets)))


if __name__ == "__main__":
    with show():
        main()
