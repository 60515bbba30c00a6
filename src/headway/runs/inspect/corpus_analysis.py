"""`headway inspect RUN --figures`: what a model attends to over a whole corpus, in constant memory.

A corpus is read chunk by chunk; of each sentence's arrays only sums are kept (see `totals`), so that what is in memory
does not depend on how many sentences there are.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headway.errors import UserError
from headway.log import progress
from headway.metrics import build_metric
from headway.recipe import Recipe
from headway.runs.inspect.contributions import Contributions, contributions, mixers_of
from headway.runs.inspect.corpus_figures import write_figures
from headway.runs.inspect.layer_report import LayerTotals
from headway.runs.inspect.length_quality import LengthTotals
from headway.runs.inspect.totals import SPAN, Entropies, PartTotals, RelativePositions, within
from headway.tasks import task_of
from headway.tasks.task import Reading, Task

LAYERS = "layers"  # attention to layers; all other names are of self- or cross-attention


@dataclass(frozen=True)
class Request:
    """What is to be read, and how.

    Args:
        source: the corpus; the recipe's dev by default.
        reference: its targets; without them the model reads its own outputs.
        within: n; which share of the weight stays within an n-gram of that n.
        quality: decode, where references are known, and score by the length of the source.
    """

    source: Path | None = None
    reference: Path | None = None
    within: int = 5
    quality: bool = True


@dataclass
class CorpusTotals:
    """All sums over a corpus; what a model does not have stays empty.

    Attributes:
        relative: by name, self-attention alone.
        entropies: by name.
        parts: by name of what would be attention, for layers that sum parts up.
        layers: of a model that attends to layers, or reads words.
        lengths: quality by length, where it is asked for and outputs are known.
        examples: how many there were.
        read: in how many of them there was something to read.
        without: layers that give neither weights nor parts.
    """

    lengths: LengthTotals
    relative: dict[str, RelativePositions] = field(default_factory=dict)
    entropies: dict[str, Entropies] = field(default_factory=dict)
    parts: dict[str, PartTotals] = field(default_factory=dict)
    layers: LayerTotals = field(default_factory=LayerTotals)
    examples: int = 0
    read: int = 0
    without: list[str] = field(default_factory=list)

    def add(self, reading: Reading) -> None:
        """Count one example."""
        self.read += 1
        for name, weights in reading.attention.items():
            if name == LAYERS:
                continue
            self.entropies.setdefault(name, Entropies(len(weights))).add(weights)
            if name.endswith(".self"):
                self.relative.setdefault(name, RelativePositions(len(weights))).add(weights)
        if reading.words is not None:
            own = [weights for name, weights in reading.attention.items() if name.endswith(".self")]
            layers = reading.attention.get(LAYERS)
            self.layers.add(np.stack(own), reading.words, None if layers is None else layers.transpose(1, 0, 2))
        if reading.hypothesis is not None and reading.references:
            self.lengths.add([reading.hypothesis], [[each] for each in reading.references], [reading.source])

    def add_contributions(self, found: Mapping[str, Contributions]) -> None:
        """Count the parts of one example."""
        for name, each in found.items():
            self.parts.setdefault(name, PartTotals(len(each.norm), each.parts)).add(each)


def read_corpus(task: Task, predictor: Any, request: Request, totals: CorpusTotals) -> None:
    """Read a corpus into `totals`, with a live line of how fast and how long still.

    Raises:
        UserError: files that are missing or at fault, or nothing to read.
    """
    readings = task.readings(predictor, request.source, request.reference, hypotheses=request.quality)
    with progress("reading", readings.examples, "sentences") as line:
        for chunk in readings.chunks:
            first = not totals.examples
            totals.examples += chunk.examples
            for reading in chunk.readings:
                totals.add(reading)
            pairs = [(reading.source, reading.target) for reading in chunk.readings if reading.target is not None]
            if pairs and (first or totals.parts):
                for found in contributions(predictor, *zip(*pairs, strict=True)):
                    totals.add_contributions(found)
            if pairs and first:
                known = totals.relative.keys() | totals.parts.keys()
                totals.without = [name for name in mixers_of(predictor.models[0]) if name not in known]
            line.update(totals.examples)
    if not totals.read:
        raise UserError("there is nothing to read: every line is empty or too long", where="--input")


def inspect_corpus(run: Path, folder: Path, request: Request, *, device: str = "auto", as_json: bool = False) -> str:
    """Read a corpus with a run's model, write figures and their numbers into `folder`, and give the report.

    Raises:
        UserError: no run, files that are missing or at fault, nothing to read or to draw.
    """
    if not 1 <= request.within <= SPAN + 1:
        raise UserError("no such window", where="--within", received=request.within, allowed=f"1 to {SPAN + 1}")
    task = task_of([run])
    predictor = task.load([run], device, None)
    metric = build_metric(**_metric(task, predictor.recipe))
    totals = CorpusTotals(LengthTotals(metric))
    read_corpus(task, predictor, request, totals)
    folder.mkdir(parents=True, exist_ok=True)
    files = write_figures(totals, folder, request.within)
    if as_json:
        return json.dumps(summary(totals, request.within) | {"files": [str(path) for path in files]}, indent=1)
    drawn = sorted({path.stem for path in files})
    return "\n".join([report(totals, request), f"in {folder}, each as PNG, SVG and CSV: {', '.join(drawn)}"])


def _metric(task: Task, recipe: Recipe) -> dict[str, Any]:
    """The first metric that dev is scored by."""
    return dict((recipe.training.dev_metrics or task.metrics)[0])


def summary(totals: CorpusTotals, n: int) -> dict[str, Any]:
    """The main numbers, as JSON can hold them; shares and entropies are means over heads, and then head by head."""
    attention: dict[str, dict[str, Any]] = {}
    for name, entropy in totals.entropies.items():
        bits = entropy.mean()
        attention[name] = {
            "entropy": float(bits.mean()), "entropy_by_head": bits.tolist(), "even_entropy": entropy.even_mean()
        }  # fmt: skip
    for name, relative in totals.relative.items():
        inside, even = within(relative.shares(), n), float(within(relative.even_shares(), n))
        attention[name] |= {"within": float(inside.mean()), "within_by_head": inside.tolist(), "even_within": even}
    norms = {name: dict(zip([part.name for part in each.parts], each.means()[0].mean(0).tolist(), strict=True))
             for name, each in totals.parts.items()}  # fmt: skip
    counts = {"sentences": totals.examples, "read": totals.read, "window": n}
    return counts | {"attention": attention, "norms": norms}


def report(totals: CorpusTotals, request: Request) -> str:
    """The same, to be read: a line for each attention, and what the model does not have."""
    lines = [f"{totals.read:,} of {totals.examples:,} sentences read"]
    found = summary(totals, request.within)
    if totals.entropies:
        lines.append(f"{'':<17}{f'within n = {request.within}':>14}{'evenly':>9}{'entropy (bits)':>17}{'evenly':>9}")
    for name, each in found["attention"].items():
        shares = f"{100 * each['within']:>12.1f} %{100 * each['even_within']:>7.1f} %" if "within" in each else " " * 23
        lines.append(f"{name:<17}{shares}{each['entropy']:>17.2f}{each['even_entropy']:>9.2f}")
    if totals.relative:
        lines.append("evenly: what it would be if all that a token may see had the same weight")
    for name, parts in totals.parts.items():
        norm, gradient = (means.mean(0) for means in parts.means())
        largest = ", ".join(f"{parts.parts[place].name} ({norm[place]:.2f})" for place in np.argsort(-norm)[:3])
        counts = parts.parts[int(gradient.argmax())].name
        lines.append(f"{name}: no weights; largest shares: {largest}; by gradient x input most counts {counts}")
    return "\n".join([*lines, *_missing(totals, request)])


def _missing(totals: CorpusTotals, request: Request) -> Sequence[str]:
    lines = []
    if totals.without:
        lines.append(f"{', '.join(totals.without)}: no weights and no parts, so that there is nothing to draw")
    if not (totals.relative or totals.parts or totals.without):
        lines.append("this model has no self-attention and no n-grams: nothing by relative position")
    if not totals.entropies:
        lines.append("this model has no attention: no entropy")
    if request.quality and not totals.lengths.counts:
        lines.append("no references: no quality by length")
    return lines
