"""`headway recipes ...`: the recipes that come with headway."""

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.help_pages import Group
from headway.cli.options import command
from headway.cli.standard_streams import write
from headway.config import WRITES_FOLDER

recipes_app = typer.Typer(
    cls=Group, invoke_without_command=True, help="List the recipes that come with headway, or copy one."
)


@recipes_app.callback()
def recipes(context: typer.Context) -> None:
    """List the recipes that come with headway, or copy one."""
    if context.invoked_subcommand is None:
        list_recipes()


@command(recipes_app, "list")
def list_recipes(task: Annotated[str | None, typer.Option(help="Those of one task.")] = None) -> None:
    """List the recipes of each task, with what each is and what was measured."""
    from headway.experiments.recipe_library import recipe_list

    write(recipe_list(task))


@command(recipes_app, "show")
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of a recipe, such as tanaka/mixers/ngram.")],
) -> None:
    """Show a recipe's corpus, the commands that train and score it, and what was measured."""
    from headway.experiments.recipe_library import recipe_facts

    write(recipe_facts(name))


@command(recipes_app, "copy")
def copy(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of a recipe, such as tanaka/mixers/ngram.")],
    output: Annotated[Path, WRITES_FOLDER, typer.Option(help="The folder that gets it.")] = Path(),
) -> None:
    """Put a recipe, with the recipes that it begins from and the scripts that prepare its corpus, into a folder."""
    from headway.experiments.recipe_library import copy_recipe

    for path in copy_recipe(name, output):
        write(str(path))
