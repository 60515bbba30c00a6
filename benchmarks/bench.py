"""Speed beside other implementations, measured in the same run: `python benchmarks/bench.py VERB --help`."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from bench_constraints import run_bench_constraints
from bench_decode import run_bench_decode
from bench_file import PRECISIONS, run_bench_file
from bench_lengths import LENGTHS as SENTENCE_LENGTHS
from bench_lengths import run_bench_lengths
from bench_mixers import LENGTHS, run_bench_mixers, run_bench_steps
from bench_race import Racer, run_bench_race
from bench_train import run_bench_train

from headway.cli.console import show
from headway.core.device import pick_device
from headway.core.errors import HeadwayError
from headway.grids.compare import Existing, name_runs

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)

SEVERAL = "can be given several times."
Size = Annotated[list[str], typer.Option(help=f"base, small, tiny; {SEVERAL}")]
AnySize = Annotated[
    list[str], typer.Option(help=f"base, small, tiny, recurrent, recurrent-small, recurrent-tiny; {SEVERAL}")
]
Precisions = Annotated[list[str], typer.Option(help=f"float32, bf16, tf32; {SEVERAL}")]
Rounds = Annotated[int, typer.Option(min=1, help="Turns of each contender; medians are reported.")]
JsonFile = Annotated[Path | None, typer.Option(help="Write the report there as JSON.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")]


@app.command()
def train(
    size: AnySize = ["base", "small"],  # noqa: B006
    precision: Precisions = ["float32", "bf16"],  # noqa: B006
    rounds: Rounds = 5,
    activation_checkpointing: Annotated[
        bool, typer.Option("--activation-checkpointing", help="Also with blocks that are computed a second time.")
    ] = False,
    output: JsonFile = None,
    device: Device = "cpu",
) -> None:
    """Training speed beside a plain torch.nn.Transformer loop, or torch.nn.LSTM (sizes recurrent, recurrent-small)."""
    report = run_bench_train(
        size, precision, rounds, output, activation_checkpointing=activation_checkpointing, device=pick_device(device)
    )
    print(report.text())


@app.command()
def constraints(
    size: Size = ["base", "small"],  # noqa: B006
    precision: Precisions = ["float32"],  # noqa: B006
    rounds: Rounds = 5,
    output: JsonFile = None,
) -> None:
    """The cost of the dependency loss and of the synchronous constraint in a training step."""
    print(run_bench_constraints(size, precision, rounds, output).text())


@app.command()
def decode(
    size: Size = ["base", "small"],  # noqa: B006
    batch_size: Annotated[list[int], typer.Option(min=1, help="Sentences decoded at once.")] = [16, 1],  # noqa: B006
    beam: Annotated[list[int], typer.Option(min=1, help="Hypotheses of a sentence.")] = [4],  # noqa: B006
    length: Annotated[list[int] | None, typer.Option(min=1, help="Tokens of every output; by default 30.")] = None,
    precision: Annotated[
        list[str] | None, typer.Option(help="float32, bf16, int8; by default those that are quick here.")
    ] = None,
    rounds: Rounds = 5,
    output: JsonFile = None,
    device: Device = "cpu",
) -> None:
    """Beam search speed beside CTranslate2 and generate of Hugging Face, with the same weights; equal outputs count."""
    report = run_bench_decode(
        size, batch_size, rounds, output, beams=beam, lengths=length, precisions=precision, device=pick_device(device)
    )
    print(report.text())


@app.command()
def file(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder of a Transformer.")],
    input: Annotated[Path, typer.Option(help="The sources, a sentence a line.")],
    cores: Annotated[list[int], typer.Option(min=1, help=f"Workers, on a core each; {SEVERAL}")] = [1, 2],  # noqa: B006
    precision: Annotated[list[str], typer.Option(help=f"float32, bf16, int8; {SEVERAL}")] = [*PRECISIONS],  # noqa: B006
    sentences: Annotated[int, typer.Option(min=1, help="Lines that are decoded.")] = 1000,
    beam: Annotated[int, typer.Option(min=1, help="Hypotheses of a sentence.")] = 4,
    rounds: Rounds = 5,
    output: JsonFile = None,
) -> None:
    """Sentences a second of whole files, beside CTranslate2 with as many workers."""
    report = run_bench_file(run, input, cores, precision, rounds, output, sentences=sentences, beam=beam)
    print(report.text())


@app.command()
def mixers(
    length: Annotated[list[int] | None, typer.Option(min=2, help="Lengths; by default 32, 64, ... 8192.")] = None,
    precision: Annotated[str, typer.Option(help="float32 or bf16.")] = "float32",
    rounds: Rounds = 5,
    output: JsonFile = None,
    figure: Annotated[Path | None, typer.Option(help="Draw time by length there, as PNG or SVG.")] = None,
    device: Device = "cpu",
) -> None:
    """Time and memory of every mixer by length, beside torch's fused attention."""
    print(run_bench_mixers(length or LENGTHS, precision, rounds, pick_device(device), output, figure).text())


@app.command()
def steps(
    precision: Annotated[str, typer.Option(help="float32 or bf16.")] = "float32",
    rounds: Rounds = 5,
    output: JsonFile = None,
    device: Device = "cpu",
) -> None:
    """Time and state of a decoding step of every mixer, after few and after many tokens."""
    print(run_bench_steps(precision, rounds, pick_device(device), output).text())


@app.command()
def lengths(
    size: Annotated[str, typer.Option(help="base or small.")] = "small",
    length: Annotated[
        list[int] | None, typer.Option(min=2, help="Tokens of a sentence; by default 100, 1000, 4000.")
    ] = None,
    precision: Annotated[str, typer.Option(help="float32 or bf16.")] = "float32",
    rounds: Rounds = 3,
    output: JsonFile = None,
) -> None:
    """Speed and memory of training by the length of sentences: attention, local attention, n-grams."""
    print(run_bench_lengths(size, length or SENTENCE_LENGTHS, precision, rounds, output).text())


@app.command()
def race(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Run folders, finished or not; NAME=RUN names a system. Seeds of a recipe are one system.",
        ),
    ],
    metric: Annotated[str | None, typer.Option(help="Of dev; by default the first.")] = None,
    goal: Annotated[float | None, typer.Option(help="The score whose time is wanted.")] = None,
    output: JsonFile = None,
) -> None:
    """How soon runs reach a score on dev, by processor time of training."""
    given = [Existing.parse(run, "runs") for run in runs]
    racers = [Racer(cell.variant, cell.seed, run.path) for run, cell in zip(given, name_runs(given), strict=True)]
    print("\n\n".join(table.text() for table in run_bench_race(racers, metric, goal, output)))


if __name__ == "__main__":
    with show():
        try:
            app()
        except HeadwayError as error:
            sys.exit(f"error: {error}")
