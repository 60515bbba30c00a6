"""Figures of what a model attends to over a corpus, each as PNG and SVG, with its numbers as CSV.

Shapes: K heads, P parts, J heads over layers, L layers.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.files import write_text
from headway.mixers import Span
from headway.predictors.captured_attention import by_kind
from headway.runs.inspect.charts import Panel, panel_chart
from headway.runs.inspect.layer_report import LayerTotals
from headway.runs.inspect.length_quality import LengthTotals, scores_of_totals
from headway.runs.inspect.totals import SPAN, Entropies, PartTotals, RelativePositions, within

if TYPE_CHECKING:
    from headway.runs.inspect.corpus_analysis import CorpusTotals

OFFSETS = range(-SPAN, SPAN + 1)
EVENLY = "evenly"  # what would be if all that may be seen had the same weight
LEAST_SHOWN = 1e-3
FURTHER = (f"<{-SPAN}", f">{SPAN}")

Floats = NDArray[np.floating[Any]]


class Drawn(NamedTuple):
    """A figure: its name, its panels, its numbers with the names of their columns, and whether a line is a layer."""

    name: str
    panels: list[Panel]
    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]
    layers: bool = True


def write_figures(totals: CorpusTotals, folder: Path, n: int) -> list[Path]:
    """Write all figures that there are numbers for into `folder`, and give their paths.

    Args:
        totals: the sums over a corpus.
        folder: an existing folder.
        n: of the window that is shaded.
    """
    figures: list[Drawn] = []
    for kind, names in by_kind(list(totals.relative)).items():
        own = {layer: totals.relative[name] for layer, name in names.items()}
        figures += [relative_positions(kind, own, n), shares_within(kind, own)]
    if totals.entropies:
        figures.append(entropies(totals.entropies))
    for kind, names in by_kind(list(totals.parts)).items():
        figures.append(contributions(kind, {layer: totals.parts[name] for layer, name in names.items()}))
    if totals.layers.words:
        figures += layers(totals.layers)
    if totals.lengths.counts:
        figures.append(quality(totals.lengths))
    paths = []
    for figure in figures:
        paths += [folder / f"{figure.name}.{suffix}" for suffix in ("png", "svg", "csv")]
        for path in paths[-3:-1]:
            panel_chart(figure.panels, path, ordered=figure.layers)
        write_text(paths[-1], _csv(figure.columns, figure.rows))
    return paths


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row] for row in rows)
    return text.getvalue()


def _stack(kind: str) -> str:
    """`encoder` of `encoder.self`."""
    return kind.partition(".")[0]


def relative_positions(kind: str, own: Mapping[int, RelativePositions], n: int) -> Drawn:
    """The distribution of self-attention over relative position, a line a layer (Loem et al. 2023, figure 2)."""
    shares = {f"layer {layer}": each.shares().mean(0) for layer, each in own.items()}
    inside = [f"{100 * within(each, n):.0f}" for each in shares.values()]
    shares[EVENLY] = _even_shares(own)
    highest = np.max(list(shares.values()), axis=0)[1:-1]
    shown = [offset for offset, most in zip(OFFSETS, highest, strict=True) if most >= LEAST_SHOWN or abs(offset) < n]
    right = n - 0.5 if highest[SPAN + 1 :].any() else 0.5
    lines = {
        name: [(offset, 100 * float(each[offset + SPAN + 1])) for offset in shown if offset < right or right > 0.5]
        for name, each in shares.items()
    }
    lowest, most = min(inside, key=float), max(inside, key=float)
    label = f"n = {n}: {lowest if lowest == most else f'{lowest} to {most}'} %"
    panel = Panel(
        title=f"{_stack(kind)}: self-attention by relative position",
        x="position of what is attended to, from the token that attends", y="share of the weight (%)",
        lines=lines, shaded=(0.5 - n, right, label), limits=(0, None), baseline=EVENLY,
    )  # fmt: skip
    names = [FURTHER[0], *map(str, OFFSETS), FURTHER[1]]
    rows = [
        (f"{_stack(kind)}.{layer}.self", head, offset, share)
        for layer, each in own.items()
        for head, values in _heads_and_means(each.shares(), each.even_shares())
        for offset, share in zip(names, values.tolist(), strict=True)
    ]
    return Drawn(f"relative-position-{_stack(kind)}", [panel], ("attention", "head", "offset", "share"), rows)


def _even_shares(own: Mapping[int, RelativePositions]) -> Floats:
    """Those of the layer that sees furthest: layers with a window see less."""
    return min((each.even_shares() for each in own.values()), key=lambda shares: float(within(shares, 1)))


def _heads_and_means(values: Floats, even: Floats | float) -> Iterable[tuple[str, Any]]:
    """The rows of values (K, ...) with their numbers, their mean, called `mean`, and those of even weights."""
    yield from ((str(head), each) for head, each in enumerate(values))
    yield "mean", values.mean(0)
    yield EVENLY, even


def shares_within(kind: str, own: Mapping[int, RelativePositions]) -> Drawn:
    """The share of self-attention that an n-gram of n can see, by n."""
    sizes = range(1, SPAN + 2)
    shares = {f"layer {layer}": each.shares().mean(0) for layer, each in own.items()}
    shares[EVENLY] = _even_shares(own)
    lines = {name: [(n, 100 * float(within(each, n))) for n in sizes] for name, each in shares.items()}
    panel = Panel(
        title=f"{_stack(kind)}: self-attention within a window", x="n: the window reaches n - 1 tokens to each side",
        y="share of the weight (%)", lines=lines, percent=True, baseline=EVENLY,
    )  # fmt: skip
    rows = [
        (f"{_stack(kind)}.{layer}.self", head, n, float(within(each, n)))
        for layer, totals in own.items()
        for n in sizes
        for head, each in _heads_and_means(totals.shares(), totals.even_shares())
    ]
    return Drawn(f"within-{_stack(kind)}", [panel], ("attention", "head", "n", "share"), rows)


def entropies(totals: Mapping[str, Entropies]) -> Drawn:
    """The mean entropy of every head: a dot a head, a line through the means of the layers."""
    panels = []
    for kind, names in by_kind(list(totals)).items():
        own = {layer: totals[name] for layer, name in names.items()}
        dots = [(layer, float(bits)) for layer, each in own.items() for bits in each.mean()]
        lines = {
            "mean of the heads": [(layer, float(each.mean().mean())) for layer, each in own.items()],
            EVENLY: [(layer, each.even_mean()) for layer, each in own.items()],
        }
        panels.append(Panel(title=kind, x="layer", y="entropy (bits)", lines=lines, dots=dots, baseline=EVENLY))
    highest = max(bits for panel in panels for points in (*panel.lines.values(), panel.dots) for _, bits in points)
    panels = [panel._replace(limits=(0, 1.05 * max(highest, 0.1))) for panel in panels]
    rows = [
        (name, head, float(bits))
        for name, each in totals.items()
        for head, bits in _heads_and_means(each.mean(), each.even_mean())
    ]
    return Drawn("entropy", panels, ("attention", "head", "bits"), rows)


def contributions(kind: str, own: Mapping[int, PartTotals]) -> Drawn:
    """What each part of layers without weights contributes, by both measures, a line a layer."""
    parts = sorted({part for each in own.values() for part in each.parts}, key=_place)
    means = {layer: each.means() for layer, each in own.items()}
    titles = (f"{_stack(kind)}: norm of the share", f"{_stack(kind)}: |gradient x input|")
    panels = [
        Panel(
            title=title, x="offset", y="mean over positions and heads", limits=(0, None),
            names=[part.name for part in parts],
            lines={
                f"layer {layer}": _points(own[layer].parts, each[number].mean(0).tolist(), parts)
                for layer, each in means.items()
            },
        )
        for number, title in enumerate(titles)
    ]  # fmt: skip
    rows = [
        (f"{_stack(kind)}.{layer}.self", head, part.name, float(norm), float(gradient))
        for layer, each in own.items()
        for head, (norms, gradients) in enumerate(zip(*means[layer], strict=True))
        for part, norm, gradient in zip(each.parts, norms, gradients, strict=True)
    ]
    columns = ("layer", "head", "part", "norm", "gradient_input")
    return Drawn(f"contributions-{_stack(kind)}", panels, columns, rows)


def _points(parts: Sequence[Span], values: Sequence[float], all_parts: Sequence[Span]) -> list[tuple[float, float]]:
    """Values at the places of their parts among all; no line leads from offsets to a context of many positions."""
    points: list[tuple[float, float]] = []
    for part, value in sorted(zip(parts, values, strict=True), key=lambda pair: _place(pair[0])):
        place = all_parts.index(part)
        points += [(place - 0.5, float("nan"))] if part.first is None else []
        points.append((place, value))
    return points


def _place(part: Span) -> tuple[bool, int, int, str]:
    """From left to right, contexts of many positions last."""
    return part.first is None, part.first or 0, part.last or 0, part.name


def layers(totals: LayerTotals) -> list[Drawn]:
    """What a tagger reads of its encoder's layers, and how evenly each looks over the sentence."""
    evenness = totals.evenness()
    numbers = range(1, len(evenness.layers) + 1)
    deviations = {"self-attention of the layer": list(zip(numbers, evenness.layers, strict=True))}
    rows: list[tuple[Any, ...]] = [(layer, value) for layer, value in zip(numbers, evenness.layers, strict=True)]
    if evenness.mixed is not None:
        deviations["layers as they are weighted"] = [(numbers[0], evenness.mixed), (numbers[-1], evenness.mixed)]
        rows.append(("as weighted", evenness.mixed))
    title = "standard deviation of self-attention weights around a word's mean"
    panel = Panel(title=title, x="layer", y="standard deviation", lines=deviations, limits=(0, None))
    drawn = [Drawn("self-attention-deviation", [panel], ("layer", "deviation"), rows, layers=False)]
    if (weights := totals.weights()) is None:
        return drawn
    heads = {f"head {head}": mean for head, mean in enumerate(weights.mean, start=1)}
    panel = Panel(
        title="attention to layers: mean and standard deviation over words", x="layer", y="weight", limits=(0, None),
        lines={name: list(zip(numbers, mean.tolist(), strict=True)) for name, mean in heads.items()},
        bars={name: spread.tolist() for name, spread in zip(heads, weights.deviation, strict=True)},
    )  # fmt: skip
    cells = [
        (head + 1, layer + 1, float(weights.mean[head, layer]), float(weights.deviation[head, layer]))
        for head, layer in np.ndindex(weights.mean.shape)
    ]
    return [Drawn("layer-weights", [panel], ("head", "layer", "mean", "deviation"), cells, layers=False), *drawn]


def quality(totals: LengthTotals) -> Drawn:
    """The score by the length of the source (Bahdanau et al. 2015, figure 2)."""
    found = scores_of_totals({"model": totals})
    scores = found.scores["model"]
    panel = Panel(
        title=f"{found.metric} by length of the source", x=f"source length in {found.unit}", y=found.metric,
        lines={"": list(zip(found.centres, scores, strict=True))},
    )  # fmt: skip
    rows = [
        (low, high, count, centre, score)
        for (low, high), count, centre, score in zip(found.ranges, found.counts, found.centres, scores, strict=True)
    ]
    columns = ("shortest", "longest", "segments", "mean_length", found.metric)
    return Drawn("quality-by-length", [panel], columns, rows, layers=False)
