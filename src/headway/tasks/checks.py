"""Checks before training: whether the model has the attention for the objective, and can predict with the recipe."""

import numpy as np
import torch
from numpy.typing import NDArray

from headway.core.errors import UserError
from headway.core.log import warn
from headway.losses import Objective
from headway.losses.dependency_loss import STACKS
from headway.models import ModelConfig, Seq2Seq, build_model
from headway.models.block import Block
from headway.models.transformer import TransformerConfig
from headway.predictors.unknown_words import copying_layer
from headway.processing import VOCABULARIES
from headway.recipe import Recipe
from headway.tensors.batch import UNKNOWN, collate


def meta_model(recipe: Recipe, source: int = 8) -> Seq2Seq:
    """The recipe's model on the meta device, for checks of its limits. Vocabulary sizes are arbitrary."""
    config = recipe.model_as(ModelConfig).model_copy(update={"match_parameters": None})  # matching needs vocabularies
    with torch.device("meta"):
        return build_model(config, source, 8, recipe.vocabulary.shared)


def _check_shares(model: Seq2Seq, name: str, where: str) -> None:
    """Raise UserError if the attention `name` has signed weights, which a constraint on it would clamp to zero."""
    side, layer, kind = name.split(".")
    blocks = [module for module in getattr(model, side, ()) if isinstance(module, Block)] if kind == "self" else []
    mixer = blocks[int(layer) - 1].mixer if int(layer) <= len(blocks) else None
    if mixer is not None and not mixer.weights_sum_to_one:
        what = f"the weights of {name} are signed, and no shares that a constraint can teach"
        raise UserError(what, where=where, received=type(mixer).__name__, allowed="a layer of attention")


def check_objective(recipe: Recipe, model: Seq2Seq) -> None:
    """Check, with a sentence of one token, that the model has the attention that the objective uses.

    Warns if dependencies are taught to heads with the scores Q K^T, while others have Q U K^T for this purpose (`mixer:
    dependency`).

    Raises:
        UserError: the model lacks an attention or a head, or its weights are signed.
    """
    objective = Objective(recipe.objective)
    for key in ("dependency", "synchronous"):
        for name in objective.parts[key].attention if key in objective.parts else ():
            _check_shares(model, name, f"objective.{key}")
    if objective.capture:
        sentence = collate([model.trial_source(1)], [np.array([4])]).to("meta")
        objective.check(model(sentence, capture=("*", *objective.capture)).attention, model.attention_axes)
    taught, config = recipe.objective.dependency, recipe.model
    if taught is None or not isinstance(config, TransformerConfig):
        return
    mixers = {"encoder": config.encoder.mixers(), "decoder": config.decoder.mixers()}
    if all(mixer["kind"] != "dependency" for stack in mixers.values() for mixer in stack):
        return  # plain attention is taught on purpose
    for stack in (STACKS[side] for side in taught.sides):
        mixer = mixers[stack][taught.layer - 1]
        biaffine = mixer.get("dependency_heads", 1) if mixer["kind"] == "dependency" else 0
        if plain := [str(head) for head in taught.heads if head > biaffine]:
            warn(
                f"objective.dependency teaches head {', '.join(plain)} of layer {taught.layer} of model.{stack}, whose"
                " scores are those of plain attention; `mixer: dependency` has its own in the first `dependency_heads`"
            )


def check_predictions(recipe: Recipe, model: Seq2Seq) -> None:
    """Raise UserError if the model cannot read or write sentences that the recipe allows, before decoding dev fails."""
    longest = recipe.data.max_length
    if (most := model.longest_pair(longest)) < longest:
        what = "sentences may be longer than what the model reads"
        allowed = f"up to {most}, or a higher model.max_position"
        raise UserError(what, where="data.max_length", received=longest, allowed=allowed)
    check_shortest_output(recipe, model.longest_target(longest))
    if recipe.decoding.unknown_words == "copy" and recipe.training.from_ is None:
        kind = (recipe.vocabulary.target or recipe.vocabulary).kind
        sentence = collate([model.trial_source(1)], [np.array([UNKNOWN])]).to("meta")
        names = list(model(sentence, capture=("*",)).attention)
        vocabulary, received = VOCABULARIES.get(kind, "vocabulary.kind"), f"copy, and vocabulary.kind {kind}"
        copying_layer(names, vocabulary, "decoding.unknown_words", received)


def check_shortest_output(recipe: Recipe, room: int | None) -> None:
    """Raise UserError if `decoding.min_length` exceeds `room`, the longest output for the longest source."""
    if room is not None and (least := recipe.decoding.min_length) > room:
        what = "the shortest output is longer than what the model writes beside the longest source"
        allowed = f"up to {room}, or a higher model.max_position"
        raise UserError(what, where="decoding.min_length", received=least, allowed=allowed)


def warn_of_cut_sources(name: str, lengths: NDArray[np.integer], model: Seq2Seq, unit: str) -> None:
    """Warn about the sources of a corpus that decoding truncates. `lengths` (N,) are the lengths of the sources."""
    longest = model.longest_source()
    if count := int((lengths > longest).sum()):
        sources = f"{count:,} of {len(lengths):,} sources are longer than the model reads"
        warn(f"{name}: {sources}; decoding reads their first {longest:,} {unit} (model.max_position)")
