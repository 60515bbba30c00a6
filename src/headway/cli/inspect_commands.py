"""`headway inspect ...`: look inside a model."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from headway.cli.shell import Given, Overrides, RunArgument, argument, command, new_app, with_flags
from headway.cli.standard_streams import write
from headway.comparison.options import AblateOptions
from headway.core.config import validated_options
from headway.core.errors import UserError
from headway.inspect.inspect_options import (
    AttributionOptions,
    DependencyOptions,
    FigureOptions,
    HeatMapOptions,
    LayerOptions,
    PageOptions,
    ParameterOptions,
)

inspect_app = new_app("inspect")


@command(inspect_app, "page")
def inspect_page(run: RunArgument, /, *, options: PageOptions) -> None:
    """Write a page with the attention, alignments and outputs of sentences."""
    from headway.inspect.inspection import run_page

    write(run_page(run, options))


inspect_app.default(with_flags(inspect_page))


@command(inspect_app, "figures")
def inspect_figures(
    run: RunArgument, /, *, options: Annotated[dict[str, Any], Given((FigureOptions, HeatMapOptions))]
) -> None:
    """Draw what a run attends to over a corpus, with the numbers beside the figures.

    With --text, draw the weights of this sentence in one layer, of one head or the mean of all.
    """
    from headway.inspect.analyses import run_figures
    from headway.inspect.inspection import run_heat_map

    if "text" in options:
        write(run_heat_map(run, validated_options(HeatMapOptions, options)))
    else:
        write(run_figures(run, validated_options(FigureOptions, options)))


@command(inspect_app, "ablate")
def inspect_ablate(
    *runs: Annotated[
        str, argument("[NAME[:SEED]=]RUN", "Run folders or packs of one recipe, each with a seed of its own.")
    ],
    options: AblateOptions,
) -> None:
    """Cut heads, offsets, sublayers or layers one by one, with a verdict on each over seeds and sentences.

    Only some hundred sentences are read, unless --sentences says more.
    """
    from headway.grids.ablation import ablate, draw
    from headway.grids.compare import Existing

    if not runs:
        raise UserError("there is nothing to cut", where="RUN", allowed="one run folder or several")
    found = ablate([Existing.parse(run, "RUN") for run in runs], options)
    if options.figure is not None:
        draw(found, options.figure)
    write(json.dumps(found.to_json(), indent=1) if options.json_output else found.text())


@command(inspect_app, "tables")
def inspect_tables(
    kind: Annotated[
        Literal["parameters", "layers", "dependencies", "attribution"],
        argument(
            "KIND",
            "parameters: their number and the FLOPs a token of every part; layers: a tagger's weights of its layers, "
            "and its self-attention over words; dependencies: words that a run's heads attach as a parser does; "
            "attribution: the inputs that count for each token of an output.",
        ),
    ],
    run: Annotated[Path, argument("RUN", "The run folder, or a pack; for parameters, also a recipe.")],
    /,
    *overrides: Overrides,
    options: Annotated[dict[str, Any], Given((ParameterOptions, LayerOptions, DependencyOptions, AttributionOptions))],
) -> None:
    """Count what a model has, or how it attends, in a table."""
    from headway.inspect.dependency_analysis import run_dependencies
    from headway.inspect.inspection import run_attribution
    from headway.inspect.layers import run_layers
    from headway.inspect.parameters import run_parameters

    if kind == "parameters":
        write(run_parameters(run, overrides, validated_options(ParameterOptions, options)))
    elif kind == "dependencies":
        write(run_dependencies(run, overrides, validated_options(DependencyOptions, options)))
    elif overrides:
        raise UserError("what is counted is of the run's own recipe", received=" ".join(overrides))
    elif kind == "attribution":
        write(run_attribution(run, validated_options(AttributionOptions, options)))
    else:
        write(run_layers(run, validated_options(LayerOptions, options)))
