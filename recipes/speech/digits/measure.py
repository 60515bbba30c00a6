"""Trains three encoders on strings of spoken digits and scores them; writes `results.json` and `results.md`.

    python recipes/speech/digits/measure.py RECORDINGS --output runs/digits [--encoders NAME ...] [KEY=VALUE ...]

RECORDINGS holds single digits, DIGIT_SPEAKER_TAKE.wav. Each model transcribes strings of takes that training has not,
and of a speaker whom it has not, and its decoding is timed on one core, reading files and computing frames included.
Strings that are there are not made again, a run that is complete is not trained again, and one that was stopped goes
on.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from headway.runs.inspect.run_report import write_run_report

from headway.cli.console import show
from headway.corpora.generated.digits import DigitOptions, write_digits
from headway.errors import UserError
from headway.files import write_json, write_text
from headway.formats.recordings import Utterance, open_recordings, read_utterances
from headway.log import say
from headway.metrics import bootstrap_interval, build_metric
from headway.predictors.sequence_predictor import SequencePredictor
from headway.processing.audio.audio_files import facts_of
from headway.recipe import load_recipe
from headway.runs.run_folder import RunFolder
from headway.runs.training.loop import train
from headway.tasks import load

ENCODERS = ("attention", "local", "multinn")
TESTS = {"dev takes": "dev.tsv", "speaker left out": "test-speaker.tsv"}
WARM_UP = 20  # recordings decoded before the clock starts
HERE = Path(__file__).parent


def trained(encoder: str, data: Path, arguments: argparse.Namespace) -> Path:
    """The folder of a complete run, made now unless it is there."""
    path = arguments.output / encoder
    folder = RunFolder(path)
    if folder.read_manifest().get("status") == "finished":
        return path
    overrides = [f"data.folder={json.dumps(str(data))}", *arguments.overrides]
    say(f"{encoder}")
    if code := train(load_recipe(HERE / f"{encoder}.yaml", overrides), path, resume=folder.recipe_file.exists()):
        raise SystemExit(code)
    write_run_report(path)
    return path


def measured(predictor: SequencePredictor, utterances: list[Utterance]) -> dict[str, Any]:
    """WER with its interval and parts, the share of digits and of strings that are right, and the real-time factor."""
    paths, gold = [each.audio for each in utterances], [[each.text for each in utterances]]
    predictor.predict(paths[:WARM_UP])
    cpu, wall = time.process_time(), time.perf_counter()
    said = [each.text for each in predictor.predict(paths)]
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    metric = build_metric("wer")
    counts = metric.statistics(said, gold)
    hits, substitutions, deletions, insertions = counts.sum(0).tolist()
    interval, seconds = bootstrap_interval(metric, counts), sum(facts_of(path).seconds for path in paths)
    return {
        "strings": len(paths), "digits": int(hits + substitutions + deletions), "audio_seconds": seconds,
        "wer": metric.aggregate(counts.sum(0)), "interval": [interval.low, interval.high],
        "substitutions": int(substitutions), "deletions": int(deletions), "insertions": int(insertions),
        "digits_right": 100 * hits / (hits + substitutions + deletions),
        "strings_right": build_metric("exact_match").score(said, gold).value,
        "cpu_seconds": cpu, "wall_seconds": wall, "real_time_factor": cpu / seconds,
    }  # fmt: skip


def table(results: dict[str, dict[str, Any]]) -> str:
    """A row an encoder."""
    lines = ["| encoder | parameters | updates | training, s |", "|---|---|---|---|"]
    for name, encoder in results.items():
        lines[-1:] = [lines[-1], f"| {name} | {encoder['parameters']:,} | {encoder['updates']:,} |"
                      f" {encoder['training_seconds']:.0f} |"]  # fmt: skip
    for test in TESTS:
        lines += [
            "",
            f"| {test} | WER | S / D / I | digits right | strings right | real-time factor |",
            "|---" * 6 + "|",
        ]
        for name, encoder in results.items():
            each = encoder[test]
            half = (each["interval"][1] - each["interval"][0]) / 2
            parts = f"{each['substitutions']} / {each['deletions']} / {each['insertions']}"
            lines.append(
                f"| {name} | {each['wer']:.2f} ± {half:.2f} | {parts} | {each['digits_right']:.1f} % |"
                f" {each['strings_right']:.1f} % | {each['real_time_factor']:.4f} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Make the strings, train, score, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("overrides", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--encoders", nargs="+", default=list(ENCODERS), choices=ENCODERS)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_intermixed_args()
    torch.set_num_threads(1)
    data = arguments.output / "data"
    try:
        if not (data / "test-speaker.tsv").exists():
            write_digits(arguments.recordings, data, DigitOptions())
        tests = {name: read_utterances(open_recordings({"tsv": data / file}, name))
                 for name, file in TESTS.items()}  # fmt: skip
        results: dict[str, dict[str, Any]] = {}
        for encoder in arguments.encoders:
            run = trained(encoder, data, arguments)
            manifest, predictor = RunFolder(run).read_manifest(), load(run, device="cpu")
            results[encoder] = {
                "parameters": manifest["parameters"], "updates": manifest["updates"], "seed": manifest["seed"],
                "training_seconds": manifest["seconds"],
                **{name: measured(predictor, utterances) for name, utterances in tests.items()},
            }  # fmt: skip
            write_json(arguments.output / "results.json", results)
            write_text(arguments.output / "results.md", table(results))
    except UserError as error:
        parser.exit(2, f"error: {error}\n")
    print(table(results))


if __name__ == "__main__":
    with show():
        main()
