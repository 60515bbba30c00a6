"""The verb train."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

from headway.cli.console import say_command
from headway.cli.shell import Overrides, argument, flag, verb
from headway.cli.standard_streams import write
from headway.core.config import WRITES_FOLDER
from headway.core.errors import UserError, option
from headway.core.log import say
from headway.core.registry import import_paths


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
