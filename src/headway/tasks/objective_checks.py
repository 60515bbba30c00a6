"""Checks before training that the model has the attention that the objective reads, in the heads that are meant."""

import numpy as np

from headway.log import warn
from headway.losses import Objective
from headway.losses.dependency_loss import STACKS
from headway.models import Seq2Seq
from headway.models.transformer import TransformerConfig
from headway.recipe import Recipe
from headway.tensors.batch import collate


def check_objective(recipe: Recipe, model: Seq2Seq) -> None:
    """Find out, on a sentence of one token, whether the model has the attention that the objective reads.

    Heads that are taught dependencies, while it is others that have scores for these, are told.

    Raises:
        UserError: attention or heads that the model has not.
    """
    objective = Objective(recipe.objective)
    if objective.capture:
        sentence = collate([model.trial_source(1)], [np.array([4])]).to("meta")
        objective.check(model(sentence, capture=("*", *objective.capture)).attention, model.attention_axes)
    _tell_plain_heads(recipe)


def _tell_plain_heads(recipe: Recipe) -> None:
    """Warn of taught heads with the scores Q K^T, in a model that has others with Q U K^T (`mixer: dependency`)."""
    taught, model = recipe.objective.dependency, recipe.model
    if taught is None or not isinstance(model, TransformerConfig):
        return
    mixers = {"encoder": model.encoder.mixers(), "decoder": model.decoder.mixers()}
    if all(mixer["kind"] != "dependency" for stack in mixers.values() for mixer in stack):
        return  # plain attention is taught, and meant to be
    for stack in (STACKS[side] for side in taught.sides):
        mixer = mixers[stack][taught.layer - 1]
        biaffine = mixer.get("dependency_heads", 1) if mixer["kind"] == "dependency" else 0
        if plain := [str(head) for head in taught.heads if head > biaffine]:
            warn(
                f"objective.dependency teaches head {', '.join(plain)} of layer {taught.layer} of model.{stack}, whose"
                " scores are those of plain attention; `mixer: dependency` has its own in the first `dependency_heads`"
            )
