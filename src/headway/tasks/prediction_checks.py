"""Checks before training that what will be trained can predict with the recipe's own settings."""

import numpy as np
from numpy.typing import NDArray

from headway.errors import UserError
from headway.log import warn
from headway.models import Seq2Seq
from headway.predictors.captured_attention import alignment_layer
from headway.processing import VOCABULARIES
from headway.processing.text.vocabulary import WordVocabulary
from headway.recipe import Recipe
from headway.tensors.batch import UNKNOWN, collate


def check_predictions(recipe: Recipe, model: Seq2Seq) -> None:
    """Raise UserError where the model may refuse to read, or to write, what the recipe says; dev would find it late."""
    most = model.longest_pair(recipe.data.max_length)
    if most < recipe.data.max_length:
        raise UserError(
            "sentences may be longer than what the model reads",
            where="data.max_length",
            received=recipe.data.max_length,
            allowed=f"up to {most}, or a higher model.max_position",
        )
    check_shortest_output(recipe, model.longest_target(recipe.data.max_length))
    if recipe.decoding.unknown_words == "copy" and recipe.training.from_ is None:
        _check_copying(recipe, model)


def check_shortest_output(recipe: Recipe, room: int | None) -> None:
    """Raise UserError where `decoding.min_length` is more than what the model writes beside the longest source."""
    if room is not None and recipe.decoding.min_length > room:
        raise UserError(
            "the shortest output is longer than what the model writes beside the longest source",
            where="decoding.min_length",
            received=recipe.decoding.min_length,
            allowed=f"up to {room}, or a higher model.max_position",
        )


def warn_of_cut_sources(name: str, lengths: NDArray[np.integer], model: Seq2Seq, unit: str) -> None:
    """Say how many sources of a corpus, of `lengths` (N,), are longer than what the model reads when it decodes."""
    longest = model.longest_source()
    if count := int((lengths > longest).sum()):
        sources = f"{count:,} of {len(lengths):,} sources are longer than the model reads"
        warn(f"{name}: {sources}; decoding reads their first {longest:,} {unit} (model.max_position)")


def _check_copying(recipe: Recipe, model: Seq2Seq) -> None:
    """Raise UserError where unknown tokens of the target are no words, or nothing says which word to copy."""
    target = recipe.vocabulary.target or recipe.vocabulary
    if not issubclass(VOCABULARIES.get(target.kind, "vocabulary.kind"), WordVocabulary):
        raise UserError(
            "unknown tokens of this vocabulary are parts of words, which nothing can be copied for",
            where="decoding.unknown_words",
            received=f"copy, and vocabulary.kind {target.kind}",
            allowed="keep, or a target of kind word or whitespace",
        )
    sentence = collate([model.trial_source(1)], [np.array([UNKNOWN])]).to("meta")
    if alignment_layer(list(model(sentence, capture=("*",)).attention)) is None:
        raise UserError(
            "this model has no attention to the source, which says what to copy",
            where="decoding.unknown_words",
            received="copy",
            allowed="keep",
        )
