"""Constituency parsing: sentences into linear trees (Vinyals et al. 2015; Vaswani et al. 2017, section 6.3)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from headway.errors import UserError, option
from headway.formats.penn import parse_tree
from headway.predictors.run import Run
from headway.predictors.sequence_predictor import SequencePredictor, TreePredictor
from headway.recipe import Recipe
from headway.tasks.task import Example, Readings
from headway.tasks.translation import Translation
from headway.trees.drawing import draw


class Parsing(Translation):
    """A sentence is translated into the linear form of its tree, of which a tree over exactly its words is made."""

    name = "parsing"
    metrics = ({"name": "bracket-f1"}, {"name": "tagging-accuracy"}, {"name": "well-formed"})
    origins = ("trees",)

    def predictor(self, runs: Sequence[Run], device: torch.device) -> TreePredictor:
        return TreePredictor(runs, device)

    def check(self, recipe: Recipe) -> None:
        super().check(recipe)
        train, dev = recipe.data.train, recipe.data.dev
        for key in ("leaves", "functions"):
            if dev is not None and getattr(dev, key) != getattr(train, key):
                raise UserError(
                    "the trees of dev are read as those of train", where=f"data.dev.{key}",
                    received=getattr(dev, key), allowed=str(getattr(train, key)),
                )  # fmt: skip

    def readings(
        self, predictor: SequencePredictor, source: Path | None, reference: Path | None, *, hypotheses: bool = True
    ) -> Readings:
        if reference is not None:
            allowed = f"{option('input')} FILE of sentences alone, or neither for the trees of dev"
            what = "a parser is read with its own outputs or with trees"
            raise UserError(what, where=option("reference"), allowed=allowed)
        return super().readings(predictor, source, None, hypotheses=hypotheses)

    def examples(self, predictor: SequencePredictor, count: int) -> list[Example]:
        return [_drawn(example) for example in super().examples(predictor, count)]


def _drawn(example: Example) -> Example:
    texts = {"the model's tree": example.hypothesis, "the reference": example.reference}
    return replace(example, drawings={name: draw(parse_tree(text)) for name, text in texts.items() if text})
