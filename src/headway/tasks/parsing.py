"""Constituency parsing: sentences into linear trees (Vinyals et al. 2015; Vaswani et al. 2017, section 6.3)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from headway.errors import UserError, option
from headway.formats.corpus_config import parts
from headway.formats.corpus_format import TREES
from headway.formats.penn import parse_tree
from headway.predictors.run import Run
from headway.predictors.sequence_predictor import SequencePredictor, TreePredictor
from headway.recipe import Recipe
from headway.tasks.task import Example, RawCorpus
from headway.tasks.translation import Translation
from headway.trees.tree import draw


class Parsing(Translation):
    """A sentence is translated into the linear form of its tree, of which a tree over exactly its words is made."""

    name = "parsing"
    metrics = ({"name": "bracket-f1"}, {"name": "tagging-accuracy"}, {"name": "well-formed"})
    writes = "trees"
    product = TREES

    def predictor(self, runs: Sequence[Run], device: torch.device) -> TreePredictor:
        return TreePredictor(runs, device)

    def check(self, recipe: Recipe) -> None:
        super().check(recipe)
        (_, first), *others = parts(recipe.data.train, "data.train")
        for where, other in [*others, *(parts(recipe.data.dev, "data.dev") if recipe.data.dev else ())]:
            for key in ("leaves", "functions"):
                received, allowed = getattr(other, key, None), getattr(first, key, None)
                if received != allowed:
                    raise UserError(
                        "the trees of dev are read as those of train", where=f"{where}.{key}", received=received,
                        allowed=str(allowed),
                    )  # fmt: skip

    def raw_corpus(self, recipe: Recipe, sources: Sequence[Path] = (), reference: Path | None = None) -> RawCorpus:
        if reference is not None:
            allowed = f"{option('input')} FILE of sentences alone, or neither for the trees of dev"
            what = "a parser is read with its own outputs or with trees"
            raise UserError(what, where=option("reference"), allowed=allowed)
        return super().raw_corpus(recipe, sources)

    def examples(self, predictor: SequencePredictor, count: int) -> list[Example]:
        drawn = []
        for example in super().examples(predictor, count):
            texts = {"the model's tree": example.hypothesis, "the reference": example.reference}
            drawings = {name: draw(parse_tree(text)) for name, text in texts.items() if text}
            drawn.append(replace(example, drawings=drawings))
        return drawn
