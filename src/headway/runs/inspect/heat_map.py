"""`headway inspect figure`: the weights of one layer, and of one head or their mean, as a picture for a paper."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from headway.errors import UserError, option
from headway.figures.drawing import STYLE, draw_weights, save_figure
from headway.figures.fonts import drawable
from headway.predictors.output import Example
from headway.runs.inspect.inspect_options import HeatMapOptions
from headway.runs.inspect.inspection import inspect
from headway.runs.load import load


def run_heat_map(run: Path, options: HeatMapOptions) -> str:
    """Draw the weights of a sentence; what was drawn and where, to be read.

    Raises:
        UserError: no run, an empty sentence, a layer or head that is not there.
    """
    predictor = load(run, device=options.device, allow_code=options.allow_code)
    (sentence,) = inspect(predictor, [Example(options.text)])
    layers = [layer for shown in sentence.maps if shown.measure == "weight" for layer in shown.layers]
    if not layers:
        raise UserError("there are no weights to draw for this sentence", where=option("text"), received=options.text)
    names = {layer.name: layer for layer in layers}
    if options.layer is None:
        layer = ([layer for layer in layers if layer.name.endswith(".cross")] or layers)[-1]
    elif options.layer in names:
        layer = names[options.layer]
    else:
        what, allowed = "there are no weights of this name", ", ".join(names)
        raise UserError(what, where=option("layer"), received=options.layer, allowed=allowed)
    head = options.head
    if head is not None and head > len(layer.values):
        allowed = f"1 to {len(layer.values)}"
        raise UserError("this layer has no such head", where=option("head"), received=head, allowed=allowed)
    title = f"{layer.title}, {'mean of heads' if head is None else f'head {head}'}"
    weights = layer.values.mean(0) if head is None else layer.values[head - 1]
    drawn, families, _ = drawable([*layer.columns, *layer.rows])
    columns, rows = drawn[: len(layer.columns)], drawn[len(layer.columns) :]
    size = 1.8 + 0.24 * len(columns), 1.2 + 0.24 * len(rows)
    with matplotlib.rc_context(STYLE | {"font.family": families}):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        draw_weights(axes, np.asarray(weights), columns, rows, stretch=options.stretch)
        axes.set_title(f"{run.resolve().name} · {title}", fontsize=8, loc="left")
        save_figure(figure, options.output)
    return f"{options.output}: {title}"
