"""`headway bench ...`: speed beside other implementations."""

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.arguments import Device
from headway.cli.help_pages import Group
from headway.cli.options import command
from headway.cli.standard_streams import write
from headway.config import WRITES_FIGURE, WRITES_FILE
from headway.errors import option

bench_app = typer.Typer(
    cls=Group, no_args_is_help=True, help="Measure speed beside other implementations, in the same run."
)

SEVERAL = "can be given several times."
Size = Annotated[list[str], typer.Option(help=f"base, small, tiny; {SEVERAL}")]
AnySize = Annotated[
    list[str], typer.Option(help=f"base, small, tiny, recurrent, recurrent-small, recurrent-tiny; {SEVERAL}")
]
Rounds = Annotated[int, typer.Option(min=1, max=10**6, help="Turns of each contender; medians are reported.")]
JsonFile = Annotated[Path | None, WRITES_FILE, typer.Option(help="Write the report there as JSON.")]


@command(bench_app, "train")
def bench_train(
    size: AnySize = ["base", "small"],  # noqa: B006
    precision: Annotated[list[str], typer.Option(help="float32, bf16.")] = ["float32", "bf16"],  # noqa: B006
    rounds: Rounds = 5,
    activation_checkpointing: Annotated[
        bool, typer.Option("--activation-checkpointing", help="Also with blocks that are computed a second time.")
    ] = False,
    output: JsonFile = None,
    device: Device = "cpu",
) -> None:
    """Training speed beside a plain torch.nn.Transformer loop, or torch.nn.LSTM (sizes recurrent, recurrent-small)."""
    from headway.bench.bench_train import run_bench_train
    from headway.device import pick_device

    report = run_bench_train(
        size,
        precision,
        rounds,
        output,
        activation_checkpointing=activation_checkpointing,
        device=pick_device(device),
    )
    write(report.text())


@command(bench_app, "constraints")
def bench_constraints(
    size: Size = ["base", "small"],  # noqa: B006
    precision: Annotated[list[str], typer.Option(help="float32, bf16.")] = ["float32"],  # noqa: B006
    rounds: Rounds = 5,
    output: JsonFile = None,
) -> None:
    """The cost of the dependency loss and of the synchronous constraint in a training step."""
    from headway.bench.bench_constraints import run_bench_constraints

    write(run_bench_constraints(size, precision, rounds, output).text())


@command(bench_app, "decode")
def bench_decode(
    size: Size = ["base", "small"],  # noqa: B006
    batch_size: Annotated[list[int], typer.Option(min=1, max=10**5, help="Sentences decoded at once.")] = [16, 1],  # noqa: B006
    beam: Annotated[list[int], typer.Option(min=1, max=10**3, help="Hypotheses of a sentence.")] = [4],  # noqa: B006
    length: Annotated[
        list[int] | None, typer.Option(min=1, max=10**3, help="Tokens of every output.", show_default="30")
    ] = None,
    precision: Annotated[
        list[str] | None, typer.Option(help="float32, bf16, int8.", show_default="those that are quick here")
    ] = None,
    rounds: Rounds = 5,
    output: JsonFile = None,
    device: Device = "cpu",
) -> None:
    """Beam search speed beside CTranslate2 and generate of Hugging Face, with the same weights; equal outputs count."""
    from headway.bench.bench_decode import run_bench_decode
    from headway.device import pick_device

    report = run_bench_decode(
        size,
        batch_size,
        rounds,
        output,
        beams=beam,
        lengths=length,
        precisions=precision,
        device=pick_device(device),
    )
    write(report.text())


@command(bench_app, "mixers")
def bench_mixers(
    length: Annotated[
        list[int] | None, typer.Option(min=2, max=10**6, help="Lengths.", show_default="32, 64, ... 8192")
    ] = None,
    precision: Annotated[str, typer.Option(help="float32 or bf16.")] = "float32",
    rounds: Rounds = 5,
    output: JsonFile = None,
    figure: Annotated[
        Path | None, WRITES_FIGURE, typer.Option(help="Draw time by length there, as PNG or SVG.")
    ] = None,
    device: Device = "cpu",
) -> None:
    """Time and memory of every mixer by length, and of a decoding step, beside torch's fused attention."""
    from headway.bench.bench_mixers import LENGTHS, run_bench_mixers
    from headway.device import pick_device

    chosen = pick_device(device)
    write(run_bench_mixers(length or LENGTHS, precision, rounds, chosen, output, figure).text())


@command(bench_app, "lengths")
def bench_lengths(
    size: Annotated[str, typer.Option(help="base or small.")] = "small",
    length: Annotated[
        list[int] | None, typer.Option(min=2, max=10**6, help="Tokens of a sentence.", show_default="100, 1000, 4000")
    ] = None,
    precision: Annotated[str, typer.Option(help="float32 or bf16.")] = "float32",
    rounds: Rounds = 3,
    output: JsonFile = None,
) -> None:
    """Speed and memory of training by the length of sentences: attention, local attention, n-grams."""
    from headway.bench.bench_lengths import LENGTHS, run_bench_lengths

    write(run_bench_lengths(size, length or LENGTHS, precision, rounds, output).text())


@command(bench_app, "race")
def bench_race(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Run folders, finished or not; NAME=RUN names a system. Seeds of a recipe are one system.",
        ),
    ],
    metric: Annotated[str | None, typer.Option(help="Of dev.", show_default="the first")] = None,
    goal: Annotated[float | None, typer.Option(help="The score whose time is wanted.", show_default="none")] = None,
    output: JsonFile = None,
) -> None:
    """How soon runs reach a score on dev, by processor time of training."""
    from headway.bench.bench_race import Racer, run_bench_race
    from headway.comparison.existing_results import Existing, name_runs

    given = [Existing.parse(run, option("runs")) for run in runs]
    racers = [Racer(cell.variant, cell.seed, run.path) for run, cell in zip(given, name_runs(given), strict=True)]
    write("\n\n".join(table.text() for table in run_bench_race(racers, metric, goal, output)))
