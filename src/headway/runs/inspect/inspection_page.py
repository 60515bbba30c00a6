"""`headway inspect --output`: one page with all there is to see of how a run treats sentences.

Every sentence is data of its own in the page, read when it is shown. Values are kept as integers on a scale of square
roots, which is finest where weights are small: 16 bits each while there are few, 8 where there are many.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.errors import UserError
from headway.formats.alignments import read_alignments
from headway.formats.lines import read_lines
from headway.log import Progress, progress, say
from headway.metrics import build_metric
from headway.runs.inspect.inspection import CHUNK, Alignment, Floats, Inspected, Layer, Map, Request, inspect
from headway.runs.inspect.pages import pack_integers, write_page
from headway.runs.run_folder import RunFolder
from headway.tasks import build_task

STYLES = ("palette.css", "inspect.css")
SCRIPTS = (
    "elements.js", "weights.js", "heatmap.js", "overview.js", "sentence.js", "arcs.js", "inspect.js",
)  # fmt: skip
SENTENCES = 100  # shown unless the command line says otherwise
MOST_EXACT = 8_000_000  # values that are kept with 16 bits


def inspect_to_page(
    run: Path,
    output: Path,
    *,
    inputs: Sequence[Path] = (),
    texts: Sequence[str] = (),
    reference: Path | None = None,
    gold: Path | None = None,
    sentences: int | None = None,
    nbest: int = 4,
    device: str = "auto",
) -> str:
    """Write the page of a run to `output`, and say what is in it.

    Args:
        run: the run folder.
        output: the page.
        inputs: files of sentences, as the task has them.
        texts: sentences, shown before those of files; without either the first of dev are shown, with their references.
        reference: a file with what they should become, a line each.
        gold: alignments of sentences and references, in any format that AER reads.
        sentences: how many are shown at most, by default `SENTENCES`.
        nbest: outputs of each.
        device: `auto`, `cpu`, ...

    Raises:
        UserError: no run, no sentences, files of different lengths, gold without references.
    """
    folder = RunFolder(run)
    recipe = folder.read_recipe()
    task = build_task(recipe.task)
    if not output.parent.is_dir():
        raise UserError("there is no such folder", where="--output", received=str(output.parent))
    pairs = [(text, None) for text in texts] + (task.pairs(recipe, inputs) if inputs or not texts else [])
    if not pairs:
        allowed = "--input FILE or --text TEXT"
        raise UserError("there are no sentences to look at, and the run has no dev", where=str(run), allowed=allowed)
    request = _request(pairs, reference, gold, nbest, sentences or SENTENCES)
    predictor = task.load([run], device, None)
    with progress("looking inside", total=len(request.lines), unit="sentences") as bar:
        shown = _counted(inspect(predictor, request), bar)
        packed = pack_sentences(shown, len(request.lines))
    rate = packed.error_rate()
    write_inspection(output, title=f"Inside {run.resolve().name}", facts=_facts(folder, packed, rate), packed=packed)
    size = output.stat().st_size / 1e6
    return f"{output}: {len(packed.index)} sentences, {size:.1f} MB" + ("" if rate is None else f", AER {rate:.1f}")


def _counted(sentences: Iterable[Inspected], bar: Progress) -> Iterator[Inspected]:
    for number, sentence in enumerate(sentences, start=1):
        yield sentence
        bar.update(number)


def _request(
    pairs: Sequence[tuple[str, str | None]], reference: Path | None, gold: Path | None, nbest: int, most: int
) -> Request:
    """The first `most` sentences. Raises UserError where there is not a reference, or a gold alignment, for each."""
    references = [target for _, target in pairs] if reference is None else list(read_lines(reference))
    links = [] if gold is None else read_alignments(gold)
    if links and None in references:
        raise UserError("gold alignments are of references, which are not given", where="--gold", allowed="--reference")
    for option, given in (("--reference", references), ("--gold", links)):
        if given and len(given) != len(pairs):
            received = f"{len(given)} lines for {len(pairs)} sentences"
            raise UserError("there must be a line for each sentence", where=option, received=received)
    if len(pairs) > most:
        say(f"showing the first {most} of {len(pairs):,} sentences; --sentences shows more")
    return Request([source for source, _ in pairs[:most]], references[:most], links[:most], nbest)


@dataclass
class Packed:
    """Sentences as the page keeps them; their arrays are integers in text by now.

    Attributes:
        bits: of each value.
        index: what the list of sentences shows and sorts by.
        sentences: all else.
        links: the found and the gold alignments, as lines of links, of sentences that have both.
    """

    bits: int
    index: list[dict[str, Any]] = field(default_factory=list)
    sentences: list[dict[str, Any]] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)

    def add(self, sentence: Inspected) -> None:
        """Keep a sentence."""
        self.index.append(_entry(sentence))
        self.sentences.append(_sentence(sentence, self.bits))
        if sentence.alignment is not None and sentence.alignment.gold is not None:
            found = " ".join(f"{source}-{target}" for source, target in sentence.alignment.found)
            self.links.append((found, sentence.alignment.gold.pharaoh()))

    def error_rate(self) -> float | None:
        """AER over all sentences with gold; None where there is none."""
        if not self.links:
            return None
        found, gold = zip(*self.links, strict=True)
        return build_metric("aer").score(list(found), [list(gold)]).value


def pack_sentences(sentences: Iterable[Inspected], count: int) -> Packed:
    """Pack `count` sentences one by one, so that few arrays are in memory; the first decide on the bits of values."""
    rest = iter(sentences)
    first = list(islice(rest, CHUNK))
    values = sum(layer.values.size for each in first for map in _maps(each) for layer in map.layers)
    packed = Packed(16 if values * count <= MOST_EXACT * max(1, len(first)) else 8)
    for sentence in chain(first, rest):
        packed.add(sentence)
    return packed


def _facts(folder: RunFolder, packed: Packed, rate: float | None) -> list[str]:
    manifest, recipe, count = folder.read_manifest(), folder.read_recipe(), len(packed.index)
    facts = [recipe.task.replace("_", " "), f"{recipe.model.kind}, {manifest.get('parameters', 0):,} parameters"]
    facts += [f"{manifest.get('updates', 0):,} updates", f"{count} sentence{'s' * (count != 1)}"]
    return facts if rate is None else [*facts, f"AER {rate:.1f}"]


def write_inspection(path: Path, *, title: str, facts: Sequence[str], packed: Packed) -> None:
    """Write the page of these sentences whole.

    Args:
        path: the page.
        title: its title.
        facts: about the run, shown below the title.
        packed: what is shown.
    """
    index = {"title": title, "facts": list(facts), "bits": packed.bits, "sentences": packed.index}
    data = {"index": index} | {f"sentence-{number}": each for number, each in enumerate(packed.sentences)}
    write_page(path, "inspect.html", title=title, styles=STYLES, scripts=SCRIPTS, data=data)


def _maps(sentence: Inspected) -> Iterable[Map]:
    return [*sentence.maps, *([sentence.alignment.map] if sentence.alignment else [])]


def _entry(sentence: Inspected) -> dict[str, Any]:
    """What the list of sentences shows and sorts by."""
    probabilities = sentence.outputs[0].probabilities if sentence.outputs else [w.probability for w in sentence.words]
    certainty = math.exp(float(np.log(np.maximum(probabilities, 1e-45)).mean())) if probabilities else None
    return {
        "source": sentence.source,
        "length": len(sentence.tokens),
        "certainty": certainty,
        "errorRate": sentence.alignment.error_rate if sentence.alignment else None,
    }


class _Tokens:
    """Lists of tokens, each kept once: maps of the same axes name the same list."""

    def __init__(self) -> None:
        self.lists: list[list[str]] = []

    def number(self, tokens: Sequence[str]) -> int:
        """The number of a list of tokens."""
        given = list(tokens)
        if given not in self.lists:
            self.lists.append(given)
        return self.lists.index(given)


def _sentence(sentence: Inspected, bits: int) -> dict[str, Any]:
    tokens = _Tokens()
    maps = [_map(each, tokens, bits) for each in sentence.maps]
    return {
        "source": sentence.source,
        "sourceTokens": tokens.number(sentence.tokens),
        "reference": sentence.reference,
        "outputs": [
            {
                "text": each.text,
                "score": each.score,
                "tokens": tokens.number(each.tokens),
                "probabilities": [round(value, 4) for value in each.probabilities],
            }
            for each in sentence.outputs
        ],
        "words": [vars(each) for each in sentence.words],
        "maps": maps,
        "alignment": None if sentence.alignment is None else _alignment(sentence.alignment, tokens, bits),
        "arcs": [vars(each) for each in sentence.arcs],
        "tokens": tokens.lists,
    }


def _map(map: Map, tokens: _Tokens, bits: int) -> dict[str, Any]:
    layers = [_layer(each, tokens, bits, map.signed) for each in map.layers]
    return {"title": map.title, "measure": map.measure, "signed": map.signed, "layers": layers}


def _layer(layer: Layer, tokens: _Tokens, bits: int, signed: bool) -> dict[str, Any]:
    most = float(np.abs(layer.values).max(initial=0))
    return {
        "name": layer.name,
        "heads": len(layer.values),
        "rows": tokens.number(layer.rows),
        "columns": tokens.number(layer.columns),
        "most": most,
        "data": pack_integers(quantise(layer.values, most, bits, signed)),
    }


def quantise(values: Floats, most: float, bits: int, signed: bool) -> npt.NDArray[np.integer[Any]]:
    """Values as integers: the square root of their share of `most`, with the sign where there are signs.

    A value v comes back within sqrt(v * most) / (2^bits - 1), twice that with signs; 8 or 16 bits.
    """
    steps = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    roots = np.sign(values) * np.sqrt(np.abs(values) / (most or 1.0))
    kinds: dict[tuple[int, bool], type[np.integer[Any]]] = {
        (8, False): np.uint8,
        (16, False): np.uint16,
        (8, True): np.int8,
        (16, True): np.int16,
    }
    integers: npt.NDArray[np.integer[Any]] = np.rint(roots * steps).astype(kinds[bits, signed])
    return integers


def _alignment(alignment: Alignment, tokens: _Tokens, bits: int) -> dict[str, Any]:
    gold = alignment.gold
    return {
        "map": _map(alignment.map, tokens, bits),
        "target": alignment.target,
        "found": alignment.found,
        "sure": None if gold is None else sorted(gold.sure),
        "possible": None if gold is None else sorted(gold.possible - gold.sure),
        "errorRate": alignment.error_rate,
    }
