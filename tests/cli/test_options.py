"""Flags made from models: their names, help, bounds and defaults, and what the command gets."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from pydantic import Field, NonNegativeInt, PositiveInt
from typer.testing import CliRunner

from headway.cli.options import Given, command
from headway.config import Section
from headway.errors import UserError, option

SEARCH = {"group": "Search"}


class Toy(Section):
    """An option of each type."""

    beam: PositiveInt | None = Field(
        None, description="Hypotheses kept.", json_schema_extra={**SEARCH, "default_text": "the recipe's"}
    )
    offset: NonNegativeInt = Field(50, description="So many more [tokens].", json_schema_extra=SEARCH)
    temperature: float = Field(1.0, gt=0, le=5, description="Flattens.")
    truncate: bool = Field(False, description="Cut.")
    quality: bool = Field(True, description="Decode too.")
    cached: bool | None = Field(None, description="Keep a cache.")
    unit: Literal["words", "characters"] = Field("words", description="The unit.")
    references: tuple[Path, ...] = Field((), description="Files.")
    text: tuple[str, ...] = Field((), description="Sentences.", json_schema_extra={"metavar": "TEXT"})
    takes: tuple[int, int] = Field((45, 49), description="First and last.")
    layers: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(None, description="Layers.")
    json_output: bool = Field(False, description="Write JSON.", json_schema_extra={"flag": "json"})
    hidden: dict[str, int] | None = Field(None, json_schema_extra={"flag": None})


class Needed(Section):
    """A required option."""

    output: Path = Field(description="There.")


class Tags(Section):
    """Shares an option with `Trees`."""

    format: Literal["tsv", "json"] = Field("tsv", description="Taggers: the form.")
    threshold: float | None = Field(None, ge=0, le=1, description="The threshold.")


class Trees(Section):
    """Shares an option with `Tags`."""

    format: Literal["brackets", "drawing"] = Field("brackets", description="Parsers: the form.")


seen: list[Any] = []
app = typer.Typer()


@command(app)
def toy(run: Annotated[Path, typer.Argument(metavar="RUN...")], options: Toy, device: str = "auto") -> None:
    """A toy."""
    seen[:] = [run, options, device]


@command(app, "needed")
def with_needed(options: Needed) -> None:
    """Another."""
    seen[:] = [options]


@command(app)
def either(context: typer.Context, options: Annotated[dict[str, Any], Given((Tags, Trees))]) -> None:
    """A third."""
    assert context.info_name == "either"
    seen[:] = [options]


@command(app)
def fails(options: Toy) -> None:
    """A fourth."""
    raise UserError("wrong", where=option("json_output"), allowed=f"{option('quality')} beside {option('runs')}")


def run(line: str) -> tuple[int, str]:
    ended = CliRunner(env={"COLUMNS": "100", "TERM": "dumb"}).invoke(app, line.split())
    return ended.exit_code, " ".join(ended.output.replace("│", " ").split())


def test_values_of_every_type() -> None:
    line = (
        "toy there --beam 3 --offset 0 --temperature 0.5 --truncate --no-quality --no-cached --unit characters "
        "--references a b --references c --text one --text two --takes 1 2 --layers 1 2 --json --device cpu"
    )
    assert run(line) == (0, "")
    path, options, device = seen
    assert (path, device) == (Path("there"), "cpu")
    assert options == Toy(
        beam=3, offset=0, temperature=0.5, truncate=True, quality=False, cached=False, unit="characters",
        references=(Path("a"), Path("b"), Path("c")), text=("one", "two"), takes=(1, 2), layers=(1, 2),
        json_output=True,
    )  # fmt: skip


def test_what_was_given_is_known() -> None:
    run("toy there --beam 4 --unit words")
    assert seen[1] == Toy(beam=4)
    assert seen[1].model_fields_set == {"beam", "unit"}


def test_a_list_that_is_not_variadic_leaves_the_next_argument_alone() -> None:
    assert run("toy --text one there")[0] == 0
    assert seen[:1] == [Path("there")]


def test_help_has_groups_bounds_and_defaults() -> None:
    code, text = run("toy --help")
    assert code == 0
    assert " Search --beam" in text
    assert "Hypotheses kept. [the recipe's]" in text
    assert "So many more [tokens]. [50]" in text
    assert "Flattens." in text
    assert "--quality, --no-quality" in text
    assert "--no-truncate" not in text
    assert "--unit TEXT The unit. One of words, characters. [words]" in text
    assert "--references FILE..." in text
    assert "--json" in text
    assert "json-output" not in text
    assert "hidden" not in text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("toy r --beam 0", "error: --beam: input should be"),
        ("toy r --beam x", "error: --beam: input should be"),
        ("toy r --temperature 6", "error: --temperature: input should be less than or equal to 5; received '6'"),
        ("toy r --temperature 0", "error: --temperature: input should be greater than 0; received 0.0"),
        (
            "toy r --unit word",
            "error: --unit: input should be 'words' or 'characters'; did you mean 'words'?; received",
        ),
        ("toy r --layers 1 0", "error: --layers.1: input should be greater than or equal to 1; received 0"),
        ("toy r --bem 1", "--bem"),
        ("toy r --beam 1 --beam 2", "error: --beam: this option is given twice; received ['1', '2']"),
        ("needed", "--output"),
        ("fails", "error: --json: wrong; allowed: --no-quality beside RUN"),
    ],
)
def test_mistakes_name_the_flag(line: str, message: str) -> None:
    code, text = run(line)
    assert code == 2
    assert message in text


def test_options_of_several_models() -> None:
    text = run("either --help")[1]
    assert "--format TEXT Taggers: the form. Parsers: the form. One of tsv, json, brackets, drawing." in text
    assert run("either --threshold 0.5 --format drawing")[0] == 0
    assert seen == [{"threshold": 0.5, "format": "drawing"}]
    run("either")
    assert seen == [{}]


def test_two_parameters_of_one_name_are_refused() -> None:
    def twice(beam: int, options: Toy) -> None:
        """Two."""

    with pytest.raises(TypeError, match="two parameters named beam"):
        command(app)(twice)


def test_a_type_that_no_flag_can_have_is_refused() -> None:
    class Nested(Section):
        toy: Toy = Toy()

    def nested(options: Nested) -> None:
        """None."""

    with pytest.raises(TypeError, match="the option toy"):
        command(app)(nested)
