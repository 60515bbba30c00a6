"""`headway inspect ...`: look inside a model. Without a verb, an option says what is looked at (`--parameters`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.arguments import RunArgument
from headway.cli.help_pages import Group
from headway.cli.options import command
from headway.cli.standard_streams import write
from headway.errors import UserError
from headway.runs.inspect.inspect_options import (
    DependencyOptions,
    FigureOptions,
    HeatMapOptions,
    LayerOptions,
    PageOptions,
    ParameterOptions,
)

# The option that stands for a verb. It is an option of the verb as well, but for those of NO_VALUE.
VERBS = {
    "--output": "page",
    "--figure": "heat-map",
    "--figures": "figures",
    "--parameters": "parameters",
    "--layers": "layers",
    "--dependencies": "dependencies",
}
NO_VALUE = ("--parameters", "--dependencies")
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY.PATH=VALUE ...]", help="Changes to the recipe.")]


class InspectGroup(Group):
    """A group whose verb can be left to an option: `inspect RUN --parameters` is `inspect parameters RUN`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, of which the first is made the verb."""
        if self.lacks_verb(args):
            args = with_verb(args)
        return super().parse_args(ctx, args)


def with_verb(arguments: Sequence[str]) -> list[str]:
    """The arguments with the verb that their options say before them, by default `page`.

    Raises UserError where they say several.
    """
    named = [name for name in VERBS if any(argument.partition("=")[0] == name for argument in arguments)]
    of_others = {"--figures": "--dependencies", "--figure": "--layers"}  # options of those verbs, too
    chosen = [name for name in named if of_others.get(name) not in named]
    if not chosen:
        return ["page", *arguments]
    if len(chosen) != 1:
        allowed = "one of --output PAGE.html, --figure FILE, --figures DIR, --parameters, --layers FILE, --dependencies"
        received = " ".join(chosen)
        raise UserError("say what to look at", where="headway inspect", received=received, allowed=allowed)
    return [VERBS[chosen[0]], *(argument for argument in arguments if argument not in NO_VALUE)]


inspect_app = typer.Typer(
    cls=InspectGroup,
    no_args_is_help=True,
    help="Look inside a model. The verb may be left out: RUN alone makes a page, and --figure a heat map.",
)


@command(inspect_app, "page")
def inspect_page(run: RunArgument, options: PageOptions) -> None:
    """Write a page with the attention, alignments and outputs of sentences."""
    from headway.runs.inspect.inspection import run_page

    write(run_page(run, options))


@command(inspect_app, "heat-map")
def inspect_heat_map(run: RunArgument, options: HeatMapOptions) -> None:
    """Draw the weights of a sentence in one layer, of one head or the mean of all, as PDF, PNG or SVG."""
    from headway.runs.inspect.inspection import run_heat_map

    write(run_heat_map(run, options))


@command(inspect_app, "figures")
def inspect_figures(run: RunArgument, options: FigureOptions) -> None:
    """Draw what a run attends to over a corpus, with the numbers beside the figures."""
    from headway.runs.inspect.analyses import run_figures

    write(run_figures(run, options))


@command(inspect_app, "parameters")
def inspect_parameters(
    path: Annotated[Path, typer.Argument(metavar="RUN|RECIPE.yaml", help="A run folder, or a recipe.")],
    options: ParameterOptions,
    overrides: Overrides = None,
) -> None:
    """Count the parameters and the FLOPs a token of every part of a model."""
    from headway.runs.inspect.parameters import run_parameters

    write(run_parameters(path, overrides or (), options))


@command(inspect_app, "layers")
def inspect_layers(run: RunArgument, options: LayerOptions) -> None:
    """Show a tagger's weights of its layers, and its self-attention, over words."""
    from headway.runs.inspect.layers import run_layers

    write(run_layers(run, options))


@command(inspect_app, "dependencies")
def inspect_dependencies(run: RunArgument, options: DependencyOptions, overrides: Overrides = None) -> None:
    """Count the words that a run's dependency heads attach as a parser does."""
    from headway.runs.inspect.dependency_analysis import run_dependencies

    write(run_dependencies(run, overrides or (), options))
