"""Speed, measured beside other implementations in one run: what all benches share.

Every contender lives in a process of its own. All are started and warmed up first; then they take turns, a round each,
so that whatever else the machine does meets them alike, and a ratio always compares two neighbouring rounds.
"""

import json
import multiprocessing
import resource
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from headway.core.device import accelerator, machine
from headway.core.documents import read_json
from headway.core.errors import RunError, UserError, option
from headway.core.files import write_text
from headway.core.log import progress
from headway.core.tables import Cell, Column, Table
from headway.corpora.plan import EncodedPairs
from headway.models import ModelConfig, TransformerConfig, model_section
from headway.tensors.linear import BACKENDS, has_onednn, linear
from headway.tensors.precision import DTYPES, use_float32, wait_for

CPU = torch.device("cpu")
SHORTEST, LONGEST, PAIRS = 5, 100, 100_000


Config = TypeVar("Config", bound=ModelConfig)


@dataclass(frozen=True)
class Size(Generic[Config]):
    """A model with one vocabulary for both sides, and how much work a round of it is.

    Args:
        model: the recipe's model section.
        vocabulary: its size.
        batch_tokens: tokens of a training batch.
        updates: training updates a round.
        forced: tokens of an output in decoding.
    """

    model: Config
    vocabulary: int
    batch_tokens: int
    updates: int
    forced: int


def _transformer(section: Any) -> TransformerConfig:
    config = model_section(section)
    assert isinstance(config, TransformerConfig)
    return config


SIZES = {
    "base": Size(_transformer("transformer-base"), 10_000, 4096, 1, 30),
    "base-25k": Size(_transformer("transformer-base"), 10_000, 25_000, 16, 30),
    "big-25k": Size(_transformer("transformer-big"), 10_000, 25_000, 16, 30),
    "small": Size(_transformer("transformer-small"), 8_000, 4096, 2, 30),
    "tiny": Size(_transformer({"preset": "transformer-tiny", "dim": 32, "feed_forward": 48}), 101, 256, 1, 7),
}


class SyntheticCorpus(EncodedPairs):
    """Pairs of random ids, lengths skewed as those of sentences are: targets of 5 to 100, 28 on average.

    A source is 0.8 to 1.25 times as long as its target. With a `length`, all have that. Where `labelled`, tokens have
    random heads, on the target side to the left.
    """

    def __init__(
        self, vocabulary: int, pairs: int = PAIRS, *, labelled: bool = False, length: int | None = None
    ) -> None:
        self.labelled = labelled
        random = np.random.default_rng(1)
        shortest, longest = (SHORTEST, LONGEST) if length is None else (length, length)
        targets = np.clip(SHORTEST + random.gamma(2.4, 9.5, pairs), shortest, longest)
        sources = np.clip(targets * random.uniform(0.8, 1.25, pairs), shortest, longest)
        self.target_lengths, self.source_lengths = targets.astype(np.int32), sources.astype(np.int32)
        self.lines, self.fingerprint = np.arange(1, pairs + 1), ""
        self._ids = random.integers(4, vocabulary, (2, longest + pairs))

    def source(self, index: int) -> NDArray[np.integer]:
        return self._ids[0, index : index + int(self.source_lengths[index])]

    def target(self, index: int) -> NDArray[np.integer]:
        return self._ids[1, index : index + int(self.target_lengths[index])]

    def labels(self, index: int) -> Mapping[str, NDArray[np.integer]]:
        """The heads of one pair, if any."""
        if not self.labelled:
            return {}
        source, target = self.source(index), self.target(index)
        return {"source_heads": source % len(source), "target_heads": target % np.arange(1, len(target) + 1)}


# Facts of contenders that have a column in the table.
FACTS = {
    "memory": Column("memory", "GiB", format=".2f", align="right"),
    "state": Column("state", "KiB", format=",.1f", align="right"),
    "padding": Column("padding", format=".1%", align="right"),
    "by_processor_time": Column("by processor time", format=".2f", align="right"),
    "equal_outputs": Column("equal outputs", format=".0%", align="right"),
    "efficiency": Column("efficiency", format=".2f", align="right"),
}

# A contender's round: given the round's number, the work is done and its target tokens are counted.
Play = Callable[[int], int]


# Rows, inputs and outputs of the products whose speed is the peak.
PEAK_SHAPES = (4096, 512, 2048), (4096, 2048, 512), (4096, 512, 8192), (2048, 2048, 2048)
LARGEST = (8192, 8192, 8192)  # which a GPU needs to be busy

PRECISIONS = {**DTYPES, "tf32": torch.float32}


@dataclass(frozen=True)
class Contender:
    """Something to measure. `setup(*arguments)`, called in a process of its own, warms it up.

    It gives the function that plays a round, and facts about the contender that JSON can hold. `baseline` is the
    contender that it is compared with; None for the last one.
    """

    name: str
    setup: Callable[..., tuple[Play, dict[str, Any]]]
    arguments: tuple[Any, ...]
    baseline: str | None = None


@dataclass
class Measurement:
    """The rounds of one contender at one setting, and the contender that it is compared with.

    `cpu_seconds` are those of all its threads and processes, which hardly depend on what else the machine does.
    """

    size: str
    setting: str
    contender: str
    facts: dict[str, Any]
    baseline: str
    tokens: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    @property
    def speeds(self) -> list[float]:
        """Target tokens a second, by round."""
        return [tokens / seconds for tokens, seconds in zip(self.tokens, self.seconds, strict=True)]

    def ratios(self, baseline: "Measurement") -> list[float]:
        """How many times as fast as `baseline` it was, by round."""
        return [one / other for one, other in zip(self.speeds, baseline.speeds, strict=True)]


def compete(size: str, setting: str, contenders: Sequence[Contender], rounds: int) -> list[Measurement]:
    """Let the contenders take turns for `rounds` rounds.

    Raises:
        RunError: a contender failed; the message holds its traceback.
    """
    with _workers(contenders, f"warming up {size} {setting}".rstrip()) as (connections, facts):
        results = [
            Measurement(size, setting, contender.name, facts[contender.name], contender.baseline or contenders[-1].name)
            for contender in contenders
        ]
        with progress(f"measuring {size} {setting}".rstrip(), rounds, "rounds") as line:
            line.update(0)
            for number in range(rounds):
                for result in results if number % 2 else reversed(results):  # neither side always comes first
                    connection = connections[result.contender]
                    connection.send(number)
                    played = _receive(result.contender, connection)
                    result.tokens.append(played["tokens"])
                    result.seconds.append(played["seconds"])
                    result.cpu_seconds.append(played["cpu_seconds"])
                line.update(number + 1)
    return results


@contextmanager
def _workers(
    contenders: Sequence[Contender], what: str
) -> Iterator[tuple[dict[str, Connection], dict[str, dict[str, Any]]]]:
    """The connections to all contenders, which were warmed up one after another, and their facts."""
    # Copies of a server that has only imported the package start at once, and none has computed anything before.
    context = multiprocessing.get_context("forkserver")
    # Each of them runs the script anew, which takes seconds where its imports are not there yet.
    script = Path(getattr(sys.modules["__main__"], "__file__", "") or "").stem
    context.set_forkserver_preload([__name__, *[script] * (script not in ("", "__main__"))])
    processes, connections, facts = [], {}, {}
    try:
        with progress(what, len(contenders), "contenders") as line:
            for number, contender in enumerate(contenders, start=1):
                connections[contender.name], theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs, contender))  # no daemon: it may have processes
                process.start()
                theirs.close()
                processes.append(process)
                facts[contender.name] = _receive(contender.name, connections[contender.name])
                line.update(number)
        yield connections, facts
    finally:
        for connection in connections.values():
            connection.close()  # the worker's wait for the next round ends
        for process in processes:
            process.join(timeout=10)
            process.kill()


def _serve(connection: Connection, contender: Contender) -> None:
    """A worker: waits, without using the processor, for each round until the other side closes."""
    try:
        play, facts = contender.setup(*contender.arguments)
        connection.send(facts)
        while True:
            number = connection.recv()
            began, cpu_began = time.perf_counter(), _processor_time()
            tokens = play(number)
            seconds, cpu_seconds = time.perf_counter() - began, _processor_time() - cpu_began
            connection.send({"tokens": tokens, "seconds": seconds, "cpu_seconds": cpu_seconds})
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return
    except Exception:
        connection.send({"error": traceback.format_exc()})


def _processor_time() -> float:
    """Seconds of processors, of all threads of this process and of those that it began and that have ended."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _receive(name: str, connection: Connection) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = connection.recv()
    except EOFError as error:
        raise RunError(f"{name}: its process ended (is there enough memory?)") from error
    if "error" in answer:
        raise RunError(f"{name}: {answer['error']}")
    return answer


def measured_on(device: torch.device) -> str:
    """Where something was measured, for the title of a report; nothing on a CPU, whose name stands below the table."""
    return "" if device.type == "cpu" else f" on {accelerator()}"


def compute_in(precision: str, device: torch.device) -> str:
    """Compute in a precision of `PRECISIONS`, from then on; gives the one that autocast knows. A GPU rounds float32 to
    TF32 in `tf32`, where there is such, and in what bf16 leaves."""
    use_float32("exact" if precision == "float32" else "tf32", device)
    return "float32" if precision == "tf32" else precision


def matrix_peak(precision: str, device: torch.device) -> float:
    """The most floating-point operations a second that matrix multiplication reaches.

    It is the best of several shapes and tries, and of all libraries.
    """
    best, backends = 0.0, BACKENDS if device.type == "cpu" and has_onednn() else ("torch",)
    compute_in(precision, device)
    for rows, inner, columns in PEAK_SHAPES if device.type == "cpu" else (*PEAK_SHAPES, LARGEST):
        x, weight = (torch.randn(side, inner, device=device).to(PRECISIONS[precision]) for side in (rows, columns))
        for number in range(8 * len(backends)):
            wait_for(device)
            began = time.perf_counter()
            linear(x, weight, None, backends[number % len(backends)])
            wait_for(device)
            best = max(best, 2 * rows * inner * columns / (time.perf_counter() - began))
    return best


@dataclass(frozen=True)
class BenchReport:
    """The measurements, and the machine that they were made on.

    Args:
        title: of the table.
        unit: what a setting is, the head of its column; empty where there is none.
        measurements: contenders of the same size and setting stand together.
        peaks: FLOP/s of matrix multiplication by precision.
        notes: how it was measured.
        counted: what a contender's round counts, the unit of its speed.
    """

    title: str
    unit: str
    measurements: Sequence[Measurement]
    peaks: Mapping[str, float]
    notes: Sequence[str]
    machine: Mapping[str, Any] = field(default_factory=machine)
    counted: str = "tokens"

    @classmethod
    def read(cls, path: Path) -> "BenchReport":
        """The report that `write` wrote. Raises UserError for another file."""
        try:
            content: dict[str, Any] = read_json(path, what="report")
            names = {field.name for field in fields(Measurement)}
            content["measurements"] = [
                Measurement(**{name: value for name, value in each.items() if name in names})
                for each in content["measurements"]
            ]
            return cls(unit=content.pop("unit"), peaks=content.pop("peak_flops"), **content)
        except (KeyError, TypeError) as error:
            raise UserError(f"this is no report of a benchmark ({error})", where=str(path)) from error

    def text(self) -> str:
        """The table, the machine and the notes."""
        return self.table().text()

    def table(self) -> Table:
        """The contenders, a row each, with the machine and the notes below."""
        names = "{processor}, {instruction_set}, {threads} threads, torch {torch}"
        about = names.format_map(self.machine)
        peaks = [f"matrix peak in {name}: {peak / 1e9:,.0f} GFLOP/s" for name, peak in self.peaks.items()]
        columns: list[Column | str] = [
            "size", *[self.unit] * bool(self.unit), "contender", Column(f"{self.counted}/s", format=",.0f"),
            Column("times the baseline", format=".2f"), Column("lowest - highest", align="right"),
            *[Column("of the peak", format=".0%", align="right")] * bool(self.peaks),
            *[FACTS[key] for key in self._facts()],
        ]  # fmt: skip
        rows = [self._row(measurement) for measurement in self.measurements]
        return Table(columns, rows, title=self.title, notes=["", about, *peaks, *self.notes])

    def _row(self, measurement: Measurement) -> list[Cell]:
        ratios, speed = measurement.ratios(self.baseline_of(measurement)), statistics.median(measurement.speeds)
        operations = measurement.facts.get("flops_per_token")
        share = operations * speed / self.peaks[measurement.facts["precision"]] if self.peaks and operations else None
        return [
            measurement.size,
            *[measurement.setting] * bool(self.unit),
            measurement.contender,
            speed,
            statistics.median(ratios),
            f"{min(ratios):.2f} - {max(ratios):.2f}",
            *[share] * bool(self.peaks),
            *[measurement.facts.get(key) for key in self._facts()],
        ]

    def _facts(self) -> list[str]:
        """The facts with a column of their own that some contender has."""
        return [key for key in FACTS if any(key in measurement.facts for measurement in self.measurements)]

    def baseline_of(self, measurement: Measurement) -> Measurement:
        """The measurement that another is compared with."""
        group = (measurement.size, measurement.setting, measurement.baseline)
        return next(other for other in self.measurements if (other.size, other.setting, other.contender) == group)

    def to_json(self) -> str:
        """Everything in the report, with each round, as JSON text."""
        measurements = [
            asdict(measurement)
            | {
                "tokens_per_second": statistics.median(measurement.speeds),
                "times_baseline": statistics.median(measurement.ratios(self.baseline_of(measurement))),
            }
            for measurement in self.measurements
        ]
        content = {
            "title": self.title,
            "unit": self.unit,
            "machine": self.machine,
            "peak_flops": self.peaks,
            "measurements": measurements,
            "notes": self.notes,
            "counted": self.counted,
        }
        return json.dumps(content, ensure_ascii=False, indent=1)

    def write(self, output: Path | None) -> "BenchReport":
        """Write the JSON where `output` says. Raises UserError where that cannot be written."""
        if output is not None:
            try:
                write_text(output, self.to_json() + "\n")
            except OSError as error:
                where = f"{option('output')} {output}"
                raise UserError(f"cannot write there ({error.strerror})", where=where) from error
        return self


def check_output(output: Path | None) -> None:
    """Raise UserError, before work is lost, where the report's folder does not exist."""
    if output is not None and not output.parent.is_dir():
        raise UserError("this folder does not exist", where=option("output"), received=str(output.parent))


def check_choices(name: str, values: Sequence[str], allowed: Mapping[str, Any]) -> None:
    """Raise UserError where one of the `values` of an option is not allowed."""
    for value in values:
        if value not in allowed:
            raise UserError("there is no such choice", where=option(name), received=value, allowed=allowed)


def print_medians(title: str, functions: Mapping[str, Callable[[], object]], turns: int = 15) -> None:
    """Print the median time of each function and how many times as long as the first it takes."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(turns + 2):
        for name, function in functions.items():
            began = time.perf_counter()
            function()
            if turn >= 2:  # the first turns warm up
                seconds[name].append(time.perf_counter() - began)
    first = next(iter(seconds.values()))
    print(title)
    for name, values in seconds.items():
        ratio = statistics.median(mine / other for mine, other in zip(values, first, strict=True))
        print(f"  {name:44} {statistics.median(values) * 1e3:9.3f} ms {ratio:7.2f}")
