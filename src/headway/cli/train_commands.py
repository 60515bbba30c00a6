"""The verbs train and augment."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

from headway.augment.bulk_options import BulkOptions, DecodedOptions
from headway.cli.console import say_command
from headway.cli.shell import (
    Average,
    Device,
    EngineName,
    Overrides,
    Precision,
    Workers,
    argument,
    flag,
    keys_given,
    panel,
    verb,
)
from headway.cli.standard_streams import write
from headway.core.config import WRITES_FOLDER, validated_options
from headway.core.errors import UserError, option
from headway.core.log import say
from headway.core.registry import import_paths
from headway.predictors.predict_options import SamplingOptions
from headway.search.decoding_options import SearchOptions

SYSTEM = panel("Another system")
DECODING = [*SearchOptions.model_fields, *SamplingOptions.model_fields]


@verb(loads_runs=True)
def train(
    recipe: Annotated[Path, argument("RECIPE", "The recipe; with --resume, the run folder is enough.")],
    /,
    *overrides: Overrides,
    output: Annotated[Path | None, WRITES_FOLDER, flag("The run folder to make.", "run")] = None,
    resume: Annotated[bool, flag("Go on with the run that is there.", negative=())] = False,
    dry_run: Annotated[
        bool, flag("Read, check, build, make a few updates, and say what all will take.", negative=())
    ] = False,
) -> int:
    from headway.recipe import load_recipe
    from headway.runs.run import open_run
    from headway.training.parallel import told_once

    opened = open_run(recipe) if resume and (recipe.is_dir() or not (recipe.is_file() or recipe.suffix)) else None
    with opened.trusted() if opened else nullcontext():  # the recipe of a run may come from others
        with told_once():
            if opened and output not in (None, recipe):
                what, allowed = "a run goes on in its own folder", f"a recipe beside {option('output')}"
                raise UserError(what, where="RUN", received=str(recipe), allowed=allowed)
            checked = load_recipe(recipe, overrides) if opened is None else opened.recipe
            if opened and overrides:
                checked = load_recipe(checked.model_dump(mode="json"), overrides)
            if dry_run:
                from headway.training.trained import dry_run as run_dry

                write(run_dry(checked, _say_destinations).table().text())
                return 0
        from headway.training.loop import train as run_training

        output = recipe if opened else output or Path("run")
        code = run_training(checked, output, resume=resume, report=True, begun=_say_destinations)
    allow = ["--allow-code"] if import_paths(checked.model_dump(mode="json")) else []
    if code:
        say_command("to go on", "train", "--resume", output, *allow)
    else:
        say_command("next", "predict", output, "--input", "FILE", *allow)
        say_command("or look inside", "inspect", output, *allow)
    return code


def _say_destinations(run: Any) -> None:
    """Log the export formats that support the model of a run, and why others do not."""
    from headway.export.exporting import destinations

    say("; ".join(destinations(run)))


@verb(loads_runs=True)
def augment(
    method: Annotated[
        Literal["backtranslate", "distill"],
        argument("METHOD", "backtranslate: the outputs are the sources of the lines; distill: they are their targets."),
    ],
    /,
    *runs_and_keys: Annotated[
        str,
        argument(
            "RUN [KEY=VALUE]",
            f"One run, or several as an ensemble; then how to decode: {', '.join(DECODING)}.",
        ),
    ],
    options: DecodedOptions,
    input: Annotated[
        Path | None,
        flag(
            "Lines that the run reads; distill has those that it was trained on where none are given.",
            "what the run was trained on",
        ),
    ] = None,
    outputs: Annotated[
        Path | None,
        flag("A line for each line of the input, which another system wrote; no run.", group=SYSTEM),
    ] = None,
    teacher: Annotated[str | None, flag("The name of the other system, for the provenance.", group=SYSTEM)] = None,
    licence: Annotated[
        str | None,
        flag("The licence of its outputs, for the provenance, such as cc-by-4.0.", group=SYSTEM),
    ] = None,
    average: Average = None,
    engine: EngineName = None,
    device: Device = "auto",
    precision: Precision = "float32",
    workers: Workers = None,
) -> None:
    from headway.augment.bulk_decoding import ForeignTeacher, check_output, decode_corpus, pair_corpus
    from headway.cli.streams import check_engine
    from headway.runs.load import load

    if outputs is not None or teacher is not None or licence is not None:
        if runs_and_keys or outputs is None or input is None or teacher is None or licence is None:
            given = {"input": input, "outputs": outputs, "teacher": teacher, "licence": licence}
            missing = [option(name) for name, value in given.items() if value is None]
            what = "outputs of another system are paired with the lines that it read, without a run"
            raise UserError(
                what, where=missing[0] if missing else "headway augment", received=" ".join(runs_and_keys) or None,
                allowed=f"all of {', '.join(map(option, given))}, and no RUN",
            )  # fmt: skip
        manifest = pair_corpus(method, ForeignTeacher(outputs, teacher, licence), input, options)
        write(json.dumps(manifest["counts"], ensure_ascii=False))
        return
    if not runs_and_keys:
        what = "a corpus is made by a run, or of the outputs of another system"
        raise UserError(what, where="headway augment", allowed=f"RUN, or {option('outputs')}")
    if method == "backtranslate" and input is None:
        raise UserError("the text in the language that the model is to write is needed", where=option("input"))
    keys = [word for word in runs_and_keys if "=" in word and not Path(word).exists()]
    runs = [Path(word) for word in runs_and_keys if word not in keys]
    given = {name: getattr(options, name) for name in options.model_fields_set}
    checked = validated_options(BulkOptions, given | keys_given(keys, BulkOptions))
    check_output(checked)
    check_engine(engine, runs[0], checked.model_dump(exclude_unset=True))
    predictor = load(*runs, average=average, engine=engine, device=device, precision=precision, workers=workers)
    loaded = {"average": average, "engine": engine, "precision": precision}
    write(json.dumps(decode_corpus(method, predictor, input, checked, loaded)["counts"], ensure_ascii=False))
