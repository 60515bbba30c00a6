"""`headway inspect --dependencies`: attachment scores, agreement of both sides, and figures, for a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from headway.device import pick_device
from headway.errors import UserError
from headway.formats.lines import read_lines
from headway.formats.pairs import open_source
from headway.models import Seq2Seq
from headway.parses.parsers import Parser, load_parser, read_conllu
from headway.parses.parses_config import ParserConfig
from headway.predictors.captured_attention import END
from headway.processing.text.text_processor import TextProcessor
from headway.recipe import Recipe, apply_override, dump_recipe, parse_recipe
from headway.runs.inspect.dependency_analysis import Analysis, Reader, report_text
from headway.runs.inspect.dependency_figures import dependency_figure, synchronous_figure
from headway.runs.load import load_run


@dataclass(frozen=True)
class Request:
    """What is to be measured.

    Args:
        overrides: changes to the run's recipe, such as another parser or gold parses.
        source: sentences instead of the recipe's dev: text, or a CoNLL-U file, whose sentences are read.
        target: their targets; without them only the encoder is read.
        figures: a folder for figures of the first `sentences` sentences.
    """

    overrides: Sequence[str] = ()
    source: Path | None = None
    target: Path | None = None
    figures: Path | None = None
    sentences: int = 3


def inspect_dependencies(run: Path, request: Request, *, device: str = "auto", as_json: bool = False) -> str:
    """Measure a run, draw what is asked for, and give the report.

    Raises:
        UserError: no run, no sentences, no parser, or a parser that cannot be loaded.
    """
    loaded = load_run(run, pick_device(device))
    text, other, model = loaded.source, loaded.target, loaded.model
    if not (isinstance(text, TextProcessor) and isinstance(other, TextProcessor) and isinstance(model, Seq2Seq)):
        raise UserError("dependency heads are of words, and this model reads none", where=str(run))
    recipe = _changed(loaded.recipe, request.overrides)
    sources, targets = _sentences(recipe, request)
    parses = recipe.data.parses
    source, target = _parser(parses.source, "source"), _parser(parses.target, "target") if targets else None
    reader = Reader(model, (text, other), recipe.objective, pick_device(device))
    analysis = reader.read(sources, targets, (source, target))
    if not (analysis.source or analysis.target or analysis.pairs):
        raise UserError("there is nothing to measure: no parser and no synchronous constraint", where="data.parses")
    if request.figures is not None:
        _draw(analysis, request.figures, request.sentences, reader, sources, targets)
    scores, agreement = analysis.scores(), analysis.agreement()
    if not as_json:
        return report_text(scores.items(), agreement)
    content = {name: score.to_json() for name, score in scores.items()}
    return json.dumps(content | ({"agreement": agreement.to_json()} if agreement else {}), indent=1)


def _changed(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    tree = yaml.safe_load(dump_recipe(recipe))
    for override in overrides:
        apply_override(tree, override)
    return parse_recipe(tree)


def _parser(config: ParserConfig | None, side: str) -> Parser | None:
    return None if config is None else load_parser(config, f"data.parses.{side}")


def _sentences(recipe: Recipe, request: Request) -> tuple[list[str], list[str] | None]:
    if request.source is not None:
        sources, targets = _lines(request.source), _lines(request.target) if request.target else None
        if targets is not None and len(sources) != len(targets):
            received = f"{len(sources)} sources and {len(targets)} targets"
            raise UserError("each source needs one target", where="--target", received=received)
        return sources, targets
    if recipe.data.dev is None:
        raise UserError("the recipe has no dev to measure on", where="data.dev", allowed="--source FILE --target FILE")
    pairs = list(open_source(recipe.data.dev, "data.dev"))
    return [pair.source for pair in pairs], [pair.target for pair in pairs]


def _lines(path: Path) -> list[str]:
    return [text for text, _ in read_conllu(path)] if path.suffix == ".conllu" else list(read_lines(path))


def _draw(
    analysis: Analysis, folder: Path, count: int, reader: Reader, sources: Sequence[str], targets: Sequence[str] | None
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("source", "target"):
        for number, sentence in enumerate(getattr(analysis, name)[:count], start=1):
            dependency_figure(sentence, folder / f"dependencies-{name}-{number}.png", causal=name == "target")
    lines = [(s, t) for s, t in zip(sources, targets or (), strict=False) if s.strip() and t.strip()]
    for number, (pair, texts) in enumerate(zip(analysis.pairs[:count], lines, strict=False), start=1):
        pieces = [[*(piece.text for piece in side.pieces(t)), END] for side, t in zip(reader.sides, texts, strict=True)]
        synchronous_figure(pair, pieces[0], pieces[1], folder / f"synchronous-{number}.png")
