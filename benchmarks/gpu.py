"""A GPU's share of what it could do: training, n-grams, precisions, decoding and padding, in one record.

python benchmarks/gpu.py results/speed/gpu.json --data tanaka=FOLDER --data multi30k=FOLDER

It should take less than ten minutes on one card. The record is written anew after each part, so that a script which is
ended leaves what was measured so far. Contenders that fail, or are not installed, are left out, with a word. `--sizes
tiny` tries the script itself, on any machine.
"""

import argparse
import re
import statistics
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from bench_decode import run_bench_decode
from bench_lengths import BASELINE, MIXERS
from bench_train import NOTES, PLAIN, setup_headway, setup_plain, with_flops
from rounds import SIZES, BenchReport, Contender, Measurement, compete, matrix_peak, measured_on
from shapes import corpus_of, paddings

from headway.claims.reproduce import ResultRecord, measured_now, write_record
from headway.core.device import accelerator, pick_device
from headway.core.errors import HeadwayError, RunError, UserError, option
from headway.core.tables import Cell, Column, Table
from headway.tensors.precision import has_tf32

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


def alone(
    left_out: list[str], size: str, setting: str, contenders: Sequence[Contender], rounds: int
) -> list[Measurement]:
    """The contenders one after the other, as the memory of a card holds no two large ones, and nothing else uses it.

    Those that fail are named in `left_out`; one whose baseline is not there is compared with itself. Raises RunError
    where all fail.
    """
    found: list[Measurement] = []
    for contender in contenders:
        try:
            found += compete(size, setting, [replace(contender, baseline=None)], rounds)
        except RunError as error:
            print(error, file=sys.stderr)
            what = str(error).strip().splitlines()[-1]
            left_out.append(f"{size} {setting}, {contender.name} is left out: {what}".replace(" ,", ","))
    if not found:
        raise RunError(left_out[-1])
    baselines = {each.name: each.baseline or contenders[-1].name for each in contenders}
    names = [measurement.contender for measurement in found]
    for measurement in found:
        baseline = baselines[measurement.contender]
        measurement.baseline = baseline if baseline in names else measurement.contender
    return found


class Measured:
    """The tables so far, the rows of the summary, and what is to be said."""

    def __init__(self, scale: Scale, data: Mapping[str, str], rounds: int, device: torch.device) -> None:
        self.scale, self.data, self.rounds, self.device = scale, data, rounds, device
        self.tables: list[Table] = []
        self.summary: list[list[Cell]] = []
        self.said = [] if has_tf32(device) else ["This device has no TF32: what is called tf32 is exact."]

    def parts(self) -> Iterator[Table]:
        """Measure part by part; gives the table of each, which is in `tables` then."""
        for part in self.training, self.by_length, self.decoding, self.padding, self.compiled:
            try:
                table = part()
            except Exception as error:  # what was measured before it is worth more than this part
                traceback.print_exc()
                self.said.append(f"{part.__name__} is left out: {error}")
                continue
            if table.rows:
                self.tables.append(table)
                yield table

    def _alone(self, size: str, setting: str, contenders: Sequence[Contender], rounds: int) -> list[Measurement]:
        return alone(self.said, size, setting, contenders, rounds)

    def training(self) -> Table:
        """Every size in every precision, with recorded steps too, and the plain loop beside the first."""
        measurements: list[Measurement] = []
        for size in self.scale.sizes:
            contenders = [
                Contender(
                    f"headway {each}{', captured' * capture}",
                    partial(setup_headway, capture=capture),
                    (size, each, PLAIN, False, str(self.device)),
                    f"headway {each}" if capture else "headway tf32",
                )
                for capture in (False, True)
                for each in PRECISIONS
            ]
            if size == self.scale.sizes[0]:
                contenders += [
                    Contender(f"plain {each}", setup_plain, (size, each, str(self.device)), "headway tf32")
                    for each in PRECISIONS
                ]
            measurements += self._alone(size, "", contenders, self.rounds)
        measurements = with_flops(measurements)
        peaks = {each: matrix_peak(each, self.device) for each in PRECISIONS}
        paper = on_paper(accelerator() if self.device.type == "cuda" else None)
        of = {(each.size, each.contender): each for each in measurements}
        for (size, name), each in of.items():
            if name.startswith("headway"):
                self._row(f"{size}, {name}: share of the matrix peak measured here", share(each, peaks))
                self._row(f"{size}, {name}: share of the matrix peak on paper", share(each, paper))
        for size, name in of:
            if name == "headway bf16":
                self._compare(f"{size}: bf16, times tf32", of[size, name], of.get((size, "headway tf32")))
            if name.endswith(", captured"):
                eager = of.get((size, name.removesuffix(", captured")))
                self._compare(f"{size}, {name}: times without", of[size, name], eager)
            if name.startswith("plain"):
                ours = of.get((size, name.replace("plain", "headway")))
                self._compare(f"{size}, {name}: headway, times the plain loop", ours, of[size, name])
        title = f"Training{measured_on(self.device)}, target tokens a second"
        return BenchReport(title, "", measurements, peaks, NOTES[1:]).table()

    def by_length(self) -> Table:
        """n-grams in place of self-attention, in all layers of both sides, at every length, in bf16."""
        measurements: list[Measurement] = []
        for length in self.scale.lengths:
            contenders = [
                Contender(
                    name,
                    partial(setup_headway, mixer=MIXERS[name], length=length),
                    (self.scale.sizes[0], "bf16", PLAIN, False, str(self.device)),
                    BASELINE,
                )
                for name in ("ngram", BASELINE)
            ]
            played = self._alone(self.scale.sizes[0], f"{length:,}", contenders, self.rounds)
            of = {each.contender: each for each in played}
            row = f"{self.scale.sizes[0]}: n-grams at {length:,} tokens, times attention"
            self._compare(row, of.get("ngram"), of.get(BASELINE))
            measurements += played
        title = f"n-grams beside attention{measured_on(self.device)}, target tokens a second"
        note = f"all layers have the mixer: {dict(MIXERS['ngram'])}"
        return BenchReport(title, "length", measurements, {}, (note,)).table()

    def decoding(self) -> Table:
        """Beam search beside Hugging Face and CTranslate2."""
        scale = self.scale
        report = run_bench_decode(
            [scale.decoded], [scale.batch], self.rounds, beams=[scale.beam], precisions=["float32", "bf16"],
            device=self.device, play=self._alone,
        )  # fmt: skip
        ours = [each for each in report.measurements if each.contender.startswith("headway")]
        best = max(ours, key=speed, default=None)
        for each in report.measurements:
            if best and each not in ours:
                row = f"{each.size}, decoding {each.setting}: {best.contender}, times {each.contender}"
                self._compare(row, best, each)
        return report.table()

    def padding(self) -> Table:
        """The padding of real batches, of any and of few shapes."""
        sizes = sorted({SIZES[size].batch_tokens for size in ("base", *self.scale.sizes)})
        corpora = {
            name: corpus_of(ROOT / RECIPES[name], [f"data.folder={folder}"]) for name, folder in self.data.items()
        }
        table = paddings(corpora, sizes)
        for corpus, tokens, shapes, *_, padded in table.rows:
            self._row(f"{corpus}: padding, {tokens:,} tokens a batch, {shapes} shapes", padded)
        return table

    def compiled(self) -> Table:
        """The first size in bf16, compiled and not: last, since compiling takes minutes."""
        size = self.scale.sizes[0]
        contenders = [
            Contender(
                f"headway bf16{', compiled' * compiled}",
                partial(setup_headway, compiled=compiled),
                (size, "bf16", PLAIN, False, str(self.device)),
                "headway bf16",
            )
            for compiled in (True, False)
        ]
        measurements = self._alone(size, "", contenders, self.rounds)
        of = {each.contender: each for each in measurements}
        row = f"{size}, headway bf16: compiled, times without"
        self._compare(row, of.get("headway bf16, compiled"), of.get("headway bf16"))
        title = f"Compiled steps{measured_on(self.device)}, target tokens a second"
        return BenchReport(title, "", with_flops(measurements), {}, NOTES[1:]).table()

    def _row(self, name: str, value: Any) -> None:
        if value is not None:
            self.summary.append([name, value])

    def _compare(self, name: str, one: Measurement | None, other: Measurement | None) -> None:
        """How many times as fast one was as another, in the median of the rounds."""
        if one and other:
            self._row(name, statistics.median(one.ratios(other)))

    def record(self, command: str) -> ResultRecord:
        """What was measured so far, the summary first."""
        summary = Table(["measured", Column("value", format=".3f")], self.summary, title="Summary")
        return ResultRecord(
            title="A GPU's share of what it could do",
            measured=measured_now([command], [1]),
            text=tuple(self.said),
            tables=tuple(table.to_json() for table in (summary, *self.tables)),
        )


def share(measurement: Measurement, peaks: Mapping[str, float]) -> float | None:
    """The FLOP/s of a contender's products, as a share of the peak of its precision."""
    peak = peaks.get(measurement.facts["precision"])
    return peak and measurement.facts["flops_per_token"] * speed(measurement) / peak


def speed(measurement: Measurement) -> float:
    """The median of its rounds."""
    return statistics.median(measurement.speeds)


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
    measured = Measured(SCALES[given.sizes], data, given.rounds, device)
    command = " ".join(["python benchmarks/gpu.py", *sys.argv[1:]])
    for table in measured.parts():
        print(table.text(), end="\n\n", flush=True)
        write_record(given.output, measured.record(command))
    record = measured.record(command)
    print(Table.from_json(record.tables[0]).text(), *record.text, sep="\n\n")
    write_record(given.output, record)


if __name__ == "__main__":
    try:
        main()
    except HeadwayError as error:
        sys.exit(f"error: {error}")
