"""`headway inspect page`: one page with outputs, attention, alignments and the like of single sentences.

Every sentence is a piece of data in the page, read when it is shown. Values are kept as integers on a scale of square
roots, which is finest where weights are small: 16 bits each while there are few, 8 where there are many.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from headway.errors import UserError, option
from headway.files import check_apart
from headway.formats.alignments import read_alignments
from headway.formats.lines import read_lines
from headway.log import counted, progress, say
from headway.metrics import build_metric
from headway.predictors.output import Example
from headway.registry import foreign_code
from headway.runs.inspect.capture import TOGETHER
from headway.runs.inspect.inspect_options import PageOptions
from headway.runs.inspect.inspection import Inspected, Map, inspect
from headway.runs.inspect.pages import INSIDE, link_inside, packed_weights, write_page
from headway.runs.load import load, task_of
from headway.runs.packing import unpacked
from headway.runs.run_folder import RunFolder

STYLES = ("palette.css", "inspect.css", "heatmap.css")
SCRIPTS = (
    "elements.js", "charts.js", "save.js", "weights.js", "heatmap.js", "overview.js", "sentence.js", "arcs.js",
    "inspect.js",
)  # fmt: skip
MOST_EXACT = 8_000_000  # values that are kept with 16 bits


def run_page(run: Path, options: PageOptions) -> str:
    """Write the page of a run; the number of its sentences and its size, to be read.

    Raises:
        UserError: no run, no sentences, files of different lengths, gold without references.
    """
    if (folder := unpacked(run)) != run and options.output is None:
        what, allowed = "the page of a pack needs a place", f"{option('output')} FILE"
        raise UserError(what, where=option("output"), received=str(run), allowed=allowed)
    with foreign_code(options.allow_code):
        return _run_page(folder, options)


def _run_page(run: Path, options: PageOptions) -> str:
    task = task_of([run])
    folder = RunFolder(run)
    recipe = folder.read_recipe()
    output = run / INSIDE if options.output is None else options.output
    check_apart(
        {"output": output}, [*(options.input or ()), *(path for path in (options.reference, options.gold) if path)]
    )
    if not output.parent.is_dir():
        raise UserError("there is no such folder", where=option("output"), received=str(output.parent))
    examples = [Example(text) for text in options.text]
    if options.input or not (options.text or recipe.data.dev is None):
        examples += task.given_test_set(recipe, options.input or ()).examples
    if not examples:
        allowed = f"{option('input')} FILE or {option('text')} TEXT"
        raise UserError("there are no sentences to look at, and the run has no dev", where=str(run), allowed=allowed)
    shown, gold = _with_references(examples, options)
    predictor = load(run, device=options.device, allow_code=options.allow_code)
    with progress("looking inside", total=len(shown), unit="sentences") as bar:
        inspected = bar.over(inspect(predictor, shown, gold, options.nbest))
        packed = pack_sentences(inspected, len(shown))
    rate = packed.error_rate()
    manifest, count = folder.read_manifest(), counted(len(packed.index), "sentence")
    facts = [recipe.task.replace("_", " "), f"{recipe.model.kind}, {manifest.get('parameters', 0):,} parameters"]
    facts += [f"{manifest.get('updates', 0):,} updates", count, *([] if rate is None else [f"AER {rate:.1f}"])]
    write_inspection(output, title=f"Inside {run.resolve().name}", facts=facts, packed=packed)
    if output.name == INSIDE:
        link_inside(output.with_name(folder.report.name))
    summary = f"{output}: {count}, {output.stat().st_size / 1e6:.1f} MB"
    return summary + ("" if rate is None else f", AER {rate:.1f}")


def _with_references(examples: Sequence[Example], options: PageOptions) -> tuple[list[Example], list[str]]:
    """The first examples, with the references of a file, and the gold alignments, where such are given.

    Raises:
        UserError: there is not a reference, or a gold alignment, for each.
    """
    references = [example.target for example in examples]
    if options.reference is not None:
        references = [*read_lines(options.reference)]
    gold = [] if options.gold is None else read_alignments(options.gold)
    if gold and None in references:
        what = "gold alignments are of references, which are not given"
        raise UserError(what, where=option("gold"), allowed=option("reference"))
    for name, given in (("reference", references), ("gold", gold)):
        if given and len(given) != len(examples):
            received = f"{len(given)} lines for {len(examples)} sentences"
            raise UserError("there must be a line for each sentence", where=option(name), received=received)
    most = options.sentences
    if len(examples) > most:
        say(f"showing the first {most} of {len(examples):,} sentences")
    pairs = zip(examples[:most], references[:most], strict=True)
    return [replace(example, target=target) for example, target in pairs], gold[:most]


@dataclass
class Packed:
    """Sentences as the page keeps them; their arrays are integers in text by now.

    Attributes:
        bits: of each value.
        index: the lines of the list of sentences, with all that they can be sorted by.
        sentences: all else.
        links: the alignments by the model and the gold ones, as lines of links, of sentences that have both.
    """

    bits: int
    index: list[dict[str, Any]] = field(default_factory=list)
    sentences: list[dict[str, Any]] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)

    def add(self, sentence: Inspected) -> None:
        """Keep a sentence."""
        alignment, outputs, lists = sentence.alignment, sentence.outputs, list[list[str]]()
        gold = None if alignment is None else alignment.gold
        probabilities = outputs[0].probabilities if outputs else [word.probability for word in sentence.words]
        entry = {
            "source": sentence.source,
            "length": len(sentence.tokens),
            "certainty": math.exp(np.log(np.maximum(probabilities, 1e-45)).mean()) if probabilities else None,
            "errorRate": alignment and alignment.error_rate,
        }
        self.index.append(entry)
        content = {
            "source": sentence.source,
            "sourceTokens": _index(lists, sentence.tokens),
            "reference": sentence.reference,
            "outputs": [
                {
                    "text": output.text,
                    "score": output.score,
                    "tokens": _index(lists, output.tokens),
                    "probabilities": [round(value, 4) for value in output.probabilities],
                }
                for output in outputs
            ],
            "words": [vars(word) for word in sentence.words],
            "maps": [_packed_map(map, lists, self.bits) for map in sentence.maps],
            "alignment": alignment
            and {
                "map": _packed_map(alignment.map, lists, self.bits),
                "target": alignment.target,
                "found": alignment.links,
                "sure": gold and sorted(gold.sure),
                "possible": gold and sorted(gold.possible - gold.sure),
                "errorRate": alignment.error_rate,
            },
            "arcs": [vars(arcs) for arcs in sentence.arcs],
            "tokens": lists,
        }
        self.sentences.append(content)
        if alignment is not None and gold is not None:
            links = " ".join(f"{source}-{target}" for source, target in alignment.links)
            self.links.append((links, gold.pharaoh()))

    def error_rate(self) -> float | None:
        """AER over all sentences with gold; None where there is none."""
        if not self.links:
            return None
        links, gold = zip(*self.links, strict=True)
        return build_metric("aer").score(list(links), [list(gold)]).value


def pack_sentences(sentences: Iterable[Inspected], count: int) -> Packed:
    """Pack `count` sentences one by one, so that few arrays are in memory; the first decide on the bits of values."""
    rest = iter(sentences)
    first = list(islice(rest, TOGETHER))
    maps = [map for sentence in first for map in sentence.maps]
    maps += [sentence.alignment.map for sentence in first if sentence.alignment]
    values = sum(layer.values.size for map in maps for layer in map.layers)
    packed = Packed(16 if values * count <= MOST_EXACT * max(1, len(first)) else 8)
    for sentence in chain(first, rest):
        packed.add(sentence)
    return packed


def write_inspection(path: Path, *, title: str, facts: Sequence[str], packed: Packed) -> None:
    """Write the page of these sentences whole, with facts about the run below its title."""
    report = RunFolder(path.parent).report
    listed = {"title": title, "facts": list(facts), "bits": packed.bits, "sentences": packed.index}
    listed["report"] = report.name if report.is_file() else None
    data = {"index": listed} | {f"sentence-{index}": content for index, content in enumerate(packed.sentences)}
    write_page(path, "inspect.html", title=title, styles=STYLES, scripts=SCRIPTS, data=data)


def packed_maps(maps: Iterable[Map], bits: int) -> dict[str, Any]:
    """Maps as pages keep them, with their tokens; `bits` of each value, 8 or 16."""
    lists: list[list[str]] = []
    return {"maps": [_packed_map(map, lists, bits) for map in maps], "tokens": lists}


def _packed_map(map: Map, lists: list[list[str]], bits: int) -> dict[str, Any]:
    layers = [
        {
            "name": layer.name,
            "title": layer.title,
            "rows": _index(lists, layer.rows),
            "columns": _index(lists, layer.columns),
        }
        | packed_weights(layer.values, bits, signed=map.signed)
        for layer in map.layers
    ]
    return {"title": map.title, "measure": map.measure, "signed": map.signed, "layers": layers}


def _index(lists: list[list[str]], tokens: Sequence[str]) -> int:
    """The index of a list of tokens, each kept once: maps of the same axes name the same list."""
    if (given := list(tokens)) not in lists:
        lists.append(given)
    return lists.index(given)
