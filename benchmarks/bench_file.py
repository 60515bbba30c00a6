"""`bench.py file`: sentences a second of whole files, from text to text, beside CTranslate2 with as many workers."""

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from engines import by_itself, translator
from rounds import BenchReport, Contender, Measurement, Play, check_choices, check_output, compete

from headway.core.errors import UserError, option
from headway.core.log import counted
from headway.export.ctranslate2_export import TYPES, CTranslate2Exporter
from headway.export.export_options import CTranslate2Options
from headway.export.exporting import check_expressible
from headway.formats.lines import read_lines
from headway.runs.load import load
from headway.runs.run import open_run

PRECISIONS = ("float32", "int8")
MODELLED = (4, 8, 16)  # cores that are modelled if the machine has fewer


def run_bench_file(
    run: Path,
    input: Path,
    cores: Sequence[int],
    precisions: Sequence[str],
    rounds: int,
    output: Path | None = None,
    *,
    sentences: int = 1000,
    beam: int = 4,
) -> BenchReport:
    """Decode the first lines of a file with a run, by headway and by CTranslate2, on each number of cores.

    Args:
        run: the run folder of a Transformer.
        input: the sources, a sentence a line.
        cores: the numbers of workers, each on one core.
        precisions: float32, bf16, int8.
        rounds: turns of each contender.
        output: where to write the report as JSON.
        sentences: the number of lines to decode.
        beam: the hypotheses of a sentence.

    Raises:
        UserError: an unknown precision, a run that CTranslate2 cannot express, an empty file, or an output that cannot
            be written.
        RunError: a contender failed.
    """
    check_choices("precision", precisions, TYPES)
    check_output(output)
    lines = list(read_lines(input))[:sentences]
    if not lines:
        raise UserError("there is no line to decode", where=option("input"), received=str(input))
    measurements, opened = list[Measurement](), open_run(run)
    with tempfile.TemporaryDirectory() as place:
        folders = {precision: Path(place) / precision for precision in precisions}
        for precision, folder in folders.items():
            exporter = CTranslate2Exporter(CTranslate2Options(quantization=precision))
            check_expressible(exporter, opened)
            exporter.write(opened, folder)
        for workers in cores:
            contenders = list[Contender]()
            for precision, folder in folders.items():
                given, theirs = (run, lines, beam, workers, precision), f"CTranslate2 {precision}"
                contenders.append(Contender(f"headway {precision}", setup_headway, given, theirs))
                contenders.append(Contender(theirs, setup_ctranslate2, (*given, folder), theirs))
            measurements += compared(compete(run.name, str(workers), contenders, rounds))
    measurements = list(with_model(measurements))
    words = sum(len(line.split()) for line in lines)
    notes = (
        f"{counted(len(lines), 'sentence')}, {words:,} words, beam {beam}; text to text, batches sorted by length",
        "a worker decodes a batch at a time on one core; both have as many workers as cores",
        "times the baseline: median over the rounds of sentences/s beside CTranslate2 in the same precision and round",
        "by processor time: the same of the processor time of all threads and processes",
        "efficiency: the speed beside that of one core times the cores",
        "modelled: by Amdahl's law, with the serial share of the time of one core that the most measured cores show",
    )
    return BenchReport("Decoding of whole files", "cores", measurements, {}, notes, counted="sentences").write(output)


def compared(played: Sequence[Measurement]) -> list[Measurement]:
    """The measurements of one setting, with outputs and processor time compared with those of the baseline."""
    texts = {each.contender: each.facts["texts"] for each in played}
    seconds = {each.contender: each.cpu_seconds for each in played}
    for each in played:
        pairs = list(zip(texts[each.contender], texts[each.baseline], strict=True))
        pace = zip(seconds[each.contender], seconds[each.baseline], strict=True)
        each.facts = {
            "equal_outputs": sum(one == other for one, other in pairs) / len(pairs),
            "by_processor_time": statistics.median(theirs / ours for ours, theirs in pace),
        }
    return list(played)


def with_model(measurements: Sequence[Measurement]) -> Iterator[Measurement]:
    """The measurements with their efficiency beside one core, followed by those of more cores by Amdahl's law."""
    single = {each.contender: statistics.median(each.seconds) for each in measurements if each.setting == "1"}
    most = max(int(each.setting) for each in measurements)
    for each in measurements:
        if each.contender in single:
            cores = int(each.setting)
            each.facts["efficiency"] = single[each.contender] / statistics.median(each.seconds) / cores
        yield each
    last = {each.contender: each for each in measurements if each.setting == str(most)}
    for cores in (cores for cores in MODELLED if single and cores > most > 1):
        for each in (each for each in measurements if each.setting == "1"):
            serial = max(0.0, (1 / last[each.contender].facts["efficiency"] - 1) / (most - 1))
            share = serial + (1 - serial) / cores
            seconds, facts = [share * second for second in each.seconds], {"efficiency": 1 / share / cores}
            yield replace(each, setting=f"{cores}, modelled", seconds=seconds, facts=facts)


def setup_headway(
    run: Path, lines: Sequence[str], beam: int, workers: int, precision: str
) -> tuple[Play, dict[str, Any]]:
    """headway, with `workers` of one core each."""
    torch.set_num_threads(1)  # more would start threads of torch's here, and this process could not be copied
    return _playing(translator(load(run, device="cpu", precision=precision, workers=workers), beam), lines)


def setup_ctranslate2(
    run: Path, lines: Sequence[str], beam: int, workers: int, precision: str, folder: Path
) -> tuple[Play, dict[str, Any]]:
    """CTranslate2, with `workers` workers of one thread each."""
    return _playing(by_itself(folder, open_run(run), beam, inter_threads=workers, intra_threads=1), lines)


def _playing(translate: Any, lines: Sequence[str]) -> tuple[Play, dict[str, Any]]:
    """A round that decodes all lines. One such round is played before, whose texts are compared."""

    def play(number: int) -> int:
        return len(translate(lines))

    return play, {"texts": translate(lines)}
