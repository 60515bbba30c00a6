"""`headway inspect dependencies`: attachment scores, agreement of both sides, and figures, for a run.

The figures are those of Deguchi et al. (figures 2 and 3).

Shapes: L tokens of a sentence, S source and T target positions with the end mark.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc

from headway.errors import UserError, option
from headway.figures.drawing import BLUE, GRID, INK, MUTED, ORANGE, STYLE, draw_weights, save_figure
from headway.figures.fonts import drawable
from headway.files import write_text
from headway.formats.conllu import is_conllu
from headway.formats.lines import read_lines
from headway.formats.pairs import open_source
from headway.parses.parsers import Parser, ParserConfig, load_parser, read_conllu
from headway.predictors.captured_attention import END
from headway.predictors.sequence_predictor import SequencePredictor
from headway.processing.text.text_processor import TextProcessor
from headway.recipe import Recipe, apply_overrides, parse_recipe
from headway.runs.inspect.dependency_analysis import Analysed, DependencyAnalysis, DependencyReader, Synchronised
from headway.runs.inspect.inspect_options import DependencyOptions
from headway.runs.load import load
from headway.tasks.task import RawExample

CELL = 0.28  # inches


def run_dependencies(run: Path, overrides: Sequence[str], options: DependencyOptions) -> str:
    """Measure a run, draw what is asked for, and give the report, as text or JSON.

    Raises UserError as `inspect_dependencies` does.
    """
    analysis = inspect_dependencies(run, overrides, options)
    if options.figures is not None:
        _draw(analysis, options.figures)
    if options.heads is not None:
        _write_heads(analysis, options.heads)
    return json.dumps(analysis.to_json(), indent=1) if options.json_output else analysis.text()


def inspect_dependencies(run: Path, overrides: Sequence[str], options: DependencyOptions) -> DependencyAnalysis:
    """Measure a run.

    Args:
        run: the run folder.
        overrides: changes to the run's recipe, such as another parser or gold parses.
        options: what is measured.

    Raises:
        UserError: no run, no sentences, no parser, or a parser that cannot be loaded.
    """
    predictor = load(run, device=options.device, allow_code=options.allow_code)
    if not isinstance(predictor, SequencePredictor) or not isinstance(predictor.source, TextProcessor):
        raise UserError("dependency heads are of words, and this model reads none", where=str(run))
    recipe = _changed(predictor.recipe, overrides)
    examples = _examples(recipe, options)
    parses, has_targets = recipe.data.parses, any(example.target is not None for example in examples)
    parsers = _parser(parses.source, "source"), _parser(parses.target, "target") if has_targets else None
    analysis = DependencyAnalysis(options.sentences if options.figures is not None else 0)
    for pair in DependencyReader(predictor, recipe.objective, parsers).read(examples):
        analysis.add(pair)
    if not (analysis.scores or analysis.agreement.rows):
        raise UserError("there is nothing to measure: no parser and no synchronous constraint", where="data.parses")
    return analysis


def _changed(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    tree = recipe.model_dump(mode="json")
    apply_overrides(tree, overrides)
    return parse_recipe(tree)


def _parser(config: ParserConfig | None, side: str) -> Parser | None:
    return None if config is None else load_parser(config, f"data.parses.{side}")


def _examples(recipe: Recipe, options: DependencyOptions) -> list[RawExample]:
    if options.source is not None:
        sources = _lines(options.source)
        if options.target is None:
            return [RawExample(source) for source in sources]
        targets = _lines(options.target)
        if len(sources) != len(targets):
            received = f"{len(sources)} sources and {len(targets)} targets"
            raise UserError("each source needs one target", where=option("target"), received=received)
        return [RawExample(source, target) for source, target in zip(sources, targets, strict=True)]
    if recipe.data.dev is None:
        allowed = f"{option('source')} FILE {option('target')} FILE"
        raise UserError("the recipe has no dev to measure on", where="data.dev", allowed=allowed)
    dev = open_source(recipe.data.dev, "data.dev", recipe.data.broken)
    return [RawExample(pair.source, pair.target) for pair in dev]


def _lines(path: Path) -> list[str]:
    return [text for text, _ in read_conllu(path)] if is_conllu(path) else list(read_lines(path))


def _write_heads(analysis: DependencyAnalysis, folder: Path) -> None:
    """Write the heads of each side by the model and by the parser as the metric `uas` reads them, a sentence a line."""
    folder.mkdir(parents=True, exist_ok=True)
    for side, lines in analysis.heads.items():
        for name, column in zip(("model", "parser"), zip(*lines, strict=True), strict=True):
            write_text(folder / f"{side}.{name}.heads", "".join(f"{line}\n" for line in column))


def _draw(analysis: DependencyAnalysis, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, pair in enumerate(analysis.sentences, start=1):
        for side, sentence in pair.sides.items():
            dependency_figure(sentence, folder / f"dependencies-{side}-{number}.png", causal=side == "target")
        if pair.synchronised is not None:
            source, target = ([*tokens, END] for tokens in pair.tokens)
            synchronous_figure(pair.synchronised, source, target, folder / f"synchronous-{number}.png")


def dependency_figure(sentence: Analysed, path: Path, causal: bool = False) -> None:
    """Draw A_dep beside the parse: above, the parse as arcs and the model's heads below the line; then the matrix.

    Row t of the matrix is the token t, its columns are where its head may stand; a ring marks the parser's head. Where
    `causal`, heads that stand to the right are not marked: the decoder cannot see them.

    Raises:
        UserError: an unknown format.
    """
    tokens, families, _ = drawable(sentence.tokens)
    projection = sentence.projection.left_only() if causal else sentence.projection
    size = CELL * len(tokens)
    with matplotlib.rc_context(STYLE | {"font.family": families}):
        figure = Figure(figsize=(2.2 + size, 3.2 + 1.4 * size), layout="constrained")
        arcs, matrix = figure.subplots(2, 1, height_ratios=[0.6, 1])
        _draw_arcs(arcs, tokens, projection.heads.tolist(), sentence.weights.argmax(1).tolist())
        draw_weights(matrix, sentence.weights, tokens, tokens)
        edges = [(head, position) for position, head in enumerate(projection.heads.tolist()) if head >= 0]
        if edges:
            columns, rows = zip(*edges, strict=True)
            matrix.scatter(columns, rows, s=46, facecolors="none", edgecolors=ORANGE, linewidths=1.2)
        save_figure(figure, path)


def _draw_arcs(axes: Axes, tokens: list[str], parser: list[int], model: list[int]) -> None:
    """Arcs from heads to dependents, the parser's above the tokens and the model's below; roots as short lines."""
    for sign, heads, colour in ((1, parser, ORANGE), (-1, model, BLUE)):
        for position, head in enumerate(heads):
            if head == position:
                axes.plot([position, position], [sign * 0.45, sign * 1.1], color=colour, linewidth=1)
            elif head >= 0:
                width = abs(head - position)
                angles = (0, 180) if sign > 0 else (180, 360)
                middle = ((head + position) / 2, sign * 0.45)
                axes.add_patch(Arc(middle, width, width, theta1=angles[0], theta2=angles[1], color=colour, linewidth=1))
                axes.plot(position, sign * 0.45, marker="v" if sign > 0 else "^", color=colour, markersize=3)
    longest = max(
        [abs(head - position) for heads in (parser, model) for position, head in enumerate(heads) if head >= 0] + [2]
    )
    for position, token in enumerate(tokens):
        axes.text(
            position, 0, token, ha="center", va="center", color=INK, fontsize=8, rotation=30 if len(token) > 4 else 0
        )
    axes.text(-1.2, 0.9, "parser", color=ORANGE, ha="right", fontsize=8)
    axes.text(-1.2, -0.9, "model", color=BLUE, ha="right", va="top", fontsize=8)
    axes.set_xlim(-2, len(tokens))
    axes.set_ylim(-longest / 2 - 0.8, longest / 2 + 0.8)
    axes.set_aspect("equal")
    axes.axis("off")


def synchronous_figure(pair: Synchronised, source: list[str], target: list[str], path: Path) -> None:
    """Draw how E becomes D' by way of C, beside D: four matrices and the squared distance between the last two.

    Args:
        pair: the weights.
        source: the S source tokens, with the end mark.
        target: the T target tokens, with the end mark; row t writes the token t.
        path: the figure; its suffix says the format.

    Raises:
        UserError: an unknown format.
    """
    shown, families, _ = drawable([*source, *target])
    sources, targets = shown[: len(source)], shown[len(source) :]
    distance = float(np.square(pair.projected - pair.decoder).sum())
    panels = (
        ("E, encoder", pair.encoder, sources, sources), ("C, cross-attention", pair.cross, sources, targets),
        ("D', E carried over", pair.projected, targets, targets), ("D, decoder", pair.decoder, targets, targets),
    )  # fmt: skip
    with matplotlib.rc_context(STYLE | {"font.family": families}):
        widths = [len(columns) for _, _, columns, _ in panels]
        height = max(len(source), len(target))
        figure = Figure(figsize=(7 + CELL * sum(widths), 2 + CELL * height), layout="constrained")
        for axes, (title, weights, columns, rows) in zip(
            figure.subplots(1, 4, width_ratios=widths), panels, strict=True
        ):
            draw_weights(axes, weights, columns, rows)
            axes.set_title(title, color=INK, fontsize=10)
        figure.supxlabel(f"squared distance of D' and D: {distance:.3f}", color=MUTED, fontsize=8)
        figure.patch.set_edgecolor(GRID)
        save_figure(figure, path)
