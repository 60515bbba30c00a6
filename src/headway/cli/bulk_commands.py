"""`headway backtranslate` and `headway distill`: a corpus decoded by a run into a new one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from headway.cli.arguments import AllowCode, Average, Device, EngineName, Precision
from headway.cli.options import Given
from headway.runs.bulk_options import BulkOptions

if TYPE_CHECKING:
    from headway.runs.bulk_decoding import Kind

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="One run, or several to decode as an ensemble.")]
Options = Annotated[dict[str, Any], Given((BulkOptions,))]


class Loading(NamedTuple):
    """How runs are loaded, as `headway.load` takes it."""

    average: int | None
    engine: str | None
    device: str
    precision: str
    allow_code: bool


def backtranslate(
    runs: Runs,
    *,
    options: Options,
    input: Annotated[Path, typer.Option(help="Text that the run reads, a sentence a line.")],
    average: Average = None,
    engine: EngineName = None,
    device: Device = "auto",
    precision: Precision = "float32",
    allow_code: AllowCode = False,
) -> None:
    """Make a corpus of text and the sources that a run writes for it.

    The run reads the language that a later model is to write. If it is killed, the same command continues where it
    stopped.
    """
    _decode("backtranslate", runs, input, options, Loading(average, engine, device, precision, allow_code))


def distill(
    runs: Runs,
    *,
    options: Options,
    input: Annotated[
        Path | None, typer.Option(help="Sources, a sentence a line.", show_default="what the run was trained on")
    ] = None,
    average: Average = None,
    engine: EngineName = None,
    device: Device = "auto",
    precision: Precision = "float32",
    allow_code: AllowCode = False,
) -> None:
    """Make a corpus of sources and what a run writes for them.

    A smaller model can be trained on it. If it is killed, the same command continues where it stopped.
    """
    _decode("distill", runs, input, options, Loading(average, engine, device, precision, allow_code))


def _decode(kind: "Kind", runs: list[Path], input: Path | None, options: dict[str, Any], how: Loading) -> None:
    import json

    from headway.cli.standard_streams import write
    from headway.config import validated_options
    from headway.runs.bulk_decoding import check_output, decode_corpus
    from headway.runs.load import load

    checked = validated_options(BulkOptions, options)
    check_output(checked)
    predictor = load(
        runs[0], *runs[1:], average=how.average, engine=how.engine, device=how.device, precision=how.precision,
        allow_code=how.allow_code,
    )  # fmt: skip
    loaded = {"average": how.average, "engine": how.engine, "precision": how.precision}
    write(json.dumps(decode_corpus(kind, predictor, input, checked, loaded)["counts"], ensure_ascii=False))
