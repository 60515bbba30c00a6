"""A GPU's share of what it could do: training, n-grams, precisions, decoding and padding, in one record.

python benchmarks/gpu.py results/speed/gpu.json --data tanaka=FOLDER --data multi30k=FOLDER

It takes some ten minutes on one card. Contenders that are not installed are left out, with a word. `--sizes tiny` tries
the script itself, on any machine.
"""

import argparse
import re
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from bench_decode import run_bench_decode
from bench_lengths import BASELINE, MIXERS
from bench_train import NOTES, PLAIN, setup_headway, setup_plain, with_flops
from rounds import (
    CPU,
    SIZES,
    BenchReport,
    Contender,
    Measurement,
    Play,
    SyntheticCorpus,
    compete,
    compute_in,
    matrix_peak,
    measured_on,
)

from headway.comparison.reproduce import ResultRecord, measured_now, write_record
from headway.core.device import accelerator, pick_device, processor
from headway.core.errors import HeadwayError, UserError, option
from headway.core.tables import Cell, Column, Table
from headway.losses import Objective
from headway.models import build_model
from headway.optimizers.optimizers import OptimizerConfig, build_optimizer
from headway.recipe import Recipe, TrainingConfig, load_recipe
from headway.runs.training.capture import CapturedUpdate
from headway.runs.training.checkpoints import TrainingState
from headway.runs.training.parallel import Parallel
from headway.runs.training.updates import TrainingStep, prepared_updates
from headway.tasks import build_task
from headway.tensors.linear import suited_backend, use_backend
from headway.tensors.precision import has_tf32, wait_for

# FLOP/s of dense products as the makers of cards say, in bf16 and as TF32.
ON_PAPER = {
    "A100": (312e12, 156e12),
    "H100 PCIe": (756e12, 378e12),
    "H100 NVL": (835e12, 417e12),
    "H100": (989e12, 494e12),
    "H200": (989e12, 494e12),
    "L40S": (362e12, 183e12),
    "L4": (121e12, 60e12),
    "RTX 4090": (165e12, 82.6e12),
}
PRECISIONS = ("bf16", "tf32")
SHAPES: tuple[Literal["any", "few"], ...] = ("any", "few")
RECIPES = {
    "tanaka": Path("recipes/tanaka/transformer-small.yaml"),
    "multi30k": Path("recipes/multi30k/transformer-tiny.yaml"),
}
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Scale:
    """The sizes that are measured: the first also by length and in decoding; and what is decoded."""

    sizes: tuple[str, ...]
    lengths: tuple[int, ...]
    decoded: str
    batch: int
    beam: int


SCALES = {
    "paper": Scale(("base-25k", "big-25k"), (64, 512), "base", 64, 4),
    "tiny": Scale(("tiny",), (9, 17), "tiny", 2, 2),
}


def on_paper(name: str | None) -> dict[str, float]:
    """The peaks of a card by precision; none of a card that is not known."""
    words = f" {re.sub(r'[^A-Za-z0-9]+', ' ', name or '')} "
    known = (peaks for card, peaks in ON_PAPER.items() if f" {card} " in words)
    return dict(zip(PRECISIONS, next(known, ()), strict=False))


def alone(size: str, setting: str, contenders: Sequence[Contender], rounds: int) -> list[Measurement]:
    """The contenders one after the other, as the memory of a card holds no two large ones, and nothing else uses it."""
    found = [
        measurement
        for contender in contenders
        for measurement in compete(size, setting, [replace(contender, baseline=None)], rounds)
    ]
    for measurement, contender in zip(found, contenders, strict=True):
        measurement.baseline = contender.baseline or contenders[-1].name
    return found


def setup_captured(name: str, precision: str, device: str) -> tuple[Play, dict[str, Any]]:
    """headway's update as `setup_headway` has it, with `training.capture`: each shape of batches is recorded once."""
    size, where = SIZES[name], pick_device(device)
    corpus = SyntheticCorpus(size.vocabulary, 2 * size.batch_tokens)  # some sixty batches
    config = TrainingConfig(updates=1, batch_tokens=size.batch_tokens, shapes="few", capture=True)
    parallel = Parallel(0, 1, where, config, precision=compute_in(precision, where))
    torch.manual_seed(1)
    model = build_model(size.model, size.vocabulary, size.vocabulary, shared=True)
    use_backend(model, suited_backend(where, processor()))
    step = TrainingStep(model, Objective(PLAIN)).to(where).train()
    update = CapturedUpdate(step, build_optimizer(OptimizerConfig(), step), parallel)
    updates, shapes = prepared_updates(corpus, parallel, TrainingState()), set()

    def play(number: int) -> int:
        tokens, finite = 0, torch.tensor(True, device=where)
        for prepared in islice(updates, size.updates):
            prepared.restore_random_state()
            gradients = update(prepared.batches, None, 1e-4)
            finite &= gradients.finite
            tokens += gradients.tokens
            shapes.add(prepared.batches[0].source_mask.shape + prepared.batches[0].target_mask.shape)
        wait_for(where)
        assert finite
        return tokens

    known = -1  # until a whole epoch has brought no shape that is new, nothing is measured
    while known < len(shapes):
        known = len(shapes)
        for _ in range(len(corpus.plan(1, 0, batch_tokens=size.batch_tokens)) // size.updates + 1):
            play(0)
    return play, {"precision": precision}


def training(scale: Scale, rounds: int, device: torch.device) -> BenchReport:
    """Every size in every precision, and the plain loop beside the first."""
    measurements: list[Measurement] = []
    for size in scale.sizes:
        contenders = [
            Contender(f"headway {each}", setup_headway, (size, each, PLAIN, False, str(device)), "headway tf32")
            for each in PRECISIONS
        ]
        contenders += [
            Contender(f"headway {each}, captured", setup_captured, (size, each, str(device)), f"headway {each}")
            for each in PRECISIONS
        ]
        if size == scale.sizes[0]:
            contenders += [
                Contender(f"plain {each}", setup_plain, (size, each, str(device)), "headway tf32")
                for each in PRECISIONS
            ]
        measurements += alone(size, "", contenders, rounds)
    peaks = {each: matrix_peak(each, device) for each in PRECISIONS}
    return BenchReport(
        f"Training{measured_on(device)}, target tokens a second", "", with_flops(measurements), peaks, NOTES[1:]
    )


def by_length(scale: Scale, rounds: int, device: torch.device) -> BenchReport:
    """n-grams in place of self-attention, in all layers of both sides, at every length, in bf16."""
    measurements: list[Measurement] = []
    for length in scale.lengths:
        contenders = [
            Contender(
                name,
                partial(setup_headway, mixer=MIXERS[name], length=length),
                (scale.sizes[0], "bf16", PLAIN, False, str(device)),
                BASELINE,
            )
            for name in ("ngram", BASELINE)
        ]
        measurements += alone(scale.sizes[0], f"{length:,}", contenders, rounds)
    title = f"n-grams beside attention{measured_on(device)}, target tokens a second"
    return BenchReport(title, "length", measurements, {}, (f"all layers have the mixer: {dict(MIXERS['ngram'])}",))


def decoding(scale: Scale, rounds: int, device: torch.device) -> BenchReport | str:
    """Beam search beside Hugging Face and CTranslate2, or why there is none."""
    try:
        return run_bench_decode(
            [scale.decoded], [scale.batch], rounds, beams=[scale.beam], precisions=["float32", "bf16"], device=device
        )
    except UserError as error:
        return f"Decoding is left out: {error}"


def prepared(recipe: Recipe, training: TrainingConfig) -> Iterator[Any]:
    """The batches of the first epoch that training would make of the recipe's corpus, on the CPU."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = build_task(recipe.task).corpora(recipe, Path(folder) / "vocabulary").train
        updates = prepared_updates(corpus, Parallel(0, 1, CPU, training), TrainingState())
        for update in updates:
            yield from update.batches
            if update.plan.ends_epoch:
                break
        updates.close()


def paddings(data: Mapping[str, str], sizes: Sequence[int]) -> Table:
    """The padding of real batches, of any and of few shapes."""
    rows: list[list[Cell]] = []
    for name, folder in data.items():
        recipe = load_recipe(ROOT / RECIPES[name], [f"data.folder={folder}"])
        for size in sizes:
            for shapes in SHAPES:
                training = TrainingConfig(updates=1, batch_tokens=size, shapes=shapes)
                places = tokens = 0
                seen = set()
                for batch in prepared(recipe, training):
                    masks = batch.source_mask, batch.target_mask
                    places += sum(mask.numel() for mask in masks)
                    tokens += sum(int(mask.sum()) for mask in masks)
                    seen.add(tuple(mask.shape for mask in masks))
                rows.append([name, size, shapes, len(seen), 1 - tokens / places])
    columns = ["corpus", "tokens a batch", "shapes", "different shapes", Column("padding", format=".1%")]
    return Table(columns, rows, title="Padding of real batches")


def share(measurement: Measurement, peaks: Mapping[str, float]) -> float | None:
    """The FLOP/s of a contender's products, as a share of the peak of its precision."""
    peak = peaks.get(measurement.facts["precision"])
    return peak and measurement.facts["flops_per_token"] * statistics.median(measurement.speeds) / peak


def summary(trained: BenchReport, mixed: BenchReport, decoded: BenchReport | str, padded: Table, paper: Any) -> Table:
    """What matters, a row each."""
    rows: list[list[Cell]] = []
    of = {(each.size, each.contender): each for each in trained.measurements}
    for (size, name), each in of.items():
        if name.startswith("headway"):
            rows.append([f"{size}, {name}: share of the matrix peak measured here", share(each, trained.peaks)])
            if paper:
                rows.append([f"{size}, {name}: share of the matrix peak on paper", share(each, paper)])
    for size, name in of:
        if name == "headway bf16":
            rows.append([f"{size}: bf16, times tf32", times(of[size, name], of[size, "headway tf32"])])
        if name.endswith(", captured"):
            eager = of[size, name.removesuffix(", captured")]
            rows.append([f"{size}, {name}: times without", times(of[size, name], eager)])
        if name.startswith("plain"):
            ours = of[size, name.replace("plain", "headway")]
            rows.append([f"{size}, {name}: headway, times the plain loop", times(ours, of[size, name])])
    for each in mixed.measurements:
        if each.contender != BASELINE:
            row = f"{each.size}: n-grams at {each.setting} tokens, times attention"
            rows.append([row, times(each, mixed.baseline_of(each))])
    if isinstance(decoded, BenchReport):
        best = max((each for each in decoded.measurements if each.contender.startswith("headway")), key=speed)
        for each in decoded.measurements:
            if not each.contender.startswith("headway"):
                row = f"{each.size}, decoding {each.setting}: {best.contender}, times {each.contender}"
                rows.append([row, times(best, each)])
    rows += [[f"{row[0]}: padding, {row[1]:,} tokens a batch, {row[2]} shapes", row[-1]] for row in padded.rows]
    return Table(["measured", Column("value", format=".3f")], rows, title="Summary")


def speed(measurement: Measurement) -> float:
    """The median of its rounds."""
    return statistics.median(measurement.speeds)


def times(one: Measurement, other: Measurement) -> float:
    """How many times as fast one was as another, in the median of the rounds."""
    return statistics.median(one.ratios(other))


def measure(scale: Scale, data: Mapping[str, str], rounds: int, device: torch.device) -> tuple[list[Table], list[str]]:
    """All tables, the summary first, and what is to be said of them."""
    trained, mixed = training(scale, rounds, device), by_length(scale, rounds, device)
    decoded = decoding(scale, rounds, device)
    padded = paddings(data, sorted({SIZES[size].batch_tokens for size in ("base", *scale.sizes)}))
    said = [] if has_tf32(device) else ["This device has no TF32: what is called tf32 is exact."]
    if isinstance(decoded, str):
        said.append(decoded)
    first = summary(trained, mixed, decoded, padded, on_paper(accelerator() if device.type == "cuda" else None))
    tables = [first, trained.table(), mixed.table(), *([decoded.table()] if isinstance(decoded, BenchReport) else [])]
    return [*tables, *([padded] if padded.rows else [])], said


def main() -> None:
    """Measure, print, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="the record, as JSON")
    parser.add_argument("--sizes", choices=SCALES, default="paper", help="paper: Transformer base and big")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender")
    parser.add_argument("--device", default="auto", help="cuda, cuda:N, cpu")
    parser.add_argument(
        "--data", action="append", default=[], metavar="NAME=FOLDER", help=f"{', '.join(RECIPES)}; several times"
    )
    given = parser.parse_args()
    data = dict(pair.partition("=")[::2] for pair in given.data)
    if unknown := [name for name in data if name not in RECIPES]:
        raise UserError("there is no such corpus", where=option("data"), received=unknown, allowed=list(RECIPES))
    if not given.output.parent.is_dir():
        raise UserError("this folder does not exist", where="output", received=str(given.output.parent))
    device = pick_device(given.device)
    if device.type == "cpu" and given.sizes != "tiny":
        what = "the sizes of papers would take a processor hours"
        raise UserError(what, where=option("sizes"), received=given.sizes, allowed="tiny, or a machine with a GPU")
    tables, said = measure(SCALES[given.sizes], data, given.rounds, device)
    for part in (*(table.text() for table in tables), *said):
        print(part, end="\n\n")
    record = ResultRecord(
        title="A GPU's share of what it could do",
        measured=measured_now([" ".join(["python benchmarks/gpu.py", *sys.argv[1:]])], [1]),
        text=tuple(said),
        tables=tuple(table.to_json() for table in tables),
    )
    write_record(given.output, record)


if __name__ == "__main__":
    try:
        main()
    except HeadwayError as error:
        sys.exit(f"error: {error}")
