"""What runs cost where they are deployed: BLEU, sentences a second and megabytes, by headway and by engines.

python benchmarks/engines.py results/engines.json --runs four=runs/a two=runs/b --input test.ja --references test.en

All contenders of a number of threads take turns, and the median of their times counts. What stands behind `--runs` are
names and run folders of translation models. An engine that cannot express a run is left out, and told. "CTranslate2" is
its own call, without headway around it. The engine `ctranslate2` also scores each hypothesis anew. The engine `firefox`
is greedy, and reads a line at a time on one thread, whatever the number of threads. `--parity NAME=FILE` adds what
`headway export firefox` wrote into `parity.json`.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headway.claims.reproduce import ResultRecord, measured_now, write_record
from headway.core.errors import UserError
from headway.core.log import counted, progress, warn
from headway.core.tables import Cell, Column, Table
from headway.export.ctranslate2_export import CTranslate2Engine, CTranslate2Exporter
from headway.export.export_options import CTranslate2Options
from headway.export.exporter import text_processors, tokens_of
from headway.export.exporting import check_expressible
from headway.formats.lines import read_lines
from headway.metrics import build_metric
from headway.predictors.predictor import Run
from headway.runs.engines import Engine, build_engine
from headway.runs.load import load
from headway.runs.run import open_run

HEADWAY, ENGINES, THREADS = ("float32", "bf16", "int8"), ("ctranslate2", "ctranslate2 int8", "onnx", "firefox"), (1, 2)
WEIGHTS = ("*.safetensors", "model.bin", "*.onnx", "*.onnx.data", "*.alphas.bin")
MEGABYTE, BATCH = 1e6, 32
PAIRS = (("engine", "run"), ("engine", "int8"), ("int8", "run"))


class Int8CTranslate2(CTranslate2Engine):
    """CTranslate2, in int8."""

    name = "ctranslate2 int8"

    def export(self, run: Any, folder: Path) -> None:
        exporter = CTranslate2Exporter(CTranslate2Options(quantization="int8"))
        check_expressible(exporter, run)
        exporter.write(run, folder)


@dataclass
class Contender:
    """A model and what runs it."""

    model: str
    by: str
    translate: Callable[[Sequence[str]], list[str]]
    megabytes: float
    parameters: int


def engine_of(name: str) -> Engine:
    """An engine by its name here."""
    return Int8CTranslate2() if name == Int8CTranslate2.name else build_engine(name)


def translator(predictor: Any, beam: int) -> Callable[[Sequence[str]], list[str]]:
    """What a predictor writes for lines."""
    return lambda lines: [prediction.text for prediction in predictor.predict(list(lines), beam=beam)]


def megabytes(folder: Path) -> float:
    """The size of the files of weights in a folder."""
    return sum(file.stat().st_size for pattern in WEIGHTS for file in folder.glob(pattern)) / MEGABYTE


def by_itself(folder: Path, run: Run, beam: int, **threads: int) -> Callable[[Sequence[str]], list[str]]:
    """What CTranslate2 writes for lines, which it sorts by length into batches itself. `threads` are its options."""
    from ctranslate2 import Translator

    translator = Translator(str(folder), **(threads or {"intra_threads": torch.get_num_threads()}))
    source, target = text_processors(run)
    ids = {token: id for id, token in enumerate(tokens_of(target))}
    penalty = run.recipe.decoding.length_penalty

    def translate(lines: Sequence[str]) -> list[str]:
        read = [source.tokens(line) for line in source.encode_lines(lines)]
        found = translator.translate_batch(read, beam_size=beam, length_penalty=penalty, max_batch_size=BATCH)
        return [target.decode([ids[token] for token in result.hypotheses[0]]) for result in found]

    return translate


def contenders(name: str, run: Path, beam: int, folder: Path) -> list[Contender]:
    """A run by headway in each precision, and by each engine; exports are made in `folder`, once."""
    loaded = open_run(run)
    parameters = sum(parameter.numel() for parameter in loaded.model.parameters())
    made = []
    for precision in HEADWAY:
        translate = translator(load(run, precision=precision), beam)
        made.append(Contender(name, f"headway {precision}", translate, megabytes(run), parameters))
    for by in ENGINES:
        engine, place = engine_of(by), folder / f"{name} {by}"
        try:
            if not place.is_dir():
                engine.export(loaded, place)
        except UserError as error:
            warn(f"{by} is left out: {error}")
            continue
        predictor = load(run)
        predictor.backend = engine.backend(place, open_run(run).without_weights())  # type: ignore[union-attr]
        translate = translator(predictor, 1 if by == "firefox" else beam)
        made.append(Contender(name, f"engine {by}", translate, megabytes(place), parameters))
        if isinstance(engine, CTranslate2Engine):
            own = by.replace("ctranslate2", "CTranslate2")
            made.append(Contender(name, own, by_itself(place, loaded, beam), megabytes(place), parameters))
    return made


def times_in_turns(all_contenders: Sequence[Contender], lines: Sequence[str], rounds: int) -> list[float]:
    """The median seconds of each contender; a few lines first, which do not count."""
    times: list[list[float]] = [[] for _ in all_contenders]
    for contender in all_contenders:
        contender.translate(lines[:50])
    turns = [turn for _ in range(rounds) for turn in zip(all_contenders, times, strict=True)]
    with progress("decoding", len(turns), "turns") as work:
        for number, (contender, seconds) in enumerate(turns, start=1):
            began = time.perf_counter()
            contender.translate(lines)
            seconds.append(time.perf_counter() - began)
            work.update(number)
    return [statistics.median(seconds) for seconds in times]


def parity_table(files: Sequence[str]) -> Table:
    """For how many lines a run, the engine and headway's own integers write the same, and how they score."""
    rows: list[list[Cell]] = []
    for name, _, path in (each.partition("=") for each in files):
        parity = json.loads(Path(path).read_text(encoding="utf-8"))
        shares = [100 * parity["shares"][f"{one} equal to {other}"] for one, other in PAIRS]
        rows.append(
            [name, parity["lines"], *shares, *(parity["scores"]["BLEU"][by] for by in ("run", "int8", "engine"))]
        )
    columns = [Column("model"), Column("lines", format=","), *(Column(f"{a} = {b}", "%", ".1f") for a, b in PAIRS)]
    columns += [Column(f"BLEU of {by}", format=".2f") for by in ("run", "int8", "engine")]
    return Table(columns, rows, title="Parity", notes=["int8 is headway's own computation with the engine's integers."])


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="the record, as JSON")
    parser.add_argument("--runs", nargs="+", required=True, metavar="NAME=RUN")
    parser.add_argument("--input", type=Path, required=True, help="sources, a sentence a line")
    parser.add_argument("--references", type=Path, required=True)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--title", default="Decoding by engines")
    parser.add_argument("--text", action="append", default=[], help="a sentence above the table; several times")
    parser.add_argument("--parity", nargs="+", default=[], metavar="NAME=FILE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=THREADS)
    given = parser.parse_args()
    lines, references = list(read_lines(given.input)), list(read_lines(given.references))
    words = sum(len(line.split()) for line in lines)
    metrics = [build_metric("bleu", force=True), build_metric("chrf")]
    runs = [(name, Path(run)) for name, _, run in (entry.partition("=") for entry in given.runs)]
    rows: dict[tuple[str, str], list[Cell]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for threads in given.threads:
            torch.set_num_threads(threads)
            both = [each for name, run in runs for each in contenders(name, run, given.beam, Path(folder))]
            for contender, seconds in zip(both, times_in_turns(both, lines, given.rounds), strict=True):
                said = contender.translate(lines)
                scores = [metric.score(said, [references]).value for metric in metrics]
                row: list[Cell] = [contender.model, contender.by, contender.parameters, *scores, contender.megabytes]
                rows.setdefault((contender.model, contender.by), row).append(len(lines) / seconds)
    speeds = [Column(counted(threads, "thread"), "sentences/s", ".0f") for threads in given.threads]
    facts = [Column("parameters", format=","), Column("BLEU", format=".2f"), Column("chrF", format=".2f")]
    facts.append(Column("weights", "MB", ".1f"))
    columns = [Column("model"), Column("by"), *facts, *speeds]
    table = Table(columns, list(rows.values()), notes=[f"{len(lines):,} sentences, {words:,} words, beam {given.beam}"])
    named = " ".join(f"{name}=RUN" for name, _ in runs)
    command = f"python benchmarks/engines.py {given.output} --runs {named} --input FILE --references FILE"
    command += f" --beam {given.beam} --rounds {given.rounds} --threads {' '.join(map(str, given.threads))}"
    tables = [table, *([parity_table(given.parity)] if given.parity else [])]
    text = ("All models and engines decode the same lines in turns.", *given.text)
    seeds = sorted({open_run(run).recipe.training.seed for _, run in runs})
    record = ResultRecord(
        title=given.title,
        text=text,
        measured=measured_now([command], seeds),
        tables=tuple(each.to_json() for each in tables),
    )
    write_record(given.output, record)


if __name__ == "__main__":
    main()
